"""What a training framework is to this program: its launches, its logs, and the files that launch a plan with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optimizer.frameworks.config.launch import ConfigLaunch, Values
from optimizer.frameworks.log_line import LogFormat
from optimizer.job.job import Job
from optimizer.job.lengths import ON
from optimizer.job.loss import SFT
from optimizer.job.method import ADAMW, FULL

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.frameworks.config.file import ConfigFile

Export = Callable[["Answer"], str]  # the text of a launch file; InputError for a plan that it cannot say


@dataclass(frozen=True, kw_only=True)
class ConfigFormat:
    """Config files that launch a framework.

    Attributes:
        files: what people call them, such as "MaxText YAML".
        recognised: whether values are of such files.
        read: the launch in files, given the number of GPUs and the model that the user names, if any.
        followed: keys that name a further config file.
    """

    files: tuple[str, ...]
    recognised: Callable[[Values], bool]
    read: Callable[[tuple[ConfigFile, ...], int | None, str], ConfigLaunch]
    followed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExportFiles:
    """What `--export` writes for a target.

    Attributes:
        files: what makes each file, by its name.
        companions: those that launch nothing by themselves: without any other file of the target they are none.
        methods: what they can train, of optimizer.job.method.METHODS.
        optimizers: of optimizer.job.method.optimizers(), with which they can.
        tunes: whether they train models that exist, with any loss and on documents of any length.
        packs: whether they do with the usual loss, on documents that are packed.
    """

    files: Mapping[str, Export]
    companions: tuple[str, ...] = ()
    methods: tuple[str, ...] = (FULL,)
    optimizers: tuple[str, ...] = (ADAMW,)
    tunes: bool = False
    packs: bool = False

    def refusal(self, job: Job) -> str:
        """Why they cannot say what the job trains or how, "" where they can."""
        if job.method.name not in self.methods:
            return f"--train {job.train}: launch files of this kind can only have {', '.join(self.methods)}"
        if job.update_rule.name not in self.optimizers:
            return f"--optimizer {job.optimizer}: launch files of this kind can only have {', '.join(self.optimizers)}"
        if job.training_loss.name != SFT and not self.tunes:
            return f"--loss {job.loss}: launch files of this kind know of no such loss"
        if job.lengths and not (self.tunes or (self.packs and job.packing == ON)):
            return f"--lengths: launch files of this kind know of no {'padded ' * self.packs}documents"
        return ""


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A training framework. What it has not is left out: launches of one may be read, and only logs of another.

    Attributes:
        name: what people call it; a launch that was read bears it.
        stack: the preset of the stack that prices its launches.
        config: its config files.
        log: the lines that it prints.
        targets: launch files of a plan, by the target that they are for.
        only: values that a launch of it can have, by variable of a plan, where these are not all.
        zero_stages: ZeRO stages that it has; those of the stack where none is given.
        settable: what a launch of it can set otherwise besides degrees: "dispatcher", "layers_per_stage", "offload"
            (a share of the optimizer), "bucket" (of gradients).
        graphs: whether it captures CUDA graphs unless a launch switches them off.
        sequence_parallel: whether it splits sequences wherever it splits tensors.
    """

    name: str
    stack: str = ""
    config: ConfigFormat | None = None
    log: LogFormat | None = None
    targets: Mapping[str, ExportFiles] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    zero_stages: tuple[int, ...] = ()
    settable: tuple[str, ...] = ()
    graphs: bool = True
    sequence_parallel: bool = False
