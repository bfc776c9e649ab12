"""From the options of a plan to its answer, on as many GPUs and with the batch that use them best where asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError
from optimizer.commands.request import Request, job_of, request_of
from optimizer.commands.values import ANY, storage_url
from optimizer.commands.waiting import progress
from optimizer.objectives.minimised.registry import objective_of

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.search.lattice.oracle import Tuning
    from optimizer.search.plan.best import Known

EVERY_STRUCTURE = 10**6
HINTS = 2  # other counts tried for a hint
ODD = 9  # odd part of a count from which on it may divide badly
NOTICEABLE = 0.01  # of the worth, from which on a hint is given


def answered(options: Mapping[str, Any]) -> Answer:
    """The answer to what was asked, with a sentence for everything assumed.

    Args:
        options: values of the options of a plan by the names of their fields; gpus is a pair, of the number and of
            whether fewer will do.

    Raises:
        InputError: for a name, number or combination that cannot be used.
    """
    study, flex, within, seed = (options[name] for name in ("study", "flex", "within", "seed"))
    time_limit, trials = options["time_limit"], options["trials"]
    storage = storage_url(study) if study else None
    (gpus, at_most), dtypes = options["gpus"], options["dtype"]
    several = "," in dtypes or dtypes == ANY
    request = request_of(options, gpus=gpus, dtype="" if several else dtypes)
    from optimizer.search.lattice.oracle import Tuning

    known = None
    if at_most or flex:
        job, assumed, known = _best_use(request, at_most, flex, Tuning(trials=trials, seed=seed))
    else:
        job, assumed = job_of(request)
    from optimizer.search.plan.planner import plan
    from optimizer.search.plan.precision import best_format, formats_of

    formats = formats_of(dtypes, job) if several else (job.dtype,)
    search = partial(
        plan,
        top=options["top"] if within is None else EVERY_STRUCTURE,
        within=inf if within is None else within,
        trials=trials,
        time_limit=time_limit and time_limit / len(formats),
        seed=seed,
        study=storage,
        known=known,
    )
    answer = best_format(job, formats, search)
    if answer.plan is None and not (at_most or flex):
        answer, assumed = _switched(answer, assumed, request, lambda other: best_format(other, formats, search))
    if not (at_most or flex or time_limit):
        answer = _faster_switched(_hinted(answer, request))
    return replace(answer, assumptions=assumed)


def _best_use(
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
        use = best_use(jobs(), step, tuning)
    if use.best.job == asked:
        others = f"none of {len(use.tried)} others tried is {objective_of(asked).better}"
        why = f"the {asked.gpus:,} GPUs and batch asked for: {others}"
        return asked, (*assumed, why), use.known
    _, assumed = job_of(replace(request, gpus=use.best.job.gpus))
    return use.best.job, (*assumed, use.words()), use.known


def _switched(
    answer: Answer, assumed: tuple[str, ...], request: Request, search: Callable[[Job], Answer]
) -> tuple[Answer, tuple[str, ...]]:
    """An answer without a plan, or that with the first switch of the software that lets some plan fit."""
    from optimizer.job.switches import switches
    from optimizer.search.infeasible.methods import switched_jobs

    for option, _ in switched_jobs(answer.job):
        name, _, state = option.removeprefix("--fix ").partition("=")
        switch = switches()[name]
        settings = (*request.settings, *switch.settings(state))
        job, _ = job_of(replace(request, settings=settings))
        other = search(job)
        if other.plan is not None:
            return other, (*assumed, f"{name}={state}, without which no plan fits: {switch.meaning} (--fix)")
    return answer, assumed


def _hinted(answer: Answer, request: Request) -> Answer:
    """The answer, with a flag where fewer GPUs would be faster: counts with a large odd part may divide badly."""
    job = answer.job
    if job.gpus // (job.gpus & -job.gpus) < ODD or job.gpus < 2 * job.cluster.gpus_per_node:
        return answer
    from optimizer.search.plan.alternatives import value_of
    from optimizer.studies.best_use import BestUse, Use, best_use, counts_at_most, evener

    others = evener(counts_at_most(job.gpus, job.cluster.gpus_per_node))[:HINTS]
    jobs = [other for count in others if (other := _on(replace(request, dtype=job.dtype), count)) is not None]
    if not jobs:
        return answer
    value = value_of(job, answer.plan, answer.knobs, answer.estimate) if answer.plan and answer.estimate else inf
    mine = Use(job=job, worth=job.tokens / value)  # tokens for a unit of what is minimised
    noticed = mine.worth * (1.0 + NOTICEABLE)
    best = max(best_use(jobs, beyond=noticed).tried, key=lambda use: use.worth)
    if best.worth <= noticed:
        return answer
    words = BestUse(asked=mine, best=best, tried=(mine, best)).words()
    return replace(answer, flags=(*answer.flags, f"{words} (--gpus at-most:{job.gpus})"))


def _faster_switched(answer: Answer) -> Answer:
    """The answer, with a flag for a switch that the software leaves open and nobody set, where it is faster so."""
    if answer.plan is None or answer.estimate is None or not answer.job.stack.features.switchable:
        return answer
    from optimizer.job.switches import switches
    from optimizer.search.infeasible.methods import switched_jobs
    from optimizer.search.plan.alternatives import value_of
    from optimizer.studies.best_use import best_use

    worth = answer.job.tokens / value_of(answer.job, answer.plan, answer.knobs, answer.estimate)
    flags = list(answer.flags)
    for option, other in switched_jobs(answer.job):
        gain = best_use([other], beyond=worth * (1.0 + NOTICEABLE)).best.worth / worth - 1.0
        if gain > NOTICEABLE:
            switch = switches()[option.removeprefix("--fix ").partition("=")[0]]
            name = switch.meaning.partition(":")[0]
            flags.append(f"{name}: {gain:.0%} more tokens a {objective_of(other).per} ({option})")
    return replace(answer, flags=tuple(flags))


def _on(request: Request, gpus: int) -> Job | None:
    """The same question on another number of GPUs, its batch as asked or as usual there; None where it cannot be."""
    try:
        return job_of(replace(request, gpus=gpus))[0]
    except InputError:
        return None
