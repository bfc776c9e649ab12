"""Model presets by name, and models described by a user's own file.

Each presets/models/<family>.csv has one row a model. Columns are the fields of Model; those of its parts carry the
prefix `experts_`, `mla_`, `window_`, `indexer_`, `recurrence_` or `tower_`. An empty cell takes the field's default.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, InvalidFile, UnknownName, nearest
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.catalog.places import existing, file_of, own_file, own_files, spelling
from optimizer.job.model import Experts, Indexer, LatentAttention, Model, Provenance, SlidingWindow, Tower
from optimizer.job.recurrence import Recurrence

# What a hub's name ends with besides the architecture's: how a model was tuned, when, and how its weights are stored.
ENDING = re.compile(
    r"[-_ ](instruct|base|chat|it|pt|thinking|reasoning|hf|preview|dynamic|unsloth|\d{4}"
    r"|mcore|bnb|fp8|bf16|nvfp4|mxfp4|awq|gptq|gguf|int4|int8|4bit|8bit)$",
    re.IGNORECASE,
)
HUB = re.compile(r"[\w-]+/(?![\w.-]*\.(?:json|toml|csv|txt)$)[\w.-]+")  # owner/model
COPIERS = {"unsloth", "nvidia", "redhatai", "lmstudio-community"}  # who stores others' models under their names
_PARTS: Mapping[str, type] = {
    "experts": Experts,
    "mla": LatentAttention,
    "window": SlidingWindow,
    "indexer": Indexer,
    "recurrence": Recurrence,
    "tower": Tower,
}
# by the annotation of the field: how to read a cell, and what to call a cell that can be read so
_CELLS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "int": (int, "a whole number"),
    "float | None": (float, "a number"),
    "float": (float, "a number"),
    "bool": ({"true": True, "false": False}.__getitem__, "true or false"),
    "str": (str, "text"),
}


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One line of a CSV file, not yet a Model."""

    path: Path
    line: int
    cells: Mapping[str, str]


def load_model(name_or_path: str | Path) -> Model:
    """A preset by name or alias, else the model in a config.json (or its folder) or in a TOML file of Model's fields.

    Case, blanks, "-" and "_" in names do not matter. A preset wins over a file of the same name; write "./gpt3" for
    the file. Raises UnknownName, or InvalidFile with every problem of the file.

    >>> load_model("GPT-3 175B").layers
    96
    """
    if path := file_of(name_or_path):
        # A name as on a hub, owner/model, is no path where nothing lies there.
        if (preset := base_of(str(name_or_path))) and not os.path.exists(path):
            return _preset(preset)
        if HUB.fullmatch(str(name_or_path)) and not os.path.exists(path):
            owner, _, model = str(name_or_path).rpartition("/")
            near = nearest(ENDING.sub("", model), model_names(), 2)
            hint = f"the nearest presets are {' and '.join(near)}; " if near else ""
            raise InputError(
                f"model {owner}/{model} is neither a preset nor a file here: {hint}its config.json does, too "
                "(--model ./config.json)"
            )
        return _read(existing("model", path))
    name = str(name_or_path)
    if spelling(name) not in _index() and not own_file("model", name) and name and os.path.exists(name):
        return _read(Path(name))
    return known_model(name)


def known_model(name: str) -> Model:
    """The user's own or the shipped preset of this name; no other file is opened. Raises UnknownName."""
    path = own_file("model", name)
    return replace(_read(path), name=path.stem) if path else preset_model(name)


def preset_model(name: str) -> Model:
    """The shipped preset of this name or alias; no file of a user is opened. Raises UnknownName."""
    preset = base_of(name)
    if not preset:
        raise UnknownName("model", name, (*own_files("model"), *model_names(), *_aliases()))
    return _preset(preset)


