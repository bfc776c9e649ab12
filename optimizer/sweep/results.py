"""Results of a batch: one nested object or one flat record per job; which of them to show; JSON, CSV and Parquet."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any

from optimizer.base.errors import InputError, nearest
from optimizer.catalog.offers import PriceBook
from optimizer.job.job import TIME, Limits
from optimizer.job.method import FULL
from optimizer.job.plan import Knobs, Plan
from optimizer.reports.render.csv import csv_text
from optimizer.sweep.money import costs
from optimizer.sweep.store import StoredRow
from optimizer.sweep.study import COMPARISONS

EMPTY: Mapping[str, Any] = {
    "schema_version": None,
    "plan": None,
    "knobs": None,
    "estimate": None,
    "mean_gpu": None,
    "certificate": None,
    "alternatives": [],
    "conflict": [],
}
ASKED = (
    *("model", "family", "cluster", "device", "stack", "dtype", "gpus", "seq_len", "global_batch", "minimize"),
    *("train", "base", "optimizer", "loss", "lengths", "packing"),
)
# What the JSON of a job leaves out.
IMPLIED = {"minimize": TIME, "train": FULL, "base": "", "optimizer": "", "loss": "", "lengths": "", "packing": "off"}
FIGURES = ("step_time_s", "mfu", "hfu", "tflops_per_gpu", "tokens_per_s_per_gpu", "bubble_fraction")
# The columns that are fields, with their defaults, which tell numbers from words.
DEFAULTS = {
    f"{prefix}{item.name}": item.default
    for prefix, kind in (("limit_", Limits), ("", Plan), ("knob_", Knobs))
    for item in fields(kind)
}
LIMITS = tuple(f"limit_{item.name}" for item in fields(Limits))
PLAN = tuple(item.name for item in fields(Plan))
KNOBS = tuple(f"knob_{item.name}" for item in fields(Knobs))
COLUMNS = ("key", "status", "scenario", *ASKED, *LIMITS, *FIGURES, *PLAN, *KNOBS, "reason")
Condition = Callable[[Mapping[str, Any]], bool]
_FORM = re.compile(r"\s*(\w+)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*$")


def nested(row: StoredRow, *, token_budget: float = 0.0, book: PriceBook | None = None) -> dict[str, Any]:
    """One job as `optimize --json` prints it, with its key, scenario, costs and the reason of a failure.

    Nothing in it depends on when, where or how often the job ran.
    """
    answer = json.loads(row.result) if row.result else {}
    job = {**json.loads(row.asked), **answer.get("job", {})}
    whole = {**EMPTY, **answer, "key": row.key, "status": row.status, "scenario": row.scenario, "job": job}
    whole |= {"cost_model": row.version, "error": row.error or None}
    return whole | {"costs": costs(whole, token_budget, book or PriceBook())}


def flat(whole: Mapping[str, Any]) -> dict[str, Any]:
    """One job as one record of plain cells: what a line of CSV holds, and what filters see."""
    job, plan, estimate = whole["job"], whole["plan"] or {}, whole["estimate"] or {}
    certificate, knobs = whole["certificate"] or {}, (whole["knobs"] if whole["plan"] else None) or {}
    limits = job.get("limits", {})
    record: dict[str, Any] = {"key": whole["key"], "status": whole["status"], "scenario": whole["scenario"]}
    record |= {name: job.get(name, IMPLIED.get(name)) for name in ASKED}
    record |= {name: _cell(limits.get(name.removeprefix("limit_"))) for name in LIMITS}
    record |= {name: estimate.get(name) for name in FIGURES}
    record["peak_reserved_bytes"] = estimate.get("memory_bytes", {}).get("peak_reserved")
    record |= {name: _cell(plan.get(name)) for name in PLAN}
    record |= {name: knobs.get(name.removeprefix("knob_")) for name in KNOBS}
    record |= {"proven": certificate.get("proven"), "gap": certificate.get("gap")}
    record |= whole["costs"]
    record |= {"reason": reason(whole), "cost_model": whole["cost_model"]}
    return record


def reason(whole: Mapping[str, Any]) -> str:
    """Why a job has no plan: the clashing rules, or what failed."""
    if whole["error"]:
        return str(whole["error"])
    return "; ".join(f"{clash['rule']}: {clash['reason']}" for clash in whole["conflict"])


def _cell(value: Any) -> Any:
    """A nested value as text: {"tp": 8} as tp=8, [2, 3] as "2 3"."""
    if isinstance(value, dict):
        return ",".join(f"{key}={_cell(item)}" for key, item in value.items()) or None
    if isinstance(value, list):
        return " ".join(map(str, value)) or None
    return value


def exported(wholes: Sequence[Mapping[str, Any]], form: str) -> bytes:
    """The results as csv, parquet or json; equal results give equal bytes."""
    if form == "json":
        return (json.dumps(list(wholes), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    rows = [flat(whole) for whole in wholes]
    return csv_text(rows).encode() if form == "csv" else _parquet(rows)


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(
            "--export parquet needs pyarrow; pip install 'mfu-optimizer[parquet]', or export csv"
        ) from None
    names = list(rows[0]) if rows else []
    columns = {name: _column([row[name] for row in rows]) for name in names}
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), target)
    return target.getvalue()


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: a column that holds numbers and words becomes words."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and len(kinds) == 2:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]


def condition(text: str, columns: Iterable[str]) -> Condition:
    """The test that a condition stands for; several values after = are alternatives, and each may be a glob.

    Raises InputError for an unknown column or a value that cannot be compared.

    >>> condition("model=llama3*,gpt3", ["model"])({"model": "llama3-8b"})
    True
    """
    match = _FORM.match(text)
    if match is None:
        raise InputError(f"--where {text!r} is not of the form column=value, such as model=llama3* or 'gpus>=1024'")
    column, comparison, wanted = match.groups()
    known = tuple(columns)
    if column not in known:
        close = nearest(column, known)
        hint = f"did you mean {' or '.join(close)}?" if close else f"columns: {', '.join(known)}"
        raise InputError(f"--where {text!r}: unknown column {column!r}; {hint}")
    if comparison in ("=", "!="):
        patterns = [part.strip().lower() for part in wanted.split(",")]
        return lambda record: _is(record[column], patterns) == (comparison == "=")
    try:
        bound = float(wanted.removesuffix("%")) / (100 if wanted.endswith("%") else 1)
    except ValueError as error:
        raise InputError(f"--where {text!r}: {wanted!r} is not a number to compare with") from error
    compare = COMPARISONS[comparison]
    return lambda record: isinstance(record[column], int | float) and compare(record[column], bound)


def chosen(wholes: Iterable[Mapping[str, Any]], conditions: Iterable[str]) -> list[Mapping[str, Any]]:
    """The jobs that satisfy every condition."""
    flattened = [(whole, flat(whole)) for whole in wholes]
    tests = [condition(text, flattened[0][1] if flattened else COLUMNS) for text in conditions]
    return [whole for whole, record in flattened if all(test(record) for test in tests)]


def _is(value: Any, patterns: Iterable[str]) -> bool:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return any(_number(pattern) == value for pattern in patterns)
    text = "" if value is None else str(value).lower()
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
