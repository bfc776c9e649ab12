"""A study file, read and checked as a whole; `optimize batch --help` lists its keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.readers.text import read_toml
from optimizer.constraints.pin_text import Pinned, pinned
from optimizer.sweep.names import NAMED, expanded, unknown_names

if TYPE_CHECKING:
    from optimizer.sweep.schema import AxesTable, ExclusionTable


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard to search each job: the options of `optimize`, and but for runners-up its defaults."""

    top: int = 0
    trials: int = 8
    time_limit: float | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Study:
    """A checked study. `token_budget` [tokens] and `prices` [USD/s per GPU, by device] only enter the reports."""

    name: str
    path: Path
    scenarios: Mapping[str, AxesTable]
    exclude: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    effort: Effort = Effort()
    token_budget: float = 0.0
    prices: Mapping[str, float] = field(default_factory=dict)


def read_study(path: str | Path) -> Study:
    """The study in a TOML file.

    Raises InvalidFile with every problem of the file, InputError when it cannot be read.
    """
    from optimizer.catalog.readers.problems import validated
    from optimizer.sweep.schema import SINGULAR, StudyTable

    path, problems = Path(path), list[str]()
    raw = read_toml(path, "`optimize batch --help` shows what to write in a study file")
    table = validated(StudyTable, raw, problems)
    if table is None:
        named = {kind: raw.get(kind, raw.get(SINGULAR[kind], [])) for kind in NAMED}
        raise InvalidFile(path, problems + unknown_names(named, path.parent))
    base = _axes(table, path.parent, "", problems)
    scenarios = {
        name: _merged(base, _axes(scenario, path.parent, f"scenarios.{name}.", problems))
        for name, scenario in table.scenarios.items()
    } or {"": base}
    for name, axes in scenarios.items():
        problems += _incomplete(axes, f"scenarios.{name}: " if name else "")
    problems += _unknown_scenarios(table.exclude, scenarios)
    if problems:
        raise InvalidFile(path, list(dict.fromkeys(problems)))
    given = {
        key: value for key in ("top", "trials", "time_limit", "seed") if (value := getattr(table, key)) is not None
    }
    return Study(
        name=table.name or path.stem,
        path=path,
        scenarios=scenarios,
        exclude=tuple(exclusion.model_dump(exclude_none=True) for exclusion in table.exclude),
        effort=replace(Effort(), **given),
        token_budget=table.token_budget or 0.0,
        prices={device: price / 3600.0 for device, price in table.prices.items()},
    )


def _axes(table: AxesTable, folder: Path, where: str, problems: list[str]) -> AxesTable:
    """The axes of one table, with globs expanded and pins read; what is wrong is added to the problems."""
    given: dict[str, Any] = {
        kind: expanded(kind, getattr(table, kind), folder, where, problems)
        for kind in NAMED
        if kind in table.model_fields_set
    }
    given["dtypes"] = _dtypes(table.dtypes, where, problems)
    given["fix"] = tuple(_pinned(chosen, where, problems) for chosen in table.fix)
    return table.model_copy(update={key: value for key, value in given.items() if key in table.model_fields_set})


def _merged(base: AxesTable, own: AxesTable) -> AxesTable:
    """A scenario: its own keys over those of the study; naming devices replaces clusters, and the other way."""
    given = {key: getattr(own, key) for key in own.model_fields_set}
    for either, other in (("clusters", "devices"), ("global_batches", "tokens_per_batch")):
        if (either in given) != (other in given):
            given.setdefault(either, ())
            given.setdefault(other, ())
    return base.model_copy(update=given)


def _incomplete(axes: AxesTable, where: str) -> list[str]:
    problems = [f"{where}{key}: missing" for key in ("models", "gpus") if not getattr(axes, key)]
    for one, other in (("clusters", "devices"), ("global_batches", "tokens_per_batch")):
        if getattr(axes, one) and getattr(axes, other):
            problems.append(f"{where}{one}: give {one} or {other}, not both")
    return problems


def _dtypes(names: Iterable[str], where: str, problems: list[str]) -> tuple[str, ...]:
    from optimizer.job.job import DTYPES

    for name in names:
        if name.lower() not in DTYPES:
            problems.append(f"{where}dtypes: unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return tuple(name.lower() for name in names)


def _pinned(chosen: Mapping[str, int | str | bool], where: str, problems: list[str]) -> Mapping[str, Pinned]:
    found: dict[str, Pinned] = {}
    for name, value in chosen.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            key, read = pinned(name, text)
            found[key] = read
        except InputError as error:
            problems.append(f"{where}fix: {error}")
    return found


def _unknown_scenarios(exclusions: Iterable[ExclusionTable], scenarios: Mapping[str, AxesTable]) -> list[str]:
    problems = []
    for number, exclusion in enumerate(exclusions):
        for name in exclusion.scenarios or ():
            if not any(fnmatchcase(scenario, name) for scenario in scenarios):
                hint = f"; known: {', '.join(filter(None, scenarios))}" if any(scenarios) else "; the study has none"
                problems.append(f"exclude[{number}].scenarios: no scenario {name!r}{hint}")
    return problems
