"""The command `optimize`: parse, one call, print. Everything heavy is imported inside the commands."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from optimizer.base.errors import InputError, OptimizerError, shortened
from optimizer.base.interruption import INTERRUPTED, asked
from optimizer.base.names import terminal_text, without_passwords
from optimizer.commands.options import help_text
from optimizer.commands.plan.command import FIRST_OF_PLAN, plan_options, run_plan
from optimizer.job.fields import FIELDS

DEBUG_VARIABLE = "OPTIMIZE_DEBUG"
ALL_OPTIONS = "optimizer.cli.all_options"  # in the meta of a context whose help has them all
USUAL_OPTIONS = {*(field.name for field in FIELDS.values() if field.first), *FIRST_OF_PLAN}
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# Each command's module, which defines it under its own name, and what `optimize --help` says of it.
COMMANDS = {
    "batch": ("optimizer.commands.study.batch", "Plan every combination of a study file."),
    "presets": ("optimizer.commands.presets", "List models, devices, links, clusters and stacks."),
    "prices": ("optimizer.commands.buy.prices", "List the price book: every offer with date and source."),
    "communication": (
        "optimizer.commands.study.communication",
        "What a plan sends over which hops, and what that costs.",
    ),
    "scaling": ("optimizer.commands.study.scaling", "MFU and throughput over GPU counts."),
    "fits": ("optimizer.commands.study.fits", "Which ways of training fit on your cards, by context."),
    "timeline": ("optimizer.commands.study.timeline", "Draw the pipeline schedule of a plan."),
    "pareto": ("optimizer.commands.buy.pareto", "Which machines give the best time, cost and energy."),
    "improve": ("optimizer.commands.launch.improve", "What your launch is worth, and which flags to change."),
    "read": ("optimizer.commands.launch.read", "What a training log says, and why it is slower than its plan."),
    "trial": ("optimizer.commands.launch.trial", "Which plans to try for a few steps, and what their logs decide."),
    "page": ("optimizer.page.command", "Plan and learn in a browser."),
    "measure": ("optimizer.commands.launch.measure", "Measure your own nodes, for a device and a cluster file."),
    "check": ("optimizer.commands.plan.check", "Check an answer: find every value and the bound again."),
    "sensitivity": ("optimizer.commands.plan.sensitivity", "What more of each thing buys, and lost nodes cost."),
    "validate": ("optimizer.commands.study.validate", "Compare predictions with measured runs."),
    "calibrate": ("optimizer.commands.study.calibrate", "Fit a software stack to your measured runs."),
    "calibrate-link": ("optimizer.commands.study.network", "Fit a link to nccl-tests logs, for a cluster file."),
    "topology": ("optimizer.commands.study.network", "Read nvidia-smi topo -m; write a cluster file of it."),
}

VIEWS = ("timeline", "communication", "topology", "sensitivity", "scaling")  # of one plan


class Commands(UserDict[str, click.Command]):
    """The commands by name; the module of one is imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.data:
            self[name] = getattr(import_module(COMMANDS[name][0]), name.replace("-", "_"))
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Optimize(click.Group):
    """The group that turns every failure into one message on stderr and the exit code of optimizer.base.errors."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options; what is wrong with them is reported as all else."""
        with _guarded():
            if any("\0" in word for word in args):  # no shell passes one on
                raise InputError("an argument holds a zero byte; leave it out")
            return super().make_context(info_name, args, parent, **extra)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands and what each is for, those that show more of one plan apart."""
        others = [name for name in self.list_commands(ctx) if name not in VIEWS]
        for heading, names in (("Views of one plan", VIEWS), ("Commands", others)):
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options that people use; under --help-all every one."""
        known = [
            option
            for option in self.get_params(ctx)
            if ALL_OPTIONS in ctx.meta or option.name in USUAL_OPTIONS or option.is_eager
        ]
        with formatter.section("Options"):
            formatter.write_dl([row for option in known if (row := option.get_help_record(ctx))])
        self.format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; for one that is none the error says what to write."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.format_message()}{_meant(args[0])}", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the chosen command; no exception of ours leaves it as a traceback."""
        with _guarded():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _guarded() -> Iterator[None]:
    """Whatever goes wrong becomes one message and an exit code."""
    try:
        yield
    except click.ClickException as error:
        error.message = _shown(error.message)  # type: ignore[misc]
        raise
    except (click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        raise click.exceptions.Exit(asked() or INTERRUPTED) from None
    except BrokenPipeError:
        _no_output()  # the reader has what it wanted, as in `optimize ... | head`
        raise click.exceptions.Exit(0) from None
    except OptimizerError as error:
        _report(str(error))
        raise click.exceptions.Exit(error.exit_code) from None
    except Exception as error:
        if code := asked():  # what was interrupted failed in its own way, as an import of a library does
            raise click.exceptions.Exit(code) from None
        if os.environ.get(DEBUG_VARIABLE):
            raise
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            _no_output()
            _report(f"the output cannot be written: {error.strerror}; make room, or send it elsewhere")
            raise click.exceptions.Exit(InputError.exit_code) from None
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            _report(f"no file or folder can have so long a name: {error.filename}")
            raise click.exceptions.Exit(InputError.exit_code) from None
        _report(
            f"internal error: {type(error).__name__}: {error}\n"
            f"This is a bug. Please report it with the command line and the traceback that "
            f"{DEBUG_VARIABLE}=1 prints."
        )
        raise click.exceptions.Exit(1) from None


def _meant(word: str) -> str:
    """What to write instead of `plan`, or of the name of a model, where a command is expected; "" for other words."""
    from optimizer.catalog.models import known_model

    if word == "plan":
        return " To plan needs none: optimize --model gpt3 --gpus 1024"
    try:
        known_model(word)
    except InputError:
        return ""
    return f" To plan that model: optimize --model {shlex.quote(word)} --gpus 64"


def _no_output() -> None:
    """Let go of what could not be written, of which Python would complain once more on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(message: str) -> None:
    click.echo(f"optimize: {_shown(message)}", err=True)


def _shown(message: str) -> str:
    """A message for a terminal: short, without passwords and control characters."""
    return terminal_text(without_passwords(shortened(message)))


def _show_all(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the help with every option and end."""
    if asked and not ctx.resilient_parsing:
        ctx.meta[ALL_OPTIONS] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the release and end."""
    if asked and not ctx.resilient_parsing:
        from optimizer.base.release import release

        click.echo(f"optimize, version {release()}")
        ctx.exit()


@click.group(
    cls=Optimize,
    commands=Commands(),
    help=help_text("optimize"),
    invoke_without_command=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 answer, 1 bug, 2 bad input, 3 proven infeasible, 4 time limit without an answer.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@plan_options
@click.option(
    "--help-all",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_all,
    help="Show every option and exit.",
)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Plan, unless a subcommand was named."""
    if ctx.invoked_subcommand is None:
        ctx.exit(run_plan(**options))


def main() -> None:
    """Entry point of the command."""
    cli(prog_name="optimize")
