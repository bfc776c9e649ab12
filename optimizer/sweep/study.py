"""A study file, read and checked as a whole; `optimize batch --help` lists its keys."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import ge, gt, le, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError, InvalidFile, nearest
from optimizer.catalog.readers.text import read_toml
from optimizer.constraints.pin_text import Pinned, pinned
from optimizer.job.fields import FIELDS

if TYPE_CHECKING:
    from optimizer.sweep.schema import StudyKeys

Axes = Mapping[str, tuple[Any, ...]]  # the values of each key of a study
NAMED = ("models", "clusters", "devices", "stacks")
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard to search each job: the options of `optimize`, and but for runners-up its defaults."""

    top: int = 0  # runners-up to keep
    trials: int = FIELDS["trials"].default  # on the knobs
    time_limit: float | None = FIELDS["time_limit"].default  # for each job [s]
    seed: int = FIELDS["seed"].default  # of the search


@dataclass(frozen=True, kw_only=True)
class Study:
    """A checked study."""

    name: str
    path: Path  # of its file
    scenarios: Mapping[str, Axes]  # axes by the name of the scenario, "" where there is one alone
    exclude: tuple[Axes, ...] = ()  # jobs that match every key of one of these are left out
    effort: Effort = Effort()
    token_budget: float = 0.0  # of the whole run, for reports [tokens]
    prices: Mapping[str, float] = field(default_factory=dict)  # of a GPU by device, for reports [USD/s]


def read_study(path: str | Path) -> Study:
    """The study in a TOML file.

    Raises InvalidFile with every problem of the file, InputError when it cannot be read.
    """
    from optimizer.catalog.readers.problems import validated
    from optimizer.sweep.schema import AXES, SINGULAR, StudyTable

    path, problems = Path(path), list[str]()
    raw = read_toml(path, "`optimize batch --help` shows what to write in a study file")
    table = validated(StudyTable, raw, problems)
    if table is None:
        named = {kind: raw.get(kind, raw.get(SINGULAR[kind], [])) for kind in NAMED}
        raise InvalidFile(path, problems + _unknown_names(named, path.parent))
    given = {key: getattr(table, key) for key in (*StudyTable.model_fields, *Effort.__dataclass_fields__)}
    base, usual = _axes(table, path.parent, "", problems), {axis.axis: given[axis.axis] for axis in AXES}
    scenarios = {
        name: {**usual, **_merged(base, _axes(scenario, path.parent, f"scenarios.{name}.", problems))}
        for name, scenario in given["scenarios"].items()
    } or {"": {**usual, **base}}
    for name, axes in scenarios.items():
        problems += _incomplete(axes, f"scenarios.{name}: " if name else "")
    exclude = tuple(exclusion.model_dump(exclude_none=True) for exclusion in given["exclude"])
    problems += _unknown_scenarios(exclude, scenarios)
    if problems:
        raise InvalidFile(path, list(dict.fromkeys(problems)))
    return Study(
        name=given["name"] or path.stem,
        path=path,
        scenarios=scenarios,
        exclude=exclude,
        effort=Effort(**{key: given[key] for key in Effort.__dataclass_fields__}),
        token_budget=given["token_budget"] or 0.0,
        prices={device: price / 3600.0 for device, price in given["prices"].items()},
    )


def _axes(table: StudyKeys, folder: Path, where: str, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    """The axes that one table gives, with globs expanded and pins read; what is wrong is added to the problems."""
    from optimizer.sweep.schema import AXES

    axes = {}
    for key in (axis.axis for axis in AXES if axis.axis in table.model_fields_set):
        values = getattr(table, key)
        if key in NAMED:
            values = expanded(key, values, folder, where, problems)
        elif key == "dtypes":
            values = _dtypes(values, where, problems)
        elif key == "fix":
            values = tuple(_pinned(chosen, where, problems) for chosen in values)
        axes[key] = values
    return axes


def _merged(base: Axes, own: Axes) -> Axes:
    """A scenario: its own keys over those of the study; naming devices replaces clusters, and the other way."""
    dropped: dict[str, tuple[Any, ...]] = {}
    for either, other in (("clusters", "devices"), ("global_batches", "tokens_per_batch")):
        if (either in own) != (other in own):
            dropped |= {either: (), other: ()}
    return {**base, **dropped, **own}


def _incomplete(axes: Axes, where: str) -> list[str]:
    problems = [f"{where}{key}: missing" for key in ("models", "gpus") if not axes[key]]
    for one, other in (("clusters", "devices"), ("global_batches", "tokens_per_batch")):
        if axes[one] and axes[other]:
            problems.append(f"{where}{one}: give {one} or {other}, not both")
    return problems


def _dtypes(names: Iterable[str], where: str, problems: list[str]) -> tuple[str, ...]:
    from optimizer.job.job import DTYPES

    for name in names:
        if name.lower() not in DTYPES:
            problems.append(f"{where}dtypes: unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return tuple(name.lower() for name in names)


def _pinned(chosen: Mapping[str, int | str | bool], where: str, problems: list[str]) -> Mapping[str, Pinned]:
    pins: dict[str, Pinned] = {}
    for name, value in chosen.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            key, read = pinned(name, text)
            pins[key] = read
        except InputError as error:
            problems.append(f"{where}fix: {error}")
    return pins


def _unknown_scenarios(exclusions: Iterable[Axes], scenarios: Mapping[str, Axes]) -> list[str]:
    problems = []
    for number, exclusion in enumerate(exclusions):
        for name in exclusion.get("scenarios", ()):
            if not any(fnmatchcase(scenario, name) for scenario in scenarios):
                hint = f"; known: {', '.join(filter(None, scenarios))}" if any(scenarios) else "; the study has none"
                problems.append(f"exclude[{number}].scenarios: no scenario {name!r}{hint}")
    return problems


def expanded(kind: str, names: Iterable[str], folder: Path, where: str, problems: list[str]) -> tuple[str, ...]:
    """Preset names that the patterns stand for; a path is taken from the folder of the study."""
    names_meant: dict[str, None] = {}
    for name in names:
        try:
            names_meant.update(dict.fromkeys(meant(kind, name, folder)))
        except InputError as error:
            problems.append(f"{where}{kind}: {error}")
    return tuple(names_meant)


def meant(kind: str, name: str, folder: Path) -> Sequence[str]:
    """What one name or glob stands for; raises InputError when it stands for nothing."""
    from optimizer import catalog
    from optimizer.catalog.places import file_of, spelled

    load = catalog.KINDS[kind.removesuffix("s")][1]
    known = catalog.names_of(kind.removesuffix("s"))
    if path := file_of(name, folder):
        if not os.path.exists(path):
            raise InputError(f"no such file {str(path)!r}; paths start at the folder of the study")
        load(spelled(path))
        return [spelled(path)]
    if any(character in name for character in "*?["):
        matching = [preset for preset in known if fnmatchcase(preset, name.lower())]
        if not matching:
            close = nearest(name.strip("*?"), known)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise InputError(f"no preset matches {name!r}{hint}")
        return matching
    return [str(load(name).name)]


def _unknown_names(raw: Mapping[str, Any], folder: Path) -> list[str]:
    """Names without a preset in a file that has other problems too, so that all are reported at once."""
    problems: list[str] = []
    for kind in NAMED:
        value = raw.get(kind, [])
        names = [name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str) and name]
        expanded(kind, names, folder, "", problems)
    return problems
