"""What is to be laid out: the layers of a plan with their costs, and the memory of every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf

import numpy as np

from optimizer.base.errors import InputError
from optimizer.job.job import PLACING, RECOMPUTED, Job
from optimizer.job.plan import SCHEDULES, Knobs, Plan, Plans
from optimizer.job.stack import ALL_LAYERS, BY_STAGE, BY_VIRTUAL_STAGE
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.one_f_one_b import ONE_F_ONE_B
from optimizer.objectives.pipeline.schedules import filled_passes, in_flight
from optimizer.objectives.pipeline.stages import (
    DENSE,
    EMBEDDING,
    HEAD,
    LAYERS,
    MOE,
    MTP,
    Runs,
    kinds_of,
    layer_sequence,
)
from optimizer.objectives.step.host_memory import OFFLOAD_STEP, host_memory_per_gpu
from optimizer.objectives.step.linear_stage import LinearStage
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.objectives.step.time_terms import bubble, hidden
from optimizer.search.layouts.costs import FREE, LayerSeconds, StageCosts, stage_costs

RECOMPUTED_BY = {
    BY_STAGE: "",
    BY_VIRTUAL_STAGE: "recomputes equally many layers on every virtual stage",
    ALL_LAYERS: "recomputes all layers or none",
}
FEW = 3  # runs of transformer layers of one kind above which kinds are said to alternate


@dataclass(frozen=True, kw_only=True)
class LayoutProblem:
    """Layers in model order to be cut into pp x vpp virtual stages.

    kinds: costs of a layer by kind. sequence: runs of layers of one kind; what surrounds them is pinned, the embedding
    to the first and the head to the last virtual stage. in_flight: micro-batches that each stage keeps. seconds, fixed:
    what every stage spends per micro-batch [s] and holds [B] beside its layers. usable: memory of a stage, host_room:
    of the host for a GPU of it [B].
    filled: what weights' gradients fill of the bubble under a zero-bubble schedule [s]. hides: share of what can hide
    once per step that does [1]. even: the software cuts the layers into equal virtual stages only. alike: it recomputes
    the first so many layers of every virtual stage, equally many on all, or all with the MTP layers. more: so many
    OFFLOAD_STEPs of the optimizer state may be on the host beyond what `memory` and `kinds` have there. hosted_price:
    what all of it there adds to the objective beside its time, as seconds of a step [s]. alternates: stages alternate
    forward and backward passes, as in 1F1B, and no closed form prices the pipeline.
    """

    kinds: Mapping[str, LayerSeconds[float]]
    memory: LinearStage[float]
    sequence: Runs
    pp: int
    vpp: int = 1
    microbatches: int
    in_flight: tuple[float, ...]
    usable: float
    host_memory_per_gpu: float = inf
    seconds: float = 0.0
    filled: float = 0.0
    hides: float = 0.0
    even: bool = False
    alike: bool = False
    more: int = 0
    hosted_price: float = 0.0
    alternates: bool = False

    def __post_init__(self) -> None:
        problems = []
        if len(self.in_flight) != self.pp:
            problems.append(f"in_flight needs one value for each of {self.pp} stages, but got {len(self.in_flight)}")
        problems += [f"{kind!r} has no bytes" for kind, _ in self.sequence if kind not in self.memory.layers]
        layers = self.layers
        if self.pp * self.vpp > layers + 2:
            problems.append(f"{layers} layers cannot fill {self.pp} x {self.vpp} virtual stages")
        if self.even and layers % (self.pp * self.vpp):
            problems.append(f"{layers} layers are not a multiple of pp x vpp = {self.pp} x {self.vpp}")
        if problems:
            raise InputError("; ".join(problems))

    @property
    def virtual_stages(self) -> int:
        """Virtual stages of the whole pipeline."""
        return self.pp * self.vpp

    @property
    def layers(self) -> int:
        """Transformer layers."""
        return sum(count for kind, count in self.sequence if kind in (DENSE, MOE))

    @property
    def at_most_offload(self) -> LayoutProblem:
        """The problem with as much of the optimizer state on the host as may be."""
        return replace(self, memory=self.memory.offloaded(self.more * OFFLOAD_STEP), more=0) if self.more else self

    def pipeline(self, slowest: FloatArray, total: FloatArray) -> FloatArray:
        """Time of pipelines whose slowest stage and whose stages together take so long for one micro-batch [s]."""
        waits = bubble(slowest, total, *(np.asarray(value) for value in (float(self.vpp), self.filled, 0.0)))
        return np.asarray(self.microbatches * slowest + waits)

    @property
    def whole(self) -> float:
        """Time of all stages together for a micro-batch, nothing recomputed by choice [s]."""
        return self.pp * self.seconds + sum(count * self.kinds[kind].seconds for kind, count in self.sequence)

    def slowest_within(self, at_most: float) -> float:
        """The longest that a stage without virtual ones takes for a micro-batch in pipelines of `at_most` [s].

        1F1B takes m t of the slowest stage at least, and (m - 1 - pp) t + 2 x (the sum of t), where stages run ahead.
        """
        m, whole = self.microbatches, self.whole
        steady, rest = (m - 1 - self.pp, 2 * whole) if self.alternates else (m - 1, whole - self.filled)
        return min(at_most / m, (at_most - rest) / steady if steady > 0 else inf)

    def once(self, total: Callable[[str], FloatArray]) -> FloatArray:
        """What stages do once per step, beside what hides [s]; `total`: a field of LayerCosts, summed over a stage."""
        reduced, gathered, backward, forward = map(total, ("reduced", "gathered", "cover_backward", "cover_forward"))
        rest = (np.asarray(value) for value in (self.hides, self.vpp, self.pp))
        return np.asarray(total("per_step") - hidden(reduced, backward, gathered, forward, *rest))


def layout_problem(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> LayoutProblem:
    """What a plan's layers cost, from the functions that price a step."""
    return problem_of(job, plan, layer_costs(job, plan, knobs))


