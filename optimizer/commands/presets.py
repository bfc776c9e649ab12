"""`optimize presets`: what is known by name, and where its numbers come from."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from optimizer.commands import options
from optimizer.commands.completion import presets_of
from optimizer.commands.output import print_screen


@click.group(invoke_without_command=True)
@options.as_json("Print the names as JSON.")
@click.pass_context
def presets(ctx: click.Context, as_json: bool) -> None:
    """List the models, devices, links, clusters and stacks that are known by name, yours too.

    Your own are files in the folders models, clusters and stacks of ~/.config/mfu-optimizer/presets,
    or of the folders that $OPTIMIZE_PRESETS names.
    """
    if ctx.invoked_subcommand is not None:
        return
    from optimizer.reports.preset_numbers import own_places, preset_names

    names, own = preset_names(), own_places()
    if as_json:
        click.echo(json.dumps({**names, "own": own} if own else names, indent=2))
        return
    from optimizer.reports.preset_numbers import names_report

    print_screen(names_report(names, own))


@presets.command(short_help="Print each number of one preset with its source.")
@click.argument("name", shell_complete=presets_of("model", "device", "link", "cluster", "stack"))
@options.as_json("Print the numbers as JSON.")
def show(name: str, as_json: bool) -> None:
    """Print each number of one preset with its unit, scope, source, date and grade.

    NAME may be a file, as of --model or --cluster: it is shown as it is read, a model with its parameters.
    """
    from optimizer.reports.preset_numbers import find_preset

    preset = find_preset(name)
    if as_json:
        click.echo(json.dumps(asdict(preset), indent=2))
        return
    from optimizer.reports.preset_numbers import preset_report

    print_screen(preset_report(preset))
