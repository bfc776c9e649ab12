"""Jobs on a Ray cluster: one task each, of one processor. A node that dies costs only the jobs it was running."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.sweep.local import Work
from optimizer.sweep.task import JobOutcome, Task
from optimizer.sweep.work import Attempts, work

REACH = 5.0  # to wait for an answer at the address [s]
AHEAD = 2  # tasks given to each processor of the cluster, so that none waits for us
LOOK = 5.0  # between two looks at the size of the cluster [s]
ANY = "auto"


@dataclass(kw_only=True)
class RayEngine:
    """Runs tasks on the cluster at `address` ("host:6379", "ray://host:10001", or "auto")."""

    address: str = ANY
    work: Work = work
    _attempts: Attempts = field(default_factory=Attempts)

    @property
    def title(self) -> str:
        """Who does the work, for people."""
        return f"the Ray cluster at {self.address}"

    def run(self, tasks: Iterator[Task]) -> Iterator[list[JobOutcome]]:
        """Outcomes as they come; a task is taken from the iterator only when the cluster has room for it."""
        ray = connect(self.address)
        # We try again ourselves, to count the attempts of a job on every engine alike.
        remote = ray.remote(num_cpus=1, max_retries=0)(_plain(self.work))
        running: dict[Any, Task] = {}
        try:
            while True:
                capacity = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
                while len(running) < capacity:
                    task = self._attempts.next(tasks)
                    if task is None:
                        break
                    running[remote.remote(task)] = task
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK)
                if len(running) > 1 and ready:
                    ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                if outcomes := [outcome for reference in ready if (outcome := self._outcome(ray, reference, running))]:
                    yield outcomes
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            ray.shutdown()

    def _outcome(self, ray: Any, reference: Any, running: dict[Any, Task]) -> JobOutcome | None:
        """What a task came to, or None when its worker or node died and it is to be tried again."""
        task = running.pop(reference)
        try:
            outcome: JobOutcome = ray.get(reference)
        except ray.exceptions.RayError as error:
            words = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            return self._attempts.died(task, lambda count: f"its Ray worker failed {count} times: {words}")
        return self._attempts.done(outcome)


def _plain(work: Work) -> Work:
    """The same work as a function, which is all that Ray takes."""

    def run_task(task: Task) -> JobOutcome:
        return work(task)

    return run_task


def connect(address: str) -> Any:
    """The module `ray`, connected. Raises InputError when Ray is missing or nothing answers at the address."""
    # Ray would warn on stderr about a default that concerns accelerators only.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("--engine ray needs Ray; pip install 'mfu-optimizer[ray]'") from None
    if ray.is_initialized():
        return ray
    meant = _current() if address == ANY else address
    if meant not in ("", ANY, "local"):
        _reach(meant)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except Exception as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"no Ray cluster at {address!r}: {words[0]}; start one with `ray start --head` and give its --address"
        ) from error
    return ray


def _current() -> str:
    """The cluster that Ray takes for "auto": RAY_ADDRESS, else the last one started on this machine; "" for none.

    A cluster that died leaves its address behind, at which Ray would knock for many minutes.

    Source: ray-project/ray python/ray/_private/services.py, get_ray_address_from_environment.
    """
    if given := os.environ.get("RAY_ADDRESS", ""):
        return given
    note = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    try:
        return note.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _reach(address: str) -> None:
    """Make sure that something listens, which Ray itself would find out only after a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not is_count(port):
        raise InputError(f"--address {address!r} is not host:port, such as 10.0.0.1:6379 or ray://10.0.0.1:10001")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster at {address!r} ({error}); start one with `ray start --head`, or correct --address"
        ) from None
