"""Least memory of even splits, for many plans at once: what every stage reserves under the best choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.given_layout import placements
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Placement, Plans, virtual_stages
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.pipeline.stages import FULL, layer_sequence, moe_pattern, placed_stages
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.search.lattice.knobs import columns
from optimizer.search.layouts.problem import firsts


def even_memory(layer_costs: LayerCosts, offload: FloatArray) -> FloatArray:
    """Memory that each plan's even split reserves when each stage recomputes what makes that least [B].

    offload: share of the optimizer state of each plan on the host [1].
    """
    knobs = replace(columns(Knobs(), len(layer_costs)), offload=offload)
    model, options = layer_costs.job.model, []
    for placed in _options(layer_costs.job, layer_costs.plans):
        some = layer_costs.placed(placed)
        options.append(stage_memory(some, placed_stages(model, some.plans), knobs).reserved)
    return np.asarray(np.minimum.reduce(options).max(axis=0))


def only_even(job: Job, plans: Plans) -> NDArray[np.bool_]:
    """Plans of which no other split is searched, or there is none: one stage holds all layers."""
    return np.asarray((plans.pp * plans.vpp == 1) | (not job.stack.features.uneven_stages))


def _options(job: Job, plans: Plans) -> Iterator[tuple[Placement, ...]]:
    """All layers recomputed under full recomputation; none; and MoE layers only, where there are dense layers too.

    Where the software recomputes equally many layers on every virtual stage, the numbers of which one has the least.
    """
    every = placements(job, plans)
    yield every
    full = (plans.recompute == FULL).tolist()
    if job.recomputes_alike and any(full):
        *some, whole = firsts(layer_sequence(job.model))
        for first in (*some, whole) if job.model.mtp_layers else some:
            yield tuple(replace(placed, first=first if on else 0) for placed, on in zip(every, full, strict=True))
    if any(placed.recomputed for placed in every):
        yield tuple(replace(placed, recomputed=(0,) * len(placed.recomputed)) for placed in every)
        if 0 < job.model.moe_layers < job.model.layers:
            shapes = list(zip(plans.pp.tolist(), plans.vpp.tolist(), strict=True))
            moe = {shape: _moe_layers(job, *shape) for shape in set(shapes)}
            yield tuple(
                replace(placed, recomputed=moe[shape] if placed.recomputed else ())
                for placed, shape in zip(every, shapes, strict=True)
            )


def _moe_layers(job: Job, pp: int, vpp: int) -> tuple[int, ...]:
    """MoE layers on each stage of an even split."""
    stage = np.repeat(np.arange(pp * vpp) % pp, virtual_stages((), job.model.layers, pp, vpp))
    return tuple(np.bincount(stage[moe_pattern(job.model) > 0], minlength=pp).tolist())
