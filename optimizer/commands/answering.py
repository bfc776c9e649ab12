"""From the options of a plan to its answer: one way for the command and for Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from optimizer.commands.best_use import best_use_of, hinted
from optimizer.commands.request import Request, job_of
from optimizer.commands.values import ANY, merged, storage_url
from optimizer.job.variables import LIMITS
from optimizer.objectives.minimised.registry import objective_of

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job

FAST, SIMPLE = "fast", "simple"
EVERY_STRUCTURE = 10**6


def answered(
    *,
    model: str,
    gpus: int,
    at_most: bool,
    flex: float | None,
    top: int,
    within: float | None,
    trials: int,
    time_limit: float | None,
    seed: int,
    study: str | None,
    prefer: str,
    **options: Any,
) -> Answer:
    """The answer to what was asked, with a sentence for everything assumed; `options` are those of a job.

    Raises InputError for a name, number or combination that cannot be used.
    """
    storage = storage_url(study) if study else None
    limits, dtypes = limits_of(options), options.pop("dtype")
    several = "," in dtypes or dtypes == ANY
    request = Request(model=model, gpus=gpus, limits=limits, dtype="" if several else dtypes, **options)
    from optimizer.search.lattice.oracle import Tuning

    known = None
    if at_most or flex:
        job, assumed, known = best_use_of(request, at_most, flex, Tuning(trials=trials, seed=seed))
    else:
        job, assumed = job_of(request)
    from optimizer.search.plan.planner import plan
    from optimizer.search.plan.precision import best_format, formats_of

    formats = formats_of(dtypes, job) if several else (job.dtype,)
    search = partial(
        plan,
        top=top if within is None else EVERY_STRUCTURE,
        within=float("inf") if within is None else within,
        trials=trials,
        time_limit=time_limit and time_limit / len(formats),
        seed=seed,
        study=storage,
        known=known,
    )
    answer = best_format(job, formats, search)
    if prefer == SIMPLE:
        answer, words = _simplest(answer, search)
        assumed += words
    if not (at_most or flex or time_limit):
        answer = hinted(answer, request)
    return replace(answer, assumptions=assumed)


def limits_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options that are limits out of the others; keyed by the fields of optimizer.job.job.Limits."""
    pinned = merged(options.pop("fix"))
    limits = {field: options.pop(option) for option, field in LIMITS.items()}
    return {**limits, "max_tp": limits["max_tp"] or 0, **pinned}


def _simplest(answer: Answer, search: Callable[[Job], Answer]) -> tuple[Answer, tuple[str, ...]]:
    """The answer for the plan with the fewest moving parts among those as fast, and what was assumed for it."""
    from optimizer.search.plan.simplicity import NOISE, held_to

    other, words = answer.simpler, objective_of(answer.job)
    if other is None:
        near = f"no plan within {NOISE:.0%} of the {words.best} has fewer moving parts (--prefer)"
        return answer, (near,) if answer.plan else ()
    why = (
        f"the fewest moving parts within {NOISE:.0%} of the {words.best} plan, {other.slower:.1%} {words.worse} than "
        "it: every variable is pinned as in that plan (--prefer)"
    )
    return search(held_to(answer.job, other.plan)), (why,)
