"""Act IV: what each strategy sends, over which hop, and what the best plan of a context really sends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log10

from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import Numbers, Series
from optimizer.page.learn.content_files import Values, table
from optimizer.page.learn.contexts import job_of, title
from optimizer.page.learn.once import once
from optimizer.page.learn.priced import best
from optimizer.page.learn.textbook.volumes import MANY, Sent, Volumes, hop_rows
from optimizer.reports.palette import PALETTE
from optimizer.studies.communication import CommunicationStudy, communication

WIDE_NODE = 200e9  # what the document calls InfiniBand's rate; 200 Gb/s are 25 GB/s
PORT = 25e9  # what 200 Gb/s really are [B/s]


@cache
def facts() -> Values:
    """Volumes of the question, and their limits for many GPUs."""
    many = _by_name(Volumes(ranks=MANY))
    dp, fsdp = many["dp"].volume, many["fsdp"].volume
    times = {"dp_wide": dp / WIDE_NODE, "dp_port": dp / PORT, "fsdp_wide": fsdp / WIDE_NODE}
    return {"many": many, "eight": Volumes(), **times}


def shown(chosen: Values) -> Shown:
    """The reader's volumes, the hops, and the communication of a real plan."""
    volumes = Volumes(ranks=chosen["ranks"], batch=chosen["sequences"], microbatches=chosen["passing"])
    return Shown(
        values={"volumes": volumes, "others": volumes.ranks - 1, **_by_name(volumes)},
        charts={"act4-chart": lambda: volume_numbers(volumes), "act4-hops": hop_numbers},
        tables={"plan": lambda: plan_rows(chosen["context"])},
    )


def volume_numbers(volumes: Volumes) -> Numbers:
    """Bytes of a GPU per step, strategy by strategy [GB]."""
    sent = volumes.sent
    values = [each.volume / 1e9 for each in sent]
    formulas = {line["what"]: line["formula"] for line in table("act_4.toml")["parts"]["lines"]["line"]}
    return Numbers(
        series={"bars": Series(x=values, look={"color": list(PALETTE[:4])})},
        rows=[{"sent": each, "formula": formulas[each.strategy]} for each in sent],
        values={"most": max(sent, key=lambda each: each.volume)},
        xaxis={"range": [-0.5, 1 + log10(max(values))]},
    )


def hop_numbers() -> Numbers:
    """Latency of a layer's communication over typed hops [ms], with its volume and energy as a table."""
    rows = hop_rows()
    values = [1e3 * row.latency for row in rows]
    colours = [PALETTE[0 if "DP" in row.mode else 1 if "TP" in row.mode else 2] for row in rows]
    return Numbers(
        series={"bars": Series(x=values, look={"color": colours})},
        rows=[{"hop": row} for row in rows],
        values={"inside": rows[0], "across": rows[1]},
        xaxis={"range": [log10(min(values)) - 0.5, log10(max(values)) + 1.4]},
    )


@once
def study_of(context: str) -> CommunicationStudy:
    """The communication of the best plan of a context."""
    answer = best(context)
    if answer.plan is None:
        raise ValueError(f"{context} has no plan")
    return communication(job_of(context), answer.plan, answer.knobs)


def plan_rows(context: str) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
    """Caption, columns and rows of what the best plan of the context really sends, hop by hop."""
    study = study_of(context)
    rows = [
        [
            f"{row.traffic.parallelism.upper()}: {row.traffic.purpose}",
            row.traffic.kind.replace("_", " "),
            f"{row.traffic.ranks:,}",
            f"{row.traffic.per_step:,.0f}",
            f"{row.traffic.message / 1e6:,.1f} MB",
            *(f"{hop.sent / 1e6:,.1f} MB" if hop.traversals else "-" for hop in row.path),
            f"{1e3 * row.time_per_step:,.1f} ms",
        ]
        for row in study.rows
    ]
    hops = (f"sent in {tier.name}" for tier in study.job.cluster.tiers)
    columns = ["what", "collective", "ranks", "per step", "message", *hops, "time, bare"]
    return f"{title(context)}: {study.plan.summary()}", columns, rows


def _by_name(volumes: Volumes) -> dict[str, Sent]:
    return {each.strategy.lower(): each for each in volumes.sent}
