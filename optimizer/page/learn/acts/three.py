"""Act III: the roofline of a linear layer cut in two dimensions, with the document's constants, and of a real plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from optimizer.base.content import Values
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels import attention
from optimizer.objectives.kernels.gemm_curve import curve_for
from optimizer.objectives.kernels.operators import Attention, layer_operators
from optimizer.objectives.kernels.roofline import (
    WORDS,
    LayerWork,
    LinearLayer,
    RooflineRates,
    attainable_flops,
    forward_backward_work,
    gradient_work,
    ridge,
)
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.seconds import elementwise_seconds, gemm_seconds
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.priced import best

UTILISATION = 0.8  # of compute and memory, assumed by the document
EIGHT_BIT, MEMORY, DUPLEX = 1979e12, 3352e9, 900e9  # H100 SXM5, by the document: FLOP/s dense in 8 bits, B/s, B/s
INPUTS, OUTPUTS = 16384, 5 * 16384
WIDTH = 2.0  # of an operand in half precision [B]
SPAN = (1.0, 1e5)  # of the intensities drawn [FLOP/B]
SPREAD = np.geomspace(*SPAN, 41).tolist()


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A layer of 16,384 x 81,920 on tp_in x tp_out x dp H100, `tokens` of all replicas together.

    `one_way` counts what is received against half of the duplex rate instead of the sum of both directions against all
    of it.

    >>> sheet = Sheet()
    >>> round(1e6 * sheet.time, 3), sheet.bound, round(1e6 * sheet.gradients, 1)
    (32.554, 'compute', 27.1)
    >>> Sheet(one_way=True).bound
    'network'
    """

    tp_in: int = 8
    tp_out: int = 40
    dp: int = 32
    tokens: int = 32768
    element_bytes: int = 2
    one_way: bool = False

    @property
    def layer(self) -> LinearLayer:
        """The layer as it is cut."""
        cuts = {"tp_in": self.tp_in, "tp_out": self.tp_out, "dp": self.dp}
        return LinearLayer(inputs=INPUTS, outputs=OUTPUTS, element_bytes=self.element_bytes, **cuts)

    @property
    def passes(self) -> float:
        """Words on the wire per word that is summed [1]."""
        return 2.0 if self.one_way else WORDS

    @property
    def rates(self) -> RooflineRates:
        """What a GPU reaches."""
        flops, network = UTILISATION * EIGHT_BIT / self.element_bytes, DUPLEX / 2 if self.one_way else DUPLEX
        return RooflineRates(flops=flops, memory=UTILISATION * MEMORY, network=network)

    @property
    def work(self) -> LayerWork:
        """Operations and bytes of a GPU, forward and backward."""
        return forward_backward_work(self.layer, float(self.tokens), self.passes)

    @property
    def time(self) -> float:
        """The slowest resource's time [s]."""
        return self.work.time(self.rates)

    @property
    def bound(self) -> str:
        """The slowest resource."""
        return self.work.bound(self.rates)

    @property
    def gradients(self) -> float:
        """Time of the gradients' all-reduce at the end of a batch [s]."""
        return gradient_work(self.layer, self.passes).time(self.rates)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of a forward pass for one micro-batch."""

    name: str  # what the cost model calls it
    flops: float  # its operations [FLOP], 0 for element-wise kernels, whose operations are not counted
    moved: float  # bytes through memory [B]
    seconds: float  # its time [s]

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

    A fused core reads queries, keys and values and writes its output.

    >>> from optimizer.page.learn.priced import LARGE, job_of
    >>> operators = {each.name: each for each in operators_of(job_of(LARGE), Plan(tp=8))}
    >>> round(operators["mlp_up"].flops / 1e9), round(operators["mlp_up"].intensity)
    (309, 1365)
    """
    layer = layer_operators(job.model, shapes_of(job, Plans.of([plan])), job.software, False)
    curve, efficiency = curve_for(job.cluster.device, job.wide_dtype), job.stack["gemm_efficiency"]
    operators = []
    for gemm in layer.gemms:
        elements = gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
        operators.append(_summed(gemm.name, gemm.flops, elements, gemm_seconds(gemm, curve, efficiency, False)))
    if isinstance(core := layer.attention, Attention):
        elements = core.heads * (core.queries + core.keys) * (core.qk_dim + core.v_dim)
        operators.append(_summed("attention core", core.flops, elements, attention.seconds(job, core, False)))
    for kernel in layer.elementwise:
        seconds = elementwise_seconds(kernel.forward_bytes, job)
        operators.append(_summed(kernel.name, 0.0, kernel.forward_bytes / WIDTH, seconds))
    return tuple(operator for operator in operators if operator.moved > 0)


