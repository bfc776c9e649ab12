"""The report on the communication of one plan: messages, their cost and hops, and the roofline of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.base.content import content
from optimizer.base.units import seconds, show
from optimizer.job.hardware import Cluster
from optimizer.objectives.step.interval import interval
from optimizer.reports.charts.bar_chart import bar_chart
from optimizer.reports.charts.palette import PALETTE
from optimizer.reports.known_values import NOT_KNOWN
from optimizer.reports.listed import record, table
from optimizer.reports.plan_words import job_title, subject
from optimizer.reports.report import Record, Report, section
from optimizer.reports.terms import label
from optimizer.studies.communication import CommunicationStudy, PricedTraffic
from optimizer.studies.intensity import LayerRoofline

KINDS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "point_to_point": "send",
}
TABLES = content("optimizer.studies", "tables.toml")


def communication_report(study: CommunicationStudy, assumed: Sequence[str] = ()) -> Report:
    """What each collective of a plan sends, takes and crosses."""
    job, rows = study.job, study.rows
    labels = [f"{number} {name_of(row)}\n{row.traffic.purpose}" for number, row in enumerate(rows, start=1)]
    colours = [PALETTE[study.parallelisms.index(row.traffic.parallelism)] for row in rows]
    panels = (
        ("volume", "Sent by a GPU per step", "B", [row.volume_per_step for row in rows]),
        ("time", "Time per step, not overlapped", "s", [row.time_per_step for row in rows]),
        ("energy", "Energy on all links per step", "J", [row.total_energy for row in rows]),
    )
    charts = [bar_chart(*panel[:3], labels, panel[3], colours=colours) for panel in panels] if rows else []
    numbered: list[dict[str, Any]] = [
        {"number": number, "name": name_of(row), "row": row} for number, row in enumerate(rows, start=1)
    ]
    crossed = [
        each | {"hop": hop} for each, row in zip(numbered, rows, strict=True) for hop in row.path if hop.traversals
    ]
    lines = (
        step_line(study),
        f"Its communication takes {show(study.energy, 'J')} on the links of the cluster.",
        *roofline_lines(study.layer),
        tier_line(job.cluster),
    )
    return Report(
        title=f"{job_title(job)}: what {study.plan.summary()} sends",
        subject=(subject(job),),
        warning=f"The plan {study.memory.warning}." if study.memory.warning else "",
        conclusion=lines if rows else ("No GPU sends anything.",),
        sections=(
            section("What the messages cost", *charts, on="page"),
            section("Messages and volume", table(TABLES["tables"]["volume"], numbered)),
            section("Time, nothing overlapped, and energy of all ranks", table(TABLES["tables"]["cost"], numbered)),
            section("Hops of one collective, all ranks together", table(TABLES["tables"]["hops"], crossed)),
        ),
        assumed=tuple(assumed),
    )


def _taken(study: CommunicationStudy) -> str:
    """How long a step takes, or that it is not known."""
    job, plan, estimate = study.job, study.plan, study.estimate
    if not interval(job, plan, estimate.step_time).known:
        return f"Of a step, whose time is {NOT_KNOWN}"
    return f"A step takes {seconds(estimate.step_time)} at {estimate.mfu:.1%} MFU"


def step_line(study: CommunicationStudy) -> str:
    """What a step is made of, in words: the parts add up to it."""
    others = study.other_times
    named = ", ".join(f"{label(name)} {seconds(value)}" for name, value in others.items())
    rest = f" and {seconds(sum(others.values()))} of all else ({named})" if others else ""
    return (
        f"{_taken(study)}: {seconds(study.compute_time)} of "
        f"compute, {seconds(study.exposed_time)} of communication that shows, of {seconds(study.communication_time)} "
        f"in all,{rest}."
    )


def name_of(row: PricedTraffic) -> str:
    """A collective's name for people: its parallelism and kind."""
    return f"{row.traffic.parallelism.upper()} {KINDS[row.traffic.kind]}"


def roofline_lines(layer: LayerRoofline) -> list[str]:
    """Where the layer lies, in words."""
    lines = [
        f"A layer does {layer.memory_intensity:,.0f} FLOP per byte of memory traffic; "
        f"from {layer.memory_ridge:,.0f} on memory keeps up."
    ]
    if layer.network:
        lines.append(
            f"It does {layer.network_intensity:,.0f} FLOP per byte sent; from {layer.network_ridge:,.0f} on "
            f"tier {layer.network_tier} ({show(layer.network_bandwidth, 'B/s')} per GPU) keeps up."
        )
    attainable = f"{show(layer.attainable, 'FLOP/s')}, {layer.attainable / layer.peak:.0%} of the peak"
    return [*lines, f"So it is {layer.bound}-bound: at most {attainable}."]


def tier_line(cluster: Cluster) -> str:
    """The tiers of a cluster with their links, in words."""
    parts = (f"{tier.name} is {tier.link.name}, {show(tier.bandwidth, 'B/s')} per GPU" for tier in cluster.tiers)
    return f"Tiers: {'; '.join(parts)}, one way."


def roofline_record(layer: LayerRoofline) -> Record:
    """The roofline of a layer, SI units."""
    return record(TABLES["records"]["roofline"], layer=layer)


def step_record(study: CommunicationStudy) -> Record:
    """What a step takes, SI units."""
    return record(TABLES["records"]["communication"], study=study)


def communication_record(row: PricedTraffic) -> Record:
    """One kind of collective, SI units, hops of each tier in columns of their own."""
    hops = {hop.tier: record(TABLES["records"]["hop"], hop=hop) for hop in row.path}
    by_tier = {f"{tier}_{name}": value for tier, values in hops.items() for name, value in values.items()}
    return record(TABLES["records"]["collective"], row=row) | by_tier
