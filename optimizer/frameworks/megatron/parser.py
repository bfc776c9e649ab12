"""Which flags the parser of a script's own Megatron has: its source beside the script, else the month that dates it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from optimizer.base.files import read_bytes
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.frameworks.launch import FlagChange
from optimizer.frameworks.megatron.flag_names import MEGATRON_DEEPSPEED, TABLES

PARSERS = ("megatron/training/arguments.py", "megatron/arguments.py")
# Where newer parsers have the fields that they make flags of.
FIELDS = ("megatron/training/config", "megatron/core/transformer", "megatron/core/model_parallel_config.py")
FIELD = re.compile(r"^    (\w+): ", re.MULTILINE)
ADDED = re.compile(r"['\"](--[\w-]+)['\"]")
OWN_SOURCE = "its own source"
ABOVE = 4  # folders above a script that may be its checkout
LARGEST = 2_000_000  # bytes of a source
RELEASES: Mapping[str, str] = TABLES["releases"]
RELEASE = re.compile(r"core_[rv](\d+\.\d+)|megatron[-_]core[=~><]=v?(\d+\.\d+)", re.IGNORECASE)
IMAGE = re.compile(r"nvcr\.io[/#]nvidia/nemo:(\d\d)\.(\d\d)")
IMAGE_AGE = 2  # months at most from main to an image
# The main line's layers are its own by default, whose attention is unfused, until core 0.6.
# Source: NVIDIA/Megatron-LM, arguments.py of core_v0.5.0 and core_v0.6.0 (--transformer-impl).
ENGINE, OWN_LAYERS = "2024-04", re.compile(r"transformer[-_]impl\W[^)]{0,80}?(default|=)\s*=?\s*['\"]local['\"]")
# Flags that were gone by then: a launch with one of them is of an older Megatron.
# Source: NVIDIA/Megatron-LM, megatron/training/arguments.py of core_v0.5.0; bigcode-project/Megatron-LM, arguments.py.
GONE = ("--data-impl", "--DDP-impl", "--attention-head-type")
FORKED = {"--enable-zero-bubble": "--zero-bubble-max-pending-backward"}


@dataclass(frozen=True, kw_only=True)
class Parser:
    """A Megatron's parser as far as it is known: the flags that it surely has, and how that is known."""

    flags: frozenset[str]
    known_by: str

    def lacks(self, changes: Sequence[FlagChange]) -> tuple[str, ...]:
        """Flags that changes add and that it may not have."""
        added = (one for one in changes if one.before is None and one.after is not None)
        return tuple(dict.fromkeys(one.flag for one in added if one.flag.replace("_", "-") not in self.flags))


def parser_of(names: Sequence[str], program: str, text: str, sources: str = "") -> Parser:
    """The parser of a script.

    Args:
        names: flags of its training command, with dashes.
        program: Megatron-LM or Megatron-DeepSpeed.
        text: the script, which may name a release or an image.
        sources: of its parser, "" where they are not there.

    >>> old = ["--micro-batch-size", "--use-distributed-optimizer", "--attention-head-type"]
    >>> parser_of(old, "Megatron-LM", "").known_by
    '--attention-head-type, which is of 2022-08'
    >>> parser_of(old, "Megatron-LM", "git checkout core_v0.9.0").known_by
    'core_v0.9, which is of 2024-09'
    >>> sorted(parser_of(["--mine"], "Megatron-LM", "", 'group.add_argument("--micro-batch-size")').flags)
    ['--micro-batch-size', '--mine']
    """
    own = {*names, *(FORKED[name] for name in names if name in FORKED)}
    if sources:
        fields = [f"--{field}" for field in FIELD.findall(sources)] if "ArgumentGroupFactory(" in sources else []
        listed = {flag.replace("_", "-") for flag in (*ADDED.findall(sources), *fields)}
        return Parser(flags=frozenset(own | listed), known_by=OWN_SOURCE)
    dated = {name: min(months) for name in names if (months := tuple(filter(None, history(name))))}
    dated |= dict(_named(text))
    newest = max(dated, key=lambda name: dated[name], default="")
    month, column = dated.get(newest, ""), 1 if program == MEGATRON_DEEPSPEED else 0
    flags = {name for name, months in _table().items() if "" < months[column] <= month}
    return Parser(flags=frozenset(flags | own), known_by=f"{newest}, which is of {month}" if newest else "no flag")


def own_layers(text: str, sources: str = "", names: Collection[str] = ()) -> str:
    """How it is known that a script's Megatron has its own layers unless told: a release, its source, or a flag among
    its `names` that newer ones have not; "" if it is not.

    >>> own_layers("git checkout core_v0.5.0"), own_layers("git checkout core_v0.9.0"), own_layers("")
    ('core_v0.5', '', '')
    >>> own_layers("", "add_argument('--transformer-impl', default='local',"), own_layers("", "'--use-flash-attn'")
    ('its own source', 'its own source')
    >>> own_layers("", "", ["--data-impl"]), own_layers("git checkout core_v0.9.0", "", ["--data-impl"])
    ('--data-impl', '')
    """
    if sources:
        old = OWN_LAYERS.search(sources) or not re.search("transformer[-_]impl", sources)
        return OWN_SOURCE if old else ""
    dated = dict(_named(text))
    newest = max(dated, key=lambda name: dated[name], default="")
    if not dated:
        return next((name for name in GONE if name in names), "")
    return newest if dated[newest] < ENGINE else ""


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Releases and images that a script names, with the month from which on each has its flags.

    >>> [name for name, _ in _named("git checkout core_v0.9.0; pip install megatron-core==0.8.0 'megatron-core~=0.1'")]
    ['core_v0.9', 'core_v0.8']
    """
    for match in RELEASE.finditer(text):
        number = match[1] or match[2]
        if number in RELEASES:
            yield f"core_v{number}", RELEASES[number]
    for match in IMAGE.finditer(text):
        months = (2000 + int(match[1])) * 12 + int(match[2]) - 1 - IMAGE_AGE
        yield match[0], f"{months // 12}-{months % 12 + 1:02d}"


def history(flag: str) -> tuple[str, ...]:
    """The months since which Megatron-LM, Megatron-DeepSpeed and their forks have a flag, "" for never.

    >>> history("--recompute-granularity"), history("--own-flag")
    (('2022-05', '2023-07', '2022-07'), ())
    """
    return _table().get(flag, ())


@cache
def _table() -> Mapping[str, tuple[str, ...]]:
    rows = csv_rows(presets_folder() / "launchers" / "megatron-history.csv")
    return {row.pop("name"): tuple(row.values()) for _, row in rows}


def sources_near(script: str, root: str = "") -> str:
    """The sources of the parser in the checkout that a script lies in, or in a root; "" where there are none."""
    folders = [Path(root)] if root else []
    folders += list(Path(script).absolute().parents)[:ABOVE]
    for folder in folders:
        if any((folder / path).is_file() for path in PARSERS):
            fields = (place for path in FIELDS for place in _python(folder / path))
            return "\n".join(map(_text, (*(folder / path for path in PARSERS), *fields)))
    return ""


def _python(place: Path) -> list[Path]:
    return sorted(place.glob("*config.py")) if place.is_dir() else [place]


def _text(place: Path) -> str:
    try:
        return read_bytes(place, LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
