"""A batch from start to end: claim jobs, let an engine plan them, keep each outcome as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Protocol

from optimizer.sweep.connection import StoreError
from optimizer.sweep.owner import Owner, myself
from optimizer.sweep.store import PENDING, RUNNING, Store
from optimizer.sweep.task import JobOutcome, Task

CLAIM = 8  # jobs claimed at once: few, so that processes on one store share to the end
BEAT = 5.0  # between two signs of life [s]
LEASE = 60.0  # without one, an owner on another machine counts as dead [s]
LOOK = 0.5  # between two looks at jobs that others hold [s]

Watch = Callable[[Sequence[str]], None]


class Engine(Protocol):
    """Something that runs tasks."""

    @property
    def title(self) -> str:
        """Who does the work, for people."""

    def run(self, tasks: Iterator[Task]) -> Iterator[list[JobOutcome]]:
        """Take tasks when there is room for them; give outcomes as they come."""


def run_batch(store: Store, tasks: Sequence[Task], engine: Engine, watch: Watch) -> None:
    """Answer every task that the store has no answer for; `watch` hears the status of each job as it is known.

    Whatever ends this early, the answers so far are kept and the claims given back.
    """
    owner = myself()
    store.register(tasks)
    store.free_dead()
    store.enter(owner)
    try:
        with _alive(store, owner):
            _answer(store, tasks, engine, owner, watch)
    finally:
        # A store that just failed fails again here; the first failure is the one to report.
        with suppress(StoreError):
            store.leave(owner.name)


def _answer(store: Store, tasks: Sequence[Task], engine: Engine, owner: Owner, watch: Watch) -> None:
    left, patience = list(tasks), Patience()
    while True:
        statuses = store.statuses([task.key for task in left])
        watch([status for status in statuses.values() if status not in (PENDING, RUNNING)])
        left = [task for task in left if statuses[task.key] in (PENDING, RUNNING)]
        if not left:
            return
        saved: set[str] = set()
        for outcomes in engine.run(_claimed(store, left, owner)):
            store.save(outcomes, owner)
            saved.update(outcome.key for outcome in outcomes)
            watch([outcome.status for outcome in outcomes])
        left = [task for task in left if task.key not in saved]
        if left:
            patience.wait(store)


def _claimed(store: Store, tasks: Sequence[Task], owner: Owner) -> Iterator[Task]:
    """The tasks that nobody else holds, each claimed shortly before it is needed."""
    for start in range(0, len(tasks), CLAIM):
        some = tasks[start : start + CLAIM]
        mine = store.claim([task.key for task in some], owner)
        yield from (task for task in some if task.key in mine)


class Patience:
    """Waiting for jobs that other processes hold, and taking them back from those that died."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def wait(self, store: Store) -> None:
        """A moment's pause; then the claims of the dead are free.

        An owner on another machine is dead when its beat stands still for LEASE seconds of our own clock, so that
        clocks need not agree.
        """
        threading.Event().wait(LOOK)
        store.free_dead()
        now, beats = monotonic(), store.beats()
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (None,))[0] == beat else (beat, now)
            for name, beat in beats.items()
        }
        for name, (_, since) in self._seen.items():
            if now - since > LEASE:
                store.leave(name)


@contextmanager
def _alive(store: Store, owner: Owner) -> Iterator[None]:
    """Show signs of life from a thread while the body runs."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT):
            # The next save notices a store that fails.
            with suppress(StoreError):
                store.beat(owner)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
