"""`optimize measure`: a program that measures the user's nodes, and the hardware files that its numbers make."""

from __future__ import annotations

from pathlib import Path

import click

from optimizer.base.errors import InputError
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import check_new, show, write_output
from optimizer.commands.request import Request, job_of
from optimizer.commands.unnamed import UnnamedCommand
from optimizer.commands.waiting import waiting
from optimizer.job.fields import DEFAULT_CLUSTER

OUT = click.Path(dir_okay=False, path_type=Path)
SHORTEST, LONGEST = 10.0, 600.0  # s


@click.group(
    cls=UnnamedCommand,
    unnamed="write",
    help=help_text("measure"),
    no_args_is_help=True,
    subcommand_metavar="--model NAME | COMMAND [ARGS]...",
)
def measure() -> None:
    """Write the program, or read what it measured."""


@measure.command(help=help_text("measure"), short_help="Write the Python file that measures your nodes.")
@listed("measure write", seconds=click.FloatRange(SHORTEST, LONGEST), out=OUT)
def write(model: str, seq_len: int | None, seconds: float, out: Path, force: bool) -> None:
    """The shapes of the job, written into the program."""
    from optimizer.measure.request import measure_request, program_text

    request = Request(model=model, gpus=1, cluster=DEFAULT_CLUSTER, seq_len=seq_len, limits={})
    text = program_text(measure_request(job_of(request)[0], seconds))
    check_new(out, force)
    write_output(out, text, "")
    click.echo(f"run it where you train: torchrun --nproc-per-node GPUS_OF_A_NODE {out}", err=True)


@measure.command("read", help=help_text("measure read"), short_help="Turn measure.json into files for --cluster.")
@click.argument("file", type=OUT)
@listed("measure read", out=OUT)
def read(
    file: Path, out: Path | None, device: str, cluster: str, force: bool, as_json: bool, html: Path | None
) -> None:
    """Read, fit, write, print."""
    from optimizer.measure.hardware_of import hardware_of
    from optimizer.measure.hardware_toml import cluster_toml, device_toml
    from optimizer.measure.measured import read_measured
    from optimizer.measure.report import measured_dict, measured_report

    if device and cluster:
        raise InputError("give one of --device and --cluster: a cluster has its device")
    of_device = out.with_name(f"{out.stem}-device.toml") if out else None
    for path in filter(None, (out, of_device)):
        check_new(path, force, ".toml")
    with waiting("fitting"):
        measured = read_measured(file)
        made = hardware_of(measured, device=device, cluster=cluster, name=out.stem if out else "measured")
    if out and of_device:
        write_output(out, cluster_toml(made, measured), "")
        write_output(of_device, device_toml(made, measured), "")
    from optimizer.reports.render.json import json_text

    show(html, as_json, lambda: measured_report(made, measured), lambda: json_text(measured_dict(made, measured)))
