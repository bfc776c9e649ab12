"""The least memory that plans reserve under any layout: numpy's bounds of all, CP-SAT for the few that decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.step.host_memory import activations_fit_host, most_offload
from optimizer.objectives.step.linear_stage import LinearStage, linear_stage, reserved_memory
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.deadline import NEVER, Deadline
from optimizer.search.lattice.knobs import columns
from optimizer.search.layouts.bounds.even_splits import even_memory, only_even
from optimizer.search.layouts.bounds.stage_needs import Needs, mean_need, needs_of
from optimizer.search.layouts.problem import memory_problem
from optimizer.search.layouts.solve.least_memory import fitting_layout, least_memory_layout

BATCH = 512  # plans whose stages are looked at together
CLOSE = 0.05e9  # bytes to which the least memory is told


@dataclass(frozen=True, kw_only=True)
class LeastMemory:
    """What plans reserve at these knobs, or as near as the software can set them, under their layout of least memory.

    Where the user places the layers, that is their only layout. `unfit` are problems that were found to have none that
    fits, which plans of other batches share. Its searches raise TimeLimit after the deadline.
    """

    knobs: Knobs = Knobs(offload=1.0)
    unfit: set[str] = field(default_factory=set)
    deadline: Deadline = NEVER

    def at(self, layer_costs: LayerCosts) -> KnobColumns:
        """The knobs, with no more on the host than the job's software can put there and than the host can take."""
        own = columns(self.knobs, len(layer_costs))
        return replace(own, offload=np.minimum(own.offload, most_offload(layer_costs)))

    def fits(self, job: Job, chunks: Iterable[Plans]) -> bool:
        """Whether some layout of some plan fits in the job's memory."""
        return next(self.fitting(job, chunks), None) is not None

    def fitting(self, job: Job, chunks: Iterable[Plans]) -> Iterator[Plans]:
        """Plans that fit in the job's memory under some layout, a few at a time.

        Even splits come first; a solver is asked about the other plans when all even splits were seen.
        """
        waiting: list[Plans] = []
        for plans in chunks:
            self.deadline.go_on()
            some = plans.take(self.possible(job, plans))
            if not len(some):
                continue
            fits = np.ones(len(some), dtype=np.bool_)
            if not job.layout_given:
                layer_costs = _costs(job, some)
                even = even_memory(layer_costs, self.at(layer_costs).offload)
                fits = (even <= safe_memory(job)) & activations_fit_host(layer_costs)
                waiting.append(some.take(~fits & ~only_even(job, some)))
            if fits.any():
                yield some.take(fits)
        for plans in waiting:
            yield from self._solved(job, plans)

    def possible(self, job: Job, plans: Plans) -> NDArray[np.bool_]:
        """Plans of which some layout may fit in the job's memory: no layout of the others does, and no solver is asked.

        A plan is the leaner the fewer micro-batches it has: what is left out would not fit with more of them either.
        """
        usable = safe_memory(job)
        if job.layout_given:
            return self.bounds(job, plans) <= usable
        layer_costs = _costs(job, plans)
        offload = self.at(layer_costs).offload
        memory = linear_stage(layer_costs, offload)
        low = np.flatnonzero(mean_need(job, plans, memory) <= usable)
        if len(low):
            needs = needs_of(job, plans.take(low), memory.take(low))
            low = low[(needs.bound() <= usable) & needs.have_capacity(usable)]
        alike = only_even(job, plans.take(low))
        able = np.zeros(len(plans), dtype=np.bool_)
        able[low[~alike]] = True
        if alike.any():
            able[low[alike]] = even_memory(layer_costs.take(low[alike]), offload[low[alike]]) <= usable
        return able

    def least(self, job: Job, chunks: Iterable[Plans]) -> tuple[float, Plan | None]:
        """The least memory of any layout of any plan [B], and that plan as it is laid out; infinite without plans.

        It is exact to 50 MB, and to the GB in which memory is bought.
        """
        best, least_plan = np.inf, None
        waiting: list[tuple[FloatArray, Plans]] = []
        for plans in chunks:
            self.deadline.go_on()
            bounds = self.bounds(job, plans, best)
            first = np.argsort(bounds, kind="stable")[: min(BATCH, int(np.isfinite(bounds).sum()))]
            if not len(first):
                continue
            some = plans.take(first)
            layer_costs = _costs(job, some)
            even = bounds[first] if job.layout_given else even_memory(layer_costs, self.at(layer_costs).offload)
            even = np.where(activations_fit_host(layer_costs), even, np.inf)
            place = int(np.argmin(even))
            if even[place] < best:
                best, least_plan = float(even[place]), with_assigned_layers(job, some.plan(place))
            low = bounds < best
            low[first] &= ~only_even(job, some)
            waiting.append((bounds[low], plans.take(low)))
        if job.layout_given or not waiting:
            return best, least_plan
        bounds, plans = np.concatenate([lows for lows, _ in waiting]), Plans.joined([some for _, some in waiting])
        order = np.argsort(bounds, kind="stable")
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            if bounds[part[0]] > _telling(job, best):
                break
            some = plans.take(part)
            memory, needs = self._needs(job, some)
            capable = needs.have_capacity(_telling(job, best))
            for index, bound in enumerate(bounds[part].tolist()):
                if not capable[index] or bound > _telling(job, best):
                    continue
                self.deadline.go_on()
                problem = memory_problem(job, some.plan(index), memory.row(index))
                problem = replace(problem, usable=_telling(job, best))
                layout = least_memory_layout(problem, bound, self.deadline.left)
                if layout is not None:
                    best, least_plan = max(layout.memory), layout.of(some.plan(index))
                    capable = needs.have_capacity(_telling(job, best))
        return best, least_plan

    def bounds(
        self, job: Job, plans: Plans, at_most: float = np.inf, layer_costs: LayerCosts | None = None
    ) -> FloatArray:
        """Memory that each plan reserves under every layout [B]: the memory itself where there is one layout only.

        Where it is soon seen to be more than `at_most` [B] it is infinite. `layer_costs`: of the plans, where known.
        """
        layer_costs = layer_costs or _costs(job, plans)
        if job.layout_given:
            return reserved_memory(job, plans, self.at(layer_costs))
        memory = linear_stage(layer_costs, self.at(layer_costs).offload)
        low = np.flatnonzero(mean_need(job, plans, memory) <= at_most)
        able = np.full(len(plans), np.inf)
        if len(low):
            able[low] = needs_of(job, plans.take(low), memory.take(low)).bound()
        return able

    def _needs(self, job: Job, plans: Plans) -> tuple[LinearStage[FloatArray], Needs]:
        layer_costs = _costs(job, plans)
        memory = linear_stage(layer_costs, self.at(layer_costs).offload)
        return memory, needs_of(job, plans, memory)

    def _solved(self, job: Job, plans: Plans) -> Iterator[Plans]:
        """The plans that the solver finds a layout for, those with the leanest bounds first."""
        if not len(plans):
            return
        memory, needs = self._needs(job, plans)
        capable = needs.have_capacity(safe_memory(job))
        for index in np.argsort(needs.bound(), kind="stable").tolist():
            if not capable[index]:
                continue
            problem = memory_problem(job, plans.plan(index), memory.row(index))
            key = repr(replace(problem, microbatches=1))  # of them only those in flight take memory
            if key in self.unfit:
                continue
            self.deadline.go_on()
            if fitting_layout(problem, self.deadline.left):
                yield plans.take([index])
            else:
                self.unfit.add(key)


def _costs(job: Job, plans: Plans) -> LayerCosts:
    return layer_costs_of(job, plans, timed=False)


def _telling(job: Job, best: float) -> float:
    """The most that a plan may reserve to change what is told of the least memory: GB, or percent of risk [B]."""
    rule = Memory()
    return max(best - CLOSE, rule.next_size(job, best), rule.next_risk(job, best))
