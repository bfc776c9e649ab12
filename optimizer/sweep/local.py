"""Worker processes on this machine. A worker that dies costs only the job it was running, which is tried again."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from optimizer.base.errors import InputError
from optimizer.base.processes import begun, context_of
from optimizer.sweep.task import JobOutcome, Task
from optimizer.sweep.work import ATTEMPTS, Attempts, work

Work = Callable[[Task], JobOutcome]
SELDOM = 100_000  # objects between two looks for circles of them
# Imported once, by the process that the workers are forked from, so that they share its memory.
PRELOADED = ["optimizer.sweep.work", "optimizer.search.plan.planner", "ortools.sat.python.cp_model", "optuna"]


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(kw_only=True)
class Worker:
    """A process, our end of the pipe to it, and what it is doing."""

    process: Any
    pipe: Connection
    task: Task | None = None


@dataclass(kw_only=True)
class LocalEngine:
    """Runs tasks on `workers` processes; `work` is what each does with a task."""

    workers: int = field(default_factory=processors)
    work: Work = work
    _attempts: Attempts = field(default_factory=Attempts)

    @property
    def title(self) -> str:
        """Who does the work, for people."""
        return f"{self.workers} local process{'es' * (self.workers != 1)}"

    def run(self, tasks: Iterator[Task]) -> Iterator[list[JobOutcome]]:
        """Outcomes as they come; a task is taken from the iterator only when a worker is free for it."""
        context = context_of(PRELOADED if self.work is work else [getattr(self.work, "func", self.work).__module__])
        crew: list[Worker] = []
        try:
            while True:
                self._employ(crew, tasks, context)
                if not crew:
                    return
                pipes = set(wait([worker.pipe for worker in crew]))
                ready = [worker for worker in crew if worker.pipe in pipes]
                outcomes = [outcome for worker in ready if (outcome := self._outcome(worker, crew))]
                # Give the free workers their next task before the caller spends time on these outcomes.
                self._employ(crew, tasks, context)
                if outcomes:
                    yield outcomes
        finally:
            for worker in crew:
                worker.process.terminate()
                worker.pipe.close()
            for worker in crew:
                worker.process.join()

    def _employ(self, crew: list[Worker], tasks: Iterator[Task], context: Any) -> None:
        """Give every idle worker a task, hire while there are tasks for more, dismiss those without."""
        idle = [worker for worker in crew if worker.task is None]
        while idle or len(crew) < self.workers:
            task = self._attempts.next(tasks)
            if task is None:
                break
            worker = idle.pop() if idle else _hire(context, self.work)
            if worker not in crew:
                crew.append(worker)
            worker.task = task
            try:
                worker.pipe.send(task)
            except OSError:
                # It died while idle; _outcome finds that out, and the task is tried again.
                continue
        for worker in idle:
            crew.remove(worker)
            worker.pipe.close()
            worker.process.join()

    def _outcome(self, worker: Worker, crew: list[Worker]) -> JobOutcome | None:
        """What a worker has to say, or None when it died and its task is to be tried again."""
        try:
            outcome: JobOutcome = worker.pipe.recv()
        except (EOFError, OSError):
            crew.remove(worker)
            worker.pipe.close()
            worker.process.join()
            end = f"({death(worker.process.exitcode)}); if memory is short, use fewer --workers"
            if worker.task is None:
                return None
            return self._attempts.died(worker.task, lambda count: f"its worker died {count} times {end}")
        worker.task = None
        return self._attempts.done(outcome)


def death(exit_code: int | None) -> str:
    """What ended a process.

    >>> death(-9), death(1)
    ('killed by SIGKILL', 'exit code 1')
    """
    return f"killed by {signal.Signals(-exit_code).name}" if exit_code and exit_code < 0 else f"exit code {exit_code}"


def _hire(context: Any, work: Work) -> Worker:
    """A new worker. The process that forks them may have been killed too; it is started again by the next attempt."""
    for _ in range(ATTEMPTS):
        ours, theirs = context.Pipe()
        try:
            process = begun(context, _serve, theirs, work)
        except (OSError, EOFError) as error:
            ours.close()
            reason = str(error) or type(error).__name__
            continue
        finally:
            # Only the worker holds its end now, so that its death closes the pipe.
            theirs.close()
        return Worker(process=process, pipe=ours)
    raise InputError(f"no worker process can be started ({reason}); free some memory, or use fewer --workers")


def _serve(pipe: Connection, work: Work) -> None:
    """The life of a worker: tasks in, outcomes out, until the other side hangs up."""
    # What was imported is never garbage, and a plan makes many objects and few circles of them.
    gc.freeze()
    gc.set_threshold(SELDOM)
    # Ctrl-C reaches the whole terminal; what to stop is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            pipe.send(work(pipe.recv()))
        except (EOFError, OSError):
            return
