"""Results of a batch as plain values: one nested object or one flat record per job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from optimizer.catalog.offers import PriceBook
from optimizer.job.job import TIME, Limits
from optimizer.job.plan import Knobs, Plan
from optimizer.sweep.money import costs
from optimizer.sweep.store import StoredRow

EMPTY: Mapping[str, Any] = {
    "schema_version": None,
    "plan": None,
    "knobs": None,
    "estimate": None,
    "certificate": None,
    "alternatives": [],
    "conflict": [],
}
ASKED = ("model", "family", "cluster", "device", "stack", "dtype", "gpus", "seq_len", "global_batch", "minimize")
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
    record |= {name: job.get(name, TIME if name == "minimize" else None) for name in ASKED}
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


def records(wholes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The flat records of many jobs."""
    return [flat(whole) for whole in wholes]


def _cell(value: Any) -> Any:
    """A nested value as text: {"tp": 8} as tp=8, [2, 3] as "2 3"."""
    if isinstance(value, dict):
        return ",".join(f"{key}={_cell(item)}" for key, item in value.items()) or None
    if isinstance(value, list):
        return " ".join(map(str, value)) or None
    return value
