"""The options of a command as a form and an address have them; a visitor names presets and never files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from optimizer.base.content import Values, content
from optimizer.base.errors import InputError
from optimizer.base.names import without_passwords
from optimizer.job.fields import FIELDS
from optimizer.job.job import DTYPES

LONGEST = 300  # characters of a value
FRESH = 5.0  # for which what was read of a store is shown again [s]
SORTS = ("MFU", "tokens per dollar", "tokens per joule", "step time", "GPUs")  # of a store's jobs
LIMITS = ("tokens", "deadline", "budget", "power", "racks", "term", "provider", "buy")  # that need no other plans
PRICES = ("rent", "purchase")  # of machines
WHERE, SORT = "where", "sort"
DOTTED = ("prices", "filters")  # kinds of fields of which there are several, by what stands behind the dot
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class StudyQuestion:
    """Options of a tab's command by name; `rent.NAME`, `purchase.NAME` are prices, `where.NAME` is what is shown."""

    tab: str
    options: tuple[Pair, ...]
    store: str = ""  # of `optimize batch`, which the server was given
    moment: int = 0  # of the question: a store grows

    @property
    def searched(self) -> StudyQuestion:
        """The question without what no plan depends on."""
        needed = ((name, value) for name, value in self.options if name.partition(".")[0] not in (*LIMITS, *PRICES))
        return replace(self, options=tuple(needed))

    @property
    def name(self) -> str:
        """The model."""
        return f"{self.tab}-{dict(self.options).get('model', '')}"

    @property
    def store_label(self) -> str:
        """The store as it may be shown.

        >>> StudyQuestion(tab="batch", options=(), store="postgresql://me:secret@host/db").store_label
        'postgresql://me:***@host/db'
        """
        return without_passwords(self.store)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options as the command line has them."""
        return tuple(word for name, value in self.options if name != SORT for word in _words(name, value))

    def flags(self) -> str:
        """The command that gives the same answer.

        >>> StudyQuestion(tab="buy", options=(("model", "gpt3"), ("buy", "yes"), ("rent.h100", "2"))).flags()
        'optimize pareto --model gpt3 --buy --rent h100=2'
        """
        store = ("--store", self.store_label) if self.store else ()
        return shlex.join(["optimize", *form_of(self.tab)["command"].split(), *store, *self.arguments])

    def address(self) -> str:
        """The question as the part of an address after "?"."""
        return urlencode(self.options)


def _words(name: str, value: str) -> Iterator[str]:
    kind, _, machine = name.partition(".")
    yield f"--{kind}"
    if machine:
        yield f"{machine}={value}"
    elif value != "yes":
        yield value


def form_of(tab: str) -> Values:
    """What forms.toml says of a tab."""
    form: Values = content("optimizer.page.studies", "forms.toml")[tab]
    return form


@cache
def names_of(option: str) -> tuple[str, ...]:
    """What may be chosen for an option of names."""
    from optimizer.catalog import cluster_names, device_names, model_names
    from optimizer.catalog.offers import RENTS, load_offers

    providers = sorted({offer.provider for offer in load_offers() if offer.term in RENTS and offer.provider})
    machines = (*device_names(), *cluster_names())
    return {
        **{"model": model_names(), "hardware": machines, "cluster": machines},
        **{"term": RENTS, "provider": tuple(providers), "dtype": DTYPES, SORT: SORTS},
    }[option]


def asked(tab: str, pairs: Sequence[Pair], store: str = "") -> StudyQuestion:
    """The question of an address or a form; without one, the question that the tab opens with.

    A store is read anew for what is asked FRESH seconds later.

    Raises InputError for a name that is not known, and for too long a value.

    >>> asked("fits", [("model", "llama3-8b"), ("gpus", ""), ("global-batch", "8")]).flags()
    'optimize fits --model llama3-8b --global-batch 8'
    """
    form = form_of(tab)["field"]
    pairs = pairs or [(each["name"], each["value"]) for each in form if "value" in each]
    options: list[Pair] = []
    for each in form:
        name, kind = each["name"], each["kind"]
        given = [(key, text.strip()) for key, text in pairs if key.partition(".")[0] == name and text.strip()]
        if kind == "several" and given:
            given = [(name, ",".join(dict.fromkeys(part for _, text in given for part in text.split(","))))]
        for key, text in given if kind in DOTTED else given[-1:]:
            if len(text) > LONGEST:
                raise InputError(f"{each['label']}: {len(text):,} characters, more than the {LONGEST} that are read")
            machine = key.partition(".")[2] if kind == "prices" else ""
            known = names_of("hardware" if machine else name) if kind in ("choice", "several") or machine else ()
            if unknown := [part for part in (machine or text).split(",") if known and part not in known]:
                raise InputError(f"unknown {name} {unknown[0]!r}; the list of the page has every one")
            options.append((key, text))
    chosen = dict(options).get("hardware", "").split(",")
    priced = [
        (key, text) for key, text in options if key.partition(".")[0] not in PRICES or key.partition(".")[2] in chosen
    ]
    moment = int(monotonic() / FRESH) if store else 0
    return StudyQuestion(tab=tab, options=tuple(priced), store=store, moment=moment)


def form_values(pairs: Sequence[Pair], question: StudyQuestion, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the form with their values."""
    form, given = form_of(question.tab), dict(question.options)
    dotted = [each for each in form["field"] if each["kind"] in DOTTED]
    return {
        "form": {
            **form,
            "dotted": dotted,
            "field": [_field(each, given) for each in form["field"] if each not in dotted],
        }
    }


def _field(each: Values, given: Mapping[str, str]) -> Values:
    name, value = each["name"], given.get(each["name"], "")
    shown = {"hint": "", **each, "value": value}
    if each["kind"] == "choice":
        usual = "" if "value" in each else each.get("usual") or FIELDS[name].default or FIELDS[name].otherwise
        return {**shown, "usual": usual, "groups": {"": [(each, each) for each in names_of(name) if each != usual]}}
    if each["kind"] == "several":
        taken = [each for each in value.split(",") if each]
        return {**shown, "taken": taken, "others": [each for each in names_of(name) if each not in taken]}
    return shown
