"""The operators of a layer of a real plan: what each computes, moves and takes, forward, by the cost model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels import attention
from optimizer.objectives.kernels.gemm_curve import curve_for
from optimizer.objectives.kernels.operators import Attention, Gemm, layer_operators
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.seconds import elementwise_seconds, gemm_seconds

WIDTH = 2.0  # of an operand in half precision [B]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator for one micro-batch: operations [FLOP], bytes through memory [B], time [s].

    Operations of element-wise kernels are not counted: 0.
    """

    name: str
    flops: float
    moved: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte [FLOP/B]."""
        return self.flops / self.moved

    @property
    def rate(self) -> float:
        """What it reaches [FLOP/s]."""
        return self.flops / self.seconds


def operators_of(job: Job, plan: Plan) -> tuple[Operator, ...]:
    """Products, attention core and element-wise kernels of a dense layer's forward pass on one GPU, in half precision.

    >>> from optimizer.page.learn.contexts import LARGE, job_of
    >>> found = {each.name: each for each in operators_of(job_of(LARGE), Plan(tp=8))}
    >>> round(found["mlp_up"].flops / 1e9), round(found["mlp_up"].intensity)
    (309, 1365)
    """
    shapes = shapes_of(job, Plans.of([plan]))
    layer = layer_operators(job.model, shapes, job.stack, False)
    found = [_product(job, gemm) for gemm in layer.gemms]
    if layer.attention:
        found.append(_core(job, layer.attention))
    for kernel in layer.elementwise:
        seconds = float(np.sum(elementwise_seconds(kernel.forward_bytes, job)))
        found.append(Operator(name=kernel.name, flops=0.0, moved=float(np.sum(kernel.forward_bytes)), seconds=seconds))
    return tuple(each for each in found if each.moved > 0)


def _product(job: Job, gemm: Gemm) -> Operator:
    moved = gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) * WIDTH
    curve = curve_for(job.cluster.device, job.wide_dtype)
    seconds = gemm_seconds(gemm, curve, job.stack["gemm_efficiency"], False)
    return Operator(
        name=gemm.name, flops=float(np.sum(gemm.flops)), moved=float(np.sum(moved)), seconds=float(np.sum(seconds))
    )


def _core(job: Job, core: Attention) -> Operator:
    """A fused core reads queries, keys and values and writes its output."""
    rows = core.heads * core.queries * (core.qk_dim + core.v_dim)
    columns = core.heads * core.keys * (core.qk_dim + core.v_dim)
    return Operator(
        name="attention core",
        flops=float(np.sum(core.flops)),
        moved=WIDTH * float(np.sum(rows + columns)),
        seconds=float(np.sum(attention.seconds(job, core, False))),
    )
