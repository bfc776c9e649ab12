"""The jobs of a store of `optimize batch` as a table: filtered, sorted, each a link to its question on the Plan tab."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from math import inf
from typing import Any

from optimizer.base.errors import InputError
from optimizer.base.units import seconds
from optimizer.catalog.offers import book_of
from optimizer.commands.study.batch import show
from optimizer.constraints.pin_text import Pinned, pins_text
from optimizer.job.fields import FAST, FIELDS
from optimizer.job.job import Limits
from optimizer.page.plan.question import PAGED, asked
from optimizer.page.plan.views.shown import fragment, linked
from optimizer.page.studies.question import SORT, SORTS, WHERE, StudyQuestion
from optimizer.page.studies.view import options_of
from optimizer.reports.report import cell
from optimizer.sweep.report import plan_text
from optimizer.sweep.results import ASKED, IMPLIED, chosen, flat, nested
from optimizer.sweep.store import Store

FILTERS = ("model", "cluster", "gpus", "seq_len", "global_batch", "dtype", "stack", "train", "scenario", "status")
MOST = 500  # rows that are shown
LEFT_OUT = ("fixed", "ranges", "choices", "oom_risk")  # limits that the Plan tab has
COLUMNS = ("job", "GPUs", "tokens", "sequences", "MFU", "step")
RATE = {"tokens_per_usd": "tokens/$"}
RUN = {"train_days": "days", "train_usd": "USD"}  # where the tokens of the run are said
ORDERS: Mapping[str, Callable[[Mapping[str, Any]], float]] = dict(
    zip(
        SORTS,
        (
            lambda row: -(row["mfu"] or 0.0),
            lambda row: -(row["tokens_per_usd"] or 0.0),
            lambda row: -(row["tokens_per_joule"] or 0.0),
            lambda row: row["step_time_s"] or inf,
            lambda row: row["gpus"],
        ),
        strict=True,
    )
)


@lru_cache(maxsize=4)
def stored(store: str, tokens: float, moment: int) -> tuple[Mapping[str, Any], ...]:
    """Every job of a store with its costs, at a moment of the questions about it; 0 tokens of a run are not known."""
    book = book_of(None, "", "")
    with closing(Store(store, read_only=True)) as opened:
        return tuple(nested(row, token_budget=tokens, book=book) for row in opened.rows())


def batch_view(asks: StudyQuestion) -> dict[str, Any]:
    """The jobs that are asked for, and the filters with the values that there are."""
    options, given = options_of(show, asks), dict(asks.options)
    money = RUN if options["tokens"] else RATE
    wholes = stored(asks.store, options["tokens"] or 0.0, asks.moment)
    wanted = {name.partition(".")[2]: value for name, value in asks.options if name.startswith(f"{WHERE}.")}
    shown = [(whole, flat(whole)) for whole in chosen(wholes, options["where"])]
    if order := ORDERS.get(given.get(SORT, "")):
        shown.sort(key=lambda pair: order(pair[1]))
    title = f"{len(shown):,} of {len(wholes):,} jobs"
    rows = [_row(*pair, money) for pair in shown[:MOST]]
    values = {"title": title, "columns": (*COLUMNS, *money.values(), "tokens/J", "memory", "plan"), "rows": rows}
    filters = fragment("filters.html", "studies", filters=_filters([flat(whole) for whole in wholes], wanted))
    return {
        "answer": fragment("batch.html", "studies", asked=asks, more=max(0, len(shown) - MOST), **values),
        "title": title,
        "address": asks.address(),
        "put": {WHERE: filters},
        "pending": False,
    }


def _filters(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    """A choice for each column in which jobs differ, or that the address names."""
    filters = []
    for name in FILTERS:
        values = {row[name] for row in rows if row[name] not in (None, "")}
        if len(values) > 1 or name in wanted:
            every = sorted(values, key=lambda value: (isinstance(value, str), value))
            texts = dict.fromkeys((*map(str, every), *([wanted[name]] if name in wanted else [])))
            groups = {"": [(text, text) for text in texts]}
            label = FIELDS[name].label if name in FIELDS else name.capitalize()
            shown = {"name": f"{WHERE}.{name}", "label": label, "value": wanted.get(name, "")}
            filters.append({**shown, "usual": "all", "groups": groups})
    return filters


def _row(whole: Mapping[str, Any], row: Mapping[str, Any], money: Iterable[str]) -> tuple[str, ...]:
    """The cells of a job; the first leads to its question on the Plan tab."""
    name = f"{row['model']}, {row['cluster']}" + f", {row['scenario']}" * bool(row["scenario"])
    address = plan_address(whole["job"])
    return (
        linked(f"/plan/?{address}", name) if address else name,
        *(cell(row[name], "1") for name in ("gpus", "seq_len", "global_batch")),
        cell(row["mfu"], "%"),
        seconds(row["step_time_s"]) if row["step_time_s"] else cell(None, "s"),
        *(cell(row[name], "1") for name in money),
        f"{row['tokens_per_joule']:.2f}" if row["tokens_per_joule"] else cell(None, ""),
        cell(row["peak_reserved_bytes"], "B"),
        plan_text(whole["plan"]) if whole["plan"] else f"{row['status']}: {row['reason'] or 'no plan yet'}",
    )


def plan_address(job: Mapping[str, Any]) -> str:
    """The address of a job on the Plan tab; "" where that has no such question, as of a model from a file.

    >>> plan_address({"model": "gpt3", "cluster": "dgx-h100", "gpus": 64, "limits": {"fixed": {"tp": 8}}})
    'model=gpt3&gpus=64&cluster=dgx-h100&fix=tp%3D8'
    >>> plan_address({"model": "gpt3", "cluster": "dgx-h100", "gpus": 64, "limits": {"max_tp": 4}})
    ''
    >>> plan_address({"model": "gpt3", "cluster": "dgx-h100", "gpus": 64, "packing": "on"})
    ''
    """
    limits, usual = job.get("limits", {}), vars(Limits())
    paged = {field.name for field in PAGED}
    others = [
        name
        for name in ASKED
        if name not in paged and name in IMPLIED and job.get(name, IMPLIED[name]) != IMPLIED[name]
    ]
    if any(value != usual.get(name) for name, value in limits.items() if name not in LEFT_OUT):
        others.append("limits")
    if others or job.get("settings"):
        return ""
    pins: dict[str, Pinned] = dict(limits.get("fixed", {}))
    pins |= {name: (low, high) for name, (low, high) in limits.get("ranges", {}).items()}
    pins |= {name: frozenset(values) for name, values in limits.get("choices", {}).items()}
    given = [(name, str(job[name])) for name in ASKED if name in paged and job.get(name)]
    given += [("oom_risk", str(limits["oom_risk"]))] if limits.get("oom_risk") else []
    given += [("fix", pins_text(pins))] if pins else []
    given += [("prefer", FAST)] if job.get("prefer") == FAST else []
    try:
        return asked([(name, value) for name, value in given if value != IMPLIED.get(name)]).address()
    except InputError:
        return ""
