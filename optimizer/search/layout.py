"""Which layers every pipeline stage holds, and how many of them it recomputes: proven best with CP-SAT.

layer_costs (objectives)  ->  LayoutProblem  ->  best_assignment (CP-SAT)  ->  Layout
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor

import numpy as np

from optimizer.constraints.program import INFEASIBLE, OPTIMAL
from optimizer.errors import Infeasible, InputError, TimeLimit
from optimizer.job import Job
from optimizer.objectives.layer_costs import (
    DENSE,
    EMBEDDING,
    HEAD,
    MOE,
    MTP,
    LayerCosts,
    Runs,
    StageCosts,
    layer_costs,
    layer_sequence,
)
from optimizer.objectives.pipeline import pipeline_time
from optimizer.objectives.stages import balanced, in_flight, layer_counts, virtual_stages
from optimizer.objectives.step import FILLED
from optimizer.plan import Knobs, Placement, Plan, Plans
from optimizer.search.integer_program import IntegerProgram, Term

TIME_STEPS = 10**7  # integer steps of one micro-batch's time through all layers
MEMORY_STEPS = 10**8  # integer steps of the usable memory; bytes are rounded up to them
SMOOTHING = 0.5  # the solver's deterministic time for evening out chunks


@dataclass(frozen=True, kw_only=True)
class LayoutProblem:
    """Layers in model order to be cut into pp x vpp virtual stages.

    kinds: costs of a layer by kind. sequence: runs of layers of one kind; what surrounds them is pinned, the embedding
    to the first and the head to the last virtual stage. in_flight: micro-batches that each stage keeps. seconds, fixed:
    what every stage spends per micro-batch [s] and holds [B] beside its layers. usable: memory of a stage [B].
    filled: what weights' gradients fill of the bubble under a zero-bubble schedule [s]. even: the software cuts the
    layers into equal virtual stages only.
    """

    kinds: Mapping[str, LayerCosts]
    sequence: Runs
    pp: int
    vpp: int = 1
    microbatches: int
    in_flight: tuple[float, ...]
    usable: float
    seconds: float = 0.0
    fixed: float = 0.0
    filled: float = 0.0
    even: bool = False

    def __post_init__(self) -> None:
        problems = []
        if len(self.in_flight) != self.pp:
            problems.append(f"in_flight needs one value for each of {self.pp} stages, but got {len(self.in_flight)}")
        problems += [f"{kind!r} has no costs" for kind, _ in self.sequence if kind not in self.kinds]
        layers = sum(count for kind, count in self.sequence if kind in (DENSE, MOE))
        if self.pp * self.vpp > layers + 2:
            problems.append(f"{layers} layers cannot fill {self.pp} x {self.vpp} virtual stages")
        if self.even and layers % (self.pp * self.vpp):
            problems.append(f"{layers} layers are not a multiple of pp x vpp = {self.pp} x {self.vpp}")
        if problems:
            raise InputError("; ".join(problems))

    @property
    def chunks(self) -> int:
        """Virtual stages of the whole pipeline."""
        return self.pp * self.vpp

    def pipeline(self, slowest: float, total: float) -> float:
        """Time of the pipeline whose slowest stage and whose stages together take so long for one micro-batch [s]."""
        plain = float(pipeline_time(self.microbatches, self.vpp, slowest, total))
        return max(plain - self.filled, self.microbatches * slowest) if self.filled else plain


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layers on stages. `kinds` are the runs on each virtual stage in the order of the forward pass.

    rebuilt: runs of layers that each stage rebuilds in the backward pass. stage_seconds: time of each stage for one
    micro-batch [s]. memory: bytes each stage reserves [B]. objective: time of the pipeline [s]. proven: no other layout
    is faster (by more than the rounding of times to 1e-7 of a micro-batch). chosen: a layer may be rebuilt or spared.
    """

    kinds: tuple[Runs, ...]
    pp: int
    rebuilt: tuple[Runs, ...]
    stage_seconds: tuple[float, ...]
    memory: tuple[float, ...]
    objective: float
    proven: bool = False
    chosen: bool = False

    @property
    def slowest(self) -> float:
        """Time of the slowest stage for one micro-batch [s]."""
        return max(self.stage_seconds)

    @property
    def recomputed(self) -> tuple[int, ...]:
        """Layers that each stage rebuilds."""
        return tuple(sum(count for _, count in runs) for runs in self.rebuilt)

    @property
    def layers_per_chunk(self) -> tuple[int, ...]:
        """Transformer layers on each virtual stage, in the order of the forward pass."""
        return tuple(sum(count for kind, count in runs if kind in (DENSE, MOE)) for runs in self.kinds)

    @property
    def layers_per_stage(self) -> tuple[int, ...]:
        """Transformer layers on each stage."""
        return tuple(sum(self.layers_per_chunk[stage :: self.pp]) for stage in range(self.pp))

    def of(self, plan: Plan) -> Plan:
        """The plan with its layers placed so; virtual stages are listed where they are not as even as can be."""
        chunks, stages = self.layers_per_chunk, self.layers_per_stage
        dealt = virtual_stages(stages, sum(stages), plan.pp, plan.vpp)
        predicting = [index for index, runs in enumerate(self.kinds) if any(kind == MTP for kind, _ in runs)]
        return replace(
            plan,
            layers_per_stage=stages if chunks == dealt else chunks,
            recompute_layers=self.recomputed if self.chosen else (),
            mtp_ahead=len(chunks) - 1 - predicting[0] if predicting else 0,
        )


