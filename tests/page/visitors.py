"""Many visitors at once in both tabs, each with sliders of their own: `python -m tests.page.visitors 20 [plan]`.

Every visitor moves a slider at the same moment, round after round. Printed are the times from a moved
slider to its answer, what the server took of the processor, and how many answers were another visitor's.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

from tests.page.conftest import Served, ended, started

ROUNDS = 5
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_MS = 120_000


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Seconds that answers took, and those until they were proven where that comes later; the processor's seconds of
    the server for all of them, and answers of others.
    """

    room: str
    seconds: tuple[float, ...]
    cpu: float
    lost: int
    proofs: tuple[float, ...] = ()

    def __str__(self) -> str:
        """One line."""
        ordered = sorted(self.seconds)
        worst = ordered[int(0.95 * (len(ordered) - 1))]
        proofs = f"with its proof {statistics.median(self.proofs):.2f} s, " if self.proofs else ""
        return (
            f"{self.room:5s} {len(ordered)} moves: median {statistics.median(ordered):.2f} s, 95% in {worst:.2f} s, "
            f"{proofs}{self.cpu / len(ordered):.3f} s of the server's processor each; {self.lost} lost"
        )


def cpu_of(process: int) -> float:
    """Seconds that a process and those below it were on a processor."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    wanted = {process}
    while more := {number for number, stat in stats.items() if int(stat[1]) in wanted} - wanted:
        wanted |= more
    return sum((int(stats[number][11]) + int(stats[number][12])) / TICKS for number in wanted & set(stats))


def plan(served: Served, count: int, rounds: int = ROUNDS) -> Seen:
    """Visitors of the Plan room: each has a number of GPUs of its own, and moves the batch.

    As the page does, a visitor asks for the proof behind the answer; nobody moves on before it is there.
    """
    openers = [build_opener(HTTPCookieProcessor()) for _ in range(count)]
    for opener in openers:
        opener.open(served.room()).close()  # the token becomes a cookie

    def asked(visitor: int, turn: int) -> tuple[float, float, bool]:
        gpus = 64 * (visitor + 1)
        question = f"model=gpt3&gpus={gpus}&global_batch={gpus * (turn + 1)}"
        start, took, mine, pending = time.perf_counter(), [], True, True
        for view in ("answer", "proven"):
            if pending:
                with openers[visitor].open(f"{served.home}/plan/view/{view}?{question}") as response:
                    found = json.load(response)
                mine, pending = mine and f" on {gpus:,} " in found["title"], found["pending"]
            took.append(time.perf_counter() - start)
        return took[0], took[1], mine and not pending

    before = cpu_of(served.process.pid)
    found: list[tuple[float, float, bool]] = []
    with ThreadPoolExecutor(count) as together:
        for turn in range(1, rounds + 1):
            found += together.map(asked, range(count), [turn] * count)
    return Seen(
        room="Plan",
        seconds=tuple(seconds for seconds, _, _ in found),
        proofs=tuple(seconds for _, seconds, _ in found),
        cpu=cpu_of(served.process.pid) - before,
        lost=sum(not mine for _, _, mine in found),
    )


def learn(served: Served, count: int, rounds: int = ROUNDS) -> Seen:
    """Visitors of the Learn tab: each moves the number of GPUs of Act I, at values of its own."""
    openers = [build_opener(HTTPCookieProcessor()) for _ in range(count)]
    for opener in openers:
        opener.open(served.room("/learn/")).close()

    def moved(visitor: int, turn: int) -> tuple[float, bool]:
        gpus = 8 * (2 + visitor + count * (turn - 1))
        start = time.perf_counter()
        with openers[visitor].open(f"{served.home}/learn/view/panel?act=1&gpus={gpus}") as response:
            found = json.load(response)["html"]
        return time.perf_counter() - start, f"{gpus - 1:,} / {gpus:,}" in found

    before = cpu_of(served.process.pid)
    found: list[tuple[float, bool]] = []
    with ThreadPoolExecutor(count) as together:
        for turn in range(1, rounds + 1):
            found += together.map(moved, range(count), [turn] * count)
    return Seen(
        room="Learn",
        seconds=tuple(seconds for seconds, _ in found),
        cpu=cpu_of(served.process.pid) - before,
        lost=sum(not mine for _, mine in found),
    )


def main(count: int, rooms: Sequence[str] = ("plan", "learn")) -> None:
    """The rooms, one after the other."""
    served = started()
    try:
        print(f"{count} visitors on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        if "plan" in rooms:
            print(plan(served, count), flush=True)
        if "learn" in rooms:
            print(learn(served, count), flush=True)
    finally:
        ended(served)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:] or ("plan", "learn"))
