"""What Act IV asks, draws and works out."""

from __future__ import annotations

from math import log10

from optimizer.page.learn.act_four import MANY, Volumes, hop_rows
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.contexts import CONTEXTS, job_of
from optimizer.page.learn.markup import Figure, Line
from optimizer.page.learn.once import once
from optimizer.page.learn.priced import best
from optimizer.page.learn.question import PREDICTION, Choice, Question
from optimizer.reports.palette import PALETTE
from optimizer.studies.communication import CommunicationStudy, communication

WIDE_NODE = 200e9  # what the document calls InfiniBand's rate; 200 Gb/s are 25 GB/s


def prediction() -> Question:
    """Which strategy sends most."""
    limits = Volumes(ranks=MANY)
    dp, fsdp, tp, pp = (each.volume / 1e9 for each in limits.sent)
    eight = Volumes()
    return Question(
        name="act-4",
        act="IV",
        kind=PREDICTION,
        text=(
            f"GPT-3 in 16 bits, {eight.batch} sequences of {eight.seq_len:,} tokens a step, each strategy alone. With "
            "which does a GPU send the most bytes in a step?"
        ),
        right="C",
        choices=(
            Choice(
                key="A",
                text="Data parallelism: all gradients.",
                reveal=(
                    f"Two passes over the gradients, at most {dp:.0f} GB, in a single message where there are no "
                    f"buckets. At {WIDE_NODE / 1e9:.0f} GB/s that takes {dp * 1e9 / WIDE_NODE:.2f} s; at the 25 GB/s "
                    f"of a 200 Gb/s port {dp * 1e9 / 25e9:.0f} s. But all of it can hide behind the backward pass."
                ),
            ),
            Choice(
                key="B",
                text="FSDP: weights twice, gradients once.",
                reveal=(
                    f"Three passes, {fsdp:.0f} GB or half as much again as data parallelism: the price of holding "
                    f"1/N of the weights. {fsdp * 1e9 / WIDE_NODE:.2f} s at {WIDE_NODE / 1e9:.0f} GB/s."
                ),
            ),
            Choice(
                key="C",
                text="Tensor parallelism: activations, several times in each layer.",
                reveal=(
                    f"{eight.sent[2].messages} all-reduces of {eight.activations / 1e9:.2f} GB: {tp:,.0f} GB for many "
                    "GPUs (the document prints about 1.2 TB). It grows with the batch, and layer after layer waits for "
                    "it: that is why it stays on NVLink."
                ),
            ),
            Choice(
                key="D",
                text="A pipeline: activations at every boundary.",
                reveal=(
                    f"The least by far: {pp:.2f} GB of an inner stage, {eight.pipeline_total / 1e9:.1f} GB over all "
                    f"boundaries in {eight.pipeline_messages} messages on 8 stages. The document prints 45 GB, having "
                    "counted both senders and receivers. What a pipeline costs is its bubble."
                ),
            ),
        ),
    )


def figures(volumes: Volumes) -> tuple[Figure, ...]:
    """What a GPU sends by each strategy."""
    return tuple(
        Figure(
            name=f"act4-{each.strategy.lower()}",
            label=each.strategy,
            value=f"{each.volume / 1e9:,.1f} GB",
            remark=f"{each.messages:,} message{'s' * (each.messages > 1)}",
        )
        for each in volumes.sent
    )


def equations(volumes: Volumes) -> tuple[Line, ...]:
    """The volumes with the reader's values."""
    lines = [
        Line(
            name=f"act4-t-{each.strategy.lower()}",
            what=each.strategy,
            formula=each.formula,
            values=each.values,
            result=f"{each.volume / 1e9:,.1f} GB",
        )
        for each in volumes.sent
    ]
    messages = Line(
        name="act4-t-messages",
        what="Messages of the whole pipeline",
        formula="2 M (N - 1)",
        values=f"2 x {volumes.microbatches} x {volumes.ranks - 1}",
        result=f"{volumes.pipeline_messages:,}",
    )
    return (*lines, messages)


