"""Elements that stages hold, and what one of them takes as it is held."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optimizer.job.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.pipeline.schedules import both_ways, copies
from optimizer.objectives.pipeline.stages import Stages


def counted(stages: Stages, each: Mapping[str, FloatArray]) -> FloatArray:
    """Sum over the kinds of layers on each stage x what one of the kind has."""
    parts = (stages.counts[kind] * values for kind, values in each.items() if values.any())
    return sum(parts, np.zeros(stages.exists.shape))


def elements_on(layer_costs: LayerCosts, stages: Stages, part: str) -> FloatArray:
    """Elements of one sort, of LocalParameters, on each stage, of every copy there [elements]."""
    elements = counted(stages, {kind: getattr(kind_costs, part) for kind, kind_costs in layer_costs.by_kind.items()})
    return elements * copies(layer_costs.plans) if both_ways(layer_costs.plans).any() else elements


def weight_size(job: Job) -> float:
    """Bytes of an element as it is held beside what the optimizer holds [B]: as the software has it, or frozen."""
    return ELEMENT if job.method.freezes else job.stack.features.param_bytes
