"""`optimize communication`: what a plan or a strategy sends, and whether the network is the bottleneck."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from optimizer.commands.options import help_text, listed
from optimizer.commands.output import Output
from optimizer.commands.request import job_of, request_of
from optimizer.commands.study.pinned import study_options, study_plan, warn
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Knobs, Plan


@click.command(help=help_text("communication"))
@listed("communication")
@study_options
def communication(*, strategy: tuple[str, ...], best: bool, network: tuple[str, ...], **options: Any) -> None:
    """Study a plan, or compare strategies; with networks, judge them."""
    output = Output.taken(options)
    if strategy and (options["fix"] or best):
        raise click.UsageError("--strategy puts all GPUs into one strategy; leave out --fix and --best")
    job, assumed = job_of(request_of(options))
    if network:
        _judge(job, *study_plan(job, best), network, assumed, output)
    elif options["fix"] or best:
        _study(job, *study_plan(job, best), assumed, output)
    else:
        _compare(job, strategy, assumed, output)


def _study(job: Job, plan: Plan, knobs: Knobs, assumed: tuple[str, ...], output: Output) -> None:
    from optimizer.answer.answer import job_dict, plan_dict
    from optimizer.studies import communication_report as report
    from optimizer.studies.communication import communication as study_of

    with waiting("pricing messages"):
        study = study_of(job, plan, knobs)
    warn(study.memory)
    records = [report.communication_record(row) for row in study.rows]
    content = {
        "job": job_dict(job),
        "plan": plan_dict(plan),
        "collectives": records,
        "layer_roofline": report.roofline_record(study.layer),
        **report.step_record(study),
        **study.memory.to_dict(),
    }
    output.show(content, assumed, records, partial(report.communication_report, study, assumed))


def _compare(job: Job, names: tuple[str, ...], assumed: tuple[str, ...], output: Output) -> None:
    from optimizer.answer.answer import job_dict
    from optimizer.studies.strategies import STRATEGIES, compare
    from optimizer.studies.strategies_report import strategies_report, strategy_record

    with waiting("pricing strategies"):
        strategies = compare(job, [name.lower() for name in names] or STRATEGIES)
    records = [strategy_record(each) for each in strategies]
    content = {"job": job_dict(job), "strategies": records}
    output.show(content, assumed, records, partial(strategies_report, job, strategies, assumed))


def _judge(
    job: Job, plan: Plan, knobs: Knobs, names: tuple[str, ...], assumed: tuple[str, ...], output: Output
) -> None:
    from optimizer.answer.answer import job_dict, plan_dict
    from optimizer.studies.communication import communication as study_of
    from optimizer.studies.networks import bottleneck
    from optimizer.studies.networks import network as network_of
    from optimizer.studies.strategies_report import network_record, networks_report

    with waiting("pricing networks"):
        verdicts = bottleneck(job, plan, [network_of(name, job) for name in names], knobs)
        memory = study_of(job, plan, knobs).memory
    warn(memory)
    records = [network_record(verdict) for verdict in verdicts]
    content = {"job": job_dict(job), "plan": plan_dict(plan), **memory.to_dict(), "networks": records}
    output.show(content, assumed, records, partial(networks_report, job, plan, verdicts, memory, assumed))