def base_of(name: str) -> str:
    """The preset that a name means: its own, an alias, or a hub's name of a model tuned or stored otherwise.

    Endings such as -Instruct, -2507, -FP8 and -bnb-4bit say what a model was taught or how its weights are stored; its
    architecture is that of the base. "" where no preset is meant.

    >>> base_of("unsloth/Qwen3-14B-bnb-4bit"), base_of("Qwen/Qwen3-4B-Instruct-2507"), base_of("no-model-FP8")
    ('qwen3-14b', 'qwen3-4b', '')
    """
    owners = _owners()
    while True:
        owner, slash, model = name.rpartition("/")
        for candidate in (name, model if slash and owner.lower() in owners else name):
            if preset := _index().get(spelling(candidate)):
                return preset
        shorter = ENDING.sub("", name)
        if shorter == name:
            return ""
        name = shorter


@cache
def _owners() -> frozenset[str]:
    """Who has models on the hub that presets are of, or copies of them."""
    return frozenset(alias.partition("/")[0].lower() for alias in _aliases() if "/" in alias) | COPIERS


def model_names() -> tuple[str, ...]:
    """Names of all model presets, by family, without aliases."""
    return tuple(_rows())


def model_spellings() -> Mapping[str, str]:
    """Every name, alias and title of the presets, each with the name of its preset."""
    titles = {row.cells["title"]: name for name, row in _rows().items() if row.cells.get("title")}
    return {**titles, **_aliases(), **{name: name for name in _rows()}}


def _read(path: Path) -> Model:
    if path.suffix == ".toml":
        from optimizer.catalog.readers.model_file import read_model_file

        return read_model_file(path)
    from optimizer.catalog.readers.huggingface import read_config

    return read_config(path)


def _rows_in(folder: Path) -> Mapping[str, _Row]:
    paths = sorted(folder.glob("*.csv"))
    rows = (_Row(path=path, line=line, cells=cells) for path in paths for line, cells in csv_rows(path))
    return {row.cells["name"]: row for row in rows}


@cache
def _rows() -> Mapping[str, _Row]:
    return _rows_in(presets_folder() / "models")


@cache
def _aliases() -> Mapping[str, str]:
    return {alias: name for name, row in _rows().items() for alias in row.cells.get("aliases", "").split()}


@cache
def _index() -> Mapping[str, str]:
    return {spelling(name): preset for name, preset in _aliases().items()} | {spelling(name): name for name in _rows()}


@cache
def _preset(name: str) -> Model:
    return _model(_rows()[name])


def _model(row: _Row) -> Model:
    """The Model of one row; raises InvalidFile with every problem of the row."""
    cells = {column: cell for column, cell in row.cells.items() if cell and column != "aliases"}
    problems: list[str] = []
    parts = {
        part: _fields(kind, f"{part}_", cells, problems)
        for part, kind in _PARTS.items()
        if any(column.startswith(f"{part}_") for column in cells)
    }
    provenance = _fields(Provenance, "", cells, problems)
    values = {"family": row.path.stem} | _fields(Model, "", cells, problems)
    known = [field.name for field in fields(Model)]
    problems += [f"unknown column {left!r}; nearest: {', '.join(nearest(left, known)) or 'none'}" for left in cells]
    if problems:
        raise InvalidFile(row.path, [f"line {row.line} ({row.cells['name']}): {problem}" for problem in problems])
    built: dict[str, Any] = {part: _PARTS[part](**chosen) for part, chosen in parts.items()}
    return Model(**values, **built, provenance=Provenance(**provenance))


def _fields(kind: type, prefix: str, cells: dict[str, str], problems: list[str]) -> dict[str, Any]:
    """Takes the fields of one dataclass out of the cells; adds what is wrong with them to the problems."""
    values: dict[str, Any] = {}
    for name, required, read, meaning in _columns(kind):
        column = prefix + name
        if column in cells:
            cell = cells.pop(column)
            try:
                values[name] = read(cell)
            except (ValueError, KeyError):
                problems.append(f"{column}: expected {meaning}, got {cell!r}")
        elif required:
            problems.append(f"{column}: missing, expected {meaning}")
    return values


@cache
def _columns(kind: type) -> tuple[tuple[str, bool, Callable[[str], object], str], ...]:
    """Name, whether it must be there, reader and meaning of each field of a dataclass that one cell can hold."""
    plain = (field for field in fields(kind) if field.type in _CELLS)
    return tuple((field.name, field.default is MISSING, *_CELLS[str(field.type)]) for field in plain)
