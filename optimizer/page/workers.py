"""Processes that search, so that a question nobody waits for any more can be stopped and every core is used."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from optimizer.base.errors import InputError, OptimizerError
from optimizer.base.processes import begun, context_of
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.task import PageTask, TabQuestion

MOST = 4  # processes
MOST_RESULTS = 256  # texts that were worked out
GRACE = 2.0  # that work goes on after the last visitor left: a slider often comes back [s]
BEHIND = ("proven",)  # views that begin when nobody waits for another: an answer without its proof is there sooner
LONGEST = 150.0  # that one task may take, so that nobody's question keeps a worker from all others [s]
LOOK = 0.1  # between two looks whether a visitor is still there [s]
Key = TypeVar("Key")
ENGINE = (
    *("optimizer.page.views", "optimizer.search.plan.planner", "optimizer.commands.request"),
    *("optimizer.catalog.hardware", "ortools.sat.python.cp_model", "scipy.special", "jinja2"),
)


class Gone(Exception):
    """Nobody waits for the result any more."""


FIRST = tuple(PageTask(view=view, asked=PlanQuestion()) for view in ("answer", "proven"))  # with which the tab opens


class PageWorker:
    """One process, which works out one task at a time; it begins while its maker goes on."""

    def __init__(self) -> None:
        self.pipe: Connection | None = None
        self.process: Any = None
        self._over = False
        self._lock = threading.Lock()
        threading.Thread(target=self._begin, daemon=True).start()

    def result(self, task: PageTask) -> Any:
        """The result of a task; EOFError or OSError when the process is ended meanwhile."""
        pipe = self._begun()
        pipe.send(task)
        return pipe.recv()

    def end(self) -> None:
        """Stop whatever it does."""
        with self._lock:
            self._over = True
            if self.pipe is not None:
                self.process.kill()
                self.process.join()
                self.pipe.close()

    def _begin(self) -> None:
        with suppress(EOFError, OSError):  # ended before it began
            self._begun()

    def _begun(self) -> Connection:
        """The pipe to the process, once there is one."""
        with self._lock:
            if self._over:
                raise EOFError
            if self.pipe is None:
                context = context_of(ENGINE)
                self.pipe, theirs = context.Pipe()
                self.process = begun(context, work, theirs)
                theirs.close()
            return self.pipe


class Workers:
    """A few workers, their results, and who waits for them: one question asked by many is worked out once."""

    def __init__(self, count: int = 0) -> None:
        self._free: list[PageWorker] = []
        self._queue: dict[asyncio.Future[PageWorker], PageTask] = {}  # who waits for a worker, the longest first
        self._answered: OrderedDict[TabQuestion, PageWorker] = OrderedDict()
        self._results: OrderedDict[PageTask, Any] = OrderedDict()
        self._ahead: dict[PageTask, asyncio.Task[Any]] = {}  # that nobody has asked for yet
        self._running: dict[PageTask, tuple[asyncio.Task[Any], set[object]]] = {}
        self._workers = [PageWorker() for _ in range(count or min(MOST, os.cpu_count() or 1))]
        for worker in self._workers:
            self._give(worker)

    def warm(self) -> None:
        """Work out the question with which the tab opens, so that whoever comes finds the engine loaded."""
        for task in FIRST:
            _remember(self._results, task, _raised(self._workers[0].result(task)))

    def known(self, task: PageTask) -> Any:
        """What a view shows if that is known, else None; raises OptimizerError as the engine does."""
        return _raised(self._results.get(task))

    async def result(self, task: PageTask, gone: Callable[[], Awaitable[bool]]) -> Any:
        """What a view says; raises Gone once `gone` is true, OptimizerError as the engine does.

        Work that nobody waits for is stopped after a moment, and not begun at all if it has not yet.
        """
        if task in self._results:
            self._results.move_to_end(task)
            return _raised(self._results[task])
        if task not in self._running:
            self._running[task] = (asyncio.create_task(self._work(task)), set())
        else:
            self._ahead.pop(task, None)  # somebody waits for it now
        work, waiting = self._running[task]
        me = object()
        waiting.add(me)
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=LOOK)
                if not work.done() and await gone():
                    raise Gone
            if work.cancelled():  # stopped for the visitors before, just as this one came
                return await self.result(task, gone)
            return _raised(work.result())
        finally:
            waiting.discard(me)
            if not waiting and not work.done():
                begun = task not in self._queue.values()
                asyncio.get_running_loop().call_later(GRACE if begun else 0.0, self._stop, task)

    def ahead(self, tasks: Iterable[PageTask]) -> None:
        """Work out what somebody will soon ask for, behind everything that is asked for now."""

        async def here() -> bool:
            return False

        for task in tasks:
            if task not in self._results and task not in self._running:
                self._ahead[task] = asyncio.create_task(self.result(task, here))
                self._ahead[task].add_done_callback(partial(self._came, task))

    def _came(self, task: PageTask, done: asyncio.Task[Any]) -> None:
        self._ahead.pop(task, None)
        if not done.cancelled():  # as the server ends
            done.exception()  # whoever asks for it is told

    def end(self) -> None:
        """Stop every process."""
        for worker in self._workers:
            worker.end()

    def _stop(self, task: PageTask) -> None:
        work, waiting = self._running.get(task, (None, set()))
        if work and not waiting:
            work.cancel()

    async def _work(self, task: PageTask) -> Any:
        worker: PageWorker | None = None
        try:
            worker = await self._take(task)
            async with asyncio.timeout(LONGEST):
                result = await asyncio.to_thread(worker.result, task)
            self._give(worker)
            if not task.passing:
                _remember(self._results, task, result)
            return result
        except TimeoutError:
            self._replace(worker)
            return InputError(
                f"this took longer than {LONGEST:g} s and was stopped: ask for less, or leave it to the command line, "
                f"`{task.asked.flags()}`"
            )
        except (asyncio.CancelledError, EOFError, OSError):
            self._replace(worker)
            raise
        finally:
            self._running.pop(task, None)

    def _replace(self, worker: PageWorker | None) -> None:
        """End a worker in the middle of its task; another takes its place."""
        if worker is None:
            return
        worker.end()
        other = PageWorker()
        self._workers[self._workers.index(worker)] = other
        self._give(other)

    async def _take(self, task: PageTask) -> PageWorker:
        """A worker, when it is this task's turn."""
        worker: asyncio.Future[PageWorker] = asyncio.get_running_loop().create_future()
        self._queue[worker] = task
        self._assign()
        try:
            return await worker
        except asyncio.CancelledError:
            if not self._queue.pop(worker, None) and not worker.cancelled():
                self._give(worker.result())
            raise

    def _give(self, worker: PageWorker) -> None:
        self._free.append(worker)
        self._assign()

    def _assign(self) -> None:
        """A free worker for everybody whose turn it is; where it may be, the one that has the plans at hand."""
        while self._free and self._queue:
            waiting = min(self._queue, key=self._order)
            asked = self._queue.pop(waiting).asked.searched
            if waiting.done():  # who waited has left
                continue
            known = self._answered.get(asked)
            worker = known if known and known in self._free else self._free[0]
            self._free.remove(worker)
            _remember(self._answered, asked, worker)
            waiting.set_result(worker)

    def _order(self, waiting: asyncio.Future[PageWorker]) -> tuple[bool, bool]:
        """Who comes first, of equals the one who waits longest: a proof last, and best where its plans are at hand."""
        task = self._queue[waiting]
        behind = task.view in BEHIND or task in self._ahead
        return behind, behind and self._answered.get(task.asked.searched) not in self._free


def _remember(memory: OrderedDict[Key, Any], key: Key, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > MOST_RESULTS:
        memory.popitem(last=False)


def _raised(result: Any) -> Any:
    if isinstance(result, OptimizerError):
        raise result
    return result


def work(pipe: Connection) -> None:
    """What a worker process does, until its pipe is closed."""
    from optimizer.page.views import result

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers
    with suppress(Exception):
        for first in FIRST:  # so that whoever comes finds everything loaded
            result(first)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            task: PageTask = pipe.recv()
            try:
                answer = result(task)
            except OptimizerError as error:
                answer = InputError(str(error))
            except Exception as error:
                flags, kind = task.asked.flags(), type(error).__name__
                answer = OptimizerError(f"internal error: {kind}: {error}. This is a bug; `{flags}` may show more.")
            pipe.send(answer)
            _trim()


def _trim() -> None:
    """Give the memory that a search has freed back to the system: glibc keeps it, for each thread of CP-SAT apart."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
