"""What the calibrated model and the measured runs add to both acts."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.answer.answer import Answer
from optimizer.page.learn.act_two import HBM, Design
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.markup import FAILED, FINE, PLAIN, WARNED, Figure, banner, figures, paragraph
from optimizer.page.learn.measured import FILE, Compared, error
from optimizer.page.learn.priced import Priced
from optimizer.reports.palette import GREEN, GREY, ORANGE
from optimizer.studies.scaling import Point


def shares(points: Sequence[Point]) -> dict[int, float]:
    """MFU [1] by GPUs of the points that have a plan."""
    return {point.gpus: point.estimate.mfu for point in points if point.estimate}


def data_parallel_words(model: str, points: Sequence[Point]) -> str:
    """What the cost model says of data parallelism alone: the plan at both ends, and what does not fit."""
    known = [point for point in points if point.estimate and point.plan]
    if not known:
        return paragraph(f"The cost model finds no data-parallel plan of {model}.", "act1-priced")
    ends = [
        f"{point.gpus:,} GPUs {100 * point.estimate.mfu:.1f} % ({point.plan.summary()})"
        for point in (known[0], known[-1])
        if point.estimate and point.plan
    ]
    lost = [f"{point.gpus:,} ({point.note})" for point in known if not point.fits]
    text = (
        f"The cost model, for {model}, the nearest model with known dimensions, and 2,048 tokens per sequence: "
        f"{' and on '.join(['on ' + ends[0], ends[1]])}. It overlaps what overlaps, counts latency and real rates, and "
        "shards the optimizer state."
    )
    if lost:
        text += f" Out of memory on {', '.join(lost)}."
    return paragraph(text, "act1-priced")


def designed_html(design: Design, found: Priced, answer: Answer) -> str:
    """The reader's design as the cost model prices it, and the plan that it proves best."""
    if not design.divides:
        return banner(FAILED, "Not priced.", "The degrees do not divide the GPUs.", "act2-unpriced")
    if found.estimate is None:
        return banner(FAILED, "Cannot be built.", "; ".join(found.reasons), "act2-unpriced")
    estimate, usable = found.estimate, found.job.usable_memory
    shown = figures(
        (
            Figure(
                name="act2-priced-memory",
                label="Memory, cost model",
                value=f"{estimate.reserved / 1e9:.1f} GB",
                remark=f"{'fits in' if found.fits else 'more than'} {usable / 1e9:.1f} GB usable",
                state=FINE if found.fits else FAILED,
            ),
            Figure(
                name="act2-priced-bubble",
                label="Bubble, cost model",
                value=f"{100 * estimate.bubble_fraction:.1f} %",
                remark=f"rule of this act: {100 * design.bubble:.1f} %",
                state=FINE if estimate.bubble_fraction <= found.job.limits.bubble else WARNED,
            ),
            Figure(
                name="act2-priced-mfu",
                label="MFU, cost model",
                value=f"{100 * estimate.mfu:.1f} %",
                remark=f"rule of this act: {100 * design.mfu:.1f} %",
                state=PLAIN,
            ),
            Figure(
                name="act2-priced-step",
                label="Step",
                value=f"{estimate.step_time:.2f} s",
                remark=f"{found.job.global_batch:,} sequences",
                state=PLAIN,
            ),
        )
    )
    text = f"As priced: {found.plan.summary()}, {design.microbatches} micro-batches, {found.job.model.name} in bf16."
    if answer.plan and answer.estimate:
        text += (
            f" The plan that is proven best for {answer.job.global_batch:,} sequences is {answer.plan.summary()}, with "
            f"{answer.plan.num_microbatches} micro-batches: {100 * answer.estimate.mfu:.1f} % MFU, "
            f"{answer.estimate.reserved / 1e9:.1f} GB, a bubble of {100 * answer.estimate.bubble_fraction:.1f} %."
        )
    return shown + paragraph(text, "act2-best")


def data_parallel_chart(found: Sequence[Compared]) -> Chart:
    """Data-parallel runs: the formula of Act I and the cost model against what was measured."""
    rows = [
        [
            each.run.id,
            each.run.row["source"],
            each.job.model.name,
            f"{each.job.gpus:,} × {each.job.cluster.device.name}",
            f"{each.share:g} × {each.job.seq_len:,}",
            f"{each.seconds:.3g} s",
            *_percents(each),
        ]
        for each in found
    ]
    columns = ["row", "source", "model", "GPUs", "per GPU", "step", *COLUMNS]
    return _chart("act1-runs", "Data-parallel runs", found, columns, rows, "the formula of Act I, fed with datasheets,")


COLUMNS = ("measured", "textbook", "cost model")


def gpt3_chart(found: Sequence[Compared]) -> Chart:
    """Runs of GPT-3: the rules of Act II and the cost model against what was measured."""
    rows = [
        [
            each.run.id,
            each.run.row["source"],
            f"{each.job.gpus:,}",
            each.plan.summary(),
            f"{each.plan.num_microbatches}",
            f"{each.needs / 1e9:.1f} GB" + ("" if each.fits else ", too much"),
            *_percents(each),
        ]
        for each in found
    ]
    columns = ["row", "source", "GPUs", "plan", "m", "memory by the rule", *COLUMNS]
    refused = sum(not each.fits for each in found)
    words = (
        f"By its rule of memory {refused} of these {len(found)} runs would not fit into {HBM / 1e9:.0f} GB; all ran."
    )
    return _chart("act2-runs", "GPT-3 on H100", found, columns, rows, "the rule of thumb of Act II", words)


def _percents(each: Compared) -> list[str]:
    return [f"{100 * share:.1f} %" for share in (each.measured, each.textbook, each.priced)]


def _chart(
    name: str,
    title: str,
    found: Sequence[Compared],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    formula: str,
    more: str = "",
) -> Chart:
    """Predictions against measurements; on the diagonal they agree."""
    figure = Drawn(across="measured MFU [%]", up="predicted MFU [%]")
    top = 5 + 100 * max(max(each.measured, each.textbook, each.priced) for each in found)
    diagonal = {"color": GREY, "dash": "dot"}
    figure.points([0, top], [0, top], "as measured", mode="lines", line=diagonal)
    texts = [f"{each.run.id}, {each.job.gpus:,} GPUs" for each in found]
    across = [100 * each.measured for each in found]
    for said, values, marker in (
        ("textbook", [100 * each.textbook for each in found], {"color": ORANGE, "symbol": "x", "size": 10}),
        ("cost model", [100 * each.priced for each in found], {"color": GREEN, "symbol": "circle", "size": 9}),
    ):
        figure.points(across, values, said, mode="markers", marker=marker, text=texts)
    words = (
        f"On {len(found)} measured runs (presets/{FILE}, by row) {formula} is {100 * error(found, 'textbook'):.0f} % "
        f"off on average, the cost model {100 * error(found, 'priced'):.0f} %. Its stacks are fitted to runs like "
        f'these; "optimize validate" has its errors on runs left out. {more}'
    )
    return Chart(name=name, title=f"{title}, MFU", figure=figure, words=words, columns=columns, rows=rows)
