"""Act II: the numbers of a design TP x PP x DP, by rules of thumb, by the cost model and as measured."""

from __future__ import annotations

from functools import cache

from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import Numbers, Series
from optimizer.page.learn.content_files import Values
from optimizer.page.learn.measured import compared_numbers, gpt3_runs
from optimizer.page.learn.priced import best, designed
from optimizer.page.learn.textbook.data_parallel import LAB
from optimizer.page.learn.textbook.design import CEILING, GPUS, KINDS, Design, best_by_rule

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
        "called": Design(tp=8, pp=4, microbatches=8),
        "deeper": Design(tp=8, pp=16, microbatches=8),
        "wide": Design(tp=128, pp=1, microbatches=8),
        "alone": Design(tp=1, pp=1024, microbatches=1),
        "chain": Design(tp=1, pp=1024, microbatches=64),
        "deep": Design(tp=4, pp=256, microbatches=8),
        "best": best_by_rule(),
        "needed": tuple(_needed(stages) for stages in (4, 16)),
    }


def shown(chosen: Values) -> Shown:
    """The reader's design, the bubble by stages, and the measured runs."""
    design = Design(**{name: chosen[name] for name in ("tp", "pp", "microbatches")})
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
    charts = {
        "act2-chart": lambda: bubble_numbers(design),
        "act2-runs": lambda: compared_numbers(gpt3_runs()),
    }
    return Shown(values={**values, **(priced(design) if chosen["priced"] else {})}, charts=charts)


def priced(design: Design) -> Values:
    """The design as the cost model prices it, and the plan that it proves best."""
    found, answer = designed(design), best()
    assert answer.plan
    return {
        "reasons": "" if not design.divides else "; ".join(found.reasons),
        "estimate": found.estimate if design.divides else None,
        "job": found.job,
        "plan": found.plan.summary(),
        "fits": found.fits,
        "fits_in": "fits in" if found.fits else "more than",
        "usable": found.job.usable_memory,
        "bubble_allowed": bool(found.estimate and found.estimate.bubble_fraction <= found.job.limits.bubble),
        "best": answer,
        "best_plan": answer.plan.summary(),
    }


def bubble_numbers(design: Design) -> Numbers:
    """The document's bubble and the exact one against stages, for some numbers of micro-batches [%]."""
    drawn = {count: [Design(pp=pp, microbatches=count) for pp in STAGES] for count in (*COUNTS, design.microbatches)}
    yours = drawn[design.microbatches]
    series = {f"{count}": Series(x=STAGES, y=[100 * each.bubble for each in drawn[count]]) for count in COUNTS}
    series["exact"] = Series(x=STAGES, y=[100 * each.exact_bubble for each in yours])
    series["here"] = Series(x=[design.pp], y=[100 * design.bubble])
    rows = [
        {"pp": pp, "drawn": {count: drawn[count][pp - 1].bubble for count in COUNTS}, "yours": yours[pp - 1]}
        for pp in TABULATED
    ]
    return Numbers(series=series, rows=rows)


def _needed(stages: int) -> int:
    """Fewest micro-batches that keep the exact bubble under the ceiling."""
    return next(m for m in range(1, 10**4) if Design(pp=stages, microbatches=m).exact_bubble <= CEILING)
