"""Which layers every pipeline stage holds, and how many of them it recomputes: the best, proven, and found once.

layer_costs (objectives)  ->  LayoutProblem  ->  best_assignment (CP-SAT; all shapes of virtual stages)  ->  Layout
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from math import inf
from time import perf_counter

import numpy as np

from optimizer.base.errors import Infeasible, TimeLimit
from optimizer.constraints.program import INFEASIBLE, OPTIMAL
from optimizer.job.plan import Placement, Plan, virtual_stages
from optimizer.objectives.arrays import ROUNDING, raised
from optimizer.objectives.pipeline.stages import DENSE, MOE, MTP, Runs
from optimizer.search.layouts.problem import LayoutProblem, recomputable, runs_of
from optimizer.search.layouts.solve.fastest_shape import Shaped, fastest
from optimizer.search.layouts.solve.least import least_objective
from optimizer.search.layouts.solve.loads import Loads, by_stage
from optimizer.search.layouts.solve.program import LayoutProgram
from optimizer.search.layouts.solve.shapes import StageShapes, few_cuts, near_cuts, shapes_of

FIRST = 0.02  # of the solver's deterministic time, about seconds, to begin with


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layers on stages."""

    kinds: tuple[Runs, ...]  # runs on each virtual stage in the order of the forward pass
    pp: int  # stages
    recomputed: tuple[Runs, ...]  # runs of layers that each stage recomputes in the backward pass
    stage_seconds: tuple[float, ...]  # time of each stage for a micro-batch [s]
    memory: tuple[float, ...]  # what each stage reserves [B]
    pipeline: float  # time of the pipeline [s]
    objective: float  # with what the slowest stage does once per step [s]
    stalled: float  # what running the schedule adds to the closed form of the pipeline [s]
    least: float = 0.0  # no layout has a lower objective, where a search says that [s]
    on_host: tuple[float, ...]  # what each stage keeps on the host [B]
    # OFFLOAD_STEPs of the optimizer state on the host beyond what the problem has there, as few as fit [1]
    more: int
    # no other layout that is searched is faster, by more than the rounding of times to 1e-7 of a micro-batch
    proven: bool
    chosen: bool  # a layer may be recomputed or not on each stage
    first: int  # so many first layers of every virtual stage are recomputed; 0 for all, or as `recomputed` says

    @property
    def slowest(self) -> float:
        """Time of the slowest stage for one micro-batch [s]."""
        return max(self.stage_seconds)

    def fits(self, problem: LayoutProblem) -> bool:
        """Whether every stage fits in the memory of the device and of the host."""
        on_device = max(self.memory) <= (raised(problem.usable) if self.more else problem.usable)
        return on_device and max(self.on_host) <= raised(problem.host_memory_per_gpu)

    @property
    def recomputed_per_stage(self) -> tuple[int, ...]:
        """Layers that each stage recomputes."""
        return tuple(sum(count for kind, count in runs if kind in (DENSE, MOE)) for runs in self.recomputed)

    @cached_property
    def layers_per_virtual_stage(self) -> tuple[int, ...]:
        """Transformer layers on each virtual stage, in the order of the forward pass."""
        return tuple(sum(count for kind, count in runs if kind in (DENSE, MOE)) for runs in self.kinds)

    @cached_property
    def layers_per_stage(self) -> tuple[int, ...]:
        """Transformer layers on each stage."""
        return tuple(sum(self.layers_per_virtual_stage[stage :: self.pp]) for stage in range(self.pp))

    def of(self, plan: Plan) -> Plan:
        """The plan with its layers placed so; virtual stages are listed where they are not as even as can be."""
        counts, stages = self.layers_per_virtual_stage, self.layers_per_stage
        dealt = virtual_stages(stages, sum(stages), plan.pp, plan.vpp)
        predicting = [index for index, runs in enumerate(self.kinds) if any(kind == MTP for kind, _ in runs)]
        return replace(
            plan,
            layers_per_stage=stages if counts == dealt else counts,
            recompute_layers=self.recomputed_per_stage if self.chosen else (),
            recompute_first=self.first,
            mtp_ahead=len(counts) - 1 - predicting[0] if predicting else 0,
        )


