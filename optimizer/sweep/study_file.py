"""A study file: its keys for pydantic, read and checked as a whole; imported only when such a file is read."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, create_model

from optimizer import catalog
from optimizer.base.errors import InputError, InvalidFile, nearest
from optimizer.base.units import LARGEST, amount, parse, whole
from optimizer.catalog.places import file_of, spelled
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.tables import Count, FileTable, Name, Natural, Positive
from optimizer.catalog.readers.text import read_toml
from optimizer.constraints.pin_text import Pinned, pin_texts, pinned
from optimizer.job.fields import CHOICE, FIELDS, FORMATS, GPUS, JOB, NAME, PINS, SHARE, SIZE, TIME, WHOLE
from optimizer.job.fields import Field as Option
from optimizer.job.job import DTYPES
from optimizer.sweep.study import AXES, COMPARISON, Axes, Effort, Study

NAMED = ("models", "clusters", "devices", "stacks")
# What people write for the plural keys: the names of the options of `optimize`.
SINGULAR = {field.axis: field.name for field in AXES if field.axis != field.name} | {"gpus": "gpu"}
_RANGE = re.compile(r"\s*(\d[\w,.]*)\s*:\s*(\d[\w,.]*)\s*$")
EXPECTED = 'expected a whole number or a range of doublings such as "64:1024"'


def listed(value: Any) -> Any:
    """A scalar as a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def counts(value: Any) -> list[Any]:
    """Whole numbers, with "64:1024" as every doubling from 64 up to 1,024, and "8k" as 8,192.

    >>> counts([8, "64:256", "8k"])
    [8, 64, 128, 256, 8192]
    """
    numbers: list[Any] = []
    for item in listed(value):
        match = _RANGE.match(item) if isinstance(item, str) else None
        if match is None:
            if isinstance(item, bool):
                raise ValueError(f"{EXPECTED}, but got {item!r}")
            if isinstance(item, str):
                item = _read(whole, item, f"{EXPECTED}, but got {item!r}")
            numbers.append(int(item) if isinstance(item, float) and item.is_integer() else item)
            continue
        low, high = (_read(whole, text, f"{EXPECTED}, but got {item!r}") for text in match.groups())
        if low > high:
            raise ValueError(f"the range {item!r} must go upwards")
        numbers += [low << doubling for doubling in range((high // low).bit_length())]
    return numbers


def _read(read: Callable[[str], Any], text: str, refusal: str = "") -> Any:
    """What a text says; the error is one for pydantic, in its own words or those of the refusal."""
    try:
        return read(text)
    except (InputError, TypeError, OverflowError) as error:
        raise ValueError(refusal or str(error)) from error


def budget(value: Any) -> Any:
    """A number of tokens: 15e12 or "15T"."""
    return _read(amount, value) if isinstance(value, str) else value


def share(item: Any) -> float:
    """A share of one: 0.1 or "10%"."""
    part = float(_read(lambda text: parse(text, "1"), item, f"{item!r} is not a share; write 0.1 or '10%'"))
    if isinstance(item, bool) or not 0 < part <= 1:
        raise ValueError(f"a share must be in (0, 1], but got {item!r}")
    return part


def size(item: Any) -> float:
    """A size of memory with its unit: "75 GB"; 0 stands for the device's own memory."""
    if item == 0 and not isinstance(item, bool | str):
        return 0.0
    if not isinstance(item, str) or item.strip().replace(".", "", 1).isdigit():
        raise ValueError(f"{item!r} has no unit; write '80 GB' or '75 GiB'")
    bound = float(_read(lambda text: parse(text, "B"), item))
    if not (isfinite(bound) and bound > 0):
        raise ValueError(f"{item!r} is no size above 0")
    return bound


def pin_set(item: Any) -> dict[str, Any]:
    """A set of pinned variables: {tp = 8}, "tp=8,pp=4" or "tp=2,4,pp=8"."""
    if isinstance(item, dict):
        if wrong := [f"{name} = {value!r}" for name, value in item.items() if not isinstance(value, int | float | str)]:
            raise ValueError(f'{", ".join(wrong)} is no value; write lists as "tp=2,4"')
        return item
    if not isinstance(item, str):
        raise ValueError(f'expected {{tp = 8}} or "tp=8,pp=4", but got {item!r}')
    parts = pin_texts(item)
    if wrong := [part for part in parts if "=" not in part]:
        raise ValueError(f'{wrong[0]!r} is not of the form variable=value, such as "tp=8"')
    return {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parts)}


def condition(item: Any) -> Any:
    """A number to exclude: 4096, or a comparison such as ">= 4096"."""
    comparison = isinstance(item, str) and COMPARISON.match(item)
    if not comparison and (isinstance(item, bool) or not isinstance(item, int | float)):
        raise ValueError(f'expected a number or a comparison such as ">= 4096", but got {item!r}')
    return item


def spellings(name: str) -> AliasChoices:
    """A key as files may write it: in the singular where it is a plural, with dashes as well."""
    names = (name, SINGULAR.get(name, name))
    return AliasChoices(*dict.fromkeys((*names, *(key.replace("_", "-") for key in names))))


def _items(read: Callable[[Any], Any], value: Any) -> list[Any]:
    return [read(item) for item in listed(value)]


def _several(item: Any, *words: str, read: Callable[[Any], Any] = listed) -> Any:
    """One value of a type or a list of them, none of them empty."""
    several: Any = tuple[item, ...]
    return Annotated[several, BeforeValidator(read), Field(min_length=1), *words]


Names = _several(Annotated[Name, Field(min_length=1)], "a name or a list of names")
Counts = _several(Count, read=counts)
Degrees = _several(Natural, read=counts)
Shares = _several(float, read=partial(_items, share))
Sizes = _several(float, read=partial(_items, size))
Pins = _several(dict[str, Any], read=partial(_items, pin_set))
Numbers = _several(Any, read=partial(_items, condition))
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys((NAME, FORMATS), Names),
    **dict.fromkeys((GPUS, WHOLE), Counts),
    **{SHARE: Shares, SIZE: Sizes, PINS: Pins},
}


def _axis(field: Option) -> tuple[Any, Any]:
    """The type of an axis, and what stands for an axis that is left out: () for what `optimize` assumes."""
    if field.name == "fix":
        return Pins, ({},)
    chosen = field.kind == CHOICE
    kind = Degrees if field.kind == WHOLE and field.default == 0 else _one_of(field) if chosen else _TYPES[field.kind]
    return kind, (field.default,) if (field.limit or chosen) and field.default is not None else ()


def _one_of(field: Option) -> Any:
    literal: Any = Literal
    return _several(literal[field.choices], f"one of {', '.join(field.choices)}, or a list of them")


def _effort(field: Option) -> tuple[Any, Any]:
    """The type and the default of an option that holds for all jobs."""
    high = int(field.high)
    bounded = Annotated[int, Field(strict=True, ge=0, le=high), f"a whole number from 0 to {high:,}"]
    kind: Any = Positive | None if field.kind == TIME else Natural if high == LARGEST else bounded
    return kind, getattr(Effort(), field.name)


class StudyKeys(FileTable):
    """A table of a study, whose keys may be spelled in several ways."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=spellings))


def _table(name: str, doc: str, base: type[StudyKeys], keys: dict[str, Any]) -> type[StudyKeys]:
    return create_model(name, __base__=base, __doc__=doc, **keys)


AxesTable = _table(
    "AxesTable",
    "What to combine: every job is one value of each key; () stands for what `optimize` assumes without the option.",
    StudyKeys,
    {field.axis: _axis(field) for field in AXES},
)
_EXCLUDED = sorted(
    (field for field in AXES if field.group == JOB and not field.limit and field.name != "fix"),
    key=lambda field: _TYPES.get(field.kind, Names) != Names,
)
ExclusionTable = _table(
    "ExclusionTable",
    "Combinations to leave out: those that match every key given.",
    StudyKeys,
    {"scenarios": (Names | None, None)}
    | {
        field.axis: ((Names if _TYPES.get(field.kind, Names) == Names else Numbers) | None, None) for field in _EXCLUDED
    },
)
StudyTable = _table(
    "StudyTable",
    "A study: axes, named scenarios that override some of them, exclusions, and how hard to search.",
    AxesTable,
    {
        "name": (Name | None, None),
        "scenarios": (dict[Name, AxesTable], {}),  # type: ignore[valid-type]
        "exclude": (Annotated[tuple[ExclusionTable, ...], BeforeValidator(listed)], ()),  # type: ignore[valid-type]
        "token_budget": (Annotated[Positive | None, BeforeValidator(budget)], None),
        "prices": (dict[str, Positive], {}),
        "runs": (Name | None, None),
        **{field.name: _effort(field) for field in FIELDS.values() if field.effort},
    },
)


def read_study(path: str | Path) -> Study:
    """The study in a TOML file.

    Raises InvalidFile with every problem of the file, InputError when it cannot be read.
    """
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
        runs=_from_folder(given["runs"], path.parent) if given["runs"] else "",
        prices={device: price / 3600.0 for device, price in given["prices"].items()},
    )


def _from_folder(names: str, folder: Path) -> str:
    """Files with commas between, as seen from the folder of the study."""
    return ",".join(str(folder / name.strip()) for name in names.split(","))


def _axes(table: StudyKeys, folder: Path, where: str, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    """The axes that one table gives, with globs expanded and pins read; what is wrong is added to the problems."""
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
