"""`optimize communication`: what a plan or a strategy sends, and whether the network is the bottleneck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.commands.study import (
    POSITIVE,
    check_output,
    print_screen,
    study_job,
    study_options,
    study_plan,
    warn,
    write_page,
)

if TYPE_CHECKING:
    from optimizer.job import Job
    from optimizer.plan import Knobs, Plan
    from optimizer.studies.networks import Verdict

HELP = """What a plan sends: messages, volume, hops, latency and energy, per layer and per step.

Without a plan, DP, FSDP, TP and PP are compared, each alone on all GPUs. --fix makes a plan (dp fills the GPUs),
--best searches one.

\b
optimize communication --model llama3-8b --gpus 8
optimize communication --model gpt3 --gpus 1024 --fix tp=8 --fix pp=8
optimize communication --model llama2-7b --gpus 64 --fix tp=1 \\
    --network infiniband-hdr:0.125 --network infiniband-ndr
"""


@click.command(help=HELP)
@click.option("--gpus", type=POSITIVE, required=True, metavar="N", help="Number of GPUs.")
@click.option("--strategy", multiple=True, metavar="NAME", help="dp, fsdp, tp or pp; repeatable. [all]")
@click.option("--best", is_flag=True, help="Study the best plan, with the pins of --fix.")
@click.option(
    "--network",
    multiple=True,
    metavar="LINK[:PORTS]",
    help="Ask whether this link (ports per GPU after a colon; or a bandwidth per GPU such as 400Gb/s) would be the "
    "bottleneck; repeatable. Without a plan: of data parallelism with ZeRO-1.",
)
@study_options
def communication(
    *,
    gpus: int,
    strategy: tuple[str, ...],
    best: bool,
    network: tuple[str, ...],
    fix: tuple[tuple[str, Any], ...],
    hbm_limit: float,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Study a plan, or compare strategies; with networks, judge them."""
    check_output(as_json, as_csv)
    if strategy and (fix or best):
        raise click.UsageError("--strategy puts all GPUs into one strategy; leave out --fix and --best")
    job, assumed = study_job(gpus, fix, hbm_limit, options)
    output = _Output(as_json=as_json, as_csv=as_csv, html=html)
    if network:
        _judge(job, *study_plan(job, best), network, assumed, output)
    elif fix or best:
        _study(job, *study_plan(job, best), assumed, output)
    else:
        _compare(job, strategy, assumed, output)


class _Output:
    """Where a study goes: screen, JSON or CSV, and a page."""

    def __init__(self, *, as_json: bool, as_csv: bool, html: Path | None) -> None:
        self.as_json, self.as_csv, self.html = as_json, as_csv, html


def _study(job: Job, plan: Plan, knobs: Knobs, assumed: tuple[str, ...], output: _Output) -> None:
    from optimizer.answer import job_dict, plan_dict
    from optimizer.reports.table import csv_text, json_text
    from optimizer.studies.communication import communication as study_of
    from optimizer.studies.report import communication as report

    study = study_of(job, plan, knobs)
    warn(study.room)
    records = report.communication_records(study)
    if output.as_json:
        content = {
            "job": job_dict(job),
            "plan": plan_dict(plan),
            "collectives": records,
            "layer_roofline": report.roofline_record(study.layer),
            "compute_s": study.compute_time,
            "communication_s": study.communication_time,
            "exposed_s": study.exposed_time,
            "step_time_s": study.estimate.step_time,
            "mfu": study.estimate.mfu,
            "energy_j": study.energy,
            **study.room.to_dict(),
            "assumptions": list(assumed),
        }
        click.echo(json_text(content))
    elif output.as_csv:
        click.echo(csv_text(records), nl=False)
    else:
        print_screen(report.communication_report(study, assumed))
    write_page(output.html, lambda: _charts().plan_page(study))


def _compare(job: Job, names: tuple[str, ...], assumed: tuple[str, ...], output: _Output) -> None:
    from optimizer.answer import job_dict
    from optimizer.reports.table import csv_text, json_text
    from optimizer.studies.report import strategies as report
    from optimizer.studies.strategies import STRATEGIES, compare

    strategies = compare(job, [name.lower() for name in names] or STRATEGIES)
    records = report.strategies_records(strategies)
    if output.as_json:
        click.echo(json_text({"job": job_dict(job), "strategies": records, "assumptions": list(assumed)}))
    elif output.as_csv:
        click.echo(csv_text(records), nl=False)
    else:
        print_screen(report.strategies_report(job, strategies, assumed))
    write_page(output.html, lambda: _charts().strategies_page(job, strategies))


def _judge(
    job: Job, plan: Plan, knobs: Knobs, names: tuple[str, ...], assumed: tuple[str, ...], output: _Output
) -> None:
    from optimizer.answer import job_dict, plan_dict
    from optimizer.reports.table import csv_text, json_text
    from optimizer.studies.communication import communication as study_of
    from optimizer.studies.networks import bottleneck
    from optimizer.studies.networks import network as network_of
    from optimizer.studies.report import strategies as report

    verdicts: tuple[Verdict, ...] = bottleneck(job, plan, [network_of(name, job) for name in names], knobs)
    room = study_of(job, plan, knobs).room
    warn(room)
    records = report.networks_records(verdicts)
    if output.as_json:
        content = {"job": job_dict(job), "plan": plan_dict(plan), **room.to_dict(), "networks": records}
        click.echo(json_text(content | {"assumptions": list(assumed)}))
    elif output.as_csv:
        click.echo(csv_text(records), nl=False)
    else:
        print_screen(report.networks_report(plan, verdicts, room, assumed))
    write_page(output.html, lambda: _charts().networks_page(job, verdicts, plan.summary(), room))


def _charts() -> Any:
    from optimizer.studies.report import charts as study_charts

    return study_charts
