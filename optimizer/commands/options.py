"""The options that several commands have, each declared once: the same name, values, default and words everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from optimizer.base.files import HTML
from optimizer.commands.completion import presets_of, targets, variables
from optimizer.commands.defaults import Usual
from optimizer.commands.numbers import BATCH, COUNT, SEED, SEQUENCE, TRIALS
from optimizer.commands.output import OutFile
from optimizer.commands.request import DEFAULT_CLUSTER, STACKS
from optimizer.commands.values import Bytes, Fixed, Flex, Formats, Share, joined
from optimizer.objectives.minimised.registry import NAMES

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

MODEL_NAMES, STACK_NAMES = presets_of("model"), presets_of("stack")
CLUSTER_NAMES, DEVICE_NAMES = presets_of("cluster", "device"), presets_of("device")


def shared(*names: str, **usual: Any) -> Callable[..., Option]:
    """An option of several commands: what declares it, with settings of its own where a command needs that.

    >>> quiet = shared("--quiet", is_flag=True, help="Say nothing.")
    >>> click.command(quiet(help="Say less.")(lambda: None)).params[0].help
    'Say less.'
    """

    def option(**changes: Any) -> Option:
        return click.option(*names, **{**usual, **changes})

    return option


model = shared(
    "--model", metavar="NAME|FILE", help="Model preset, or a file that describes one.", shell_complete=MODEL_NAMES
)
gpus = shared("--gpus", type=COUNT, metavar="N", help="Number of GPUs.")
cluster = shared(
    "--cluster",
    default="",
    metavar="NAME|FILE",
    help=f"Cluster preset or file. [{DEFAULT_CLUSTER}]",
    shell_complete=CLUSTER_NAMES,
)
device = shared(
    "--device",
    default="",
    metavar="NAME",
    help="Device preset: picks its default cluster.",
    shell_complete=DEVICE_NAMES,
)
stack = shared(
    "--stack", default="", metavar="NAME|FILE", help=f"Training software. [{STACKS}]", shell_complete=STACK_NAMES
)
seq_len = shared("--seq-len", type=SEQUENCE, metavar="N", help="Tokens per sequence.")
global_batch = shared("--global-batch", type=BATCH, metavar="N", help="Sequences per optimizer step.")
hbm_limit = shared("--hbm-limit", type=Bytes(), default=0.0, metavar="SIZE", help="Usable memory per GPU: 75GB, 70GiB.")
flex = shared("--flex", type=Flex(), metavar="batch=SHARE", help="The batch may move so far: batch=5%.")
bubble_ceiling = shared("--bubble-ceiling", type=Share(), default=0.10, metavar="SHARE", help="Largest bubble. [10%]")
seed = shared("--seed", type=SEED, default=0, metavar="N", help="Seed of the search. [0]")
fix = shared(
    "--fix",
    type=Fixed(),
    callback=joined,
    multiple=True,
    metavar="VAR=VALUE",
    help="Pin variables: tp=8, pp=2..8, vpp=1,6, tp=1,pp=1; repeatable.",
    shell_complete=variables,
)
as_json = shared("--json", "as_json", is_flag=True, help="Print JSON.")
html = shared("--html", type=OutFile(HTML), metavar="FILE", help="Write the report there, a page of its own.")
force = shared("--force", is_flag=True, help="Overwrite what is there.")
OOM_RISK = click.option("--oom-risk", type=Share(), metavar="SHARE", help="Largest chance not to fit. [10%]", cls=Usual)
MINIMIZE = click.option(
    "--minimize",
    type=click.Choice(NAMES),
    default=NAMES[0],
    metavar="WHAT",
    help=f"What a step takes least of: {', '.join(NAMES)}. [{NAMES[0]}]",
    cls=Usual,
)
ROUTING = click.option(
    "--routing", default="", metavar="HOW", help="Of tokens: forced, trained, fresh, or a factor.", cls=Usual
)
SETTINGS = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field of model, cluster or stack: layers=4; repeatable.",
    cls=Usual,
)
TARGET = click.option(
    "--target",
    default="",
    metavar="NAME",
    help="Launcher of the plan, or any. [the stack's own]",
    shell_complete=targets,
    cls=Usual,
)
DTYPES = click.option(
    "--dtype",
    type=Formats(several=True),
    default="",
    metavar="TYPE,...",
    help="bf16, fp16, fp8, fp4, several or any. [bf16]",
    cls=Usual,
)
DTYPE = click.option(
    "--dtype", type=Formats(), default="", metavar="TYPE", help="bf16, fp16, fp8 or fp4. [bf16]", cls=Usual
)
TRIALS_OPTION = click.option(
    "--trials", type=TRIALS, default=8, metavar="N", help="Trials on the knobs. [8]", cls=Usual
)
WIDEST = (
    click.option("--max-tp", type=COUNT, metavar="N", help="Largest tp. [the scale-up domain]", cls=Usual),
    click.option("--max-micro-batch", type=COUNT, default=16, metavar="N", help="Largest micro-batch. [16]", cls=Usual),
    click.option(
        "--max-vpp", type=COUNT, default=16, metavar="N", help="Most virtual stages per stage. [16]", cls=Usual
    ),
    click.option(
        "--min-cp-tokens", type=COUNT, default=2048, metavar="N", help="Fewest tokens per cp rank. [2048]", cls=Usual
    ),
    click.option(
        "--vocab-padding", type=Share(), default=0.25, metavar="SHARE", help="Most vocabulary padding. [25%]", cls=Usual
    ),
)
WHERE = (cluster(cls=Usual), device(cls=Usual), stack(cls=Usual))
SIZES = (seq_len(cls=Usual), global_batch(cls=Usual))
CHOICES = (fix(cls=Usual), ROUTING, SETTINGS)
# A job of one plan, and a job with every limit.
STUDIED = (*WHERE, *SIZES, DTYPE, hbm_limit(cls=Usual), OOM_RISK, *CHOICES)
PLANNED = (
    *(*WHERE, TARGET, *SIZES, DTYPES, bubble_ceiling(cls=Usual), hbm_limit(cls=Usual), OOM_RISK),
    *(*WIDEST, *CHOICES),
)


def given(command: Command, options: Iterable[Option]) -> Command:
    """A command with these options, in their order."""
    for option in reversed(tuple(options)):
        command = option(command)
    return command
