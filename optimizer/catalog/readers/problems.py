"""What is wrong with a user's file, in our sentences: where, what is expected there, what was given, what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from optimizer.base.units import HUGE, LARGEST
from optimizer.catalog.readers.text import shown

T = TypeVar("T", bound=BaseModel)


def validated(kind: type[T], data: Mapping[str, Any], problems: list[str], where: str = "") -> T | None:
    """The data as a table of this kind, or None after adding every problem with it to the list.

    `where` is the place of the data in its file. A table that ignores unknown keys still tells those that look like a
    misspelled one that is absent.
    """
    before = len(problems)
    if kind.model_config.get("extra") != "forbid":
        problems += _misspelled(kind, data, where)
    try:
        table = kind.model_validate(data)
    except ValidationError as error:
        problems += dict.fromkeys(_sentence(detail, kind, data, where) for detail in error.errors(include_url=False))
        return None
    return table if len(problems) == before else None


def _sentence(detail: ErrorDetails, kind: type[BaseModel], data: Mapping[str, Any], where: str) -> str:
    """One problem: place, what is expected there, what was given, and the key that was probably meant."""
    steps, table, field = _located(detail["loc"], kind)
    at = where
    for number, step in enumerate(steps):
        if isinstance(step, str):
            at += f"{'.' * bool(at)}{step}"
        elif isinstance(_at(data, steps[:number]), list):  # a lone value is a list of one
            at += f"[{step}]"
    got = detail["input"] if len(steps) == len(detail["loc"]) else _at(data, steps)
    words = next(_words(field), "") if field else ""
    match detail["type"]:
        case "extra_forbidden":
            key = str(steps[-1])
            return f"{at}: {getattr(table, 'advice', {}).get(key) or 'unknown key' + _hint(key, table)}"
        case "missing" if field and isinstance(steps[-1], str):
            first, *others = _names(steps[-1], field)
            siblings = [key for key in _at(data, steps[:-1]) or () if key not in _keys(table)]
            near = difflib.get_close_matches(first, siblings, n=1, cutoff=0.8)
            other = f" (or {', '.join(others)})" if others else ""
            return f"{at}{other}: missing, expected {words}" + (f"; is {near[0]} misspelled?" if near else "")
        case "value_error":
            message = detail["msg"].removeprefix("Value error, ")
            return f"{at}: {message}" if at else message
        case "less_than_equal" if detail["ctx"]["le"] in (LARGEST, HUGE):
            words = f"at most {detail['ctx']['le']}"
        case "finite_number":
            words = "a finite number"
        case "model_type" | "dict_type":
            words = "a table"
    problem = f"expected {words}" if words else f"{detail['msg'][0].lower()}{detail['msg'][1:]}"
    return f"{at}: {problem}, but got {shown(got)}"


def _located(
    steps: tuple[int | str, ...], kind: type[BaseModel]
) -> tuple[tuple[int | str, ...], type[BaseModel], FieldInfo | None]:
    """The place of an error, the table that its last key is in and that key if it is known.

    The place ends before the numbers of items where the words of a key are about the whole list.
    """
    table, inner, field, last = kind, kind, None, 0
    for number, step in enumerate(steps, start=1):
        if isinstance(step, str):
            table, known = inner, _keys(inner).get(step)
            if known:
                field, last, inner = known, number, next(_tables(known.annotation), inner)
    whole = field and field.metadata and not any(_tables(field.annotation))
    if whole and not any(isinstance(step, str) for step in steps[last:]):
        steps = steps[:last]
    return steps, table, field


def _keys(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """Every key of a table in every spelling."""
    return {name: field for own, field in table.model_fields.items() for name in _names(own, field)}


def _names(own: str, field: FieldInfo) -> list[str]:
    """Every spelling of a key."""
    alias = field.validation_alias
    return [str(name) for name in alias.choices] if isinstance(alias, AliasChoices) else [str(alias or own)]


def _tables(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for inner in get_args(hint):
        yield from _tables(inner)


def _words(hint: Any) -> Iterator[str]:
    """What a type says of its values, its own words before those of its parts."""
    if isinstance(hint, FieldInfo):
        yield from (word for word in hint.metadata if isinstance(word, str))
        hint = hint.annotation
    yield from (word for word in getattr(hint, "__metadata__", ()) if isinstance(word, str))
    for inner in get_args(hint):
        yield from _words(inner)
    if any(_tables(hint)):
        yield "a table"


def _at(data: Any, steps: tuple[int | str, ...]) -> Any:
    """The value in this place, None where the file has none."""
    for step in steps:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return None
    return data


def _hint(key: str, table: type[BaseModel]) -> str:
    first = {name: names[0] for names in starmap(_names, table.model_fields.items()) for name in names}
    if key in first:
        return " beside another spelling of it"
    close = list(dict.fromkeys(first[name] for name in difflib.get_close_matches(key.lower(), first)))[:2]
    return f"; did you mean {' or '.join(close)}?" if close else f"; known: {', '.join(dict.fromkeys(first.values()))}"


def _misspelled(kind: type[BaseModel], data: Mapping[str, Any], where: str) -> list[str]:
    """Unknown keys that are almost one with a default that is absent, which would be silently assumed."""
    optional = [_names(own, field) for own, field in kind.model_fields.items() if not field.is_required()]
    absent = [name for names in optional if not data.keys() & names for name in names]
    problems = []
    for key in (key for key in data if key not in _keys(kind)):
        for name in difflib.get_close_matches(key, absent, n=1, cutoff=0.9):
            problems.append(f"{where}{'.' * bool(where)}{key}: unknown key; did you mean {name}?")
    return problems
