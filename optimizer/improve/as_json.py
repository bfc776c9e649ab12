"""An improvement as plain values: what `optimize improve --json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from optimizer.answer.answer import estimate_dict, job_dict, plan_dict
from optimizer.frameworks.source import FlagChange
from optimizer.improve.edit import Edit
from optimizer.improve.edits import Improvement
from optimizer.improve.state import State
from optimizer.improve.worth import Run, days, dollars
from optimizer.objectives.step.interval import interval

SCHEMA_VERSION = 1
Flags = Mapping[int, Sequence[FlagChange]]  # what to write otherwise, by id of the edit


def improvement_dict(found: Improvement, flags: Flags, run: Run | None) -> dict[str, Any]:
    """Everything: the launch as read, its price, every edit with its flags."""
    question, launch = found.question, found.question.launch
    return {
        "schema_version": SCHEMA_VERSION,
        "program": launch.program,
        "job": job_dict(question.job),
        "plan": plan_dict(question.plan),
        "knobs": asdict(question.knobs),
        "understood": launch.understood(),
        "assumed": list(launch.assumed),
        "ignored": list(launch.ignored),
        "kept": list(launch.kept),
        "estimate": state_dict(found.current, run),
        "edits": [edit_dict(edit, flags[id(edit)], run) for edit in found.edits],
        "best_two": edit_dict(found.pair, flags[id(found.pair)], run) if found.pair else None,
        "best": edit_dict(found.best, flags[id(found.best)], run) if found.best else _as_is(found.current, run),
    }


def state_dict(state: State, run: Run | None) -> dict[str, Any]:
    """A priced plan: its estimate, intervals, and the chance that it fits."""
    time = interval(state.job, state.plan, state.estimate.step_time)
    memory = interval(state.job, state.plan, state.estimate.reserved, "memory")
    return {
        **estimate_dict(state.estimate),
        "interval_s": [time.low, time.high],
        "interval_kind": time.kind,
        "interval_reasons": list(time.reasons),
        "memory_interval_bytes": [memory.low, memory.high],
        "usable_memory_bytes": state.job.usable_memory,
        "fits": state.fits,
        "chance_to_fit": state.chance,
        **_worth(state, run),
    }


def edit_dict(edit: Edit, flags: Sequence[FlagChange], run: Run | None) -> dict[str, Any]:
    """One edit: settings and flags before and after, and where they lead."""
    after = edit.after
    return {
        "changes": {change.name: {"before": change.before, "after": change.after} for change in edit.changes},
        "flags": [asdict(flag) for flag in flags],
        "step_time_s": after.estimate.step_time,
        "gain": edit.gain,
        "fits": after.fits,
        "chance_to_fit": after.chance,
        "memory_bytes": after.estimate.reserved,
        "mfu": after.estimate.mfu,
        "plan": plan_dict(after.plan),
        "global_batch": after.job.global_batch,
        **_worth(after, run),
    }


def _as_is(current: State, run: Run | None) -> dict[str, Any]:
    """The plan that runs, where nothing is better."""
    return edit_dict(Edit(changes=(), after=current, gain=0.0), (), run)


def _worth(state: State, run: Run | None) -> dict[str, Any]:
    if run is None:
        return {}
    row = run.offer.row if run.offer else None
    return {"days": days(run, state), "cost_usd": dollars(run, state), "price_row": row}
