"""DP, FSDP, TP and PP side by side: per layer, per step, on the roofline; and a job on several networks."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.reports.charts.bar_chart import ROW, SPACE, bar_chart
from optimizer.reports.charts.chart import Chart, bars, figure
from optimizer.reports.charts.palette import BLUE, ORANGE
from optimizer.reports.known_values import price_words
from optimizer.reports.listed import record, table
from optimizer.reports.plan_words import job_title, subject
from optimizer.reports.report import Record, Report, Table, Value, cell, columns, notes, section
from optimizer.studies.communication import CommunicationStudy
from optimizer.studies.communication_report import TABLES, roofline_record
from optimizer.studies.memory_need import MemoryNeed
from optimizer.studies.networks import NetworkVerdict
from optimizer.studies.strategies import Strategy

PER_LAYER = columns("strategy | messages [1] | largest [B] | sent by a GPU [B] | time [s] | energy [J]")
PER_STEP = columns(
    "strategy | messages [1] | sent by\na GPU [B] | sent by\nall [B] | time [s] | energy [J] | step [s] | "
    "MFU [%] | memory [B]"
)
ROOFLINE = columns(
    "strategy | FLOP/B of\nmemory [1] | enough\nfrom [1] | FLOP/B\nsent [1] | enough\nfrom [1] | over | "
    "attainable [FLOP/s] | bound by"
)

# Of a strategy: record, title, unit, and whether sizes differ by orders of magnitude.
PANELS = (
    ("bytes_per_gpu", "Sent by a GPU per step", "B", True),
    ("messages", "Messages of a GPU per step", "", True),
    ("communication_s", "Communication per step, not overlapped", "s", False),
    ("energy_j", "Energy on all links per step", "J", True),
    ("time_s", "Whole step", "s", False),
    ("memory_bytes", "Memory of the fullest GPU", "B", False),
)


def strategies_report(job: Job, strategies: Sequence[Strategy], assumed: Sequence[str] = ()) -> Report:
    """DP, FSDP, TP and PP of one job: volume, messages, time, energy, step and memory."""
    studied = [(each.name.upper(), each.study) for each in strategies if each.study]
    names, steps = [name for name, _ in studied], [per_step(study) for _, study in studied]
    limits = {"memory_bytes": job.usable_memory}
    charts = [
        bar_chart(key, title, unit, names, [step[key] for step in steps], wide=wide, limit=limits.get(key))
        for key, title, unit, wide in PANELS
    ]
    return Report(
        title=f"{job_title(job)}: each strategy alone",
        subject=(subject(job),),
        conclusion=(_fastest(strategies),),
        sections=(
            section("Each strategy beside the others", *charts, on="page"),
            section(
                "Per layer (TP, PP, FSDP: and micro-batch; DP: and step)",
                Table(PER_LAYER, [(name, *per_layer(study).values()) for name, study in studied]),
            ),
            section(
                "Per step, communication not overlapped",
                Table(PER_STEP, [(name, *step.values()) for name, step in zip(names, steps, strict=True)]),
            ),
            section("Roofline of a layer", Table(ROOFLINE, [(name, *_roofline(study)) for name, study in studied])),
            notes("Remarks", remarks(strategies)),
        ),
        assumed=tuple(assumed),
    )


def networks_report(
    job: Job, plan: Plan, verdicts: Sequence[NetworkVerdict], memory: MemoryNeed, assumed: Sequence[str] = ()
) -> Report:
    """What crosses each network, compared with the compute of the step, and the MFU on it."""
    narrow = [v.network.name for v in verdicts if v.bottleneck]
    rows = [{"v": v, "bottleneck": "yes" if v.bottleneck else "no"} for v in verdicts]
    return Report(
        title=f"{job.model.title or job.model.name} on {job.gpus:,} GPUs: is the network the bottleneck?",
        subject=(f"{plan.summary()}; {subject(job)}",),
        warning=f"The plan {memory.warning}." if memory.warning else "",
        conclusion=(
            f"Yes with {' and '.join(narrow)}." if narrow else "No: compute takes longer on each of them.",
            "It is when what crosses it takes longer than the compute of the step; `needs` makes them equal.",
            *(f"With {v.network.name} the MFU is {v.mfu:.1%}." for v in verdicts),
        ),
        sections=(section("Time of a step", networks_chart(verdicts), table(TABLES["tables"]["networks"], rows)),),
        assumed=tuple(assumed),
    )


def networks_chart(verdicts: Sequence[NetworkVerdict]) -> Chart:
    """What crosses each network, and the compute of the step."""
    labels = [f"{v.network.name}\n{cell(v.network.link.bandwidth, 'B/s')} per GPU" for v in verdicts]
    series = (
        ("crosses the network", ORANGE, [v.communication for v in verdicts]),
        ("compute of the step", BLUE, [v.compute for v in verdicts]),
    )
    top = SPACE * max((value for _, _, values in series for value in values), default=1.0)
    return Chart(
        name="networks",
        title="What crosses the network, compared with the compute of the step",
        words="The network is the bottleneck where what crosses it takes longer than the compute of the step.",
        figure=figure(
            90 + 2 * ROW * len(labels),
            *(
                bars(labels, values, colour, name=name, text=[cell(value, "s") for value in values])
                for name, colour, values in series
            ),
            xaxis={"range": [0, top], "ticksuffix": "s", "exponentformat": "SI", "title": {"text": "per step"}},
            yaxis={"autorange": "reversed"},
        ),
        columns=("network", "crosses it in", "compute"),
        rows=tuple((v.network.name, cell(v.communication, "s"), cell(v.compute, "s")) for v in verdicts),
    )


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
            lines.append(f"{name} {each.study.memory.warning}.")
        if each.remarks:
            lines.append(f"{name} breaks rules of the planner: {', '.join(each.remarks)}.")
    return lines


def network_record(v: NetworkVerdict) -> Record:
    """One network, SI units; a bandwidth that no network would reach is empty."""
    return record(TABLES["records"]["network"], v=v)


def strategy_record(each: Strategy) -> Record:
    """One strategy, SI units."""
    named: dict[str, Value] = {"strategy": each.name, "plan": each.plan.summary(), "fits": each.fits}
    if each.study is None:
        return named | {"note": "; ".join(each.reasons)}
    parts = (("layer", per_layer(each.study)), ("step", per_step(each.study)))
    for part, values in (*parts, ("roofline", roofline_record(each.study.layer))):
        named |= {f"{part}_{name}": value for name, value in values.items()}
    return named | {"note": ", ".join(each.remarks)}


def _roofline(study: CommunicationStudy) -> Sequence[Value]:
    layer = study.layer
    sends = layer.network > 0
    network = (layer.network_intensity, layer.network_ridge, layer.network_tier) if sends else (None, None, None)
    return (layer.memory_intensity, layer.memory_ridge, *network, layer.attainable, layer.bound)


def _fastest(strategies: Sequence[Strategy]) -> str:
    """The strategy that wins, in a sentence."""
    fitting = [(each.study.estimate, each.study, each) for each in strategies if each.study and each.fits]
    if not fitting:
        return "None of the strategies fits in memory alone."
    estimate, study, first = min(fitting, key=lambda each: each[0].step_time)
    price = price_words(study.job, study.plan, estimate)
    return f"{first.name.upper()} is the fastest that fits in memory alone: {price}."
