"""What Act II draws and works out."""

from __future__ import annotations

from optimizer.page.learn.act_two import CEILING, GPUS, HBM, Design, bubbles
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.markup import FAILED, FINE, PLAIN, WARNED, Figure, Line, banner
from optimizer.reports.palette import PALETTE

STAGES = range(1, 65)
COUNTS = (1, 4, 8, 16)  # micro-batches drawn, besides the reader's own
SHOWN = (1, 2, 4, 8, 16, 32, 64)


def bubble_chart(design: Design) -> Chart:
    """The document's bubble against stages, for some numbers of micro-batches and the reader's, and the exact one."""
    figure = Drawn(across="PP (stages)", up="bubble [%]")
    dashes = ("solid", "dash", "dot", "dashdot")
    for count, colour, dash in zip(COUNTS, PALETTE, dashes, strict=False):
        values = [100 * share for share in bubbles(STAGES, count)]
        line = {"color": colour, "dash": dash}
        figure.points(list(STAGES), values, f"m = {count}", mode="lines", line=line)
    exact = [100 * Design(pp=pp, microbatches=design.microbatches).exact_bubble for pp in STAGES]
    grey = {"color": "#5b6470", "width": 3}
    name = f"exact, m = {design.microbatches}"
    figure.points(list(STAGES), exact, name, mode="lines", line=grey)
    here = {"symbol": "diamond", "size": 14, "color": "#1c2024"}
    figure.points([design.pp], [100 * design.bubble], "your design", mode="markers", marker=here)
    figure.level(100 * CEILING, "10 % ceiling", "dash")
    figure.yaxis |= {"range": [0, 100]}
    rows = [
        [
            f"{pp}",
            *(f"{100 * Design(pp=pp, microbatches=count).bubble:.2f} %" for count in COUNTS),
            f"{100 * Design(pp=pp, microbatches=design.microbatches).bubble:.2f} %",
            f"{100 * Design(pp=pp, microbatches=design.microbatches).exact_bubble:.1f} %",
        ]
        for pp in SHOWN
    ]
    yours = f"yours, m = {design.microbatches}"
    columns = ["PP", *(f"m = {count}" for count in COUNTS), yours, f"exact, m = {design.microbatches}"]
    words = (
        f"At PP {design.pp} and m {design.microbatches} the rule of this act counts {100 * design.bubble:.3f} % "
        f"beside a ceiling of {CEILING:.0%}; its stages really wait {100 * design.exact_bubble:.1f} % of "
        "the time."
    )
    return Chart(name="act2-chart", title="Bubble by stages", figure=figure, words=words, columns=columns, rows=rows)


def banners(design: Design) -> str:
    """What is wrong with the design, what cannot run first; that nothing is, else."""
    if design.passes:
        return banner(FINE, "Nothing wrong by these rules.", "It fits, and it keeps to every limit.", "act2-passes")
    return "".join(
        banner(
            FAILED if failure.fatal else WARNED,
            f"{failure.kind.capitalize()}.",
            failure.text,
            f"act2-{failure.kind.replace(' ', '-')}",
        )
        for failure in design.failures
    )


def figures(design: Design) -> tuple[Figure, ...]:
    """The act's numbers."""
    memory, bubble, mfu = design.memory, design.bubble, design.mfu
    return (
        Figure(
            name="act2-memory",
            label="Memory of a GPU",
            value=f"{memory / 1e9:.2f} GB",
            remark=f"{'fits in' if design.fits else 'more than'} {HBM / 1e9:.0f} GB",
            state=FAILED if not design.fits else WARNED if memory > 60e9 else FINE,
        ),
        Figure(
            name="act2-bubble",
            label="Pipeline bubble",
            value=f"{100 * bubble:.3f} %",
            remark=f"{'over' if bubble > CEILING else 'under'} the ceiling of {CEILING:.0%}",
            state=FAILED if bubble > CEILING else WARNED if bubble > CEILING / 2 else FINE,
        ),
        Figure(
            name="act2-mfu",
            label="MFU by rules of thumb",
            value=f"{100 * mfu:.2f} %",
            remark="poor" if mfu < 0.25 else "middling" if mfu < 0.40 else "good",
            state=FAILED if mfu < 0.25 else WARNED if mfu < 0.40 else FINE,
        ),
        Figure(
            name="act2-dp",
            label="DP (replicas)",
            value=f"{design.dp}" if design.divides else "none",
            remark=f"{GPUS:,} / ({design.tp} x {design.pp})",
            state=PLAIN if design.divides else FAILED,
        ),
    )


def equations(design: Design) -> tuple[Line, ...]:
    """The act's formulas with the reader's values."""
    shard = 175 / design.ranks
    slowed = f" x {design.slowdown:.2f}" if design.crosses else ""
    return (
        Line(
            name="act2-replicas",
            what="DP",
            formula="1,024 / (TP x PP)",
            values=f"{GPUS:,} / ({design.tp} x {design.pp})",
            result=f"{design.dp}" if design.divides else f"{GPUS / design.ranks:.3f}: no whole number",
        ),
        Line(
            name="act2-shard",
            what="Parameters of a GPU",
            formula="175e9 / (TP x PP)",
            values=f"175e9 / {design.ranks}",
            result=f"{shard:.3f}e9",
        ),
        Line(
            name="act2-weights",
            what="Weights",
            formula="2 bytes x parameters",
            values=f"2 x {shard:.3f}e9",
            result=f"{design.weights / 1e9:.2f} GB",
        ),
        Line(
            name="act2-states",
            what="Optimizer states",
            formula="8 bytes x parameters",
            values=f"8 x {shard:.3f}e9",
            result=f"{design.states / 1e9:.2f} GB",
        ),
        Line(
            name="act2-activations",
            what="Activations",
            formula="8 GB x TP",
            values=f"8 GB x {design.tp}",
            result=f"{design.activations / 1e9:.2f} GB",
        ),
        Line(
            name="act2-total",
            what="Memory",
            formula="weights + states + activations",
            values=f"{design.weights / 1e9:.2f} + {design.states / 1e9:.2f} + {design.activations / 1e9:.2f} GB",
            result=f"{design.memory / 1e9:.2f} GB",
        ),
        Line(
            name="act2-t-bubble",
            what="Bubble",
            formula="(PP - 1) / (PP x m)",
            values=f"{design.pp - 1} / ({design.pp} x {design.microbatches})",
            result=f"{100 * design.bubble:.3f} %",
        ),
        Line(
            name="act2-t-exact",
            what="Bubble, exactly",
            formula="(PP - 1) / (m + PP - 1)",
            values=f"{design.pp - 1} / ({design.microbatches} + {design.pp - 1})",
            result=f"{100 * design.exact_bubble:.1f} %",
        ),
        Line(
            name="act2-t-mfu",
            what="MFU",
            formula="0.52 x (1 - 0.05 log2 TP) x (1 - bubble) x (1 - 0.02 log2 DP)",
            values=(
                f"0.52 x (1 - 0.05 log2 {design.tp}{slowed}) x (1 - {design.bubble:.5f}) x "
                f"(1 - 0.02 log2 {max(1, design.dp)})"
            ),
            result=f"{100 * design.mfu:.2f} %",
        ),
    )
