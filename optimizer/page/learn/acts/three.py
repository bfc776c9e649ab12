"""Act III: the roofline of the reader's layer and of the operators of a real plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from optimizer.job.plan import Plan
from optimizer.objectives.kernels.roofline import attainable_flops, ridge
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import Numbers, Series
from optimizer.page.learn.content_files import Values
from optimizer.page.learn.plan_operators import Operator, operators_of
from optimizer.page.learn.priced import best
from optimizer.page.learn.textbook.layer_roof import UTILISATION, Sheet

SPAN = (1.0, 1e5)  # of the intensities drawn [FLOP/B]
SPREAD = [10 ** (exponent / 8) for exponent in range(0, 41)]


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
    return Shown(values=values, charts={"act3-chart": lambda: context_numbers(sheet, chosen["context"])})


def context_numbers(sheet: Sheet, context: str) -> Numbers:
    """The roofline with the operators of the best plan of a context."""
    answer = best(context)
    job, plan = answer.job, answer.plan or Plan()
    named = f"{job.model.name}, {plan.summary()}"
    return roofline_numbers(sheet, operators_of(job, plan), job.peak_flops, job.cluster.device.memory_bandwidth, named)


def roofline_numbers(sheet: Sheet, operators: Sequence[Operator], peak: float, memory: float, plan: str) -> Numbers:
    """The reader's layer and the operators of a plan under the roof.

    Args:
        sheet: the layer.
        operators: of the plan.
        peak: of the datasheet [FLOP/s].
        memory: of the datasheet [B/s].
        plan: named in the words.
    """
    edge, rates, work = ridge(peak, memory), sheet.rates, sheet.work
    across = [SPAN[0], edge, SPAN[1]]
    roof = [float(attainable_flops(value, peak, memory)) / 1e12 for value in across]
    sides = [work.flops / work.memory] + ([work.flops / work.network] if work.network else [])
    reached = work.flops / sheet.time / 1e12
    known = [each for each in operators if each.flops]
    named = {each.name: each.name.replace("_", " ") for each in operators}
    said = [f"{named[each.name]}: {each.rate / 1e12:.0f} TFLOP/s at {each.intensity:.0f} FLOP/B" for each in known]
    series = {
        "roof": Series(x=across, y=roof),
        "assumed": Series(x=across, y=[UTILISATION * value for value in roof]),
        "wire": Series(x=SPREAD, y=[float(attainable_flops(at, rates.flops, rates.network)) / 1e12 for at in SPREAD]),
        "layer": Series(
            x=sides, y=[reached] * len(sides), text=["your layer, memory", "your layer, network"][: len(sides)]
        ),
        "operators": Series(x=[each.intensity for each in known], y=[each.rate / 1e12 for each in known], text=said),
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
    ends = {"fastest": named[fastest.name], "most": fastest.rate, "slowest": named[slowest.name], "least": slowest.rate}
    return Numbers(series=series, rows=rows, values={"plan": plan, "peak": peak, "edge": edge, **ends})
