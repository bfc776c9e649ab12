"""The charts of one answer: where the time goes, and where the memory goes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from optimizer.base.content import content, in_words
from optimizer.base.units import GB, seconds
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import job_score_flops
from optimizer.objectives.step.interval import LEVEL, interval
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.reports.charts.chart import INK, Chart, bars, figure, points
from optimizer.reports.charts.palette import BLUE, GREEN, GREY, ORANGE, PALETTE
from optimizer.reports.terms import label

PRODUCTS = ("gemm", "head")  # terms of matrix products
ATTENTION = "attention"
SMALL = 0.002  # share of the step below which losses are drawn together
TICKS = (0, 20, 40, 60, 80, 100)  # %
VISIBLE = 0.0005  # share of the step below which nothing can be seen
LIMIT = "#8a1c1c"
ROW = 26  # height of a bar [px]


def waterfall(job: Job, estimate: Estimate) -> Chart:
    """From the peak to the MFU, one step down for each loss."""
    every, step = losses(job, estimate), estimate.step_time
    mfu = StepLoss(name="mfu", label="MFU", share=estimate.mfu, about="what the model gets")
    shown = [loss for loss in every if abs(loss.share) >= SMALL]
    rest = sum(loss.share for loss in every if abs(loss.share) < SMALL)
    if rest >= VISIBLE:
        shown.append(StepLoss(name="rest", label="the rest", share=rest))
    after = list(accumulate((-loss.share for loss in shown), initial=1.0))[1:]
    names = ["peak of the GPUs", *(loss.label for loss in shown), "MFU"]
    bases = [0.0, *after, 0.0]
    sizes = [1.0, *(loss.share for loss in shown), estimate.mfu]
    texts = ["100%", *(f"−{loss.share:.1%}" for loss in shown), f"{estimate.mfu:.1%}"]
    biggest = sorted(shown, key=lambda loss: -loss.share)[:3]
    words = (
        f"{estimate.mfu:.1%} of the peak reaches the model. "
        f"Most is lost to {in_words([f'{loss.label} ({loss.share:.1%} of the step)' for loss in biggest])}."
    )
    return Chart(
        name="waterfall",
        title="Where the time goes, from the peak to the MFU",
        words=words,
        figure=figure(
            70 + ROW * len(names),
            bars(
                names,
                [100 * size for size in sizes],
                [GREY, *[ORANGE] * len(shown), BLUE],
                base=[100 * base for base in bases],
                text=texts,
                hovertext=["", *(loss.about for loss in shown), "what the model gets"],
            ),
            xaxis={
                "range": [0, 125],
                "tickvals": TICKS,
                "ticktext": [f"{tick}%" for tick in TICKS],
                "title": {"text": "share of the step"},
            },
            yaxis={"autorange": "reversed"},
        ),
        columns=("loss", "share of the step", "seconds", "why"),
        rows=tuple((loss.label, f"{loss.share:.2%}", seconds(loss.share * step), loss.about) for loss in (*every, mfu)),
    )


def memory_chart(job: Job, plan: Plan, estimate: Estimate) -> Chart:
    """The fullest GPU, term by term, against what is usable, with the interval of the sum."""
    terms = sorted(((name, value) for name, value in estimate.memory.items() if value), key=lambda item: -item[1])
    span = interval(job, plan, estimate.reserved, "memory")
    usable, safe = job.usable_memory, safe_memory(job)
    stacked = [
        bars(
            ["memory"],
            [value / GB],
            PALETTE[index % len(PALETTE)],
            name=label(name),
            marker={"pattern": {"shape": "/" if index >= len(PALETTE) else ""}},
        )
        for index, (name, value) in enumerate(terms)
    ]
    ends = {"array": [(span.high - span.middle) / GB], "arrayminus": [(span.middle - span.low) / GB]}
    total = points(
        [span.middle / GB],
        ["memory"],
        INK,
        name=f"sum, {LEVEL:.0%} interval",
        marker={"size": 9, "symbol": "diamond"},
        error_x={**ends, "color": INK},
    )
    lines = [("usable", usable, LIMIT, "solid")] + [("at this risk", safe, GREEN, "dash")] * (safe < usable)
    shapes = [{"x0": x / GB, "line": {"color": colour, "dash": dash}} for _, x, colour, dash in lines]
    top = 1.04 * max(usable, span.high, estimate.reserved) / GB
    limit = f"{usable / GB:.1f} GB usable" + (f", {safe / GB:.1f} GB at this risk" if safe < usable else "")
    largest = in_words([f"{label(name)} {value / GB:.1f} GB" for name, value in terms[:3]])
    words = (
        f"{span.middle / GB:.1f} GB on the fullest GPU ({span.low / GB:.1f} to {span.high / GB:.1f} GB at "
        f"{LEVEL:.0%}), {largest} foremost; {limit}. "
        f"The {'lines are' if safe < usable else 'line is'} the limit{'s' * (safe < usable)}."
    )
    return Chart(
        name="memory",
        title="Where the memory goes",
        words=words,
        figure=figure(
            260,
            *stacked,
            total,
            barmode="stack",
            shapes=shapes,
            xaxis={"range": [0, top], "ticksuffix": " GB"},
            yaxis={"showticklabels": False},
        ),
        columns=("term", "GB", "share of the usable"),
        rows=(
            *((label(name), f"{value / GB:.2f}", f"{value / usable:.1%}") for name, value in terms),
            ("all", f"{estimate.reserved / GB:.2f}", f"{estimate.reserved / usable:.1%}"),
            ("usable", f"{usable / GB:.2f}", "100.0%"),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class StepLoss:
    """A loss between the peak and the MFU: its `share` of the step [1], what it is, and in a few words why."""

    name: str
    label: str
    share: float
    about: str = ""


def losses(job: Job, estimate: Estimate) -> tuple[StepLoss, ...]:
    """Every loss in the order in which it is taken off the peak: products, attention, recomputation, then by size.

    A second in which GPUs multiply at their peak is no loss, so that products and attention lose what they take above
    the time that their useful operations take at the peak.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> one = Estimate(step_time=10.0, mfu=0.5, hfu=0.6, flops_per_gpu=0.0, tokens_per_s_per_gpu=0.0,
    ...     bubble_fraction=0.0, time={"gemm": 8.0, "attention": 1.0, "bubble": 1.0}, memory={}, reserved=0.0,
    ...     allocated=0.0, all_hidden=0.0, none_hidden=0.0)
    >>> found = losses(job, one)
    >>> round(one.mfu + sum(loss.share for loss in found), 9), found[-1].name, found[-1].share
    (1.0, 'bubble', 0.1)
    """
    step = estimate.step_time
    scores = job_score_flops(job) * job.tokens / (job.gpus * job.peak_flops * step)
    attention = estimate.time.get(ATTENTION, 0.0) / step - scores
    products = sum(estimate.time.get(name, 0.0) for name in PRODUCTS) / step - (estimate.hfu - scores)
    shares = [("products", "products below peak", products), (ATTENTION, "attention below peak", attention)]
    if estimate.hfu > estimate.mfu:
        shares.append(("recomputation", "recomputation", estimate.hfu - estimate.mfu))
    others = [(name, value) for name, value in estimate.time.items() if name not in (*PRODUCTS, ATTENTION) and value]
    shares += [(name, label(name), value / step) for name, value in sorted(others, key=lambda item: -item[1])]
    about = content("optimizer.reports", "words.toml")["losses"]
    return tuple(
        StepLoss(name=name, label=title, share=share, about=about.get(name, "")) for name, title, share in shares
    )
