"""What is proven about the best plan, and by what, and what the space of the search leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optimizer.answer.answer import Certificate
from optimizer.answer.keys import STATUSES
from optimizer.base.content import content
from optimizer.base.errors import OptimizerError
from optimizer.constraints.rule import BoolArray, Rule
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.recomputation import modules_of
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.module_sets import searched_modes
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.enumerate import alike
from optimizer.search.lattice.oracle import Sweep
from optimizer.search.lattice.proof import prove
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate, ProofPlans
from optimizer.search.layouts.least_memory import LeastMemory
from optimizer.search.layouts.problem import cuts_searched, recomputing_searched

MOST = 5  # lines


def certify(
    job: Job,
    rules: Sequence[Rule],
    swept: Sweep,
    layouts: AssignedLayouts,
    even: float,
    *,
    seed: int,
    time_limit: float | None,
    read_twice: bool,
) -> Certificate:
    """The proof of a sweep and its layouts: bounds on every plan, and CP-SAT's own reading of the rules, unless they
    are not to be `read_twice`.

    `even` is the value of the best even split [unit of the objective]. Raises OptimizerError if numpy and CP-SAT ever
    disagree.
    """
    best = layouts.best
    if best is None:
        return without_plan(job, swept)
    certificate = Certificate(
        proven=layouts.complete,
        lower_bound=layouts.bound,
        best=best.value,
        space=swept.space,
        fitting=swept.fitting,
        knob_bound=layouts.knob_bound,
        even=even,
        band=layouts.band,
        solved=layouts.solved,
    )
    if not layouts.complete or not layouts.proof or not read_twice or time_limit == 0.0:
        return described(job, certificate)
    given = layouts.proof
    needed = LeastMemory().bounds(job, given.plans, layer_costs=given.layer_costs)
    plans, values, fits = _with(given, best, needed <= safe_memory(job))
    place = int(np.argmax(alike(plans, best.plan)))
    proof = prove(
        job,
        (*rules, Memory()),
        plans,
        values,
        fits=fits,
        hint=place,
        seed=seed,
        time_limit=time_limit,
    )
    if proof.proven and place not in proof.ties:
        raise OptimizerError(
            f"CP-SAT and the oracle disagree on {job.model.name}, {job.gpus} GPUs: {proof.bound} against "
            f"{best.value} {objective_of(job).unit}; please report this job"
        )
    return described(job, replace(certificate, candidates=len(plans) if proof.proven else 0))


def _with(given: ProofPlans, best: Candidate, possible: BoolArray) -> tuple[Plans, FloatArray, BoolArray]:
    """The plans with the best at its value, those without room for any layout marked as such."""
    plans, values, fits = given.plans, given.values.copy(), given.fits & possible
    here = alike(plans, best.plan)
    if not here.any():
        plans, here = Plans.joined([plans, Plans.of([best.plan])]), np.append(here, True)
        values, fits = np.append(values, best.value), np.append(fits, True)
    values[here], fits[here] = best.value, True
    return plans, values, fits


def unfinished(job: Job, swept: Sweep, best: float) -> Certificate:
    """The certificate of a sweep that ran out of time with a plan: the bound is that of an MFU of 1."""
    certificate = Certificate(
        proven=False,
        lower_bound=swept.ideal,
        best=best,
        space=swept.space,
        fitting=swept.fitting,
        even=float("inf") if job.layout_given else best,
    )
    return described(job, certificate)


def without_plan(job: Job, swept: Sweep) -> Certificate:
    """The certificate of a sweep in which nothing fits."""
    return described(job, Certificate(proven=swept.complete, lower_bound=swept.ideal, space=swept.space))


def described(job: Job, certificate: Certificate) -> Certificate:
    """The certificate with what the job asks for, and with its method in words, which follow from its figures."""
    lines = left_out(job) if certificate.space else ()
    certificate = replace(certificate, given=job.layout_given, minimize=job.minimize, prefer=job.prefer, left_out=lines)
    return replace(certificate, method=_method(job, certificate))


def status_of(certificate: Certificate) -> str:
    """The status of an answer with this certificate.

    >>> status_of(Certificate(proven=False, lower_bound=8.0, best=10.0, space=5))
    'feasible'
    """
    proven, open_ = STATUSES[:2] if certificate.best < float("inf") else STATUSES[2:]
    return proven if certificate.proven else open_


def _method(job: Job, certificate: Certificate) -> str:
    plans, planned = f"{certificate.space:,} plans", certificate.best < float("inf")
    if not planned and certificate.proven:
        where = "laid out as asked" if job.layout_given else "under any layout that is searched"
        words = f"None of the {plans} of {job.training} that satisfy the other rules fits in memory, {where}."
        return words
    if not planned:
        return f"Time limit after {plans}, none of which fits."
    if not certificate.proven and not certificate.knob_bound:
        return f"Time limit after {plans}: the bound is a step at an MFU of 100 %."
    if not certificate.proven:
        return (
            f"Cut short: {certificate.band:,} plans have a bound below the best even split, and not all were laid out."
        )
    words = "CP-SAT ran out of time."
    if certificate.held_all:
        words = f"CP-SAT held all {certificate.candidates:,} plans under every rule and proved the same one the best."
    elif certificate.candidates:
        words = (
            f"CP-SAT proved the best of {certificate.candidates:,} candidates, and every other plan is "
            f"{certificate.objective.worse} or does not fit."
        )
    return f"{_exhaustion(job, certificate)} {words}"


def _exhaustion(job: Job, certificate: Certificate) -> str:
    priced = f"All {certificate.space:,} plans that satisfy the other rules were priced"
    if job.layout_given:
        return f"{priced}, each with its one layout; {certificate.fitting:,} fit."
    solved = "the even splits reach their bounds"
    if certificate.solved:
        solved = f"{certificate.solved:,} of them got the best of their layouts"
    return (
        f"{priced}; evenly split, {certificate.fitting:,} fit. With any layout, {certificate.band:,} have a bound "
        f"below the best even split; {solved}, and the bounds rule out the others."
    )


def left_out(job: Job) -> tuple[str, ...]:
    """At most MOST lines: layouts, sets of modules, schedules and places of activations that the search does not try.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3-13b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=2048, global_batch=64)
    >>> left_out(job)[-1][:34]
    'Activations stay on the device (--'
    """
    loss, features, limits = content("optimizer.search.plan", "left_out.toml")["loss"], job.stack.features, job.limits
    asked = {*limits.fixed, *limits.ranges, *limits.choices}
    cuts, recomputed, modules = cuts_searched(job), recomputing_searched(job), modules_searched(job)
    lines = (
        f"{cuts} {loss['cuts']}" if cuts and features.uneven_stages and not job.layout_given else cuts,
        recomputed and f"{recomputed} {loss['recomputed']}",
        modules and f"{modules} {loss['modules']}",
        loss["dualpipe"] if "dualpipe" in features.schedules and "schedule" not in asked else "",
        loss["activations"] if features.activation_offload and "activation_offload" not in asked else "",
    )
    return tuple(line for line in lines if line)[:MOST]


def modules_searched(job: Job) -> str:
    """Which modules the search tried to recompute, in a sentence; nothing where the stack recomputes none by name."""
    asked = "recompute" in job.limits.fixed or "recompute" in job.limits.choices
    if asked or not job.stack.features.recompute_modules:
        return ""
    sets = [mode for mode in searched_modes(job) if modules_of(mode)]
    if not sets:
        return "No set of modules frees more memory for its time than whole layers do: none was tried."
    return (
        f"Of the modules that can be recomputed by name, {', '.join(sets)} {'was' if len(sets) == 1 else 'were'} tried."
    )
