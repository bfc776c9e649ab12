"""What a worker does with a task: every end that a plan may have, and how often a task is tried."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.job.plan import Plan
from optimizer.objectives.minimised import energy
from optimizer.objectives.power import BusySeconds
from optimizer.search.plan import planner
from optimizer.sweep import work
from optimizer.sweep.study import Effort
from optimizer.sweep.task import JobOutcome
from tests.sweep.fakes import tasks


@pytest.mark.parametrize(
    ("changes", "end", "status", "told"),
    [
        ({}, "optimal", "optimal", {"job": 1, "mean_gpu": {"compute_s": 2.0, "stream_s": 1.0, "utilisation": 0.5}}),
        ({}, "infeasible", "infeasible", {"job": 1}),
        ({}, "unknown", "failed", "the time limit passed before any plan was found; raise time_limit"),
        ({}, InputError("no such"), "failed", "no such"),
        ({}, KeyError("x"), "failed", "internal error: KeyError: 'x'"),
        ({"version": "v0"}, "", "failed", "here has version v1 of the cost model, but the batch was started with v0; "),
        ({"job": None, "problem": "too many"}, "", "failed", "too many"),
    ],
)
def test_whatever_a_plan_ends_in_is_an_outcome(
    changes: dict[str, Any], end: Any, status: str, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(job: Any, **how: Any) -> Any:
        assert how == {"top": 2, "trials": 3, "time_limit": 4.0, "seed": 5}
        if isinstance(end, Exception):
            raise end
        plan = Plan(dp=8) if end == "optimal" else None
        return SimpleNamespace(status=end, plan=plan, knobs=None, job=job, to_dict=lambda: {"job": 1, "search_s": 9})

    monkeypatch.setattr(planner, "plan", planned)
    monkeypatch.setattr(energy, "busy_seconds", lambda *_: BusySeconds(compute=2.0, stream=1.0, utilisation=0.5))
    monkeypatch.setattr(work, "perf_counter", iter((100.0, 102.5)).__next__)
    monkeypatch.setattr(work, "peak_memory", lambda: 7.0)
    monkeypatch.setattr(work, "cost_model_version", lambda: "v1")
    monkeypatch.setattr(platform, "node", lambda: "here")
    task = replace(tasks(1)[0], **{"effort": Effort(top=2, trials=3, time_limit=4.0, seed=5), **changes})
    found = work.work(task)
    assert (found.key, found.status, found.host, found.attempts) == (task.key, status, "here", 1)
    if status == "failed":
        assert found.error.startswith(told)
        assert (found.result, found.seconds, found.memory) == ("", 0.0, 0.0)
    else:
        assert json.loads(found.result) == told
        assert (found.error, found.seconds, found.memory) == ("", 2.5, 7.0)


def test_a_task_is_tried_three_times_and_an_outcome_counts_them() -> None:
    first, other = tasks(2)
    attempts, left = work.Attempts(), iter([other])
    words = "died {} times".format
    assert [attempts.died(first, words), attempts.died(first, words)] == [None, None]
    failed = attempts.died(first, words)
    assert failed is not None
    assert (failed.status, failed.error, failed.attempts) == ("failed", "died 3 times", 3)
    assert [attempts.next(left) for _ in range(4)] == [first, first, other, None]
    assert attempts.died(other, words) is None
    done = JobOutcome(key=other.key, status="optimal")
    assert [attempts.done(done).attempts for _ in range(2)] == [2, 1]


@pytest.mark.parametrize(("system", "memory"), [("linux", 3 * 1024.0), ("darwin", 3.0)])
def test_the_peak_of_memory_is_in_bytes(system: str, memory: float, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: SimpleNamespace(ru_maxrss=3))
    monkeypatch.setitem(sys.modules, "resource", resource)
    monkeypatch.setattr(sys, "platform", system)
    assert work.peak_memory() == memory
    monkeypatch.setitem(sys.modules, "resource", None)
    assert work.peak_memory() == 0.0


def test_the_code_that_plans_is_in_the_version() -> None:
    assert Path(planner.__file__).resolve() in work.sources()
