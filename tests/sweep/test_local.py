"""Local processes: tries again after a death, gives up after three, needs no more than it was given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from optimizer.base.errors import InputError
from optimizer.sweep import local
from optimizer.sweep.local import LocalEngine
from optimizer.sweep.task import JobOutcome, Task
from tests.sweep import fakes
from tests.sweep.fakes import tasks


def outcomes(engine: LocalEngine, count: int) -> dict[str, JobOutcome]:
    return {outcome.key: outcome for some in engine.run(iter(tasks(count))) for outcome in some}


def test_every_task_has_its_outcome() -> None:
    found = outcomes(LocalEngine(workers=2, work=fakes.work), 15)
    assert sorted(found) == [task.key for task in tasks(15)]
    assert found["job-0013"].error == "thirteen brings bad luck"
    assert {outcome.attempts for outcome in found.values()} == {1}


@pytest.mark.parametrize(("may", "cores", "count"), [({0, 3, 5}, 8, 3), (None, 8, 8), (None, None, 1)])
def test_processors_are_those_that_this_process_may_use(
    may: set[int] | None, cores: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    if may is None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: may, raising=False)
    assert local.processors() == count


def test_tasks_are_taken_only_when_a_worker_is_free() -> None:
    taken = []

    def source() -> Iterator[Task]:
        for task in tasks(10):
            taken.append(task)
            yield task

    running = LocalEngine(workers=2, work=partial(fakes.work, nap=0.05)).run(source())
    next(running)
    assert len(taken) <= 4
    running.close()


def test_as_many_are_hired_as_there_are_tasks_and_those_without_one_are_dismissed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five tasks for two workers; one that died while it was idle is left for `_outcome`, with its task."""
    hired: list[local.Worker] = []

    def hire(context: object, work: object) -> local.Worker:
        hired.append(local.Worker(process=mock.Mock(), pipe=mock.Mock()))
        return hired[-1]

    monkeypatch.setattr(local, "_hire", hire)
    engine, crew, waiting = LocalEngine(workers=2), list[local.Worker](), iter(tasks(5))

    def employed(*free: int) -> list[str | None]:
        for place in free:
            hired[place].task = None
        engine._employ(crew, waiting, None)
        return [worker.task.key if worker.task else None for worker in crew]

    assert employed() == ["job-0000", "job-0001"]
    assert employed() == ["job-0000", "job-0001"]
    hired[0].pipe.send.side_effect = OSError
    assert employed(0) == ["job-0002", "job-0001"]
    assert employed(0, 1) == ["job-0004", "job-0003"]
    assert employed(1) == ["job-0004"]
    assert employed(0) == []
    assert [worker.process.join.call_count for worker in hired] == [1, 1]
    assert [worker.pipe.close.call_count for worker in hired] == [1, 1]


@pytest.mark.parametrize(("deaths", "status", "attempts"), [(1, "optimal", 2), (2, "optimal", 3), (3, "failed", 3)])
def test_a_worker_that_dies_is_replaced_and_its_job_tried_again(
    tmp_path: Path, deaths: int, status: str, attempts: int
) -> None:
    work = partial(fakes.deadly, folder=str(tmp_path), deaths=deaths, victim="job-0002")
    found = outcomes(LocalEngine(workers=2, work=work), 6)
    assert len(found) == 6
    assert (found["job-0002"].status, found["job-0002"].attempts) == (status, attempts)
    if status == "failed":
        assert "its worker died 3 times (killed by SIGKILL)" in found["job-0002"].error
    assert all(outcome.attempts == 1 for key, outcome in found.items() if key != "job-0002")


def test_one_worker_is_enough() -> None:
    assert len(outcomes(LocalEngine(workers=1, work=fakes.work), 3)) == 3
    assert LocalEngine(workers=1).title == "1 local process"


@pytest.mark.parametrize(("error", "reason"), [(OSError("no memory"), "no memory"), (EOFError(), "EOFError")])
def test_a_worker_that_cannot_be_started_is_told_after_three_attempts(error: Exception, reason: str) -> None:
    ends: list[mock.Mock] = []

    def pipe() -> tuple[mock.Mock, mock.Mock]:
        ends.extend((mock.Mock(), mock.Mock()))
        return ends[-2], ends[-1]

    context = mock.Mock(Pipe=pipe, get_start_method=lambda: "spawn")
    context.Process.return_value.start.side_effect = error
    with pytest.raises(InputError, match=rf"can be started \({reason}\); free some memory"):
        local._hire(context, fakes.work)
    assert len(ends) == 2 * 3
    assert all(end.close.call_count == 1 for end in ends)
    context.Process.return_value.start.side_effect = [error, None]
    hired = local._hire(context, fakes.work)
    assert (hired.pipe, hired.task) == (ends[-2], None)
    assert (ends[-2].close.call_count, ends[-1].close.call_count) == (0, 1)
