"""DP, FSDP, TP and PP side by side: per layer, per step, on the roofline; and a job on several networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.reports.plan_report import notes, subject, title
from optimizer.reports.report import Table
from optimizer.reports.table import Column, Record, Value, table
from optimizer.studies.report.communication import roofline_record

if TYPE_CHECKING:
    from rich.console import Group

    from optimizer.job.job import Job
    from optimizer.job.plan import Plan
    from optimizer.studies.communication import CommunicationStudy
    from optimizer.studies.networks import Verdict
    from optimizer.studies.room import Room
    from optimizer.studies.strategies import Strategy

PER_LAYER = (
    Column(label="strategy"),
    Column(label="messages", unit="1"),
    Column(label="largest", unit="B"),
    Column(label="sent by a GPU", unit="B"),
    Column(label="time", unit="s"),
    Column(label="energy", unit="J"),
)
PER_STEP = (
    Column(label="strategy"),
    Column(label="messages", unit="1"),
    Column(label="sent by\na GPU", unit="B"),
    Column(label="sent by\nall", unit="B"),
    Column(label="time", unit="s"),
    Column(label="energy", unit="J"),
    Column(label="step", unit="s"),
    Column(label="MFU", unit="%"),
    Column(label="memory", unit="B"),
)
ROOFLINE = (
    Column(label="strategy"),
    Column(label="FLOP/B of\nmemory", unit="1"),
    Column(label="enough\nfrom", unit="1"),
    Column(label="FLOP/B\nsent", unit="1"),
    Column(label="enough\nfrom", unit="1"),
    Column(label="over"),
    Column(label="attainable", unit="FLOP/s"),
    Column(label="bound by"),
)
NETWORKS = (
    Column(label="network", wraps=True),
    Column(label="per GPU", unit="B/s"),
    Column(label="crosses\nit in", unit="s"),
    Column(label="compute", unit="s"),
    Column(label="needs", unit="B/s"),
    Column(label="shows", unit="s"),
    Column(label="MFU", unit="%"),
    Column(label="bottleneck"),
)


def strategies_report(job: Job, strategies: Sequence[Strategy], assumed: Sequence[str] = ()) -> Group:
    """The comparison for the screen."""
    from rich.console import Group
    from rich.text import Text

    studied = [(each.name.upper(), each.study) for each in strategies if each.study]
    return Group(
        Text(f"{job.model.name} on {job.gpus:,} × {job.cluster.device.name} — each strategy alone", style="bold"),
        Text(subject(job)),
        title("Per layer (TP, PP, FSDP: and micro-batch; DP: and step)"),
        table(PER_LAYER, [(name, *per_layer(study).values()) for name, study in studied]),
        title("Per step, communication not hidden"),
        table(PER_STEP, [(name, *per_step(study).values()) for name, study in studied]),
        title("Roofline of a layer"),
        table(ROOFLINE, [(name, *_roofline(study)) for name, study in studied]),
        *notes("Remarks", remarks(strategies)),
        *notes("Assumed", assumed),
    )


def networks_report(plan: Plan, verdicts: Sequence[Verdict], room: Room, assumed: Sequence[str] = ()) -> Group:
    """Whether each network is the bottleneck of the plan, for the screen."""
    from rich.console import Group
    from rich.text import Text

    return Group(
        title(f"Is the network the bottleneck? — {plan.summary()}"),
        table(NETWORKS, _networks(verdicts)),
        Text("  It is when what crosses it takes longer than the compute of the step; `needs` makes them equal."),
        *([Text(f"  The plan {room.warning}.")] if room.warning else []),
        *notes("Assumed", assumed),
    )


def strategies_tables(strategies: Sequence[Strategy]) -> tuple[Table, ...]:
    """The tables of the comparison for a page."""
    studied = [(each.name.upper(), each.study) for each in strategies if each.study]
    layer = "Per layer (TP, PP, FSDP: and micro-batch; DP: and step)"
    return (
        Table.of(layer, PER_LAYER, [(name, *per_layer(study).values()) for name, study in studied]),
        Table.of(
            "Per step, communication not hidden", PER_STEP, [(n, *per_step(study).values()) for n, study in studied]
        ),
        Table.of("Roofline of a layer", ROOFLINE, [(name, *_roofline(study)) for name, study in studied]),
    )


def networks_table(verdicts: Sequence[Verdict]) -> Table:
    """The verdicts for a page."""
    return Table.of("Networks", NETWORKS, _networks(verdicts))


def _networks(verdicts: Sequence[Verdict]) -> list[tuple[Value, ...]]:
    return [
        (
            v.network.name,
            v.network.link.bandwidth,
            v.communication,
            v.compute,
            v.needed,
            v.exposed,
            v.mfu,
            "yes" if v.bottleneck else "no",
        )
        for v in verdicts
    ]


def per_layer(study: CommunicationStudy) -> dict[str, float]:
    """What one layer sends, in SI; as the columns PER_LAYER show it."""
    rows = study.rows
    return {
        "messages": sum(row.traffic.per_layer for row in rows),
        "message_bytes": max((row.traffic.message for row in rows), default=0.0),
        "bytes_per_gpu": sum(row.volume_per_layer for row in rows),
        "time_s": sum(row.time_per_layer for row in rows),
        "energy_j": sum(row.energy_per_layer for row in rows),
    }


def per_step(study: CommunicationStudy) -> dict[str, float]:
    """What a step sends and takes, in SI; as the columns PER_STEP show it."""
    rows, estimate = study.rows, study.estimate
    return {
        "messages": sum(row.traffic.per_step for row in rows),
        "bytes_per_gpu": sum(row.volume_per_step for row in rows),
        "bytes_all_gpus": sum(row.total_volume for row in rows),
        "communication_s": study.communication_time,
        "energy_j": study.energy,
        "time_s": estimate.step_time,
        "mfu": estimate.mfu,
        "memory_bytes": estimate.reserved,
    }


def remarks(strategies: Sequence[Strategy]) -> list[str]:
    """Strategies that are not possible, do not fit, or break a rule of the planner."""
    lines = []
    for each in strategies:
        name = each.name.upper()
        if each.study is None:
            lines.append(f"{name} is not possible: {'; '.join(each.reasons)}.")
            continue
        if not each.fits:
            lines.append(f"{name} {each.study.room.warning}.")
        if each.remarks:
            lines.append(f"{name} breaks rules of the planner: {', '.join(each.remarks)}.")
    return lines


def strategies_records(strategies: Sequence[Strategy]) -> list[Record]:
    """One record per strategy, SI units."""
    return [_record(each) for each in strategies]


def networks_records(verdicts: Sequence[Verdict]) -> list[Record]:
    """One record per network, SI units; a bandwidth that no network would reach is empty."""
    return [
        {
            "network": v.network.name,
            "bandwidth_bytes_per_s": v.network.link.bandwidth,
            "crossing_s": v.communication,
            "compute_s": v.compute,
            "needed_bytes_per_s": v.needed,
            "exposed_s": v.exposed,
            "step_time_s": v.step_time,
            "mfu": v.mfu,
            "bottleneck": v.bottleneck,
        }
        for v in verdicts
    ]


def _record(each: Strategy) -> Record:
    record: dict[str, Value] = {"strategy": each.name, "plan": each.plan.summary(), "fits": each.fits}
    if each.study is None:
        return record | {"note": "; ".join(each.reasons)}
    record |= {f"layer_{name}": value for name, value in per_layer(each.study).items()}
    record |= {f"step_{name}": value for name, value in per_step(each.study).items()}
    record |= {f"roofline_{name}": value for name, value in roofline_record(each.study.layer).items()}
    return record | {"note": ", ".join(each.remarks)}


def _roofline(study: CommunicationStudy) -> tuple[Value, ...]:
    layer = study.layer
    sends = layer.network > 0
    network = (layer.network_intensity, layer.network_ridge, layer.network_tier) if sends else (None, None, None)
    return (layer.memory_intensity, layer.memory_ridge, *network, layer.attainable, layer.bound)
