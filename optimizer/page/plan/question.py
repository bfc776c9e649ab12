"""What is asked on the Plan tab, and its address: a link holds the whole question."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from optimizer.base.errors import InputError, UnknownName
from optimizer.base.units import LARGEST, is_count, parse
from optimizer.commands.own_runs import with_table
from optimizer.commands.request import job_of, request_of
from optimizer.constraints.pin_text import Pinned, pin_texts, pinned, pins_of, pins_text
from optimizer.job.fields import CHOICE, FIELDS, FORMATS, GPUS, NAME, SHARE, WHOLE
from optimizer.job.job import DTYPES, Job
from optimizer.job.method import method_of, optimizer_of
from optimizer.job.stack import ROUTING
from optimizer.page.plan.own_files import FILE, KINDS, MOST_PACKED, RUNS, name_of, on_disk, packed, unpacked

MOST_MINE = 4  # plans that are compared with the best
LONGEST = 300  # characters of one value
FIRST_MODEL, FIRST_GPUS = "gpt3", 1024
TOKENS = 300e9  # of a run, unless another number is asked for; what GPT-3 was trained on (arXiv 2005.14165, table 2.1)
HOUR = 3600.0
NUMBER = "number"  # the kind of amounts that are no options
FILES = tuple(f"{kind}_file" for kind in KINDS)
PAGED = tuple(field for field in FIELDS.values() if field.label)  # the options that the page has


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """One question; "" and None leave a choice to `optimize`, as on the command line."""

    model: str = FIRST_MODEL
    gpus: int = FIRST_GPUS
    cluster: str = ""  # a cluster or a device
    stack: str = ""
    dtype: str = ""
    routing: str = ""
    train: str = ""
    base: str = ""
    optimizer: str = ""
    prefer: str = ""
    minimize: str = ""
    seq_len: int | None = None
    global_batch: int | None = None
    oom_risk: float | None = None
    tokens: float = TOKENS  # of the whole run
    price: float | None = None  # of a GPU [USD/h]
    fix: tuple[tuple[str, Pinned], ...] = ()  # pinned variables
    mine: tuple[str, ...] = ()  # plans to compare with the best, as pins
    model_file: str = ""  # the text of a file, where the model is FILE
    cluster_file: str = ""  # the same of the cluster
    runs: str = ""  # FILE for measured runs of the visitor's own
    runs_file: str = ""  # their table

    @property
    def pins(self) -> dict[str, Pinned]:
        """The pinned variables."""
        return dict(self.fix)

    def job(self) -> tuple[Job, tuple[str, ...]]:
        """The job and what was assumed; raises InputError as the command line does."""
        given = {field.name: getattr(self, field.name) or None for field in PAGED if field.name != RUNS}
        asks, described = request_of({**given, "fix": self.fix}), self.files
        table = described.pop(RUNS, "")
        if described:
            with on_disk(described) as places:
                job, assumed = job_of(replace(asks, **places))
        else:
            job, assumed = job_of(asks)
        return (with_table(job, name_of(RUNS, table), table.encode()) if table else job), assumed

    @property
    def searched(self) -> PlanQuestion:
        """The part of the question that a search answers."""
        return replace(self, mine=(), tokens=TOKENS, price=None)

    @property
    def name(self) -> str:
        """Model and GPUs."""
        return f"{self.model}-{self.gpus}"

    @property
    def files(self) -> dict[str, str]:
        """The texts of files that stand for a model, a cluster or runs, by kind."""
        return {kind: getattr(self, f"{kind}_file") for kind in KINDS if getattr(self, kind) == FILE}

    def flags(self) -> str:
        """The command that gives the same answer.

        >>> PlanQuestion(gpus=64, fix=(("tp", 8),), oom_risk=0.05).flags()
        'optimize --model gpt3 --gpus 64 --oom-risk 5% --fix tp=8 --trials 0'
        """
        places = {kind: f"./{name_of(kind, text)}" for kind, text in self.files.items()}
        given = {field: places.get(field.name, getattr(self, field.name)) for field in PAGED}
        options = [(field.option, _written(value, percent=True)) for field, value in given.items() if value]
        options += [("--fix", pins_text({name: value})) for name, value in self.fix]
        return shlex.join(["optimize", *(word for option in options for word in option), "--trials", "0"])

    def address(self) -> str:
        """The question as the part of an address after "?"; what is left to `optimize` is left out.

        >>> PlanQuestion(gpus=64, fix=(("tp", 8), ("pp", (2, 8)))).address()
        'model=gpt3&gpus=64&fix=tp%3D8%2Cpp%3D2..8'
        """
        given = {field: getattr(self, field.name) for field in PAGED}
        pairs = [(field.name, _written(value)) for field, value in given.items() if value]
        pairs += [(f"{kind}_file", packed(text)) for kind, text in self.files.items()]
        pairs += [("tokens", f"{self.tokens:g}")] if self.tokens != TOKENS else []
        pairs += [("price", f"{self.price:g}")] if self.price else []
        pairs += [("fix", pins_text(self.pins))] if self.fix else []
        return urlencode([*pairs, *(("mine", plan) for plan in self.mine)])


def _written(value: object, percent: bool = False) -> str:
    """A value as an address has it, or a share as a person types it."""
    if isinstance(value, float):
        return f"{100 * value:g}%" if percent else f"{value:g}"
    return str(value)


def asked(pairs: Sequence[tuple[str, str]]) -> PlanQuestion:
    """The question of an address or a form; what is empty counts as not there, but for the number of GPUs, and a name
    that means nothing is passed by.

    A lock of the form, lock.tp=8, is a pin as fix=tp=8 is. Raises InputError with everything that cannot be used.

    >>> asked([("gpus", "64"), ("lock.tp", "8"), ("fix", "pp=2..8"), ("seq_len", "")]).address()
    'model=gpt3&gpus=64&fix=tp%3D8%2Cpp%3D2..8'
    """
    given = [(name, value.strip()) for name, value in pairs if value.strip()]
    last: Mapping[str, str] = dict(given)
    problems: list[str] = []
    for name, value in given:
        if len(value) > (most := MOST_PACKED if name in FILES else LONGEST):
            raise InputError(f"{name}: {len(value):,} characters, more than the {most:,} that are read; shorten it")
    if any(name == "gpus" and not value.strip() for name, value in pairs):
        problems.append("GPUs: the field is empty; write how many there are, such as 1024")
    values: dict[str, object] = {}
    for name, read in READERS.items():
        if name in last:
            try:
                values[name] = read(name, last[name])
            except InputError as error:
                problems.append(str(error))
    for kind in KINDS:
        if values.get(kind) == FILE and not values.get(f"{kind}_file"):
            problems.append(f"{kind}=file needs the file: paste or open it on the page")
    try:
        values["fix"] = _pins(given)
        values["mine"] = tuple(dict.fromkeys(pins_text(pins_of(v)) for name, v in given if name == "mine"))[:MOST_MINE]
    except InputError as error:
        problems.append(str(error))
    if problems:
        raise InputError("; ".join(problems))
    return PlanQuestion(**values)  # type: ignore[arg-type]


def _pins(given: Sequence[tuple[str, str]]) -> tuple[tuple[str, Pinned], ...]:
    """Locks and the text of pins; of a variable in both, the lock counts."""
    texts = [part for name, value in given if name == "fix" for part in pin_texts(value.lower())]
    texts += [f"{name.removeprefix('lock.')}={value}" for name, value in given if name.startswith("lock.")]
    pins: dict[str, Pinned] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value.strip():
            raise InputError(f"a pin must be variable=value, such as tp=8, but got {text!r}")
        pins.update([pinned(name.strip(), value.strip().lower())])
    return tuple(sorted(pins.items(), key=lambda item: ORDER.get(item[0], len(ORDER))))


def _name(kind: str, text: str) -> str:
    """The name of a preset, or a word that says how the model is trained; files of this machine are for the command
    line alone.
    """
    from optimizer.catalog import cluster_names, device_names, family_names, model_names, stack_names

    if kind in CHOICES:
        if text not in CHOICES[kind]:
            raise InputError(f"{kind} must be one of {', '.join(CHOICES[kind])}, but got {text!r}")
        return text
    if kind in READ_AS:
        READ_AS[kind](text)
        return text
    known = {
        "model": model_names(),
        "stack": (*family_names(), *stack_names()),
        "cluster": (*cluster_names(), *device_names()),
        RUNS: (),
    }[kind]
    if text in known or (text == FILE and kind in KINDS):
        return text
    unknown = UnknownName(kind, text, known)
    meant = f"; did you mean {' or '.join(unknown.nearest)}?" if unknown.nearest else ""
    raise InputError(f"unknown {kind} {text!r}{meant}; the list of the page has every one")


def _amount(kind: str, name: str, text: str) -> float:
    """A number above zero as its kind is read. Raises InputError for what is none, or too much."""
    read, high, rule = AMOUNTS[kind]
    try:
        value = read(text if kind == SHARE else text.replace(",", ""))
    except (InputError, ValueError):
        value = 0.0
    if not 0 < value <= high:
        raise InputError(f"{name.replace('_', ' ')} must be {rule}, but got {text!r}")
    return value


# How amounts are read, the most that they may be, and the rule in words.
AMOUNTS: Mapping[str, tuple[Callable[[str], float], float, str]] = {
    WHOLE: (lambda text: int(text) if is_count(text) else 0, LARGEST, "a whole number above zero"),
    SHARE: (lambda text: parse(text, "1"), FIELDS["oom_risk"].high, "above 0 and at most 50%"),
    NUMBER: (float, 1e18, "a number above zero, such as 300e9"),
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    **{"dtype": DTYPES, "routing": tuple(ROUTING)},
    **{field.name: field.choices for field in PAGED if field.choices},
}
READ_AS: Mapping[str, Callable[[str], object]] = {"train": method_of, "optimizer": optimizer_of}
ORDER = {name: place for place, name in enumerate(("tp", "cp", "ep", "etp", "pp", "vpp", "dp", "micro_batch"))}
_READ: Mapping[str, Callable[[str, str], object]] = {
    **dict.fromkeys((NAME, FORMATS, CHOICE), _name),
    **dict.fromkeys((GPUS, WHOLE), partial(_amount, WHOLE)),
    SHARE: partial(_amount, SHARE),
}
READERS: Mapping[str, Callable[[str, str], object]] = {
    **{field.name: _READ[field.kind] for field in PAGED},
    **dict.fromkeys(("tokens", "price"), partial(_amount, NUMBER)),
    **dict.fromkeys(FILES, lambda name, text: unpacked(name.removesuffix("_file"), text)),
}