def best_layout(
    job: Job, plan: Plan, knobs: Knobs = Knobs(), *, seed: int = 0, time_limit: float | None = None
) -> Layout:
    """The layout of a plan with the shortest pipeline that fits in memory.

    Under full recomputation each stage rebuilds only as many layers as its memory asks for; under the other modes all
    layers follow the plan. Raises Infeasible when no layout fits, TimeLimit when none was found in time.
    """
    return best_assignment(layout_problem(job, plan, knobs), seed=seed, time_limit=time_limit)


def layout_problem(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> LayoutProblem:
    """What a plan's layers cost, from the functions that price a step."""
    return problem_of(job, plan, layer_costs(job, plan, knobs))


def problem_of(job: Job, plan: Plan, costs: StageCosts) -> LayoutProblem:
    """The problem of a plan whose layers cost so much."""
    flying = in_flight(Plans.of([plan] * plan.pp), np.arange(plan.pp, dtype=np.float64))
    weights = zip((DENSE, MOE), layer_counts(job.model), strict=True)
    mean = sum(count * costs.kinds[kind].weight for kind, count in weights if count) / plan.pp
    return LayoutProblem(
        kinds=costs.kinds,
        sequence=layer_sequence(job.model),
        pp=plan.pp,
        vpp=plan.vpp,
        microbatches=plan.num_microbatches,
        in_flight=tuple(float(value) for value in flying),
        usable=job.usable_memory,
        seconds=costs.seconds,
        fixed=costs.fixed,
        filled=(plan.pp - 1) * FILLED.get(plan.schedule, 0.0) * mean,
        even=not job.stack.features.uneven_stages,
    )


def best_assignment(
    problem: LayoutProblem, *, seed: int = 0, time_limit: float | None = None, smooth: bool = True
) -> Layout:
    """Minimise (m - 1) max_s T_s + sum_s T_s / vpp + (1 - 1 / vpp) max_s T_s over layouts that fit.

    T_s: time of stage s for one micro-batch, rebuilt layers included [s]. Among interleaved layouts as good, `smooth`
    looks for chunks of like length.

    Source of the objective: objectives/pipeline.py.
    """
    variables = _Variables(problem)
    answer = variables.program.solve(seed, time_limit)
    if answer.status == INFEASIBLE:
        raise Infeasible(_why(problem))
    if answer.values is None:
        raise TimeLimit(f"no layout of {problem.pp} x {problem.vpp} virtual stages was found in {time_limit} s")
    values = variables.smoothed(answer.values, seed) if smooth and problem.vpp > 1 else answer.values
    runs = [
        tuple(
            (kind, values[variables.counts[index][chunk]])
            for index, (kind, _) in enumerate(problem.sequence)
            if values[variables.counts[index][chunk]]
        )
        for chunk in range(problem.chunks)
    ]
    rebuilt = [{kind: values[index] for kind, index in stage.items()} for stage in variables.rebuilt]
    return assess(problem, runs, rebuilt, proven=answer.status == OPTIMAL)


def laid_out(job: Job, plan: Plan) -> Plan:
    """The plan with the layers of its even split written out, and all of them rebuilt where it may be chosen which."""
    layers = balanced(job.model.layers, plan.pp)
    chosen = plan.recompute == "full" and job.limits.fixed.get("recompute") != "full"
    return replace(plan, layers_per_stage=layers, recompute_layers=layers if chosen else ())


def even_layout(problem: LayoutProblem, *, recompute: bool = True) -> Layout:
    """The split people start from: equally many layers on each virtual stage, ends relieved where pp does not divide.

    Every layer that may be rebuilt is, or none; it may not fit.
    """
    return placed_layout(problem, Placement() if recompute else Placement(rebuilt=(0,) * problem.pp))


def placed_layout(problem: LayoutProblem, placed: Placement) -> Layout:
    """The layout that a plan asks for; where it says nothing layers are split evenly and rebuilt if they may be.

    Mixtures of a stage are rebuilt before its dense layers. It may not fit.
    """
    names = [kind for kind, count in problem.sequence for _ in range(count) if kind in (DENSE, MOE)]
    counts = virtual_stages(placed.layers, len(names), problem.pp, problem.vpp)
    ends = [run for run in problem.sequence if run[0] not in (DENSE, MOE)]
    runs: list[Runs] = []
    for chunk, count in enumerate(counts):
        held, names = names[:count], names[count:]
        places = {EMBEDDING: 0, MTP: problem.chunks - 1 - placed.mtp_ahead, HEAD: problem.chunks - 1}
        here = [run for run in ends if places[run[0]] == chunk]
        before = [run for run in here if run[0] == EMBEDDING]
        after = [run for run in here if run[0] != EMBEDDING]
        runs.append((*before, *((kind, held.count(kind)) for kind in dict.fromkeys(held)), *after))
    rebuilt = []
    for stage in range(problem.pp):
        left = placed.rebuilt[stage] if placed.rebuilt else len(problem.sequence) * sum(counts)
        again = {}
        for kind in sorted(rebuildable(problem), key=(MOE, DENSE).index):
            held_here = sum(n for chunk in runs[stage :: problem.pp] for name, n in chunk if name == kind)
            again[kind] = min(left, held_here)
            left -= again[kind]
        rebuilt.append(again)
    return assess(problem, runs, rebuilt)


def assess(
    problem: LayoutProblem, runs: Sequence[Runs], rebuilt: Sequence[Mapping[str, int]], *, proven: bool = False
) -> Layout:
    """Time and memory of a layout given by the runs on its virtual stages and the layers rebuilt on its stages."""
    seconds, memory = [], []
    for stage in range(problem.pp):
        held = [run for chunk in runs[stage :: problem.pp] for run in chunk]
        flying, costs = problem.in_flight[stage], problem.kinds
        time = problem.seconds + sum(n * costs[kind].seconds for kind, n in held)
        space = problem.fixed + sum(n * (costs[kind].static + flying * costs[kind].kept) for kind, n in held)
        for kind, n in rebuilt[stage].items():
            time += n * costs[kind].recompute
            space -= n * flying * (costs[kind].kept - costs[kind].kept_recomputed)
        again = [*rebuilt[stage].items(), *((kind, n) for kind, n in held if not costs[kind].recomputes)]
        space += max((costs[kind].rebuilt for kind, n in again if n), default=0.0)
        seconds.append(time)
        memory.append(space)
    return Layout(
        kinds=tuple(runs),
        pp=problem.pp,
        rebuilt=tuple(tuple((kind, n) for kind, n in stage.items() if n) for stage in rebuilt),
        stage_seconds=tuple(seconds),
        memory=tuple(memory),
        objective=problem.pipeline(max(seconds), sum(seconds)),
        proven=proven,
        chosen=bool(rebuildable(problem)),
    )


def rebuildable(problem: LayoutProblem) -> tuple[str, ...]:
    """Kinds of layers that may be recomputed."""
    return tuple(kind for kind in dict.fromkeys(kind for kind, _ in problem.sequence) if problem.kinds[kind].recomputes)


class _Variables:
    """The program: how many layers of each run lie on each virtual stage, how many of each kind a stage rebuilds."""

    def __init__(self, problem: LayoutProblem) -> None:
        self.problem, self.program = problem, IntegerProgram()
        one_pass = sum(n * problem.kinds[kind].seconds for kind, n in problem.sequence) + problem.pp * problem.seconds
        self.tick, self.grain = one_pass / TIME_STEPS, problem.usable / MEMORY_STEPS
        self.counts = [self._run(index) for index in range(len(problem.sequence))]
        self._keep_order()
        self._fill()
        self.held = [self._held(stage) for stage in range(problem.pp)]
        self.rebuilt = [self._rebuilt(stage) for stage in range(problem.pp)]
        for stage in range(problem.pp):
            self._fit(stage)
        self._minimise()

    def _run(self, index: int) -> list[int]:
        """Layers of one run by virtual stage; what is not a transformer layer has its place."""
        kind, total = self.problem.sequence[index]
        chunks, last = self.problem.chunks, self.problem.chunks - self.problem.pp
        if kind in (DENSE, MOE):
            places = [self.program.variable(0, total) for _ in range(chunks)]
        elif kind == MTP:
            # Megatron-Core wants all prediction layers together, in the last chunk of their stage.
            free = [chunk > last or chunk == chunks - 1 for chunk in range(chunks)]
            places = [self.program.choice((0, total) if here else (0,)) for here in free]
        else:
            home = chunks - 1 if kind == HEAD else 0
            places = [self.program.choice((total if chunk == home else 0,)) for chunk in range(chunks)]
        self.program.linear([(place, 1) for place in places], total, total)
        return places

    def _keep_order(self) -> None:
        """A virtual stage holds layers of a run only if the run before ends there or earlier."""
        layers = [index for index, (kind, _) in enumerate(self.problem.sequence) if kind in (DENSE, MOE, MTP)]
        for earlier, later in pairwise(layers):
            total, next_total = self.problem.sequence[earlier][1], self.problem.sequence[later][1]
            for chunk in range(self.problem.chunks):
                ended = self.program.variable(0, 1)
                so_far: list[Term] = [(place, 1) for place in self.counts[earlier][: chunk + 1]]
                self.program.linear([*so_far, (ended, -total)], 0, total)
                self.program.linear([(self.counts[later][chunk], 1), (ended, -next_total)], -next_total, 0)

    def _fill(self) -> None:
        """No virtual stage is empty; interleaved ones hold at most one layer more than their share, or one less.

        With an even split all hold equally many transformer layers.
        """
        layers = [index for index, (kind, _) in enumerate(self.problem.sequence) if kind in (DENSE, MOE)]
        total = sum(self.problem.sequence[index][1] for index in layers)
        for chunk in range(self.problem.chunks):
            here: list[Term] = [(self.counts[index][chunk], 1) for index in layers]
            if self.problem.even:
                self.program.linear(here, total // self.problem.chunks, total // self.problem.chunks)
            anything: list[Term] = [(run[chunk], 1) for run in self.counts]
            self.program.linear(anything, 1, None)
            if self.problem.vpp > 1:
                # Chunks of unlike length stall the schedule, and the objective does not see it.
                share = total / self.problem.chunks
                least = 0 if chunk >= self.problem.chunks - self.problem.pp else floor(share) - 1
                self.program.linear(here, max(0, least), ceil(share) + 1)

    def _rebuilt(self, stage: int) -> dict[str, int]:
        """Layers of each kind that a stage rebuilds, at most those it holds."""
        found = {}
        for kind in rebuildable(self.problem):
            total = sum(n for name, n in self.problem.sequence if name == kind)
            found[kind] = self.program.variable(0, total)
            self.program.linear([(found[kind], 1), (self.held[stage][kind], -1)], None, 0)
        if len(found) == 2:
            # Plan counts the layers that a stage rebuilds, those of mixtures first.
            self._before(self.held[stage][MOE], found[MOE], found[DENSE])
        return found

    def _before(self, held: int, rebuilt: int, others: int) -> None:
        """Either all layers held are rebuilt, or none of the others."""
        total = sum(count for _, count in self.problem.sequence)
        whole = self.program.variable(0, 1)
        self.program.linear([(held, 1), (rebuilt, -1), (whole, total)], None, total)
        self.program.linear([(others, 1), (whole, -total)], None, 0)

    def _held(self, stage: int) -> dict[str, int]:
        """Layers of each kind on all chunks of a stage."""
        found = {}
        for kind in dict.fromkeys(name for name, _ in self.problem.sequence):
            total = sum(n for name, n in self.problem.sequence if name == kind)
            runs = [run for (name, _), run in zip(self.problem.sequence, self.counts, strict=True) if name == kind]
            places = [place for run in runs for place in run[stage :: self.problem.pp]]
            found[kind] = self.program.variable(0, total)
            self.program.linear([(found[kind], -1), *((place, 1) for place in places)], 0, 0)
        return found

    def _fit(self, stage: int) -> None:
        """The stage's bytes stay within its memory, with the largest layer that is being rebuilt."""
        problem, flying = self.problem, self.problem.in_flight[stage]
        terms: list[Term] = []
        for kind, held in self.held[stage].items():
            costs = problem.kinds[kind]
            terms.append((held, ceil((costs.static + flying * costs.kept) / self.grain)))
        for kind, rebuilt in self.rebuilt[stage].items():
            costs = problem.kinds[kind]
            terms.append((rebuilt, -int(flying * (costs.kept - costs.kept_recomputed) / self.grain)))
        room = MEMORY_STEPS - ceil(problem.fixed / self.grain)
        self.program.linear(terms, None, room)
        always = {kind: held for kind, held in self.held[stage].items() if not problem.kinds[kind].recomputes}
        for kind, rebuilt in {**self.rebuilt[stage], **always}.items():
            if not problem.kinds[kind].rebuilt:
                continue
            total = sum(n for name, n in problem.sequence if name == kind)
            any_rebuilt = self.program.variable(0, 1)
            self.program.linear([(rebuilt, 1), (any_rebuilt, -total)], None, 0)
            extra = ceil(problem.kinds[kind].rebuilt / self.grain)
            self.program.linear([*terms, (any_rebuilt, extra)], None, room)

    def _minimise(self) -> None:
        """(vpp m - 1) slowest + rebuilding of all stages; without rebuilding the stages' sum is constant."""
        problem = self.problem
        ticks = {kind: round(problem.kinds[kind].seconds / self.tick) for kind, _ in problem.sequence}
        extra = {kind: round(problem.kinds[kind].recompute / self.tick) for kind in rebuildable(problem)}
        total = sum(n * ticks[kind] for kind, n in problem.sequence)
        most = total + sum(n * extra.get(kind, 0) for kind, n in problem.sequence)
        slowest = self.program.variable(-(-total // problem.pp), most)
        for stage in range(problem.pp):
            busy: list[Term] = [(held, ticks[kind]) for kind, held in self.held[stage].items()]
            busy += [(rebuilt, extra[kind]) for kind, rebuilt in self.rebuilt[stage].items()]
            self.program.linear([*busy, (slowest, -1)], None, 0)
        weight = problem.vpp * problem.microbatches - 1
        cost: list[Term] = [(slowest, weight)] if weight else []
        cost += [(rebuilt, extra[kind]) for stage in self.rebuilt for kind, rebuilt in stage.items()]
        if problem.filled:
            # The bubble, all stages less the slowest, shrinks by what is filled, but not below nothing.
            beside = (problem.pp - 1) * round(problem.seconds / self.tick) - round(problem.filled / self.tick)
            limit = most + problem.microbatches * most
            end = self.program.variable(0, limit)
            self.program.linear([*cost, (end, -1)], None, -(total + beside))
            self.program.linear([(slowest, problem.microbatches), (end, -1)], None, 0)
            cost = [(end, 1)]
        self.ticks, self.cost = ticks, cost
        self.program.minimise(cost)

    def smoothed(self, values: Sequence[int], seed: int) -> Sequence[int]:
        """Among layouts as good as this one, chunks of like length: uneven chunks stall the interleaved schedule.

        Minimises the longest chunk of all and the longest of every round, within a fixed effort.
        """
        self.program.linear(self.cost, None, sum(values[variable] * factor for variable, factor in self.cost))
        self.program.hint(values)
        overall = self.program.variable(0, TIME_STEPS)
        rounds = [self.program.variable(0, TIME_STEPS) for _ in range(self.problem.vpp)]
        for chunk in range(self.problem.chunks):
            runs = zip(self.problem.sequence, self.counts, strict=True)
            busy: list[Term] = [(run[chunk], self.ticks[kind]) for (kind, _), run in runs]
            self.program.linear([*busy, (rounds[chunk // self.problem.pp], -1)], None, 0)
            self.program.linear([*busy, (overall, -1)], None, 0)
        self.program.minimise([(overall, self.problem.vpp), *((longest, 1) for longest in rounds)])
        return self.program.solve(seed, effort=SMOOTHING).values or values


def _why(problem: LayoutProblem) -> str:
    bytes_of = problem.kinds
    states = sum(n * bytes_of[kind].static for kind, n in problem.sequence) / problem.pp + problem.fixed
    kept = sum(n * bytes_of[kind].kept_recomputed for kind, n in problem.sequence) / problem.pp
    need = states + kept * float(np.mean(problem.in_flight))
    return (
        f"no layout fits: {problem.pp} stages of {problem.usable / 1e9:.1f} GB, of which an average stage needs at "
        f"least {need / 1e9:.1f} GB ({states / 1e9:.1f} GB of states); use more stages, a larger tp, or recomputation"
    )
