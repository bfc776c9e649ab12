"""The report on the communication of one plan: messages, their cost and hops, and the roofline of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import seconds, show
from optimizer.reports.charts.bar_chart import bar_chart
from optimizer.reports.palette import PALETTE
from optimizer.reports.plan_words import job_title, subject
from optimizer.reports.render.json import as_json
from optimizer.reports.report import Column, Record, Report, Table, Value, columns, section
from optimizer.reports.terms import label

if TYPE_CHECKING:
    from optimizer.job.hardware import Cluster
    from optimizer.studies.communication import CommunicationStudy, PricedTraffic
    from optimizer.studies.intensity import LayerRoofline

KINDS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "point_to_point": "send",
}
VOLUME = columns(
    "# [1] | collective | of ~ | GPUs [1] | message [B] | per\nlayer [1] | per\nstep [1] | sent by\na GPU [B] | "
    "sent by\nall [B]"
)
COST = columns(
    "# [1] | collective | one [s] | per layer [s] | per step [s] | energy\nof one [J] | energy\nof a layer [J] | "
    "energy\nof the step [J]"
)
HOPS = columns(
    "# [1] | collective | tier | links\ncrossed [1] | bytes\neach [B] | latency\neach [s] | "
    "bytes on\nthe tier [B] | sent in it\nby a GPU [B] | energy [J]"
)


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
            section("Messages and volume", _table(VOLUME, [[_volume(row)] for row in rows])),
            section("Time, nothing overlapped, and energy of all ranks", _table(COST, [[_cost(row)] for row in rows])),
            section("Hops of one collective, all ranks together", _table(HOPS, [_hops(row) for row in rows])),
        ),
        assumed=tuple(assumed),
    )


def step_line(study: CommunicationStudy) -> str:
    """What a step is made of, in words: the parts add up to it."""
    estimate, others = study.estimate, study.other_times
    named = ", ".join(f"{label(name)} {seconds(value)}" for name, value in others.items())
    rest = f" and {seconds(sum(others.values()))} of all else ({named})" if others else ""
    return (
        f"A step takes {seconds(estimate.step_time)} at {estimate.mfu:.1%} MFU: {seconds(study.compute_time)} of "
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
    return {
        "flops": layer.flops,
        "memory_bytes": layer.memory,
        "network_tier": layer.network_tier,
        "network_bytes": layer.network,
        "memory_intensity_flop_per_byte": layer.memory_intensity,
        "memory_ridge_flop_per_byte": layer.memory_ridge,
        "network_intensity_flop_per_byte": layer.network_intensity,
        "network_ridge_flop_per_byte": layer.network_ridge,
        "attainable_flops": layer.attainable,
        "bound": layer.bound,
    }


def communication_record(row: PricedTraffic) -> Record:
    """One kind of collective, SI units, hops of each tier in columns of their own."""
    counts = {name: f"messages_{name}" for name in ("per_layer", "per_step", "in_total")}
    record: dict[str, Value] = {
        **as_json(row.traffic, kind="collective", message="message_bytes", **counts, once=""),
        "sent_bytes": row.sent,
        "layer_bytes_per_gpu": row.volume_per_layer,
        "step_bytes_per_gpu": row.volume_per_step,
        "step_bytes_all_gpus": row.total_volume,
        "time_s": row.time,
        "layer_time_s": row.time_per_layer,
        "step_time_s": row.time_per_step,
        "energy_j": row.energy,
        "layer_energy_j": row.energy_per_layer,
        "step_energy_all_gpus_j": row.total_energy,
    }
    names = {"traversals": "hops", "message": "hop_bytes", "latency": "hop_latency_s", "energy": "energy_j"}
    for hop in row.path:
        values = as_json(hop, **names, tier="", sent="")
        record |= {f"{hop.tier}_{name}": value for name, value in values.items()}
    return record


def _table(heads: Sequence[Column], rows: Sequence[Sequence[Sequence[Value]]]) -> Table:
    """The rows of every collective, each behind the number of that."""
    return Table(heads, [(number, *cells) for number, lines in enumerate(rows, start=1) for cells in lines])


def _volume(row: PricedTraffic) -> Sequence[Value]:
    t = row.traffic
    counts = (t.ranks, t.message, t.per_layer, t.per_step)
    return (name_of(row), t.purpose, *counts, row.volume_per_step, row.total_volume)


def _cost(row: PricedTraffic) -> Sequence[Value]:
    times = (row.time, row.time_per_layer, row.time_per_step)
    return (name_of(row), *times, row.energy, row.energy_per_layer, row.total_energy)


def _hops(row: PricedTraffic) -> Sequence[Sequence[Value]]:
    return [
        (name_of(row), hop.tier, hop.traversals, hop.message, hop.latency, hop.volume, hop.sent, hop.energy)
        for hop in row.path
        if hop.traversals
    ]
