"""Act II: the numbers of a design TP x PP x DP, by rules of thumb, by the cost model and as measured."""

from __future__ import annotations

from functools import cache

from optimizer.base.content import Values
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.priced import best, compared_numbers, designed, gpt3_runs
from optimizer.studies.textbook import CEILING, GPUS, KINDS, LAB, LabDesign, best_by_rule

HIDDEN, SEQUENCE = 12288, 2048  # of GPT-3; Brown et al., arXiv 2005.14165, table 2.1
STAGES = range(1, 65)
COUNTS = (1, 4, 8, 16)  # micro-batches drawn, besides the reader's own
TABULATED = (1, 2, 4, 8, 16, 32, 64)


@cache
def facts() -> Values:
    """The designs that the question names, and what a sum of tensor parallelism sends."""
    sent = float(volume_per_rank("all_reduce", HIDDEN * SEQUENCE * 2, LAB.node))
    return {
        **{"lab": LAB, "sent": sent, "inside": sent / LAB.nvlink, "across": sent / LAB.infiniband},
        "called": LabDesign(tp=8, pp=4, microbatches=8),
        "deeper": LabDesign(tp=8, pp=16, microbatches=8),
        "wide": LabDesign(tp=128, pp=1, microbatches=8),
        "alone": LabDesign(pp=1024, microbatches=1),
        "chain": LabDesign(pp=1024, microbatches=64),
        "deep": LabDesign(pp=256, microbatches=8),
        "best": best_by_rule(),
        "needed": tuple(
            next(m for m in range(1, 10**4) if LabDesign(pp=stages, microbatches=m).exact_bubble <= CEILING)
            for stages in (4, 16)
        ),
    }


def shown(chosen: Values) -> Shown:
    """The reader's design, the bubble by stages, and the measured runs."""
    design = LabDesign(**{name: chosen[name] for name in ("tp", "pp", "microbatches")})
    values = {
        "design": design,
        "lab": LAB,
        "failed": {kind: kind in design.failures for kind in KINDS},
        "replicas": f"{design.dp}" if design.divides else "none",
        "replicas_worked": f"{design.dp}" if design.divides else f"{GPUS / design.ranks:.3f}: no whole number",
        "shard": 175 / design.ranks,
        "boundaries": design.pp - 1,
        "slowed": f" x {design.slowdown:.2f}" if design.crosses else "",
        "whole_dp": max(1, design.dp),
    }
    charts = {"act2-chart": lambda: bubble_numbers(design), "act2-runs": lambda: compared_numbers(gpt3_runs())}
    return Shown(values={**values, **(priced(design) if chosen["priced"] else {})}, charts=charts)


def priced(design: LabDesign) -> Values:
    """The design as the cost model prices it, and the plan that it proves best."""
    built, answer = designed(design), best()
    assert answer.plan
    return {
        "reasons": "" if not design.divides else "; ".join(built.reasons),
        "estimate": built.estimate if design.divides else None,
        "job": built.job,
        "plan": built.plan.summary(),
        "fits": built.fits,
        "fits_in": "fits in" if built.fits else "more than",
        "usable": built.job.usable_memory,
        "bubble_allowed": bool(built.estimate and built.estimate.bubble_fraction <= built.job.limits.bubble),
        "best": answer,
        "best_plan": answer.plan.summary(),
    }


def bubble_numbers(design: LabDesign) -> ChartNumbers:
    """The document's bubble and the exact one against stages, for some numbers of micro-batches [%]."""
    drawn = {count: [LabDesign(pp=pp, microbatches=count) for pp in STAGES] for count in (*COUNTS, design.microbatches)}
    yours = drawn[design.microbatches]
    series = {f"{count}": Series(x=STAGES, y=[100 * each.bubble for each in drawn[count]]) for count in COUNTS}
    series["exact"] = Series(x=STAGES, y=[100 * each.exact_bubble for each in yours])
    series["here"] = Series(x=[design.pp], y=[100 * design.bubble])
    rows = [
        {"pp": pp, "drawn": {count: drawn[count][pp - 1].bubble for count in COUNTS}, "yours": yours[pp - 1]}
        for pp in TABULATED
    ]
    return ChartNumbers(series=series, rows=rows)
