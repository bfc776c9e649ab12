"""What Act III asks, draws and works out."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.job.plan import Plan
from optimizer.objectives.kernels.roofline import attainable_flops, ridge
from optimizer.page.learn.act_three import INPUTS, OUTPUTS, UTILISATION, Sheet
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.markup import Figure, Line
from optimizer.page.learn.plan_operators import Operator, operators_of
from optimizer.page.learn.priced import best
from optimizer.page.learn.question import PREDICTION, Choice, Question
from optimizer.reports.palette import BLUE, GREEN, GREY, ORANGE

SPAN = (1.0, 1e5)  # of the intensities drawn [FLOP/B]


def prediction() -> Question:
    """What bounds the layer."""
    sheet, one_way = Sheet(), Sheet(one_way=True)
    seconds = sheet.work.seconds(sheet.rates)
    times = ", ".join(f"{name} {1e6 * value:.1f} us" for name, value in seconds.items())
    received = one_way.work.seconds(one_way.rates)
    return Question(
        name="act-3",
        act="III",
        kind=PREDICTION,
        text=(
            f"A linear layer of {INPUTS:,} x {OUTPUTS:,} in 16 bits is cut 8 ways along its input, 40 ways along its "
            f"output, on 32 replicas that share {sheet.tokens:,} tokens. What bounds an H100 in it?"
        ),
        right="A",
        choices=(
            Choice(
                key="A",
                text="Its matrix units.",
                reveal=(
                    f"By the document's constants, barely: {times}. Each resource works at the same time, so the "
                    f"slowest decides. Counted one way, what is received takes {1e6 * received['network']:.1f} us and "
                    "the network bounds it: so near is the ridge. And 8 x 40 = 320 GPUs do not share one NVLink domain."
                ),
            ),
            Choice(
                key="B",
                text="Its memory.",
                reveal=(
                    f"By no means: {times}. A tile of 2,048 x 2,048 is read for {sheet.tokens // 32:,} tokens, "
                    f"{sheet.work.flops / sheet.work.memory:.0f} operations per byte; memory feeds the units from "
                    f"{ridge(sheet.rates.flops, sheet.rates.memory):.0f} on."
                ),
            ),
            Choice(
                key="C",
                text="Its network.",
                reveal=(
                    f"Close: {times}. The document sums sends and receives against the duplex rate of 900 GB/s. With "
                    f"450 GB/s one way for what is received it would be {1e6 * received['network']:.1f} us, and you "
                    "would be right: tick the box and see."
                ),
            ),
        ),
    )


def figures(sheet: Sheet) -> tuple[Figure, ...]:
    """The act's numbers."""
    seconds = sheet.work.seconds(sheet.rates)
    shown = [Figure(name="act3-time", label="Layer", value=_us(sheet.time), remark=f"bound by {sheet.bound}")]
    shown += [Figure(name=f"act3-{name}", label=name.capitalize(), value=_us(value)) for name, value in seconds.items()]
    last = Figure(
        name="act3-gradients",
        label="Gradients, per batch",
        value=_us(sheet.gradients),
        remark="all-reduce",
    )
    return (*shown, last)


def equations(sheet: Sheet) -> tuple[Line, ...]:
    """The roofline with the reader's values."""
    layer, local, rates, work = sheet.layer, sheet.tokens / sheet.dp, sheet.rates, sheet.work
    wide, high = layer.local_outputs, layer.local_inputs
    return (
        Line(
            name="act3-flops",
            what="Operations",
            formula="6 x (d_in / tp_in) x (d_out / tp_out) x tokens / dp",
            values=f"6 x {high:,.0f} x {wide:,.0f} x {local:,.0f}",
            result=f"{work.flops / 1e9:.3f} GFLOP",
        ),
        Line(
            name="act3-words",
            what="Sent and received",
            formula=f"{sheet.passes:g} x [(tp_in-1)/tp_in x out + (tp_out-1)/tp_out x in] x tokens / dp",
            values=(
                f"{sheet.passes:g} x [{sheet.tp_in - 1}/{sheet.tp_in} x {wide:,.0f} + {sheet.tp_out - 1}/"
                f"{sheet.tp_out} x {high:,.0f}] x {local:,.0f} x {sheet.element_bytes} B"
            ),
            result=f"{work.network / 1e6:.3f} MB",
        ),
        Line(
            name="act3-bytes",
            what="Through memory",
            formula="[4 x tile + in x tokens / dp + words] x width",
            values=(
                f"[4 x {layer.local_parameters:,.0f} + {high * local:,.0f} + "
                f"{work.network / sheet.element_bytes:,.0f}] x {sheet.element_bytes} B"
            ),
            result=f"{work.memory / 1e6:.3f} MB",
        ),
        Line(
            name="act3-t-time",
            what="Time",
            formula="max(FLOP / rate, bytes / memory, sent / network)",
            values=(
                f"max({work.flops / 1e9:.1f}e9 / {rates.flops / 1e12:.1f}e12, {work.memory / 1e6:.1f}e6 / "
                f"{rates.memory / 1e9:,.0f}e9, {work.network / 1e6:.1f}e6 / {rates.network / 1e9:.0f}e9)"
            ),
            result=_us(sheet.time),
        ),
    )


