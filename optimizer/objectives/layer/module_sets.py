"""Which modes of recomputation are worth searching for a job: the modes of its stack, and few sets of modules."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from optimizer.job.job import Job, Limits
from optimizer.job.model import Model
from optimizer.job.recomputation import MODES, MODULES, modules_of, named
from optimizer.objectives.kernels.operators import layer_operators
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.cost import activations_of, job_of
from optimizer.objectives.layer.seconds import layer_time

Saving = tuple[float, float]  # bytes freed [B] for seconds added [s], of all layers of a model
SMALL = 0.025  # of what all layers keep: sets that free less than so much more than a cheaper one are left out


def searched_modes(job: Job) -> tuple[str, ...]:
    """Modes of recomputation that the search tries unless it is told which: MODES, and the sets of `frontier`.

    Selective recomputation is left out where it frees nothing, as with flash attention, which keeps no scores.
    """
    useless = job.stack.features.selective == "core" and job.stack.features.attention.startswith("flash")
    modes = tuple(mode for mode in MODES if mode != "selective" or not useless)
    if not job.stack.features.recompute_modules:
        return modes
    # Jobs that differ in what `savings` does not look at share its answer.
    ranks = min(job.gpus, job.cluster.gpus_per_node)
    return *modes, *_sets(replace(job, gpus=ranks, global_batch=1, limits=Limits(), settings=()))


@lru_cache(maxsize=256)
def _sets(job: Job) -> tuple[str, ...]:
    return frontier(*savings(job))


def savings(job: Job) -> tuple[dict[str, Saving], Saving, float]:
    """What recomputing each module of all layers frees and costs, what whole layers do, and what all layers keep [B].

    One sequence on one GPU, the experts on as many as a scale-up domain has: what one module frees and costs against
    another depends little on how the layers are split.
    """
    model, stack = job.model, job.stack
    one = np.ones(1)
    experts = job.model.experts.count if job.model.experts else 1
    most = min(experts, job.gpus, job.cluster.gpus_per_node)
    ep = one * max(ranks for ranks in range(1, most + 1) if experts % ranks == 0)
    shapes = Shapes(tp=one, cp=one, ep=ep, etp=one, micro_batch=one, sequence_parallel=one > 1, seq_len=job.seq_len)
    keeps, full = 0.0, np.zeros(2)
    freed_and_cost = {module: np.zeros(2) for module in stack.features.recompute_modules}
    for kind in model.kinds:
        own, count, moe = kind.model, kind.count, kind.moe
        table = activations_of(job, own, shapes, moe)
        operators = layer_operators(own, shapes, job.software, moe, job.row_multiple)
        time = layer_time(job_of(job, kind), operators, shapes, moe)
        keeps += count * float(table.none[0])
        full += count * np.array([table.none[0] - table.full[0], time.full.total[0]])
        for module, phase in time.modules.items():
            freed_and_cost[module] += count * np.array([table.modules[module][0], phase.total[0]])
    by_module = {module: (float(freed), float(seconds)) for module, (freed, seconds) in freed_and_cost.items()}
    return by_module, (float(full[0]), float(full[1])), keeps


def frontier(by_module: dict[str, Saving], full: Saving, keeps: float) -> tuple[str, ...]:
    """Sets that nothing beats which frees as much: no other set, and no number of whole layers recomputed; thinned out.

    From the set that frees least upwards, those are left out that free less than SMALL more than the one before.

    >>> some = {"layernorm": (1.0, 1.0), "moe_act": (2.0, 1.0), "mlp": (2.0, 8.0)}
    >>> frontier(some, (9.0, 12.0), 10.0)
    ('moe_act', 'layernorm+moe_act')
    """
    useful = [module for module in MODULES if by_module.get(module, (0.0, 0.0))[0] > 0]
    names = {named(some) for n in range(1, len(useful) + 1) for some in combinations(useful, n)}
    points = {
        name: [sum(by_module[module][i] for module in modules_of(name)) for i in (0, 1)] for name in names - set(MODES)
    }
    rising: list[str] = []
    freed, least = 0.0, full[1]
    for name in sorted(points, key=lambda name: (-points[name][0], points[name][1], name)):
        size, seconds = points[name]
        if seconds < min(least, size * full[1] / full[0]):
            rising.append(name)
            least = seconds
    hull: list[str] = []
    for name in reversed(rising):
        if points[name][0] >= freed + SMALL * keeps:
            hull.append(name)
            freed = points[name][0]
    return tuple(hull)


def offered_modules(model: Model, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the modules that Megatron-Core accepts for this model: the rest need experts or latent attention.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, __post_init__: moe_act needs grouped
    products of experts, mla_up_proj multi-head latent attention.
    """
    refused = {"moe_act": model.experts is None, "mla_up_proj": model.mla is None}
    return tuple(module for module in modules if not refused.get(module, False))