def best_assignment(
    problem: LayoutProblem,
    *,
    seed: int = 0,
    time_limit: float | None = None,
    effort: float | None = None,
    at_most: float = inf,
) -> Layout:
    """Minimise (m - 1) max_s T_s + sum_s T_s / vpp + (1 - 1 / vpp) max_s T_s + W + max_s U_s over layouts that fit.

    T_s: time of stage s for one micro-batch, recomputed layers included, U_s: of what it does once per step, W: what
    running the schedule adds to that [s]. With virtual stages the layouts are those of solve/shapes.py, all
    of them compared; else CP-SAT finds the best of all. `effort` limits its deterministic time. Raises Infeasible when
    no layout fits with a pipeline of `at_most` [s], TimeLimit when none was found in time.

    Source of the objective: objectives/step/price.py.
    """
    if problem.vpp > 1:
        return _shaped(problem, shapes_of(problem), at_most)
    best, cuts = shaped_layout(problem, fastest(problem, near_cuts(problem), at_most)), None
    limit = raised(best.objective) if best else at_most
    least = least_objective(problem, limit)
    if best and best.objective <= least * (1 + 3 * ROUNDING):
        return best
    if least > raised(at_most):
        raise Infeasible(_why(problem))
    if limit < inf:
        cuts = few_cuts(problem, problem.slowest_within(limit))
    attempts = _Effort(seed=seed, time_limit=time_limit, effort=effort).layouts
    try:
        for layout in () if cuts is not None else attempts(LayoutProgram(problem, limit)):
            if layout and (best is None or layout.objective < raised(best.objective)):
                best, limit = layout, raised(layout.objective)
            if layout and layout.proven and best:
                return replace(best, proven=True, least=best.objective)
            if layout and (cuts := few_cuts(problem, problem.slowest_within(limit))) is not None:
                break
    except Infeasible:  # the program rounds bytes up, so that it may not hold what fills the memory
        if best is None:
            raise
        return replace(best, proven=True, least=best.objective)
    if cuts is not None:
        return _shaped(problem, cuts, limit)
    if best is None:
        raise _too_short(problem)
    return replace(best, proven=False, least=0.0)


def _shaped(problem: LayoutProblem, shapes: StageShapes, at_most: float) -> Layout:
    """The fastest of these shapes; raises Infeasible where none has a pipeline of `at_most` [s]."""
    layout = shaped_layout(problem, fastest(problem, shapes, at_most))
    if layout is None:
        raise Infeasible(_why(problem))
    return layout


def shaped_layout(problem: LayoutProblem, shape: Shaped | None) -> Layout | None:
    """What a shape of interleaved virtual stages takes and needs."""
    if shape is None:
        return None
    runs = runs_of(problem, shape.counts, shape.ahead)
    assessed = assess(problem, runs, shape.recomputed, proven=True, first=shape.first)
    return replace(assessed, least=assessed.objective)


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """What the solver may spend on one program."""

    seed: int
    time_limit: float | None
    effort: float | None

    def layouts(self, variables: LayoutProgram) -> Iterator[Layout | None]:
        """What one attempt after the other finds, until it is proven the best. Raises Infeasible where nothing fits.

        Some programs that take a minute otherwise are solved at once with every constraint in the linear relaxation;
        most others take longer so. Others take long with one seed and are solved at once with another.
        """
        start = perf_counter()
        attempts = ((0, FIRST, False), (0, FIRST, True), (1, FIRST, False), (0, self.effort, False))
        for other, effort, relaxed in attempts:
            left = None if self.time_limit is None else self.time_limit - (perf_counter() - start)
            answer = variables.program.solve(self.seed + other, left, effort, relaxed=relaxed)
            if answer.status == INFEASIBLE:
                raise Infeasible(_why(variables.problem))
            proven = answer.status == OPTIMAL
            yield None if answer.values is None else _layout(variables, answer.values, proven)
            if proven:
                return


