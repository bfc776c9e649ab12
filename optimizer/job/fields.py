"""The options of a job and of its search: the command line, defaults, Python, studies and docs are made of them.

An option is a Field of FIELDS. The command line, `defaults.toml` and study files read its text by its kind; a field
with a `limit` sets that field of optimizer.job.job.Limits. docs/how-to-add.md says what else a new one takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.base.content import content
from optimizer.base.units import LARGEST

# Kinds: how a text is read.
NAME = "name"  # of a preset, or a word
GPUS = "gpus"  # a number of GPUs, or the most that may be used: at-most:1000
WHOLE = "whole"  # a whole number from `low` to `high`: 1024, 8k
SHARE = "share"  # a share of one: 10% or 0.1
SIZE = "size"  # a size in memory with its unit: 75GB [B]
TIME = "time"  # a time above zero: 90, 2min [s]
FLEX = "flex"  # how far the batch may move: batch=5%
FORMATS = "formats"  # number formats: bf16, or several: bf16,fp8
PINS = "pins"  # variables of a plan with their values: tp=8,pp=2..8
SETTINGS = "settings"  # fields of model, cluster or stack with their values: layers=4
CHOICE = "choice"  # one of `choices`
SEVERAL = (PINS, SETTINGS)  # are repeated
PLACEHOLDERS: Mapping[str, str] = {
    **{NAME: "NAME", GPUS: "N", WHOLE: "N", SHARE: "SHARE", SIZE: "SIZE", TIME: "S", FLEX: "batch=SHARE"},
    **{FORMATS: "TYPE,...", PINS: "VAR=VALUE", SETTINGS: "FIELD=VALUE"},
}

# Groups: what a field is part of.
JOB = "job"  # what is trained, on what, under which limits
ANSWER = "answer"  # which answer counts as the best
SEARCH = "search"  # how hard the search is; goes with a whole Job too
STUDY = "study"  # an axis of study files alone

FAST, EXPECTED = "fast", "expected"  # values of `prefer`
DEFAULT_CLUSTER = "dgx-h100"
STACKS = "megatron-core; primus-2025 on AMD, maxtext on TPU; hf-2026 for adapters"  # what default_stack chooses
LONGEST_SEARCH = 1e7  # s


@dataclass(frozen=True, kw_only=True)
class Field:
    """One option: `--max-tp` on the command line, `max_tp` in Python, in studies and in the user's defaults."""

    name: str  # in Python
    kind: str = NAME
    group: str = JOB
    help: str = ""  # one sentence
    label: str = ""  # of its control on the page; "" where the page has none
    placeholder: str = ""  # of its value in help, where the kind has another
    default: Any = None  # what holds where nothing is given
    otherwise: str = ""  # what holds then, in words, where `default` does not say it
    low: float = 1  # least value of a whole number
    high: float = LARGEST  # most of it, or of a share
    refusal: str = ""  # rule of its values, for messages of Python; "" makes one of the bounds
    choices: tuple[str, ...] = ()  # of a CHOICE
    limit: str = ""  # field of optimizer.job.job.Limits that it sets, "" for none
    called: str = ""  # what reports call the limit
    notch: str = ""  # what makes the limit one notch wider, such as *2 or +0.05; "" where reports try none
    of: str = ""  # variable of a plan that it bounds
    sets: str = ""  # what functions of the program call it, where that is not its name
    instead: str = ""  # field that says the same another way: of the two the one that is typed counts
    lists: str = ""  # key of study files that lists its values; a limit has its own name there
    listed: str = ""  # what that key lists, where `help` does not say it
    effort: bool = False  # a key of study files for all jobs
    studied: bool = False  # an option of studies of one plan too
    usual: bool = True  # the user's defaults may have it
    first: bool = False  # `optimize --help` has it, not only --help-all

    @property
    def option(self) -> str:
        """The option of the command line.

        >>> FIELDS["max_tp"].option
        '--max-tp'
        """
        return f"--{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str | None:
        """What stands for its value in help; None where its choices do."""
        return self.placeholder or PLACEHOLDERS.get(self.kind)

    @property
    def axis(self) -> str:
        """The key of study files that lists its values, "" for none."""
        return self.lists or (self.name if self.limit else "")

    @property
    def described(self) -> str:
        """Its help, with what holds where nothing is given.

        >>> FIELDS["vocab_padding"].described
        'Most vocabulary padding. [25%]'
        """
        usual = f"{self.default:.0%}" if self.kind == SHARE and self.default else self.default
        shown = self.otherwise or ("" if usual is None or self.kind == SIZE else str(usual))
        return f"{self.help} [{shown}]" if shown else self.help

    @property
    def meaning(self) -> str:
        """What a key of a file means, in a few words."""
        return self.listed or self.help[0].lower() + self.help[1:].rstrip(".")

    def written(self, value: float) -> str:
        """A value for a report.

        >>> FIELDS["bubble_ceiling"].written(0.1), FIELDS["min_cp_tokens"].written(2048)
        ('10%', '2,048')
        """
        return f"{100 * value:.4g}%" if self.kind == SHARE else f"{value:,}"

    def wider(self, value: float) -> float:
        """The limit one notch wider, within its bounds.

        >>> FIELDS["min_cp_tokens"].wider(2048), FIELDS["vocab_padding"].wider(0.75)
        (1024, 1)
        """
        size = float(self.notch[1:])
        wide = value + size if self.notch[0] == "+" else value * size
        return min(self.high, wide) if self.kind == SHARE else max(self.low, int(wide))

    def problem(self, value: Any) -> str:
        """Why a limit cannot have a value, "" where it can.

        >>> FIELDS["max_vpp"].problem(0), FIELDS["bubble_ceiling"].problem(0.1)
        ('max_vpp must be from 1 to 2,147,483,647, but got 0', '')
        """
        if value == self.default or ((value > 0 if self.kind == SHARE else self.low <= value) and value <= self.high):
            return ""
        shown = f"{value:.4g}" if isinstance(value, float) else value
        values = f"above 0 and at most {self.high:,}" if self.kind == SHARE else f"from {self.low:,} to {self.high:,}"
        return f"{self.refusal or f'{self.name} must be {values}'}, but got {shown}"


def _table() -> dict[str, Field]:
    """The options of fields.toml, in its order."""
    rows = content("optimizer.job", "fields.toml")
    minimised = ", ".join(rows["minimize"]["choices"])
    words = {"cluster": DEFAULT_CLUSTER, "stacks": STACKS, "minimised": minimised}
    return {name: Field(name=name, **{key: _value(row[key], words) for key in row}) for name, row in rows.items()}


def _value(value: Any, words: Mapping[str, str]) -> Any:
    """A value of the table, with its blanks filled in; a list as a tuple."""
    if isinstance(value, list):
        return tuple(value)
    return value.format_map(words) if isinstance(value, str) else value


FIELDS: Mapping[str, Field] = _table()
LIMITS: Mapping[str, Field] = {field.limit: field for field in FIELDS.values() if field.limit}


def of_groups(*groups: str) -> tuple[Field, ...]:
    """The fields of some groups, in the order of the table.

    >>> [field.name for field in of_groups(ANSWER)]
    ['flex', 'prefer', 'try_cost', 'minimize']
    """
    return tuple(field for field in FIELDS.values() if field.group in groups)
