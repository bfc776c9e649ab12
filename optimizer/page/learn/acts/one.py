"""Act I: the numbers of a data-parallel step, by the textbook, by the cost model and as measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from optimizer.base.content import Values
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.priced import compared_numbers, data_parallel, data_parallel_runs, nearest
from optimizer.studies.scaling import ScalingPoint
from optimizer.studies.textbook import (
    CLAIMED,
    COUNTS,
    FABRICS,
    INFINIBAND,
    LAB,
    NVLINK,
    SEQUENCE,
    DataParallel,
    corrected,
    curve,
)

NAMES = {NVLINK: "NVLink", INFINIBAND: "InfiniBand"}


@cache
def facts() -> Values:
    """One step on a node, on 64 and on 512 GPUs, and the same with the tokens counted."""
    node, rack, hall = (DataParallel(gpus=gpus) for gpus in CLAIMED)
    counted = replace(LAB, tokens_per_sequence=SEQUENCE)
    return {
        **{"node": node, "rack": rack, "hall": hall, "lab": LAB, "told": tuple(CLAIMED.values()), "sequence": SEQUENCE},
        "all_sequences": 512 * hall.batch,
        "doubled": 2 * rack.ratio,
        "half_sent": rack.sent / 2,
        "half_peak": LAB.peak / 2,
        "half_nvlink": LAB.nvlink / 2,
        "restored": DataParallel(constants=counted),
        "whole": tuple(DataParallel(gpus=gpus, constants=counted).mfu for gpus in CLAIMED),
        "growth": hall.all_reduce / rack.all_reduce - 1,
    }


def shown(chosen: Values) -> Shown:
    """The reader's step, MFU by GPUs, and the measured runs."""
    constants = {"document": LAB, "datasheets": corrected()}[chosen["constants"]]
    inputs = {name: chosen[name] for name in ("billions", "gpus", "batch", "fabric")}
    step = DataParallel(**inputs, constants=constants)
    model = nearest(step.billions)
    points = data_parallel(model, chosen["batch"]) if chosen["priced"] else ()
    tokens = constants.tokens_per_sequence
    values = {
        "step": step,
        "slower": constants.nvlink / constants.infiniband,
        "others": step.gpus - 1,
        "fabric": NAMES[step.uses],
        "counted": "sequences" if tokens == 1 else "tokens",
        "batch": f"{step.batch}" if tokens == 1 else f"{step.batch} x {tokens:,}",
        "serial": step.compute + step.all_reduce,
        "cost_model": cost_model(model, points),
    }
    charts = {
        "act1-chart": lambda: mfu_numbers(step, points),
        "act1-runs": lambda: compared_numbers(data_parallel_runs()),
    }
    return Shown(values=values, charts=charts)


def mfu_numbers(step: DataParallel, points: Sequence[ScalingPoint] = ()) -> ChartNumbers:
    """MFU against GPUs over both fabrics, as the message tells it, where the reader is, and by the cost model [%]."""
    priced = {point.gpus: point.estimate.mfu for point in points if point.estimate}
    curves = {fabric: [100 * share for share in curve(step, fabric)] for fabric in FABRICS}
    series = {fabric: Series(x=COUNTS, y=values) for fabric, values in curves.items()}
    series |= {
        name: Series(x=list(shares), y=[100 * share for share in shares.values()])
        for name, shares in (("told", CLAIMED), ("priced", priced), ("here", {step.gpus: step.mfu}))
        if shares
    }
    rows = [
        {
            "gpus": count,
            **{fabric: curves[fabric][index] for fabric in FABRICS},
            "told": CLAIMED.get(count),
            "priced": priced.get(count),
        }
        for index, count in enumerate(COUNTS)
    ]
    return ChartNumbers(
        series=series,
        rows=rows,
        values={"first": curves[NVLINK][0], "last": curves[NVLINK][-1]},
        xaxis={"tickvals": COUNTS, "ticktext": [f"{count:,}" for count in COUNTS]},
    )


def cost_model(model: str, points: Sequence[ScalingPoint]) -> str:
    """What the cost model says of data parallelism alone: the plan at both ends, and what does not fit."""
    known = [(point, point.estimate, point.plan) for point in points if point.estimate and point.plan]
    if not known:
        return f"The cost model finds no data-parallel plan of {model}."
    ends = " and on ".join(
        f"{point.gpus:,} GPUs {100 * estimate.mfu:.1f} % ({plan.summary()})"
        for point, estimate, plan in (known[0], known[-1])
    )
    lost = ", ".join(f"{point.gpus:,} ({point.note})" for point, _, _ in known if not point.fits)
    return (
        f"The cost model, for {model}, the nearest model with known dimensions, and 2,048 tokens per sequence: on "
        f"{ends}. It overlaps what overlaps, counts latency and real rates, and shards the optimizer state."
    ) + f" Out of memory on {lost}." * bool(lost)
