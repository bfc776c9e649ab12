"""The keys of a study file, for pydantic; imported only when such a file is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, create_model

from optimizer.base.errors import InputError
from optimizer.base.units import LARGEST, amount, parse, whole
from optimizer.catalog.readers.tables import Count, FileTable, Name, Natural, Positive
from optimizer.constraints.pin_text import pin_texts
from optimizer.job.fields import CHOICE, FIELDS, FORMATS, GPUS, JOB, NAME, PINS, SHARE, SIZE, TIME, WHOLE
from optimizer.job.fields import Field as Option
from optimizer.sweep.study import COMPARISONS, Effort

# The axes whose values vary slowest, in their order; the others follow in that of the fields.
_SLOWEST = ("model", "cluster", "device", "gpus", "seq_len", "global_batch", "tokens_per_batch", "dtype", "stack")
_LISTED = {name: field for name, field in FIELDS.items() if field.axis}
_AXES = {name: _LISTED[name] for name in dict.fromkeys((*_SLOWEST, *_LISTED))}
AXES = (*(field for name, field in _AXES.items() if name != "fix"), FIELDS["fix"])
# What people write for the plural keys: the names of the options of `optimize`.
SINGULAR = {field.axis: field.name for field in AXES if field.axis != field.name} | {"gpus": "gpu"}
_RANGE = re.compile(r"\s*(\d[\w,.]*)\s*:\s*(\d[\w,.]*)\s*$")
EXPECTED = 'expected a whole number or a range of doublings such as "64:1024"'
_COMPARISON = re.compile(r"\s*(>=|<=|>|<)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*$")


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
                item = _whole(item, item)
            numbers.append(int(item) if isinstance(item, float) and item.is_integer() else item)
            continue
        low, high = (_whole(text, item) for text in match.groups())
        if not 1 <= low <= high:
            raise ValueError(f"the range {item!r} must go upwards from at least 1")
        numbers += [low << doubling for doubling in range((high // low).bit_length())]
    return numbers


def _whole(text: str, item: str) -> int:
    try:
        return whole(text)
    except InputError:
        raise ValueError(f"{EXPECTED}, but got {item!r}") from None


def budget(value: Any) -> Any:
    """A number of tokens: 15e12 or "15T"."""
    if not isinstance(value, str):
        return value
    try:
        return amount(value)
    except InputError as error:
        raise ValueError(str(error)) from None


def shares(value: Any) -> list[float]:
    """Shares of one: 0.1 or "10%"."""
    parts = []
    for item in listed(value):
        try:
            share = parse(item, "1")
        except (InputError, TypeError, OverflowError) as error:
            raise ValueError(f"{item!r} is not a share; write 0.1 or '10%'") from error
        if isinstance(item, bool) or not 0 < share <= 1:
            raise ValueError(f"a share must be in (0, 1], but got {item!r}")
        parts.append(share)
    return parts


def sizes(value: Any) -> list[float]:
    """Sizes of memory with their unit: "75 GB"; 0 stands for the device's own memory."""
    bounds = []
    for item in listed(value):
        if item == 0 and not isinstance(item, bool | str):
            bounds.append(0.0)
            continue
        if not isinstance(item, str) or item.strip().replace(".", "", 1).isdigit():
            raise ValueError(f"{item!r} has no unit; write '80 GB' or '75 GiB'")
        try:
            size = parse(item, "B")
        except InputError as error:
            raise ValueError(str(error)) from error
        if not (isfinite(size) and size > 0):
            raise ValueError(f"{item!r} is no size above 0")
        bounds.append(size)
    return bounds


def pins(value: Any) -> list[dict[str, Any]]:
    """Sets of pinned variables, one after the other: {tp = 8}, "tp=8,pp=4", "tp=2,4,pp=8", or a list of them."""
    return [_pin_set(item) for item in listed(value)]


def _pin_set(item: Any) -> dict[str, Any]:
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


def conditions(value: Any) -> list[Any]:
    """Numbers to exclude: 4096, or a comparison such as ">= 4096"."""
    for item in listed(value):
        comparison = isinstance(item, str) and _COMPARISON.match(item)
        if not comparison and (isinstance(item, bool) or not isinstance(item, int | float)):
            raise ValueError(f'expected a number or a comparison such as ">= 4096", but got {item!r}')
    return list(listed(value))


def spellings(name: str) -> AliasChoices:
    """A key as files may write it: in the singular where it is a plural, with dashes as well."""
    names = (name, SINGULAR.get(name, name))
    return AliasChoices(*dict.fromkeys((*names, *(key.replace("_", "-") for key in names))))


def holds(value: float, wanted: Iterable[int | float | str]) -> bool:
    """Whether a number is among those meant.

    >>> holds(4096, [64, ">= 1024"]), holds(512, [64, ">= 1024"])
    (True, False)
    """
    for item in wanted:
        match = _COMPARISON.match(item) if isinstance(item, str) else None
        if match is None:
            if value == item:
                return True
        elif COMPARISONS[match[1]](value, float(match[2])):
            return True
    return False


Names = Annotated[
    tuple[Annotated[Name, Field(min_length=1)], ...],
    BeforeValidator(listed),
    Field(min_length=1),
    "a name or a list of names",
]
Counts = Annotated[tuple[Count, ...], BeforeValidator(counts), Field(min_length=1)]
Degrees = Annotated[tuple[Natural, ...], BeforeValidator(counts), Field(min_length=1)]
Shares = Annotated[tuple[float, ...], BeforeValidator(shares), Field(min_length=1)]
Sizes = Annotated[tuple[float, ...], BeforeValidator(sizes), Field(min_length=1)]
Pins = Annotated[tuple[dict[str, Any], ...], BeforeValidator(pins), Field(min_length=1)]
Numbers = Annotated[tuple[Any, ...], BeforeValidator(conditions), Field(min_length=1)]
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
    words = f"one of {', '.join(field.choices)}, or a list of them"
    return Annotated[tuple[literal[field.choices], ...], BeforeValidator(listed), Field(min_length=1), words]


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
    key=lambda field: _TYPES[field.kind] != Names,
)
ExclusionTable = _table(
    "ExclusionTable",
    "Combinations to leave out: those that match every key given.",
    StudyKeys,
    {"scenarios": (Names | None, None)}
    | {field.axis: ((Names if _TYPES[field.kind] == Names else Numbers) | None, None) for field in _EXCLUDED},
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
        **{field.name: _effort(field) for field in FIELDS.values() if field.effort},
    },
)