def volume_chart(volumes: Volumes) -> Chart:
    """Bytes of a GPU per step, strategy by strategy."""
    figure = Drawn(across="GB (logarithmic)", height=200)
    names = [each.strategy for each in volumes.sent]
    values = [each.volume / 1e9 for each in volumes.sent]
    texts = [f"{value:,.1f} GB" for value in values]
    figure.bars(names, values, texts, PALETTE[:4])
    figure.xaxis |= {"type": "log", "range": [-0.5, 1 + log10(max(values))]}
    most = max(volumes.sent, key=lambda each: each.volume)
    words = (
        f"On {volumes.ranks:,} GPUs with {volumes.batch:,} sequences, {most.strategy} sends most, "
        f"{most.volume / 1e9:,.0f} GB in {most.messages:,} messages. Data parallelism and FSDP do not depend on the "
        "batch, TP and PP grow with it."
    )
    rows = [
        [each.strategy, f"{each.volume / 1e9:,.1f} GB", f"{each.messages:,}", each.formula] for each in volumes.sent
    ]
    columns = ["strategy", "sent by a GPU", "messages", "formula"]
    return Chart(name="act4-chart", title="Sent by a GPU", figure=figure, words=words, columns=columns, rows=rows)


def hop_chart() -> Chart:
    """Latency of a layer's communication over typed hops, with its volume and energy as a table."""
    rows = hop_rows()
    figure = Drawn(across="ms (logarithmic)", height=330)
    names = [f"{row.layer}, {row.mode}" for row in rows]
    values = [1e3 * row.latency for row in rows]
    colours = [PALETTE[0 if "DP" in row.mode else 1 if "TP" in row.mode else 2] for row in rows]
    texts = [f"{value:.3f} ms" for value in values]
    figure.bars(names, values, texts, colours)
    figure.xaxis |= {"type": "log", "range": [log10(min(values)) - 0.5, log10(max(values)) + 1.4]}
    inside, across = rows[0], rows[1]
    words = (
        f"Twice the GPUs, one hop more: adding up attention's gradients takes {1e3 * inside.latency:.3f} ms on eight "
        f"GPUs of a node and {1e3 * across.latency:.3f} ms on sixteen of two, for {1e3 * inside.energy:.1f} and "
        f"{1e3 * across.energy:.1f} mJ, since every step waits for the path of two NVLink hops and one of InfiniBand. "
        "The document takes NVLink for 90 GB/s (it writes 900, which is duplex; 450 is one way), stores and forwards "
        "on every hop, and has an MLP of two matrices where this model has three."
    )
    table = [
        [
            f"{row.layer}, {row.mode}",
            f"{row.volume / 1e6:.3f} MB",
            f"{1e3 * row.latency:.3f} ms",
            f"{1e3 * row.energy:.3f} mJ",
        ]
        for row in rows
    ]
    columns = ["layer and mode", "per GPU", "latency", "energy"]
    return Chart(name="act4-hops", title="By hop", figure=figure, words=words, columns=columns, rows=table)


@once
def study_of(context: str) -> CommunicationStudy:
    """The communication of the best plan of a context."""
    answer = best(context)
    if answer.plan is None:
        raise ValueError(f"{context} has no plan")
    return communication(job_of(context), answer.plan, answer.knobs)


def plan_rows(context: str) -> tuple[str, list[str], list[list[str]]]:
    """Caption, columns and rows of what the best plan of the context really sends, hop by hop."""
    study = study_of(context)
    tiers = [tier.name for tier in study.job.cluster.tiers]
    rows = []
    for row in study.rows:
        crossed = [f"{hop.sent / 1e6:,.1f} MB" if hop.traversals else "-" for hop in row.path]
        rows.append(
            [
                f"{row.traffic.parallelism.upper()}: {row.traffic.purpose}",
                row.traffic.kind.replace("_", " "),
                f"{row.traffic.ranks:,}",
                f"{row.traffic.per_step:,.0f}",
                f"{row.traffic.message / 1e6:,.1f} MB",
                *crossed,
                f"{1e3 * row.time_per_step:,.1f} ms",
            ]
        )
    columns = [
        "what",
        "collective",
        "ranks",
        "per step",
        "message",
        *(f"sent in {name}" for name in tiers),
        "time, bare",
    ]
    return f"{CONTEXTS[context].title}: {study.plan.summary()}", columns, rows
