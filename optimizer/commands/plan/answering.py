"""From the options of a plan to its answer: one way for the command and for Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from optimizer.commands.plan.best_use import best_use_of, hinted
from optimizer.commands.request import job_of, request_of
from optimizer.commands.values import ANY, storage_url
from optimizer.job.fields import SIMPLE
from optimizer.objectives.minimised.registry import objective_of

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job

EVERY_STRUCTURE = 10**6


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
        job, assumed, known = best_use_of(request, at_most, flex, Tuning(trials=trials, seed=seed))
    else:
        job, assumed = job_of(request)
    from optimizer.search.plan.planner import plan
    from optimizer.search.plan.precision import best_format, formats_of

    formats = formats_of(dtypes, job) if several else (job.dtype,)
    search = partial(
        plan,
        top=options["top"] if within is None else EVERY_STRUCTURE,
        within=float("inf") if within is None else within,
        trials=trials,
        time_limit=time_limit and time_limit / len(formats),
        seed=seed,
        study=storage,
        known=known,
    )
    answer = best_format(job, formats, search)
    if options["prefer"] == SIMPLE:
        answer, words = _simplest(answer, search)
        assumed += words
    if not (at_most or flex or time_limit):
        answer = hinted(answer, request)
    return replace(answer, assumptions=assumed)


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
