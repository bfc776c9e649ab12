"""Trials as plain values: what `optimize trial --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from optimizer.answer.answer import job_dict, plan_dict
from optimizer.trial.belief import Belief
from optimizer.trial.choice import expected_gain
from optimizer.trial.folder import SCHEMA_VERSION, Trials
from optimizer.trial.launch import gpu_hours
from optimizer.trial.local_stack import LocalStack
from optimizer.trial.verdict import Verdict


def started_dict(trials: Trials, belief: Belief, assumed: Sequence[str]) -> dict[str, Any]:
    """The trials that were written, what they cost and may win."""
    rows = [candidate_dict(trials, belief, index) for index in trials.chosen]
    return {
        "schema_version": SCHEMA_VERSION,
        "job": job_dict(trials.job),
        "folder": str(trials.folder),
        "steps": trials.steps,
        "candidates": len(trials.candidates),
        "trials": [{"name": trials.trial(place).name, **row} for place, row in enumerate(rows)],
        "cost_gpu_hours": sum(row["cost_gpu_hours"] for row in rows),
        "expected_gain": [
            max(0.0, expected_gain(belief, [0], trials.chosen[: count + 1])) for count in range(len(trials.chosen))
        ],
        "assumptions": list(assumed),
    }


def candidate_dict(trials: Trials, belief: Belief, index: int) -> dict[str, Any]:
    """One candidate as it is predicted."""
    candidates, step = trials.candidates, float(trials.candidates.costs.step_time[index])
    return {
        "plan": plan_dict(candidates.plans[index]),
        "knobs": asdict(candidates.knobs[index]),
        "predicted_step_time_s": step,
        "predicted_memory_bytes": float(candidates.costs.reserved[index]),
        "chance_to_fit": float(belief.chance[index]),
        "cost_gpu_hours": gpu_hours(trials.job, step, trials.steps),
    }


def verdict_dict(verdict: Verdict, local: LocalStack | None, written: str) -> dict[str, Any]:
    """What came of the trials and what they decide."""
    trials, before = verdict.trials, verdict.trials.candidates.belief()
    rows = [
        {
            "name": outcome.name,
            "status": outcome.status,
            "step_time_s": outcome.seconds,
            "spread": outcome.spread,
            "steps_used": outcome.steps,
            "memory_bytes": outcome.memory_bytes,
            "exit_code": outcome.exit_code,
            "remarks": list(outcome.words),
            **candidate_dict(trials, before, outcome.index),
        }
        for outcome in verdict.outcomes
    ]
    best = next(
        (row for outcome, row in zip(verdict.outcomes, rows, strict=True) if outcome.index == verdict.winner), None
    )
    following = None
    if verdict.next is not None:
        following = {
            **candidate_dict(trials, verdict.belief, verdict.next.index),
            "expected_gain": verdict.next.gain,
            "win_gpu_hours": verdict.win,
            "pays": verdict.pays,
        }
    return {
        "schema_version": SCHEMA_VERSION,
        "job": job_dict(trials.job),
        "trials": rows,
        "winner": best,
        "expected_loss": verdict.loss,
        "next": following,
        "tokens": verdict.tokens,
        "tokens_assumed": verdict.assumed_tokens,
        "stack": _stack(local, written) if local else None,
    }


def _stack(local: LocalStack, written: str) -> dict[str, Any]:
    return {
        "file": written,
        "name": local.stack.name,
        "prior_runs": local.prior,
        "error_before": local.before,
        "error_after": local.after,
        "moved": {name: {"before": before, "after": after} for name, (before, after) in local.moved.items()},
    }
