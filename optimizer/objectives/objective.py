"""What a search minimises: a value of plans that grows with the seconds of a step, and a bound on it.

value = rate x step + what a second of computing and of streaming adds x such seconds of the mean GPU

The second sum is the same for all layouts of a plan but for the layers that they recompute, so that the layout of the
least value is that of the fewest seconds with a price on every layer recomputed. All of it is multiplied by what may go
wrong with a plan, where that counts (objectives/expected.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of_plan
from optimizer.objectives.pipeline.stages import FULL, LAYERS, kinds_of, mean_stage, placed_stages
from optimizer.objectives.step.formula import STREAM
from optimizer.objectives.step.per_step import FASTEST, per_step_inputs, update_time, work_of
from optimizer.objectives.step.time_terms import burning

OPTIMIZER = "optimizer"  # the term that burns power once per step, not in every layer
Phases = Mapping[str, FloatArray | float]


def seconds_alone(_: LayerCosts) -> Phases:
    """No phase of a step counts for more than its seconds."""
    return {}


def alike(_: Job, plans: Plans) -> FloatArray:
    """No plan counts for more than its value."""
    return np.ones(len(plans))


def anywhere(_: Job, plans: Plans, __: FloatArray | float) -> FloatArray:
    """No layout counts for more than its value."""
    return np.ones(len(plans))


def sure(_: Job, reserved: FloatArray) -> FloatArray:
    """No memory counts."""
    return np.ones(len(reserved))


@dataclass(frozen=True, kw_only=True)
class Surplus:
    """What plans add to the value of their seconds."""

    layer_costs: LayerCosts  # of the plans
    phases: Phases  # what a second of COMPUTE and of STREAM on every GPU adds, by plan [unit/s]; never below 0

    def spared(self, *offloads: FloatArray | float) -> FloatArray:
        """What a step adds that recomputes nothing, with the best of these shares of the optimizer on the host [unit].

        It is linear in the share: of the ends of a range the better one beats all between.
        """
        added = self._layers[0]
        if STREAM in self.phases:
            updating = np.minimum.reduce([self._updating(offload) for offload in offloads])
            added = added + self.phases[STREAM] * updating
        return added

    def recomputing(self, layers: Mapping[str, FloatArray]) -> FloatArray:
        """What so many recomputed layers add, all stages together, by kind [unit]."""
        return np.asarray(sum((count * self.recompute(kind) for kind, count in layers.items()), self._nothing))

    def recompute(self, kind: str) -> FloatArray:
        """What one recomputed layer of a kind adds [unit]."""
        return self._layers[1].get(kind, self._nothing)

    @cached_property
    def _nothing(self) -> FloatArray:
        return np.zeros(len(self.layer_costs))

    @cached_property
    def _layers(self) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Of all layers of a step, nothing recomputed, and of one recomputed layer by kind [unit]."""
        spared, recompute = self._nothing, dict[str, FloatArray]()
        for phase, weight in self.phases.items():
            passes, recomputed = seconds_in(self.layer_costs, phase)
            spared = spared + weight * passes
            recompute = {kind: recompute.get(kind, 0.0) + weight * added for kind, added in recomputed.items()}
        return spared, recompute

    def _updating(self, offload: FloatArray | float) -> FloatArray:
        """Seconds of the mean GPU's optimizer with this share of its state on the host [s]."""
        work = work_of(self.layer_costs, mean_stage(self.layer_costs.job.model, self.layer_costs.plans))
        updated = per_step_inputs(work, FASTEST)["updated"]
        return np.asarray((updated * update_time(self.layer_costs, np.asarray(offload)))[0])


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is minimised, for one step of a job."""

    name: str  # as `--minimize` has it
    label: str  # what it is, for people
    unit: str  # of its values, in SI or USD
    about: str  # what is counted, in words
    good: str = "good"  # what a plan of a low value is: "fast"
    better: str = "better"  # what one of a lower value is: "faster"
    best: str = "best"  # what the one of the lowest value is: "fastest"
    worse: str = "worse"  # what one of a higher value is: "slower"
    per: str = "unit"  # its unit in words, as in tokens per "second"
    rate: Callable[[Job], float]  # what any second of a step costs a job [unit/s]
    # what a second of COMPUTE and of STREAM on every GPU adds to that, by plan [unit/s]; never below 0
    phases: Callable[[LayerCosts], Phases] = seconds_alone
    weight: Callable[[Job, Plans], FloatArray] = alike  # of all that, by plan [1]
    # of all that, by where the layers lie and the share of the optimizer on the host [1]; at least 1
    layout: Callable[[Job, Plans, FloatArray | float], FloatArray] = anywhere
    # of all that, by what plans are predicted to reserve [1]; at least 1, never less for more
    memory: Callable[[Job, FloatArray], FloatArray] = sure
    listed: float = 1.0  # the least that `layout` is where layers lie by a list [1]

    def rates(self, job: Job, plans: Plans) -> FloatArray:
        """What any second of a step of each plan costs [unit/s]."""
        return self.rate(job) * self.weight(job, plans)

    def surplus(self, layer_costs: LayerCosts) -> Surplus:
        """What these plans add to the value of their seconds."""
        weight = self.weight(layer_costs.job, layer_costs.plans)
        phases = {phase: weight * each for phase, each in self.phases(layer_costs).items()}
        return Surplus(layer_costs=layer_costs, phases=phases)

    def value(
        self, layer_costs: LayerCosts, knobs: Knobs | KnobColumns, seconds: FloatArray, reserved: FloatArray
    ) -> FloatArray:
        """The value of plans whose layers lie as they say [unit].

        Args:
            layer_costs: of the plans.
            knobs: the same for all, or one setting per plan.
            seconds: of a step of each plan at these knobs [s].
            reserved: what the fullest stage of each plan is predicted to reserve [B].
        """
        surplus = self.surplus(layer_costs)
        added = surplus.spared(knobs.offload)
        if surplus.phases:
            added = added + surplus.recomputing(recomputed_layers(layer_costs))
        return self._value(layer_costs.job, layer_costs.plans, knobs, seconds, reserved, added)

    def _value(
        self,
        job: Job,
        plans: Plans,
        knobs: Knobs | KnobColumns,
        seconds: FloatArray,
        reserved: FloatArray,
        added: FloatArray | float = 0.0,
    ) -> FloatArray:
        on_paper = self.rates(job, plans) * seconds + added
        return np.asarray(on_paper * self.layout(job, plans, knobs.offload) * self.memory(job, reserved))

    def value_of(self, job: Job, plan: Plan, knobs: Knobs, seconds: float, reserved: float) -> float:
        """The value of one plan whose step takes so long and reserves so much [unit]."""
        of_plan = np.array([seconds]), np.array([reserved])
        if self.phases is seconds_alone:
            return float(self._value(job, Plans.of([plan]), knobs, *of_plan)[0])
        return float(self.value(layer_costs_of_plan(job, plan), knobs, *of_plan)[0])

    def bound(self, layer_costs: LayerCosts, seconds: FloatArray, *offloads: FloatArray) -> FloatArray:
        """What no plan stays below with layers evenly split that takes at least so long [unit].

        Args:
            layer_costs: of the plans.; what full recomputation recomputes is all layers.
            seconds: least time of a step of each plan [s].
            offloads: ends of the range of shares of the optimizer state that may be on the host [1].
        """
        surplus = self.surplus(layer_costs)
        added = surplus.spared(*offloads) + surplus.recomputing(all_layers(layer_costs))
        return np.asarray(self.rates(layer_costs.job, layer_costs.plans) * seconds + added)


def all_layers(layer_costs: LayerCosts) -> dict[str, FloatArray]:
    """Layers by kind that full recomputation recomputes where none is spared, all stages together [layers]."""
    full = (layer_costs.plans.recompute == FULL).astype(np.float64)
    return {kind: count * full for kind, count in kinds_of(layer_costs.job.model).items() if kind in LAYERS}


def recomputed_layers(layer_costs: LayerCosts) -> dict[str, FloatArray]:
    """Layers that each plan recomputes by kind, all stages together [layers]."""
    if layer_costs.plans.placements is None:
        return all_layers(layer_costs)
    recomputed = placed_stages(layer_costs.job.model, layer_costs.plans).recomputed
    return {kind: layers.sum(axis=0) for kind, layers in recomputed.items()}


def seconds_in(layer_costs: LayerCosts, phase: str) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Seconds of a step that the mean GPU spends in the layers' kernels of a phase, the optimizer's left out [s].

    m / pp x sum over the kinds of layers x their seconds; m: micro-batches, pp: stages.

    Args:
        layer_costs: of the plans.
        phase: COMPUTE, STREAM or WAIT.

    Returns:
        Of both passes of all layers, nothing recomputed; and what recomputing one layer of a kind adds.
    """
    plans, counts = layer_costs.plans, kinds_of(layer_costs.job.model)
    passes, spared, recompute = plans.num_microbatches / plans.pp, np.zeros(len(layer_costs)), dict[str, FloatArray]()
    for name in burning(phase):
        if name == OPTIMIZER:
            continue
        for kind, kind_costs in layer_costs.by_kind.items():
            both, added = kind_costs.term(name)
            spared = spared + counts[kind] * passes * both
            if kind in LAYERS:
                recompute[kind] = recompute.get(kind, 0.0) + passes * added
    return spared, recompute
