"""Ray by a stand-in for the module: what is asked of it, and clear words when there is no cluster."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.sweep.ray_engine import RayEngine
from optimizer.sweep.work import ATTEMPTS
from tests.sweep.fakes import tasks, work


class RayError(Exception):
    """What Ray raises where a worker died."""


@dataclass(kw_only=True)
class Ray:
    """The part of the module `ray` that the engine uses; `fails` of the first tasks to be fetched die."""

    processors: float = 2.0
    fails: int = 0
    slow: bool = False  # one task is ready at a time
    initialized: bool = False
    given: list[Any] = field(default_factory=list)  # tasks under way
    most: int = 0  # tasks under way at once
    waits: list[tuple[int, int, float]] = field(default_factory=list)  # under way, asked for, seconds
    cancelled: list[Any] = field(default_factory=list)
    begun: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    shut: int = 0
    exceptions: Any = field(default_factory=lambda: SimpleNamespace(RayError=RayError))

    def is_initialized(self) -> bool:
        return self.initialized

    def init(self, **options: Any) -> None:
        self.begun.append(options)

    def shutdown(self) -> None:
        self.shut += 1

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.processors} if self.processors >= 0 else {}

    def remote(self, **options: Any) -> Any:
        self.options = options

        def made(function: Any) -> Any:
            def begin(task: Any) -> Any:
                reference = (len(self.given), task.key, lambda: function(task))
                self.given.append(reference)
                return reference

            return SimpleNamespace(remote=begin)

        return made

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(references))
        self.waits.append((len(references), num_returns, timeout))
        ready = 1 if self.slow else num_returns
        return references[:ready], references[ready:]

    def get(self, reference: Any) -> Any:
        if self.fails > 0:
            self.fails -= 1
            raise RayError("a trace\nthe node is gone")
        return reference[2]()

    def cancel(self, reference: Any, force: bool) -> None:
        assert force
        self.cancelled.append(reference[1])


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    ray = Ray()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_ADDRESS", "")
    monkeypatch.setenv("RAY_TMPDIR", "/nowhere")
    return ray


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster at '127.0.0.1:1'"),
        ("ray://127.0.0.1:1", "start one with `ray start --head`"),
        ("nonsense", "is not host:port"),
        ("no.such.host.invalid:6379", "no Ray cluster"),
    ],
)
def test_an_address_without_a_cluster_is_told_at_once(address: str, words: str, ray: Ray) -> None:
    with pytest.raises(InputError, match=words):
        next(RayEngine(address=address).run(iter(tasks(1))))


@pytest.mark.parametrize("by", ["environment", "note"])
def test_a_cluster_that_died_is_told_at_once(
    by: str, ray: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray remembers the last cluster of a machine, dead or alive, and would knock there for minutes."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1" if by == "environment" else "")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    with pytest.raises(InputError, match=r"no Ray cluster at '127.0.0.1:1'"):
        next(RayEngine().run(iter(tasks(1))))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'mfu-optimizer\[ray\]'"):
        next(RayEngine().run(iter(tasks(1))))


@pytest.mark.parametrize(("processors", "under_way"), [(3.0, 6), (1.0, 2), (0.0, 2), (-1.0, 2)])
def test_two_tasks_a_processor_are_under_way_and_what_is_ready_comes_at_once(
    processors: float, under_way: int, ray: Ray
) -> None:
    ray.processors = processors
    batches = list(RayEngine(work=work).run(iter(tasks(13))))
    assert sorted(outcome.key for batch in batches for outcome in batch) == [task.key for task in tasks(13)]
    assert (ray.most, ray.shut, ray.cancelled) == (under_way, 1, [])
    assert len(batches[0]) == under_way
    assert ray.options == {"num_cpus": 1, "max_retries": 0}
    assert ray.waits[:2] == [(under_way, 1, 5.0), (under_way, under_way, 0)]
    assert ray.waits[-1][:2] == (1, 1)  # the last task is asked for once


def test_a_last_task_is_waited_for_once(ray: Ray) -> None:
    (batch,) = RayEngine(work=work).run(iter(tasks(1)))
    assert (len(batch), ray.waits) == (1, [(1, 1, 5.0)])


def test_what_dies_is_tried_again_and_its_reason_told(ray: Ray) -> None:
    ray.fails = 1
    (batch,) = RayEngine(work=work).run(iter(tasks(1)))
    assert [(outcome.status, outcome.attempts) for outcome in batch] == [("optimal", 2)]
    ray.fails = ATTEMPTS
    (batch,) = RayEngine(work=work).run(iter(tasks(1)))
    assert batch[0].error == "its Ray worker failed 3 times: the node is gone"
    assert batch[0].attempts == ATTEMPTS


def test_what_is_under_way_is_cancelled_when_nobody_listens(ray: Ray) -> None:
    ray.slow = True
    run = RayEngine(work=work).run(iter(tasks(9)))
    assert [outcome.key for outcome in next(run)] == ["job-0000"]
    assert not ray.cancelled
    run.close()  # type: ignore[attr-defined]
    assert (ray.cancelled, ray.shut) == (["job-0001", "job-0002", "job-0003"], 1)


def test_a_cluster_is_asked_for_by_its_address_and_kept_where_there_is_one(ray: Ray) -> None:
    list(RayEngine(work=work).run(iter(tasks(1))))
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    assert ray.begun == [{"address": "auto", **quiet}]  # its lines would be among ours
    ray.initialized = True
    list(RayEngine(work=work).run(iter(tasks(1))))
    assert len(ray.begun) == 1


@pytest.mark.parametrize(("said", "told"), [("nobody there\nat all", "nobody there"), (" ", "RuntimeError")])
def test_a_cluster_that_refuses_is_told_in_a_line(
    said: str, told: str, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError, match=f"no Ray cluster at 'auto': {told}; start one"):
        next(RayEngine().run(iter(tasks(1))))
