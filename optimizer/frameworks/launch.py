"""A launch as it was read, in one vocabulary for every framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from optimizer.base.content import content
from optimizer.job.job import Job
from optimizer.job.plan import Plan

LARGEST_COUNT = 10**9  # of anything in a launch: what is more is no count
# The vocabulary, by what a setting is about: what it is called here, and what it says.
GROUPS: Mapping[str, Mapping[str, str]] = content("optimizer.frameworks", "words.toml")
PLAN = GROUPS["plan"]
WORDS: Mapping[str, str] = {name: words for group in GROUPS.values() for name, words in group.items()}
LACKING = "cannot hold its plan (--gpus)"  # how the note ends that more GPUs are taken than a launch says


@dataclass
class Launch:
    """What a launch says, gathered file by file.

    Attributes:
        program: the training software.
        settings: values by name in WORDS.
        written: what the files call each of them.
        assumed: sentences.
        ignored: settings that were seen and mean nothing here, by the name that the file gives them.
        unpriced: settings that may change the price and that nothing here reads, with their values.
        unsearched: settings outside of what is searched, which every edit leaves alone, in words.
        unwritten: flags of edits that the program may not have, so that no patch writes them, in words.
        problems: sentences, for which the launch is refused.
        leaves: every value of the files as it is written, by file and by key or flag.
        machine: how the machine was guessed, for the head of a report; "" where the files or the user name it.
        length: tokens of a sequence where that is a guess, for the head of a report; 0 where they are told.
        guessed_micro_batch: sequences of a micro-batch, likewise.
        vocabulary: tokens of the vocabulary, likewise.
        gpus: devices, likewise.
        undecided: values that only a run would choose, by the variable that has them, likewise.
        family: what the files call accelerators of which they tell no kind, "" for nothing.
        memory_share: share of a device's memory that the program has, 0 for all of it [1].
        following: what the program makes of a plan's settings that no file states, None for nothing.
        drives: the key that puts on drives what else lies in the host's memory, "" where none does.
        fixed: settings that none of these files can state otherwise.
        splits_sequences: whether the program splits sequences wherever it splits tensors.
        lacks: why its program may not have a key that no file gives, "" where it surely has it.
        clashes: why its program refuses values together, by key, "" where it takes them.
    """

    program: str
    settings: dict[str, Any] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unpriced: list[str] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    leaves: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    machine: str = ""
    length: int = 0
    guessed_micro_batch: int = 0
    vocabulary: int = 0
    gpus: int = 0
    undecided: dict[str, str] = field(default_factory=dict)
    family: str = ""
    memory_share: float = 0.0
    drives: str = ""
    following: Callable[[Plan], Mapping[str, Any]] = lambda plan: {}
    fixed: tuple[str, ...] = ()
    splits_sequences: bool = False
    lacks: Callable[[str], str] = lambda key: ""
    clashes: Callable[[Mapping[str, Any]], str] = lambda values: ""

    def say(self, name: str, value: Any, written: str = "") -> None:
        """Note a setting; `written` is how the file calls it."""
        self.settings[name] = value
        if written:
            self.written[name] = written

    def ignore(self, name: str) -> None:
        """Note a setting that means nothing here, once."""
        if name not in self.ignored:
            self.ignored.append(name)

    def unknown_model(self, path: str, name: object) -> None:
        """Note that a key names a model that no preset is."""
        self.unsearched.append(f"{path} {name} is no model that is known (--model)")

    def understood(self) -> dict[str, dict[str, Any]]:
        """Every setting that a file states, by name: its value and what the file calls it."""
        order = [name for name in WORDS if name in self.written]
        return {name: {"value": self.settings[name], "written": self.written[name]} for name in order}


@dataclass(frozen=True, kw_only=True)
class FlagChange:
    """One flag before and after: None where it is not given, "" where it has no value."""

    flag: str
    before: str | None
    after: str | None

    def written(self) -> tuple[str, str]:
        """Both as they stand in a script, "-" for nothing.

        >>> FlagChange(flag="--sequence-parallel", before=None, after="").written()
        ('-', '--sequence-parallel')
        """
        before, after = (
            "-" if value is None else f"{self.flag} {value}".strip() for value in (self.before, self.after)
        )
        return before, after


class Source(Protocol):
    """Launch files that were read."""

    @property
    def launch(self) -> Launch:
        """What they say."""
        ...

    @property
    def leaves(self) -> Mapping[str, Mapping[str, Any]]:
        """Every value of the files as it is written, by file and by key or flag."""
        ...

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> tuple[FlagChange, ...]:
        """What to write otherwise for another plan; `turned` are the software's settings that change."""
        ...

    def lacking(self, changes: Sequence[FlagChange]) -> str:
        """Why changes are told without a patch: flags that the program may not have, or values that it refuses."""
        ...

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        """The files with the changes made, by path, in each way that there is, the most natural first."""
        ...