def layer_costs(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> StageCosts[float]:
    """What the stages of one plan are made of."""
    return stage_costs(layer_costs_of(job, Plans.of([plan])), knobs).row(0)


def problem_of(job: Job, plan: Plan, costs: StageCosts[float], more: int = 0) -> LayoutProblem:
    """The problem of a plan whose layers cost so much, and so many OFFLOAD_STEPs `more` on the host."""
    flying = in_flight(Plans.of([plan]), np.arange(plan.pp, dtype=np.float64))
    counts = kinds_of(job.model)
    mean = sum(counts[kind] * costs.kinds[kind].weight for kind in LAYERS if kind in counts) / plan.pp
    passes = filled_passes(SCHEDULES.index(plan.schedule), plan.pp, plan.num_microbatches)
    return LayoutProblem(
        kinds=costs.kinds,
        memory=costs.memory,
        sequence=layer_sequence(job.model),
        pp=plan.pp,
        vpp=plan.vpp,
        microbatches=plan.num_microbatches,
        in_flight=tuple(float(value) for value in flying),
        usable=safe_memory(job),
        host_memory_per_gpu=host_memory_per_gpu(job),
        seconds=costs.seconds,
        filled=float(passes) * mean,
        hides=costs.hides,
        even=not job.stack.features.uneven_stages,
        alike=job.recomputes_alike and any(layer.chosen for layer in costs.memory.layers.values()),
        more=more,
        hosted_price=costs.hosted_price,
        alternates=plan.schedule == ONE_F_ONE_B.name,
    )


def memory_problem(job: Job, plan: Plan, memory: LinearStage[float]) -> LayoutProblem:
    """The problem of a plan of which only the memory is asked: nothing takes time."""
    free = dict.fromkeys(memory.layers, FREE)
    return problem_of(job, plan, StageCosts(kinds=free, memory=memory, seconds=0.0, hides=0.0, hosted_price=0.0))


def recomputable(problem: LayoutProblem) -> tuple[str, ...]:
    """Kinds of layers that may be recomputed."""
    return tuple(kind for kind in dict(problem.sequence) if problem.memory.layers[kind].chosen)


def firsts(sequence: Runs) -> tuple[int, ...]:
    """Numbers of first layers among which is the one of least memory on every virtual stage, whatever the cuts.

    One layer more frees memory, but where it is the first of its kind: what a stage holds while it recomputes a layer
    may be more. So memory is least with all layers, or with so many that no virtual stage comes to its second kind.

    >>> firsts((("embedding", 1), ("dense", 3), ("moe", 58), ("head", 1)))
    (1, 2, 3, 61)
    """
    runs = [count for kind, count in sequence if kind in (DENSE, MOE)]
    return (*range(1, max(runs[:-1], default=0) + 1), sum(runs))


def runs_of(problem: LayoutProblem, counts: Sequence[int], ahead: int) -> tuple[Runs, ...]:
    """What each virtual stage holds: so many transformer layers; MTP layers so many virtual stages before the
    last one.
    """
    return _runs_of(problem.sequence, problem.virtual_stages, tuple(counts), ahead)


@lru_cache(maxsize=1024)  # thousands of plans share a few
def _runs_of(sequence: Runs, virtual_stages: int, counts: tuple[int, ...], ahead: int) -> tuple[Runs, ...]:
    names = [kind for kind, count in sequence for _ in range(count) if kind in (DENSE, MOE)]
    ends = [run for run in sequence if run[0] not in (DENSE, MOE)]
    places = {EMBEDDING: 0, MTP: virtual_stages - 1 - ahead, HEAD: virtual_stages - 1}
    runs: list[Runs] = []
    for virtual, count in enumerate(counts):
        stage_kinds, names = names[:count], names[count:]
        here = [run for run in ends if places[run[0]] == virtual]
        before = [run for run in here if run[0] == EMBEDDING]
        after = [run for run in here if run[0] != EMBEDDING]
        runs.append((*before, *((kind, stage_kinds.count(kind)) for kind in dict.fromkeys(stage_kinds)), *after))
    return tuple(runs)


def recomputing_searched(job: Job) -> str:
    """Which numbers of recomputed layers the search compares, in a sentence; nothing where it compares all of them."""
    software = "" if "full" not in job.stack.features.recompute else RECOMPUTED_BY[job.stack.features.recompute_by]
    asked = job.layout_given or "recompute" in job.limits.fixed
    return f"{job.stack.name} {software}, and so do the layouts searched." if software and not asked else ""


def cuts_searched(job: Job) -> str:
    """Which cuts of the layers the search compares, in sentences; nothing where it compares all of them."""
    if job.layout_given:
        asked = ", ".join(f"{name}={job.limits.fixed[name]}" for name in PLACING if name in job.limits.fixed)
        recomputed = (
            "" if RECOMPUTED in job.limits.fixed else "; under full recomputation a stage recomputes all of its layers"
        )
        return f"The search over layouts is switched off ({asked}){recomputed}."
    features, pinned = job.stack.features, job.limits.fixed
    places = " and where the prediction layers lie" if job.model.mtp_layers else ""
    if not features.uneven_stages:
        return f"{job.stack.name} cuts the layers evenly: layouts differ in what is recomputed{places}, and in no more."
    most = min(job.limits.max_vpp, features.max_vpp)
    if "interleaved" not in features.schedules or int(pinned.get("vpp", most)) < 2 or int(pinned.get("pp", 2)) < 2:
        return ""
    recomputing = "; where some layers are recomputed, only the ends may hold less" if job.recomputes_alike else ""
    return (
        "The layouts of interleaved plans are nearly even: virtual stages hold as many layers each, or one more in a "
        f"row, and fewer at the ends; or every stage so many more than the one before{recomputing}."
    )


def virtual_stage_limits(problem: LayoutProblem) -> list[tuple[int, int]]:
    """Fewest and most transformer layers on each virtual stage."""
    return stage_limits(problem.sequence, problem.pp, problem.vpp, even=problem.even)


def stage_limits(sequence: Runs, pp: int, vpp: int, *, even: bool) -> list[tuple[int, int]]:
    """The same of layers in a sequence.

    Without interleaving, one, but at the ends and where MTP layers may lie. Interleaved, at most one more than
    their share or one less, but in the last ones: virtual stages of unlike length stall the schedule. All alike where
    the software cuts evenly.
    """
    total, stages = sum(count for kind, count in sequence if kind in (DENSE, MOE)), pp * vpp
    if even:
        return [(total // stages,) * 2] * stages
    empty = 0 if any(kind == MTP for kind, _ in sequence) else 1
    if vpp == 1:
        return [(0, total), *[(empty, total)] * (stages - 2), (0, total)][:stages]
    limits = []
    for virtual in range(stages):
        least = 0 if virtual >= stages - pp else total // stages - 1
        something = 0 if virtual in (0, stages - 1) else empty
        limits.append((max(least, something), ceil(total / stages) + 1))
    return limits


def partly_recomputed_limits(problem: LayoutProblem) -> list[tuple[int, int]]:
    """The same where every virtual stage recomputes some of its layers: none but the first and the last ones holds less
    than its share.

    Cuts that give a virtual stage less to recompute would stall the schedule.
    """
    limits = virtual_stage_limits(problem)
    if problem.vpp == 1 or all(low == high for low, high in limits):
        return limits
    share, last = problem.layers // problem.virtual_stages, problem.virtual_stages - problem.pp
    return [(max(low, share) if 0 < virtual < last else low, high) for virtual, (low, high) in enumerate(limits)]
