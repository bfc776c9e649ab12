"""Many visitors at once in both rooms, each with sliders of their own: `python -m tests.page.visitors 20 [plan]`.

In the Plan room every visitor moves a slider at the same moment, round after round; in the Learn room each has a window
of one Chromium, so that its time includes what browsers take of the same cores. Printed are the times from a moved
slider to its answer, what the server took of the processor, and how many answers were another visitor's.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

from tests.browser import chromium_here, windows_of
from tests.page.conftest import Served, ended, started

ROUNDS = 5
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_MS = 120_000
WATCH = """() => {
    const told = () => document.getElementById("act1-sent")?.innerText;
    let before = told(), start = 0;
    window.moves = [];
    addEventListener("keydown", (event) => { if (event.key === "Enter") start = performance.now(); }, true);
    new MutationObserver(() => {
        if (start && told() && told() !== before) {
            window.moves.push(performance.now() - start);
            before = told();
            start = 0;
        }
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


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


def learn(window: Callable[[], Any], served: Served, count: int, rounds: int = ROUNDS) -> Seen:
    """Visitors of the Learn room, windows of one browser: each has locked the first prediction, and moves the number of
    GPUs of its own.
    """
    pages = [_entered(window, served) for _ in range(count)]
    before = cpu_of(served.process.pid)
    lost, expected = 0, dict[int, str]()
    for turn in range(1, rounds + 1):
        for visitor, page in enumerate(pages):
            gpus = 8 * (2 + visitor + count * (turn - 1))
            expected[visitor] = f"{gpus - 1:,} / {gpus:,}"
            box = page.locator("marimo-slider", has_text="GPUs (replicas)").locator("input")
            box.fill(str(gpus))
            box.press("Enter")
        for page in pages:
            page.wait_for_function("count => window.moves.length >= count", arg=turn)
    for visitor, page in enumerate(pages):
        lost += expected[visitor] not in page.locator("table", has=page.locator("#act1-sent")).inner_text()
    seconds = tuple(move / 1000 for page in pages for move in page.evaluate("window.moves"))
    cpu = cpu_of(served.process.pid) - before
    for page in pages:
        page.close()
    return Seen(room="Learn", seconds=seconds, cpu=cpu, lost=lost)


def _entered(window: Callable[[], Any], served: Served) -> Any:
    """A page of a visitor who has locked the first prediction."""
    page = window()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(served.room("/learn/"))
    choice = page.get_by_role("radio", name="B. Adding up gradients")
    choice.click()
    page.locator(".marimo-cell", has=choice).get_by_role("button", name="Lock my").click()
    page.locator("#act1-sent").wait_for()
    page.evaluate(WATCH)
    return page


def main(count: int, rooms: Sequence[str] = ("plan", "learn")) -> None:
    """The rooms, one after the other."""
    served = started()
    try:
        print(f"{count} visitors on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        if "plan" in rooms:
            print(plan(served, count), flush=True)
        if "learn" in rooms:
            with chromium_here() as browser, windows_of(browser) as window:
                print(learn(window, served, count), flush=True)
    finally:
        ended(served)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:] or ("plan", "learn"))