def least_memory_assignment(
    problem: LayoutProblem, *, seed: int = 0, time_limit: float | None = None, effort: float | None = None
) -> Layout:
    """The layout whose fullest stage reserves least. Raises Infeasible when no layout fits in the problem's memory,
    TimeLimit when none was found in time.
    """
    *_, layout = _Effort(seed=seed, time_limit=time_limit, effort=effort).layouts(LayoutProgram(problem, lean=True))
    if layout is None:
        raise _too_short(problem)
    return layout


def even_layout(problem: LayoutProblem, *, recompute: bool = True) -> Layout:
    """The split people start from: equally many layers on each virtual stage, ends relieved where pp does not divide.

    Every layer that may be recomputed is, or none; it may not fit.
    """
    return placed_layout(problem, Placement() if recompute else Placement(recomputed=(0,) * problem.pp))


def placed_layout(problem: LayoutProblem, placed: Placement) -> Layout:
    """The layout that a plan asks for; where it says nothing layers are split evenly and recomputed if they may be.

    MoE layers of a stage are recomputed before its dense layers. It may not fit.
    """
    counts = virtual_stages(placed.layers, problem.layers, problem.pp, problem.vpp)
    runs = runs_of(problem, counts, placed.mtp_ahead)
    if problem.alike:
        return recomputed_alike(problem, runs, placed.first)
    recomputed = []
    for stage in range(problem.pp):
        left = placed.recomputed[stage] if placed.recomputed else sum(counts)
        to_recompute = {}
        for kind in sorted(recomputable(problem), key=(MOE, DENSE).index):
            of_kind_here = sum(n for virtual in runs[stage :: problem.pp] for name, n in virtual if name == kind)
            to_recompute[kind] = min(left, of_kind_here)
            left -= to_recompute[kind]
        recomputed.append(to_recompute)
    return assess(problem, runs, recomputed)


def recomputed_alike(problem: LayoutProblem, runs: Sequence[Runs], first: int, *, proven: bool = False) -> Layout:
    """The layout that recomputes the first so many layers of every virtual stage; for 0 all, and MTP layers."""
    counts = [sum(n for kind, n in stage_runs if kind in (DENSE, MOE)) for stage_runs in runs]
    predicting = any(kind == MTP for kind, _ in problem.sequence)
    most = max(counts)
    first = min(first, most) if first < most or predicting else 0
    alike = _alike(problem.sequence, tuple(runs), problem.pp, first, recomputable(problem))
    return assess(problem, runs, [dict(stage) for stage in alike], proven=proven, first=first)