def context_chart(sheet: Sheet, context: str) -> Chart:
    """The roofline with the operators of the best plan of a context."""
    answer = best(context)
    job, plan = answer.job, answer.plan or Plan()
    where = f"{job.model.name}, {plan.summary()}"
    device = job.cluster.device
    return roofline_chart(sheet, operators_of(job, plan), job.peak_flops, device.memory_bandwidth, where)


def roofline_chart(sheet: Sheet, operators: Sequence[Operator], peak: float, memory: float, plan: str) -> Chart:
    """The roof of an H100 with the reader's layer and the operators of a real plan on it; `peak` and `memory` are the
    datasheet's [FLOP/s], [B/s].
    """
    figure = Drawn(across="FLOP / B", up="TFLOP/s", height=480)
    edge = ridge(peak, memory)
    across = [SPAN[0], edge, SPAN[1]]
    roof = [float(attainable_flops(value, peak, memory)) / 1e12 for value in across]
    figure.points(across, roof, "roof: memory, then units", mode="lines", line={"color": "#1c2024"})
    rates, work = sheet.rates, sheet.work
    assumed = {"color": GREY, "dash": "dash"}
    low = [UTILISATION * value for value in roof]
    figure.points(across, low, "80 % of it, as assumed", mode="lines", line=assumed)
    wire = [float(attainable_flops(value, rates.flops, rates.network)) / 1e12 for value in _spread()]
    dotted = {"color": BLUE, "dash": "dot"}
    figure.points(_spread(), wire, "roof of the network (per byte sent)", mode="lines", line=dotted)
    reached = work.flops / sheet.time / 1e12
    layer = {"symbol": "diamond", "size": 13, "color": ORANGE}
    sides = [work.flops / work.memory] + ([work.flops / work.network] if work.network else [])
    names = ["your layer, memory", "your layer, network"][: len(sides)]
    figure.points(sides, [reached] * len(sides), "your layer", mode="markers", marker=layer, text=names)
    known = [each for each in operators if each.flops]
    dots = {"size": 10, "color": GREEN}
    figure.points(
        [each.intensity for each in known],
        [each.rate / 1e12 for each in known],
        "operators of the plan",
        mode="markers",
        marker=dots,
        text=[
            f"{each.name.replace('_', ' ')}: {each.rate / 1e12:.0f} TFLOP/s at {each.intensity:.0f} FLOP/B"
            for each in known
        ],
    )
    figure.xaxis |= {"type": "log"}
    figure.yaxis |= {"type": "log"}
    rows = [
        [
            each.name.replace("_", " "),
            f"{each.intensity:,.0f}" if each.flops else "not counted",
            f"{each.rate / 1e12:,.0f}" if each.flops else "-",
            f"{float(attainable_flops(each.intensity, peak, memory)) / 1e12:,.0f}" if each.flops else "-",
            f"{each.moved / each.seconds / 1e9:,.0f}",
            f"{1e6 * each.seconds:,.1f}",
        ]
        for each in operators
    ]
    best, worst = max(known, key=lambda each: each.rate), min(known, key=lambda each: each.rate)
    words = (
        f"Operators of a forward pass of {plan}, as the cost model prices them: {worst.name.replace('_', ' ')} reaches "
        f"{worst.rate / 1e12:.0f} TFLOP/s, {best.name.replace('_', ' ')} {best.rate / 1e12:.0f}, under a roof of "
        f"{peak / 1e12:.1f} from {edge:.0f} FLOP/B on. Element-wise kernels lie on the memory's slope."
    )
    columns = ["operator", "FLOP/B", "TFLOP/s", "roof", "GB/s", "us"]
    return Chart(
        name="act3-chart", title="Operators on the roofline", figure=figure, words=words, columns=columns, rows=rows
    )


def _spread() -> list[float]:
    return [10 ** (exponent / 8) for exponent in range(0, 41)]


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.3f} us"
