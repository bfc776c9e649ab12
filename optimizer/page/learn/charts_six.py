"""What Act VI asks, draws and works out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from optimizer.page.learn.act_six import RANKS, Bottleneck, Curve, Reading, half_message, printed
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.markup import FAILED, FINE, Figure, Line, banner
from optimizer.page.learn.question import PREDICTION, Choice, Question
from optimizer.reports.palette import BLUE, ORANGE


@cache
def advertised() -> float:
    """One-way bandwidth of NVLink 3 by its datasheet [B/s]."""
    from optimizer.catalog import load_link

    return load_link("nvlink3").bandwidth


def prediction() -> Question:
    """Which column to compare with a datasheet."""
    line = printed()[18]
    share = line.bus / advertised()
    return Question(
        name="act-6",
        act="VI",
        kind=PREDICTION,
        text=(
            f"all_reduce_perf on {RANKS} A100 of one node takes {1e3 * line.seconds:.1f} ms for "
            f"{line.size / 2**30:.0f} GiB. NVLink 3 has {advertised() / 1e9:.0f} GB/s one way. How much of it "
            "was reached?"
        ),
        right="C",
        choices=(
            Choice(
                key="A",
                text=f"{line.algorithm / advertised():.0%}: size over time.",
                reveal=(
                    f"Size over time, {line.algorithm / 1e9:.2f} GB/s, is what the program calls algbw. But each GPU "
                    f"has to send 2 x 7/8 of the buffer: the links moved {line.bus / 1e9:.2f} GB/s."
                ),
            ),
            Choice(
                key="B",
                text=f"{line.algorithm / (2 * advertised()):.0%}: size over time, against both directions.",
                reveal=(
                    "600 GB/s is the duplex figure; a ring sends and receives at once, so one direction is what its "
                    f"bytes can be compared with: {line.bus / 1e9:.2f} of {advertised() / 1e9:.0f} GB/s."
                ),
            ),
            Choice(
                key="C",
                text=f"{share:.0%}: what each GPU has to send, over time.",
                reveal=(
                    f"2 (n - 1) / n of the buffer is sent by each GPU, 1.75 of it for 8: {line.bus / 1e9:.2f} GB/s, "
                    f"which the program prints as busbw, or {share:.0%}. Seldom is more than 80 to 90 % to be had, "
                    "and only with large messages."
                ),
            ),
            Choice(
                key="D",
                text="All of it: the bytes went over NVLink.",
                reveal=(
                    f"No link gives all that is advertised: protocol and reduction cost some. Here {share:.0%} were "
                    "reached with 8 GiB, and far less with small messages."
                ),
            ),
        ),
    )


def refusal(curve: Curve) -> str:
    """Why what was pasted was not read; nothing where it was."""
    return banner(FAILED, "Not read.", curve.problem, "act6-problem") if curve.problem else ""


def figures(line: Reading, best: float, share: Bottleneck) -> tuple[Figure, ...]:
    """The chosen line and the bottleneck."""
    return (
        Figure(name="act6-algbw", label="algbw", value=f"{line.algorithm / 1e9:.2f} GB/s", remark="size / time"),
        Figure(
            name="act6-busbw",
            label="busbw",
            value=f"{line.bus / 1e9:.2f} GB/s",
            remark=f"{line.bus / best:.0%} of the best here",
        ),
        Figure(name="act6-network", label="Gradients on the wire", value=f"{share.communication:.4f} s"),
        Figure(
            name="act6-bound",
            label="Computation",
            value=f"{share.computation:.3f} s",
            remark="the network is the bottleneck" if share.bound else "it can hide the network",
            state=FAILED if share.bound else FINE,
        ),
    )


def equations(line: Reading, share: Bottleneck) -> tuple[Line, ...]:
    """The curve's columns and the question of the bottleneck, with the reader's values."""
    factor = line.bus / line.algorithm
    return (
        Line(
            name="act6-t-algbw",
            what="algbw",
            formula="size / time",
            values=f"{line.size:,.0f} B / {1e6 * line.seconds:,.1f} us",
            result=f"{line.algorithm / 1e9:.2f} GB/s",
        ),
        Line(
            name="act6-t-busbw",
            what="busbw",
            formula="algbw x 2 (n - 1) / n" if line.kind == "all_reduce" else "algbw x sent / size",
            values=f"{line.algorithm / 1e9:.2f} x {factor:g}",
            result=f"{line.bus / 1e9:.2f} GB/s",
        ),
        Line(
            name="act6-t-network",
            what="Gradients",
            formula="2 x 4 bytes x parameters / rate",
            values=f"2 x 4 x {share.billions:g}e9 / {share.rate / 1e9:g}e9",
            result=f"{share.communication:.4f} s",
        ),
        Line(
            name="act6-t-flops",
            what="Operations of a GPU",
            formula="parameters x 4 x 2 x tokens / GPUs",
            values=f"{share.billions:g}e9 x 8 x 2,048 x {share.batch} / {share.gpus}",
            result=f"{share.flops / 1e12:.3f} TFLOP",
        ),
        Line(
            name="act6-t-compute",
            what="Computation",
            formula="operations / rate of a GPU",
            values=f"{share.flops / 1e12:.3f}e12 / {share.reached / 1e12:g}e12",
            result=f"{share.computation:.3f} s",
        ),
    )


def chart(readings: Sequence[Reading], chosen: Reading, source: str) -> Chart:
    """Both bandwidths against the size of the message."""
    title = f"{readings[0].kind.replace('_', ' ').capitalize()} on {readings[0].ranks} GPUs"
    figure = Drawn(across="message", up="GB/s")
    sizes = [line.size for line in readings]
    for name, values, colour, dash in (
        ("busbw", [line.bus / 1e9 for line in readings], BLUE, "solid"),
        ("algbw", [line.algorithm / 1e9 for line in readings], ORANGE, "dash"),
    ):
        line = {"color": colour, "dash": dash}
        figure.points(sizes, values, name, mode="lines+markers", line=line)
    here = {"symbol": "diamond", "size": 14, "color": "#1c2024"}
    figure.points([chosen.size], [chosen.bus / 1e9], "your line", mode="markers", marker=here)
    if tuple(readings) == printed():
        figure.level(advertised() / 1e9, "NVLink 3 one way")
    figure.xaxis |= {"type": "log", "exponentformat": "SI", "ticksuffix": "B"}
    figure.yaxis |= {"rangemode": "tozero"}
    top, half = max(line.bus for line in readings), half_message(tuple(readings))
    words = (
        f"{source}: at best {top / 1e9:.1f} GB/s on the bus, half of it from messages of {half / 2**20:,.4g} MiB on. "
        "Below that latency decides, and time hardly depends on the size: send fewer, larger messages (buckets)."
    )
    rows = [
        [f"{line.size:,.0f}", f"{1e6 * line.seconds:,.1f}", f"{line.algorithm / 1e9:.2f}", f"{line.bus / 1e9:.2f}"]
        for line in readings
    ]
    columns = ["size [B]", "time [us]", "algbw [GB/s]", "busbw [GB/s]"]
    return Chart(
        name="act6-chart", title=f"{title}: nccl-tests", figure=figure, words=words, columns=columns, rows=rows
    )
