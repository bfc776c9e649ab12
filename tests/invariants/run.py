"""Ask about many random jobs: `python -m tests.invariants.run 100 300 300 300 [--first 0] [--patience 10]`; exit code 1
where a restriction beats the free answer, something better makes an answer slower, or brute force finds another best.

The first number is of jobs that are asked once more under each of six restrictions, the second of jobs that get better
in one thing: memory, bandwidth, peak, network, host, or a limit that is widened. The third is of small jobs of tight
memory, held against every layout with every number of recomputed layers and the least state on the host; the fourth of
such jobs that are sharded, trained, updated and rounded in every way that there is. Every job is a seed of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.job.fields import FAST, FIELDS
from optimizer.job.job import TIME, Job
from optimizer.search.plan.alternatives import value_of
from optimizer.search.plan.planner import plan
from tests.invariants.changes import SHARE, improved, restrictions, tighter
from tests.invariants.jobs import random_job
from tests.invariants.tight import tight_job
from tests.search.brute_force import compare


@dataclass
class Tally:
    """What was asked, and what broke the law."""

    patience: float
    prefer: str = FAST
    counts: Counter[str] = field(default_factory=Counter)
    broken: int = 0

    def answer(self, job: Job) -> Answer:
        """The plan, without what does not change it."""
        found = plan(job, top=0, time_limit=self.patience, priced_risk=False, explained=False, read_twice=False)
        self.counts[found.status] += 1
        return found

    def drawn(self, random: Random, minimize: str = TIME) -> Answer:
        """The answer about the first job drawn that has a plan, and a price and power where they are minimised."""
        while True:
            try:
                answer = self.answer(replace(random_job(random), minimize=minimize, prefer=self.prefer))
            except InputError:
                continue
            if answer.plan is not None:
                return answer

    def hold(self, slower: Answer, faster: Answer, what: str) -> None:
        """Say so where the first is the faster of the two, or the one expected to be."""
        low, high = value(faster), value(slower)
        if high >= low * (1 - SHARE):
            return
        cut = "" if faster.status == "optimal" else f" ({faster.status}: its search was cut short)"
        self.broken += not cut
        self.counts["beaten, cut short"] += bool(cut)
        print(f"{what}: {high:.6g} s under {low:.6g} s, {1 - high / low:.2%}{cut}\n  {told(faster.job)}", flush=True)
        for each in (slower, faster):
            print(f"  {each.plan and each.plan.summary()}", flush=True)


def seconds(answer: Answer) -> float:
    """The step of an answer, infinite where nothing fits [s]."""
    return answer.estimate.step_time if answer.estimate else float("inf")


def value(answer: Answer) -> float:
    """What an answer is minimised by, infinite where nothing fits [unit of the objective]."""
    if answer.plan is None or answer.estimate is None:
        return float("inf")
    return value_of(answer.job, answer.plan, answer.knobs, answer.estimate)


def told(job: Job) -> str:
    """A job as the command asks about it."""
    return (
        f"--model {job.model.name} --cluster {job.cluster.name} --stack {job.stack.name} --gpus {job.gpus} "
        f"--seq-len {job.seq_len} --global-batch {job.global_batch} --dtype {job.dtype} {job.limits}"
    )


def restricted(tally: Tally, seed: int) -> None:
    """A free answer against restrictions of itself."""
    random = Random(seed)
    free = tally.drawn(random)
    for limits in (*restrictions(free, random), *tighter(free, random)):
        tally.hold(tally.answer(free.job.with_limits(**limits)), free, f"restricted {seed}, {limits}")


def bettered(tally: Tally, seed: int) -> None:
    """An answer against that of the same job with something better."""
    random = Random(10**6 + seed)
    found = tally.drawn(random)
    what, before, after = improved(found.job, random)
    worse = found if before == found.job else tally.answer(before)
    tally.hold(worse, tally.answer(after), f"better {seed}, {what}")


def tightened(tally: Tally, seed: int, various: bool = False) -> None:
    """The first of the seed's small jobs of tight memory whose layouts can all be listed, against them."""
    random = Random((3 if various else 2) * 10**6 + seed)
    while True:
        job = replace(tight_job(random, various), prefer=tally.prefer)
        try:
            if compare(job):
                tally.counts["equal to brute force"] += 1
                return
        except AssertionError as wrong:
            tally.broken += 1
            print(f"tight {seed}: {wrong}\n  {job}", flush=True)
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("restricted", type=int, nargs="?", default=100)
    parser.add_argument("bettered", type=int, nargs="?", default=300)
    parser.add_argument("tight", type=int, nargs="?", default=300)
    parser.add_argument("various", type=int, nargs="?", default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed [0]")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds for one search [10]")
    parser.add_argument("--prefer", choices=FIELDS["prefer"].choices, default=FAST, help="of these jobs [fast]")
    given = parser.parse_args()
    tally, begin = Tally(given.patience, given.prefer), time.monotonic()
    checks = (
        (restricted, given.restricted),
        (bettered, given.bettered),
        (tightened, given.tight),
        (partial(tightened, various=True), given.various),
    )
    for check, count in checks:
        for seed in range(given.first, given.first + count):
            check(tally, seed)
    kinds = ", ".join(f"{number} {kind}" for kind, number in tally.counts.items())
    numbers = f"{given.restricted} restricted, {given.bettered} bettered, {given.tight} tight"
    jobs = f"{numbers} and {given.various} tight jobs of every kind"
    print(f"{jobs}, {time.monotonic() - begin:.0f} s: {kinds}")
    print(f"{tally.broken} violations")
    sys.exit(bool(tally.broken))


if __name__ == "__main__":
    main()
