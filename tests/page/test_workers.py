"""Workers: many who ask the same are told once, nobody is kept waiting by work that no one wants."""

import asyncio
import os
import platform
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base import processes
from optimizer.base.errors import InputError
from optimizer.page import workers as module
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.task import PageTask
from optimizer.page.workers import Gone, Workers

SMALL = PlanQuestion(model="llama3-8b", gpus=64)
LONG = PlanQuestion(model="deepseek-v3", gpus=2048)  # some seconds


async def here() -> bool:
    return False


def leaves_after(seconds: float) -> Callable[[], Awaitable[bool]]:
    """A visitor who leaves after so long."""
    import time

    end = time.monotonic() + seconds

    async def gone() -> bool:
        return time.monotonic() > end

    return gone


def finished(work: Coroutine[None, None, None]) -> None:
    """Run it to its end in a thread of its own: the loop of a browser that tests share may run in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


@pytest.fixture
def one() -> Iterator[list[Workers]]:
    """A place for the workers of a test, which are ended after it."""
    made: list[Workers] = []
    yield made
    for each in made:
        each.end()


def test_a_question_asked_by_many_is_worked_out_once(one: list[Workers]) -> None:
    async def ask() -> None:
        one.append(Workers(1))
        found = await asyncio.gather(*(one[0].result(PageTask(view="answer", asked=SMALL), here) for _ in range(5)))
        assert all(each is found[0] for each in found)
        assert await one[0].result(PageTask(view="answer", asked=SMALL), here) is found[0]

    finished(ask())


def test_an_error_of_the_engine_is_raised_and_the_worker_lives_on(one: list[Workers]) -> None:
    async def ask() -> None:
        one.append(Workers(1))
        with pytest.raises(InputError, match="gpus must be at most"):
            await one[0].result(PageTask(view="answer", asked=replace(SMALL, gpus=2**30)), here)
        assert (await one[0].result(PageTask(view="answer", asked=SMALL), here))["address"] == SMALL.address()

    finished(ask())


def test_work_that_nobody_waits_for_is_stopped(one: list[Workers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.05)

    async def ask() -> None:
        one.append(Workers(1))
        await one[0].result(PageTask(view="answer", asked=SMALL), here)
        before = one[0]._free[0].process
        with pytest.raises(Gone):
            await one[0].result(PageTask(view="sensitivity", asked=LONG), leaves_after(0.5))
        while not one[0]._free:
            await asyncio.sleep(0.02)
        assert not before.is_alive()
        assert (await one[0].result(PageTask(view="runs", asked=SMALL), here))["html"]

    finished(ask())


def test_work_that_takes_too_long_keeps_no_worker_from_others(
    one: list[Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        one.append(Workers(1))
        await one[0].result(PageTask(view="answer", asked=SMALL), here)
        monkeypatch.setattr(module, "LONGEST", 0.3)
        with pytest.raises(InputError, match=r"longer than 0.3 s and was stopped.*optimize --model"):
            await one[0].result(PageTask(view="sensitivity", asked=LONG), here)
        monkeypatch.undo()
        assert (await one[0].result(PageTask(view="runs", asked=SMALL), here))["html"]

    finished(ask())


def test_one_who_comes_back_in_time_is_told_what_was_worked_on(one: list[Workers]) -> None:
    async def ask() -> None:
        one.append(Workers(1))
        await one[0].result(PageTask(view="answer", asked=SMALL), here)
        before = one[0]._free[0].process
        task = PageTask(view="sensitivity", asked=SMALL)
        with pytest.raises(Gone):
            await one[0].result(task, leaves_after(0.0))
        assert "html" in await one[0].result(task, here)
        assert before.is_alive()

    finished(ask())


def test_answers_are_told_before_proofs(one: list[Workers]) -> None:
    """Everybody's plan comes first; what is proven about each follows, and nobody who left is waited for."""
    told: list[str] = []

    async def ask() -> None:
        one.append(Workers(1))

        async def one_of(view: str, gpus: int) -> None:
            found = await one[0].result(PageTask(view=view, asked=replace(SMALL, gpus=gpus)), here)
            assert found["pending"] is (view == "answer")
            assert ("Proven optimal" in found["answer"]) is (view == "proven")
            told.append(view)

        await one_of("answer", 64)
        first = asyncio.create_task(one_of("answer", 8))  # while it is worked out, the others queue up
        left = asyncio.create_task(
            one[0].result(PageTask(view="proven", asked=replace(SMALL, gpus=4)), leaves_after(0.0))
        )
        await asyncio.sleep(0)
        await asyncio.gather(first, one_of("proven", 64), one_of("answer", 16), one_of("answer", 32))
        with pytest.raises(Gone):
            await left

    finished(ask())
    assert told == ["answer"] * 4 + ["proven"]


