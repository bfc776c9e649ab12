"""What Act I draws and works out."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.page.learn.act_one import COUNTS, FABRICS, FLOOR, INFINIBAND, NVLINK, TOLD, DataParallel, curve
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.markup import FAILED, FINE, PLAIN, WARNED, Figure, Line, banner
from optimizer.reports.palette import BLUE, GREEN, ORANGE

NAMES = {NVLINK: "NVLink", INFINIBAND: "InfiniBand"}
LOOKS = {NVLINK: (BLUE, "solid"), INFINIBAND: (ORANGE, "dash")}


def mfu_chart(step: DataParallel, priced: Mapping[int, float] = {}) -> Chart:
    """MFU against GPUs over both fabrics, what the message tells, where the reader is, and what the cost model says."""
    figure = Drawn(across="GPUs (replicas)", up="MFU [%]")
    curves = {fabric: [100 * share for share in curve(step, fabric)] for fabric in FABRICS}
    for fabric, values in curves.items():
        colour, dash = LOOKS[fabric]
        name = "NVLink in a node, InfiniBand beyond" if fabric == NVLINK else "InfiniBand everywhere"
        figure.points(COUNTS, values, name, mode="lines+markers", line={"color": colour, "dash": dash})
    told = {"symbol": "x", "size": 11, "color": "#8f3d00"}
    shares = [100 * share for share in TOLD.values()]
    figure.points(list(TOLD), shares, "told in the message", mode="markers", marker=told)
    if priced:
        shares = [100 * share for share in priced.values()]
        square = {"color": GREEN, "symbol": "square"}
        figure.points(list(priced), shares, "cost model", mode="lines+markers", marker=square)
    here = {"symbol": "diamond", "size": 14, "color": "#1c2024"}
    figure.points([step.gpus], [100 * step.mfu], "your job", mode="markers", marker=here)
    figure.level(100 * FLOOR, "40 %: practical floor")
    figure.xaxis |= {"type": "log", "tickvals": COUNTS, "ticktext": [f"{count:,}" for count in COUNTS]}
    figure.yaxis |= {"range": [0, 65]}
    columns = ["GPUs", "NVLink, then InfiniBand", "InfiniBand everywhere", "told", *["cost model"] * bool(priced)]
    rows = [
        [
            f"{count:,}",
            *(f"{curves[fabric][index]:.2f} %" for fabric in FABRICS),
            f"{100 * TOLD[count]:.0f} %" if count in TOLD else "",
            *([f"{100 * priced[count]:.1f} %" if count in priced else ""] if priced else []),
        ]
        for index, count in enumerate(COUNTS)
    ]
    first, last = curves[NVLINK][0], curves[NVLINK][-1]
    words = (
        f"With {step.constants.name} constants the formula falls from {first:.1f} % on {COUNTS[0]} GPUs to "
        f"{last:.1f} % on {COUNTS[-1]:,}, nearly all of it where the job leaves its first node; the message tells of "
        f"{100 * TOLD[8]:.0f}, {100 * TOLD[64]:.0f} and {100 * TOLD[512]:.0f} %."
    )
    return Chart(name="act1-chart", title="MFU by GPUs", figure=figure, words=words, columns=columns, rows=rows)


def told_of_fabric(step: DataParallel) -> str:
    """A banner where NVLink was asked for and does not reach, else nothing."""
    if not step.forced:
        return ""
    rates = step.constants.nvlink / 1e9, step.constants.infiniband / 1e9
    text = (
        f"NVLink connects the {step.constants.node} GPUs of a node. {step.gpus:,} replicas span nodes, so their "
        f"gradients cross InfiniBand: {rates[1]:.0f} instead of {rates[0]:.0f} GB/s, {rates[0] / rates[1]:.2f} times "
        "slower."
    )
    return banner(WARNED, "InfiniBand it is.", text, "act1-forced")


def figures(step: DataParallel) -> tuple[Figure, ...]:
    """The act's numbers."""
    mfu, ratio = step.mfu, step.ratio
    return (
        Figure(
            name="act1-mfu",
            label="MFU",
            value=f"{100 * mfu:.2f} %",
            remark="good" if mfu >= 0.45 else "middling" if mfu >= 0.25 else "poor",
            state=FINE if mfu >= 0.45 else WARNED if mfu >= 0.25 else FAILED,
        ),
        Figure(
            name="act1-ratio",
            label="Communication / computation",
            value=f"{ratio:.3f}",
            remark="low" if ratio <= 0.3 else "high" if ratio <= 0.8 else "too high",
            state=FINE if ratio <= 0.3 else WARNED if ratio <= 0.8 else FAILED,
        ),
        Figure(name="act1-all-reduce", label="All-reduce", value=_ms(step.all_reduce), remark="per step", state=PLAIN),
        Figure(name="act1-compute", label="Computation", value=_ms(step.compute), remark="per step", state=PLAIN),
    )


def equations(step: DataParallel) -> tuple[Line, ...]:
    """The act's formulas with the reader's values."""
    count, reference = step.gpus, step.constants.reference
    tokens = step.constants.tokens_per_sequence
    counted = "sequences" if tokens == 1 else "tokens"
    batch = f"{step.batch}" if tokens == 1 else f"{step.batch} x {tokens:,}"
    return (
        Line(
            name="act1-gradients",
            what="Gradients",
            formula="2 bytes x parameters",
            values=f"2 x {step.billions:g}e9",
            result=f"{step.gradients / 1e9:.1f} GB",
        ),
        Line(
            name="act1-sent",
            what="Sent by a GPU",
            formula="2 (N - 1) / N x gradients",
            values=f"2 x {count - 1:,} / {count:,} x {step.gradients / 1e9:.1f} GB",
            result=f"{step.sent / 1e9:.3f} GB",
        ),
        Line(
            name="act1-t-comm",
            what="T_comm",
            formula="sent / bandwidth",
            values=f"{step.sent / 1e9:.3f} GB / {step.bandwidth / 1e9:.0f} GB/s ({NAMES[step.uses]})",
            result=_ms(step.all_reduce),
        ),
        Line(
            name="act1-t-comp",
            what="T_comp",
            formula=f"6 x parameters x {counted} / (peak x reference MFU)",
            values=f"6 x {step.billions:g}e9 x {batch} / ({step.constants.peak / 1e12:,.1f}e12 x {reference})",
            result=_ms(step.compute),
        ),
        Line(
            name="act1-t-ratio",
            what="Ratio",
            formula="T_comm / T_comp",
            values=f"{_ms(step.all_reduce)} / {_ms(step.compute)}",
            result=f"{step.ratio:.3f}",
        ),
        Line(
            name="act1-t-mfu",
            what="MFU",
            formula="reference MFU x T_comp / (T_comp + T_comm)",
            values=f"{reference} x {1e3 * step.compute:,.3f} / {1e3 * (step.compute + step.all_reduce):,.3f}",
            result=f"{100 * step.mfu:.2f} %",
        ),
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.3f} ms"
