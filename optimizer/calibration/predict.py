"""Predictions for measured runs: runs that share everything but the plan are priced together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optimizer.calibration.rows.recipe import stated_parameters
from optimizer.calibration.runs import Run
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import Stages, stages_of
from optimizer.objectives.step.price import Step, price


@dataclass(frozen=True, kw_only=True)
class PlanBatch:
    """Plans priced under one job (its gpus and global_batch are those of the plans), and their places in the list."""

    job: Job
    plans: Plans
    places: tuple[int, ...]

    @cached_property
    def stages(self) -> Stages:
        """What the stages of the plans hold, whatever the parameters."""
        return stages_of(self.job.model, self.plans)

    @property
    def knobs(self) -> Knobs:
        """Those of a launch that sets none."""
        return Knobs(bucket=self.job.stack.features.default_bucket)

    def under(self, parameters: Mapping[str, float]) -> Job:
        """The job with some parameters of its stack replaced, but for those that its rows tell."""
        stated = stated_parameters(self.job.stack)
        free = {name: value for name, value in parameters.items() if name not in stated}
        return replace(self.job, stack=with_parameters(self.job.stack, free))


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """One entry per run: step time [s], reserved and allocated memory [B], and seconds by term."""

    step_time: FloatArray
    reserved: FloatArray
    allocated: FloatArray
    time: Mapping[str, FloatArray]


def batches(runs: Sequence[Run]) -> list[PlanBatch]:
    """Group runs that can be priced in one call; every run must have a job and a plan."""
    groups: dict[object, tuple[Job, list[Plan], list[int]]] = {}
    for place, run in enumerate(runs):
        job, plan = run.job, run.plan
        if job is None or plan is None:
            continue
        network = tuple((tier.size, tier.bandwidth) for tier in job.cluster.tiers)
        device = job.cluster.device
        hardware = (device.name, device.memory, network)
        stack = (job.stack.name, job.stack.features, *(job.stack[name] for name in PARAMETERS))
        trained = (job.train, job.base, job.optimizer, job.loss, job.lengths, job.packing)
        key = (job.model, hardware, stack, job.seq_len, job.dtype, trained)
        _, plans, places = groups.setdefault(key, (job, [], []))
        plans.append(plan)
        places.append(place)
    return [PlanBatch(job=job, plans=Plans.of(plans), places=tuple(places)) for job, plans, places in groups.values()]


def predict(grouped: Sequence[PlanBatch], count: int, parameters: Mapping[str, float] | None = None) -> Predictions:
    """Price every batch; `parameters` override those of each run's stack."""
    step, reserved, allocated = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan)
    time: dict[str, FloatArray] = {}
    for batch in grouped:
        costs = price(batch.under(parameters or {}), batch.plans, batch.knobs)
        places = list(batch.places)
        step[places], reserved[places], allocated[places] = costs.step_time, costs.reserved, costs.allocated
        for term, seconds in costs.time.items():
            time.setdefault(term, np.zeros(count))[places] = seconds
    return Predictions(step_time=step, reserved=reserved, allocated=allocated, time=time)


def step_times(grouped: Sequence[PlanBatch], count: int, parameters: Mapping[str, float]) -> FloatArray:
    """Step time of every run [s], without its memory and its breakdown, which a fit does not need."""
    seconds = np.full(count, np.nan)
    for batch in grouped:
        layer_costs = layer_costs_of(batch.under(parameters), batch.plans)
        seconds[list(batch.places)] = Step(layer_costs=layer_costs, stages=batch.stages, knobs=batch.knobs).seconds
    return seconds


def with_parameters(stack: Stack, parameters: Mapping[str, float]) -> Stack:
    """The stack with some parameters replaced.

    >>> with_parameters(Stack(name="mine"), {"launch": 1e-5})["launch"]
    1e-05
    """
    return replace(stack, parameters={**stack.parameters, **parameters})