def _summed(name: str, flops: Any, elements: Any, seconds: Any) -> Operator:
    """An operator that moves so many elements of WIDTH."""
    sums = {"flops": flops, "moved": WIDTH * elements, "seconds": seconds}
    return Operator(name=name, **{field: float(np.sum(values)) for field, values in sums.items()})


@cache
def facts() -> Values:
    """The layer of the question: its times, counted both ways."""
    sheet, one_way = Sheet(), Sheet(one_way=True)
    seconds = sheet.work.seconds(sheet.rates)
    return {
        "sheet": sheet,
        "times": ", ".join(f"{name} {1e6 * value:.1f} us" for name, value in seconds.items()),
        "received": one_way.work.seconds(one_way.rates),
        "tokens": sheet.tokens // 32,
        "intensity": sheet.work.flops / sheet.work.memory,
        "ridge": ridge(sheet.rates.flops, sheet.rates.memory),
    }


def shown(chosen: Values) -> Shown:
    """The reader's layer, on the roof of an H100 with the operators of the best plan of the context."""
    names = {"tp_in": "tp_in", "tp_out": "tp_out", "dp": "replicas", "tokens": "tokens", "element_bytes": "width"}
    sheet = Sheet(**{field: chosen[name] for field, name in names.items()}, one_way=chosen["one_way"])
    local = sheet.tokens / sheet.dp
    values = {
        **{"sheet": sheet, "layer": sheet.layer, "rates": sheet.rates, "work": sheet.work, "local": local},
        "seconds": sheet.work.seconds(sheet.rates),
        "cuts_in": sheet.tp_in - 1,
        "cuts_out": sheet.tp_out - 1,
        "read": sheet.layer.local_inputs * local,
        "words": sheet.work.network / sheet.element_bytes,
    }
    return Shown(values=values, charts={"act3-chart": lambda: roofline_numbers(sheet, chosen["context"])})


def roofline_numbers(sheet: Sheet, context: str) -> ChartNumbers:
    """The reader's layer and the operators of the best plan of a context under the roof of the datasheet."""
    answer = best(context)
    job, plan = answer.job, answer.plan or Plan()
    operators, peak, memory = operators_of(job, plan), job.peak_flops, job.cluster.device.memory_bandwidth
    edge, rates, work = ridge(peak, memory), sheet.rates, sheet.work
    across = [SPAN[0], edge, SPAN[1]]
    roof = [float(attainable_flops(value, peak, memory)) / 1e12 for value in across]
    sides = [work.flops / work.memory] + ([work.flops / work.network] if work.network else [])
    reached = work.flops / sheet.time / 1e12
    known = [each for each in operators if each.flops]
    named = {each.name: each.name.replace("_", " ") for each in operators}
    texts = [f"{named[each.name]}: {each.rate / 1e12:.0f} TFLOP/s at {each.intensity:.0f} FLOP/B" for each in known]
    series = {
        "roof": Series(x=across, y=roof),
        "assumed": Series(x=across, y=[UTILISATION * value for value in roof]),
        "wire": Series(x=SPREAD, y=[float(attainable_flops(at, rates.flops, rates.network)) / 1e12 for at in SPREAD]),
        "layer": Series(
            x=sides, y=[reached] * len(sides), text=["your layer, memory", "your layer, network"][: len(sides)]
        ),
        "operators": Series(x=[each.intensity for each in known], y=[each.rate / 1e12 for each in known], text=texts),
    }
    rows = [
        {
            "name": named[each.name],
            "intensity": each.intensity if each.flops else None,
            "rate": each.rate if each.flops else None,
            "roof": float(attainable_flops(each.intensity, peak, memory)) if each.flops else None,
            "bandwidth": each.moved / each.seconds,
            "seconds": each.seconds,
        }
        for each in operators
    ]
    fastest, slowest = max(known, key=lambda each: each.rate), min(known, key=lambda each: each.rate)
    values = {
        **{"plan": f"{job.model.name}, {plan.summary()}", "peak": peak, "edge": edge},
        **{"fastest": named[fastest.name], "most": fastest.rate, "slowest": named[slowest.name], "least": slowest.rate},
    }
    return ChartNumbers(series=series, rows=rows, values=values)