def test_what_passes_is_not_kept(one: list[Workers]) -> None:
    async def ask() -> None:
        one.append(Workers(1))
        task = PageTask(view="answer.json", asked=SMALL, passing=True)
        assert b'"status": "optimal"' in await one[0].result(task, here)
        assert not one[0]._results

    finished(ask())


def test_work_ahead_that_is_not_done_when_the_server_ends_is_no_error(one: list[Workers]) -> None:
    wrong: list[object] = []

    async def end() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        one.append(Workers(1))
        one[0].ahead([PageTask(view="proven", asked=LONG), PageTask(view="answer", asked=LONG)])
        await asyncio.sleep(0.2)  # and `asyncio.run` cancels what still runs

    finished(end())
    assert wrong == []


class Process:
    """What stands in the place of a process: its pipe, and whether it began."""

    def __init__(self, method: str) -> None:
        self.method, self.begun, self.daemon = method, 0, False

    def get_start_method(self) -> str:
        return self.method

    def Pipe(self) -> tuple[Any, Any]:
        return SimpleNamespace(close=lambda: None), SimpleNamespace(close=lambda: None)

    def Process(self, target: object, args: object, daemon: bool) -> Any:
        self.daemon = daemon

        def start() -> None:
            self.begun += 1

        return SimpleNamespace(start=start, kill=lambda: None, join=lambda: None)


@pytest.mark.parametrize(("method", "servers"), [("forkserver", 1), ("spawn", 0)])
def test_a_process_begins_once_and_its_server_first(method: str, servers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    process, begun = Process(method), []
    monkeypatch.setattr(module, "context_of", lambda preloaded: process)
    monkeypatch.setattr(processes, "start_server", lambda: begun.append(process.begun))
    worker = module.PageWorker()
    assert worker._begun() is worker._begun()
    assert (begun, process.begun, process.daemon) == ([0] * servers, 1, True)
    worker.end()
    with pytest.raises(EOFError):
        worker._begun()


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (4, 4), (64, 4), (None, 1)])
def test_there_are_as_many_workers_as_cores_up_to_four(
    cores: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PageWorker", lambda: SimpleNamespace())
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert len(Workers()._free) == workers
    assert len(Workers(3)._free) == 3


def test_the_newest_results_are_remembered() -> None:
    memory: OrderedDict[int, int] = OrderedDict()
    for number in (*range(256), 0, 256):
        module._remember(memory, number, number)
    assert len(memory) == 256
    assert 0 in memory
    assert 1 not in memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_memory_that_was_freed_is_given_back() -> None:
    """100 MB in pieces that one more, which stays, keeps from being given back by themselves."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pieces = [bytearray(b"x") * 100_000 for _ in range(1000)]
    stays, full = pieces[-1], resident()
    pieces.clear()
    module._trim()
    assert full - resident() > 80e6
    assert len(stays) == 100_000


def test_work_goes_on_for_two_seconds_and_what_waits_is_dropped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor is looked for every tenth of a second, and no task takes longer than 150 s."""
    over, delays, limits = threading.Event(), list[float](), list[float | None]()
    monkeypatch.setattr(
        module, "PageWorker", lambda: SimpleNamespace(result=lambda _: over.wait(10.0), end=over.set, process=None)
    )
    timeout = asyncio.timeout

    def limited(seconds: float | None) -> asyncio.Timeout:
        limits.append(seconds)
        return timeout(seconds)

    async def left() -> bool:
        return True

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def noted(delay: float, *given: Any, **others: Any) -> asyncio.TimerHandle:
            delays.append(delay)
            return later(delay, *given, **others)

        monkeypatch.setattr(loop, "call_later", noted)
        workers = Workers(1)
        for asked in (SMALL, LONG):  # of which the first keeps the only worker
            with pytest.raises(Gone):
                await workers.result(PageTask(view="answer", asked=asked), left)
        over.set()
        await asyncio.sleep(0.05)

    monkeypatch.setattr(module.asyncio, "timeout", limited)
    finished(ask())
    assert delays[:4] == [0.1, 2.0, 0.1, 0.0]
    assert limits == [150.0]
