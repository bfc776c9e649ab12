"""The options that several commands have, each declared once: the same name, values, default and words everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from optimizer.commands.completion import presets_of, targets, variables
from optimizer.commands.defaults import Usual
from optimizer.commands.numbers import BATCH, COUNT, SEED, SEQUENCE, TRIALS
from optimizer.commands.output import OutFile
from optimizer.commands.request import DEFAULT_CLUSTER, STACKS
from optimizer.commands.values import Bytes, Fixed, Flex, Share, joined
from optimizer.files import HTML

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

HTML_FILE = OutFile(HTML)
MODEL_NAMES, STACK_NAMES = presets_of("model"), presets_of("stack")
CLUSTER_NAMES, DEVICE_NAMES = presets_of("cluster", "device"), presets_of("device")
MODEL_HELP = "Model preset, or a file that describes one."


def model(**changes: Any) -> Option:
    """`--model`, required or with words of its own where a command needs that."""
    settings = {"metavar": "NAME|FILE", "help": MODEL_HELP, "shell_complete": MODEL_NAMES, **changes}
    return click.option("--model", **settings)


def cluster(**changes: Any) -> Option:
    """`--cluster`."""
    usual = {"default": "", "metavar": "NAME|FILE", "help": f"Cluster preset or file. [{DEFAULT_CLUSTER}]"}
    return click.option("--cluster", **{**usual, "shell_complete": CLUSTER_NAMES, **changes})


def device(**changes: Any) -> Option:
    """`--device`."""
    usual = {"default": "", "metavar": "NAME", "help": "Device preset: picks its default cluster."}
    return click.option("--device", **{**usual, "shell_complete": DEVICE_NAMES, **changes})


def stack(**changes: Any) -> Option:
    """`--stack`."""
    usual = {"default": "", "metavar": "NAME|FILE", "help": f"Training software. [{STACKS}]"}
    return click.option("--stack", **{**usual, "shell_complete": STACK_NAMES, **changes})


def seq_len(**changes: Any) -> Option:
    """`--seq-len`."""
    return click.option("--seq-len", **{"type": SEQUENCE, "metavar": "N", "help": "Tokens per sequence.", **changes})


def global_batch(**changes: Any) -> Option:
    """`--global-batch`."""
    usual = {"type": BATCH, "metavar": "N", "help": "Sequences per optimizer step."}
    return click.option("--global-batch", **{**usual, **changes})


def hbm_limit(**changes: Any) -> Option:
    """`--hbm-limit`."""
    usual = {"type": Bytes(), "default": 0.0, "metavar": "SIZE", "help": "Usable memory per GPU: 75GB, 70GiB."}
    return click.option("--hbm-limit", **{**usual, **changes})


def flex(**changes: Any) -> Option:
    """`--flex`."""
    usual = {"type": Flex(), "metavar": "batch=SHARE", "help": "The batch may move so far: batch=5%."}
    return click.option("--flex", **{**usual, **changes})


def bubble_ceiling(**changes: Any) -> Option:
    """`--bubble-ceiling`."""
    usual = {"type": Share(), "default": 0.10, "metavar": "SHARE", "help": "Largest bubble. [10%]"}
    return click.option("--bubble-ceiling", **{**usual, **changes})


def seed(**changes: Any) -> Option:
    """`--seed`."""
    usual = {"type": SEED, "default": 0, "metavar": "N", "help": "Seed of the search. [0]"}
    return click.option("--seed", **{**usual, **changes})


def fix(**changes: Any) -> Option:
    """`--fix`."""
    usual = {
        "type": Fixed(),
        "callback": joined,
        "multiple": True,
        "metavar": "VAR=VALUE",
        "help": "Pin variables: tp=8, pp=2..8, vpp=1,6, tp=1,pp=1; repeatable.",
        "shell_complete": variables,
    }
    return click.option("--fix", **{**usual, **changes})


def as_json(**changes: Any) -> Option:
    """`--json`."""
    return click.option("--json", "as_json", **{"is_flag": True, "help": "Print JSON.", **changes})


def html(**changes: Any) -> Option:
    """`--html`."""
    usual = {"type": HTML_FILE, "metavar": "FILE", "help": "Write the report there, a page of its own."}
    return click.option("--html", **{**usual, **changes})


def force(**changes: Any) -> Option:
    """`--force`."""
    return click.option("--force", **{"is_flag": True, "help": "Overwrite what is there.", **changes})


GPUS = click.option("--gpus", type=COUNT, metavar="N", help="Number of GPUs.")
GPUS_NEEDED = click.option("--gpus", type=COUNT, required=True, metavar="N", help="Number of GPUs.")
OOM_RISK = click.option("--oom-risk", type=Share(), metavar="SHARE", help="Largest chance not to fit. [10%]", cls=Usual)
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
    "--dtype", default="", metavar="TYPE,...", help="bf16, fp16, fp8, fp4, several or any. [bf16]", cls=Usual
)
DTYPE = click.option("--dtype", default="", metavar="TYPE", help="bf16, fp16, fp8 or fp4. [bf16]", cls=Usual)
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
