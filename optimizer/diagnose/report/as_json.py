"""What logs say, as JSON: the fields of one run at the top, those of several in `runs`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from optimizer.answer.answer import job_dict, plan_dict
from optimizer.diagnose.diagnosis import Diagnosis
from optimizer.diagnose.held_to import HeldTo
from optimizer.diagnose.measured import Measured

SCHEMA_VERSION = 1


def logs_json(runs: Sequence[Measured], diagnoses: Sequence[Diagnosis | None], held: HeldTo | None = None) -> str:
    """Strict JSON; the first run's fields are also at the top, for who reads one log; `held_to` is what they are held
    to.
    """
    rows = [run_dict(run, diagnosis) for run, diagnosis in zip(runs, diagnoses, strict=True)]
    beside = {"held_to": held_dict(held)} if held else {}
    return json.dumps({"schema_version": SCHEMA_VERSION, **rows[0], **beside, "runs": rows}, indent=2, allow_nan=False)


def held_dict(held: HeldTo) -> dict[str, Any]:
    """The job and plan of a launch or an answer, and what was assumed of them or ignored."""
    return {
        "job": job_dict(held.job),
        "plan": plan_dict(held.plan),
        "assumed": list(held.assumed),
        "ignored": list(held.ignored),
    }


def run_dict(run: Measured, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
    """One run as plain values; times in seconds, memory in bytes, shares of one."""
    steady = run.steady
    return {
        "files": list(run.files),
        "program": run.program or None,
        "status": run.status,
        "step_time_s": run.step_time,
        "spread": steady.spread if steady else None,
        "steps_used": steady.steps_used if steady else 0,
        "memory_bytes": run.memory,
        "memory_kind": run.memory_kind or None,
        "basis": run.basis or None,
        "tokens_per_s_per_gpu": run.tokens_rate,
        "first_step": run.first,
        "last_step": run.last,
        "steady": _steady(run),
        "loss": run.loss,
        "nans": run.nans,
        "skipped": run.skipped,
        "restarts": run.restarts,
        "ranks": run.ranks,
        "failure": run.failure or None,
        "facts": dict(run.facts),
        "warnings": list(run.warnings),
        "diagnosis": diagnosis_dict(diagnosis) if diagnosis else None,
    }


def _steady(run: Measured) -> dict[str, Any] | None:
    steady = run.steady
    if steady is None:
        return None
    return {
        "first_step": steady.first,
        "last_step": steady.last,
        "lines": len(steady.times),
        "steps_each": steady.steps_each,
        "warm_up_lines": steady.warm_up,
        "stalls": list(steady.stalls),
        "stalled": steady.stalled,
        "stall_period": steady.period,
        "trend": steady.trend,
        "correlation": steady.wander,
        "tail": steady.tail,
        "levels": [
            {"first_step": level.first, "last_step": level.last, "step_time_s": level.seconds}
            for level in steady.levels
        ],
    }


def diagnosis_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Measured against predicted, and the causes."""
    around = diagnosis.interval
    return {
        "measured_s": diagnosis.measured,
        "predicted_s": diagnosis.predicted,
        "interval_s": [around.low, around.high],
        "interval_kind": around.kind,
        "gap": diagnosis.gap,
        "verdict": diagnosis.verdict,
        "unlike": list(diagnosis.unlike),
        "causes": [
            {
                "name": found.cause.name,
                "says": found.says,
                "setting": found.setting,
                "share": found.share,
                "as_bad_or_worse": found.rarer,
                "worst_step_time_s": found.at_worst,
                "prior": found.cause.why,
                "signs": [
                    {"name": sign.name, "value": sign.value, "text": sign.text, "weight": weight}
                    for sign, weight in found.signs
                ],
                "test": found.cause.test.what,
                "test_minutes": found.cause.test.minutes,
            }
            for found in diagnosis.explanations
        ],
        "fit_alike": [found.cause.name for found in diagnosis.alike],
        "excluded": {cause.name: reason for cause, reason in diagnosis.excluded},
        "cheapest_test": diagnosis.test.what if diagnosis.test else None,
        "signs": [{"name": sign.name, "value": sign.value, "text": sign.text} for sign in diagnosis.signs],
    }
