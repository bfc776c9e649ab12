"""`--gpus at-most:N` and `--flex`: the job that uses the GPUs best, and a hint where N itself plans badly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.commands.request import Request, job_of
from optimizer.commands.waiting import progress
from optimizer.objectives.minimised.registry import objective_of

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.search.lattice.oracle import Tuning
    from optimizer.search.plan.best import Known

HINTS = 2  # other counts tried for a hint
ODD = 9  # odd part of a count from which on it may divide badly
NOTICEABLE = 0.01  # of the worth, from which on a hint is given


def best_use_of(
    request: Request, at_most: bool, flex: float | None, tuning: Tuning
) -> tuple[Job, tuple[str, ...], Known | None]:
    """The job of the highest worth on at most so many GPUs, with a batch that may move by a share.

    The sentences on what was assumed say what was chosen, and what was tried; last what the planner need not look for
    again.
    """
    from optimizer.studies.best_use import best_use, counts_at_most, with_batches

    asked, assumed = job_of(request)
    counts = counts_at_most(request.gpus, asked.cluster.gpus_per_node) if at_most else (request.gpus,)

    def jobs() -> Iterator[Job]:
        for gpus in counts:
            job = asked if gpus == asked.gpus else _on(request, gpus)
            if job is not None:
                yield from with_batches(job, flex) if flex else (job,)

    with progress("counts and batches", None) as step:
        found = best_use(jobs(), step, tuning)
    if found.best.job == asked:
        others = f"none of {len(found.tried)} others tried is {objective_of(asked).better}"
        said = f"the {asked.gpus:,} GPUs and batch asked for: {others}"
        return asked, (*assumed, said), found.known
    _, again = job_of(replace(request, gpus=found.best.job.gpus))
    return found.best.job, (*again, found.words()), found.known


def hinted(answer: Answer, request: Request) -> Answer:
    """The answer, with a flag where fewer GPUs would be faster: counts with a large odd part may divide badly."""
    job = answer.job
    if job.gpus // (job.gpus & -job.gpus) < ODD or job.gpus < 2 * job.cluster.gpus_per_node:
        return answer
    from optimizer.studies.best_use import BestUse, Use, best_use, counts_at_most, evener

    others = evener(counts_at_most(job.gpus, job.cluster.gpus_per_node))[:HINTS]
    jobs = [found for count in others if (found := _on(replace(request, dtype=job.dtype), count)) is not None]
    if not jobs:
        return answer
    mine = Use(job=job, worth=_worth(answer))
    best = max(best_use(jobs).tried, key=lambda use: use.worth)
    if best.worth <= mine.worth * (1.0 + NOTICEABLE):
        return answer
    words = BestUse(asked=mine, best=best, tried=(mine, best)).words()
    return replace(answer, flags=(*answer.flags, f"{words} (--gpus at-most:{job.gpus})"))


def _worth(answer: Answer) -> float:
    """Tokens for a unit of what is minimised, 0 without a plan [1/unit]."""
    from optimizer.search.plan.alternatives import value_of

    if answer.plan is None or answer.estimate is None:
        return 0.0
    return answer.job.tokens / value_of(answer.job, answer.plan, answer.knobs, answer.estimate)


def _on(request: Request, gpus: int) -> Job | None:
    """The same question on another number of GPUs, its batch as asked or as usual there; None where it cannot be."""
    try:
        return job_of(replace(request, gpus=gpus))[0]
    except InputError:
        return None