@lru_cache(maxsize=1024)  # thousands of plans share a few
def _alike(
    sequence: Runs, runs: tuple[Runs, ...], pp: int, first: int, choosable: tuple[str, ...]
) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Layers of each kind that each stage recomputes."""
    names = [kind for kind, count in sequence for _ in range(count) if kind in (DENSE, MOE)]
    recomputed: list[Counter[str]] = [Counter() for _ in range(pp)]
    for virtual, stage_runs in enumerate(runs):
        count = sum(n for kind, n in stage_runs if kind in (DENSE, MOE))
        here, names = names[:count], names[count:]
        to_recompute = [
            *here[: first or count],
            *(MTP for kind, n in stage_runs for _ in range(n) if kind == MTP and not first),
        ]
        recomputed[virtual % pp].update(kind for kind in to_recompute if kind in choosable)
    return tuple(tuple(stage.items()) for stage in recomputed)


def assess(
    problem: LayoutProblem,
    runs: Sequence[Runs],
    recomputed: Sequence[Mapping[str, int]],
    *,
    proven: bool = False,
    first: int = 0,
) -> Layout:
    """Time and memory of a layout given by the runs on its virtual stages and the layers recomputed on its stages."""
    counts, to_recompute = [Counter(dict(virtual)) for virtual in runs], [Counter(dict(stage)) for stage in recomputed]
    by_kind = {kind: np.array([[stage_runs[kind] for stage_runs in counts]]) for kind in dict(problem.sequence)}
    loads = Loads(
        problem=problem,
        by_kind=by_kind,
        stages={kind: by_stage(number, problem.pp) for kind, number in by_kind.items()},
        recomputed={kind: np.array([[stage[kind] for stage in to_recompute]]) for kind in recomputable(problem)},
    )
    waits = float(loads.stalled[0])
    return Layout(
        kinds=tuple(runs),
        pp=problem.pp,
        recomputed=tuple(tuple((kind, n) for kind, n in stage.items() if n) for stage in recomputed),
        stage_seconds=tuple(loads.seconds[0].tolist()),
        memory=tuple(loads.memory[0].tolist()),
        pipeline=float(loads.pipeline[0]) + waits,
        objective=float(loads.pipeline[0] + loads.once[0]) + waits,
        stalled=waits,
        on_host=tuple(loads.on_host[0].tolist()),
        more=int(loads.more[0]),
        proven=proven,
        chosen=bool(recomputable(problem)) and not problem.alike,
        first=first,
    )


def _layout(variables: LayoutProgram, values: Sequence[int], proven: bool) -> Layout:
    if variables.problem.alike:
        first = variables.first_layers(values)
        return recomputed_alike(variables.problem, variables.runs(values), first, proven=proven)
    recomputed = [{kind: values[index] for kind, index in stage.items()} for stage in variables.recomputed]
    return assess(variables.problem, variables.runs(values), recomputed, proven=proven)


def _too_short(problem: LayoutProblem) -> TimeLimit:
    return TimeLimit(f"no layout of {problem.pp} stages was found in time")


def _why(problem: LayoutProblem) -> str:
    memory, in_flight = problem.memory, float(np.mean(problem.in_flight))
    states, need = (
        memory.fixed + sum(n * memory.of(kind, passes, recomputed=True) for kind, n in problem.sequence) / problem.pp
        for passes in (0.0, in_flight)
    )
    return (
        f"no layout fits: {problem.pp} stages of {problem.usable / 1e9:.1f} GB, of which an average stage needs at "
        f"least {need / 1e9:.1f} GB ({states / 1e9:.1f} GB of states); use more stages, a larger tp, or recomputation"
    )


@dataclass
class Solved:
    """Problems with their best layouts; None where no layout has a pipeline of so many seconds.

    CP 2 with micro-batches of one sequence and CP 4 with two, for one, are one problem.
    seed, effort: of best_assignment.
    """

    seed: int = 0
    effort: float | None = None
    known: dict[Hashable, tuple[float, Layout | None]] = field(default_factory=dict)

    @property
    def ruled_out(self) -> Solved:
        """What is known to take too long, for another search: of equal layouts that finds the same as without it."""
        return replace(self, known={key: each for key, each in self.known.items() if each[1] is None})

    def best(self, problem: LayoutProblem, at_most: float = inf, time_limit: float | None = None) -> Layout:
        """The best layout, or one that a cut short search found; `time_limit` [s] is for what is not known.

        Raises Infeasible where no layout has a pipeline of `at_most` [s], TimeLimit where none was found in time.
        """
        rest = (getattr(problem, each.name) for each in fields(problem) if each.name not in ("kinds", "memory"))
        key = tuple(problem.kinds.items()), tuple(problem.memory.layers.items()), problem.memory.fixed, *rest
        limit, layout = self.known.get(key, (-inf, None))
        if layout is not None:
            return layout
        if at_most <= limit:
            raise Infeasible(f"no layout has a pipeline of {at_most:.6g} s")
        try:
            layout = best_assignment(
                problem, seed=self.seed, time_limit=time_limit, effort=self.effort, at_most=at_most
            )
        except Infeasible:
            self.known[key] = at_most, None
            raise
        self.known[key] = at_most, layout
        return layout
