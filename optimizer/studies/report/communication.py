"""The communication of one plan: collectives, hops, and where its layers lie on the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import seconds, show
from optimizer.reports.plan_report import notes, subject, title
from optimizer.reports.report import Table
from optimizer.reports.table import Column, Record, table
from optimizer.reports.terms import label

if TYPE_CHECKING:
    from rich.console import Group

    from optimizer.job.hardware import Cluster
    from optimizer.studies.communication import CommunicationStudy, Priced
    from optimizer.studies.intensity import LayerRoofline

KINDS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "point_to_point": "send",
}
NUMBER = Column(label="#", unit="1")
VOLUME = (
    NUMBER,
    Column(label="collective"),
    Column(label="of", wraps=True),
    Column(label="GPUs", unit="1"),
    Column(label="message", unit="B"),
    Column(label="per\nlayer", unit="1"),
    Column(label="per\nstep", unit="1"),
    Column(label="sent by\na GPU", unit="B"),
    Column(label="sent by\nall", unit="B"),
)
COST = (
    NUMBER,
    Column(label="collective"),
    Column(label="one", unit="s"),
    Column(label="per layer", unit="s"),
    Column(label="per step", unit="s"),
    Column(label="energy\nof one", unit="J"),
    Column(label="energy\nof a layer", unit="J"),
    Column(label="energy\nof the step", unit="J"),
)
HOPS = (
    NUMBER,
    Column(label="collective"),
    Column(label="tier"),
    Column(label="links\ncrossed", unit="1"),
    Column(label="bytes\neach", unit="B"),
    Column(label="latency\neach", unit="s"),
    Column(label="bytes on\nthe tier", unit="B"),
    Column(label="sent in it\nby a GPU", unit="B"),
    Column(label="energy", unit="J"),
)


def communication_report(study: CommunicationStudy, assumed: Sequence[str] = ()) -> Group:
    """The whole study for the screen."""
    from rich.console import Group
    from rich.text import Text

    job, rows = study.job, list(enumerate(study.rows, start=1))
    head = f"{job.model.name} on {job.gpus:,} × {job.cluster.device.name} — {study.plan.summary()}"
    lines = [
        step_line(study),
        f"Its communication takes {show(study.energy, 'J')} on the links of the cluster.",
        *roofline_lines(study.layer),
        tier_line(job.cluster),
        *([f"The plan {study.room.warning}."] if study.room.warning else []),
    ]
    if not study.rows:
        return Group(
            Text(head, style="bold"), Text(subject(job)), Text("\nNo GPU sends anything."), *notes("", assumed)
        )
    return Group(
        Text(head, style="bold"),
        Text(subject(job)),
        title("Messages and volume"),
        table(VOLUME, [(number, *_volume(row)) for number, row in rows]),
        title("Time, nothing hidden, and energy of all ranks"),
        table(COST, [(number, *_cost(row)) for number, row in rows]),
        title("Hops of one collective, all ranks together"),
        table(HOPS, [(number, *hop) for number, row in rows for hop in _hops(row)]),
        *notes("Reading", lines),
        *notes("Assumed", assumed),
    )


def communication_tables(study: CommunicationStudy) -> tuple[Table, ...]:
    """The same tables for a page."""
    rows = list(enumerate(study.rows, start=1))
    return (
        Table.of("Messages and volume", VOLUME, [(number, *_volume(row)) for number, row in rows]),
        Table.of(
            "Time, nothing hidden, and energy of all ranks", COST, [(number, *_cost(row)) for number, row in rows]
        ),
        Table.of(
            "Hops of one collective, all ranks together",
            HOPS,
            [(number, *hop) for number, row in rows for hop in _hops(row)],
        ),
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


def name_of(row: Priced) -> str:
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
    share = layer.attainable / layer.peak
    return [
        *lines,
        f"So it is {layer.bound}-bound: at most {show(layer.attainable, 'FLOP/s')}, {share:.0%} of the peak.",
    ]


def tier_line(cluster: Cluster) -> str:
    """The tiers of a cluster with their links, in words."""
    parts = (f"{tier.name} is {tier.link.name}, {show(tier.bandwidth, 'B/s')} per GPU" for tier in cluster.tiers)
    return f"Tiers: {'; '.join(parts)}, one way."


def communication_records(study: CommunicationStudy) -> list[Record]:
    """One record per kind of collective, SI units, hops of each tier in columns of their own."""
    return [_record(row) for row in study.rows]


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


def _record(row: Priced) -> Record:
    traffic = row.traffic
    record: dict[str, float | str | None] = {
        "parallelism": traffic.parallelism,
        "purpose": traffic.purpose,
        "collective": traffic.kind,
        "ranks": traffic.ranks,
        "stride": traffic.stride,
        "message_bytes": traffic.message,
        "messages_per_layer": traffic.per_layer,
        "messages_per_step": traffic.per_step,
        "messages_in_total": traffic.in_total,
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
    for hop in row.path:
        record |= {
            f"{hop.tier}_link": hop.link,
            f"{hop.tier}_hops": hop.traversals,
            f"{hop.tier}_hop_bytes": hop.message,
            f"{hop.tier}_hop_latency_s": hop.latency,
            f"{hop.tier}_energy_j": hop.energy,
        }
    return record


def _volume(row: Priced) -> tuple[str | float, ...]:
    t = row.traffic
    volumes = (row.volume_per_step, row.total_volume)
    return (name_of(row), t.purpose, t.ranks, t.message, t.per_layer, t.per_step, *volumes)


def _cost(row: Priced) -> tuple[str | float, ...]:
    times = (row.time, row.time_per_layer, row.time_per_step)
    return (name_of(row), *times, row.energy, row.energy_per_layer, row.total_energy)


def _hops(row: Priced) -> list[tuple[str | float, ...]]:
    return [
        (name_of(row), hop.tier, hop.traversals, hop.message, hop.latency, hop.volume, hop.sent, hop.energy)
        for hop in row.path
        if hop.traversals
    ]
