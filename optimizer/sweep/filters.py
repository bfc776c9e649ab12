"""Which results to show: conditions such as model=llama3*, gpus>=1024, mfu>0.4, status=failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from optimizer.base.errors import InputError, nearest
from optimizer.sweep.results import COLUMNS, flat
from optimizer.sweep.study import COMPARISONS

Condition = Callable[[Mapping[str, Any]], bool]
_FORM = re.compile(r"\s*(\w+)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*$")


def condition(text: str, columns: Iterable[str]) -> Condition:
    """The test that a condition stands for; several values after = are alternatives, and each may be a glob.

    Raises InputError for an unknown column or a value that cannot be compared.

    >>> condition("model=llama3*,gpt3", ["model"])({"model": "llama3-8b"})
    True
    """
    match = _FORM.match(text)
    if match is None:
        raise InputError(f"--where {text!r} is not of the form column=value, such as model=llama3* or 'gpus>=1024'")
    column, comparison, wanted = match.groups()
    known = tuple(columns)
    if column not in known:
        close = nearest(column, known)
        hint = f"did you mean {' or '.join(close)}?" if close else f"columns: {', '.join(known)}"
        raise InputError(f"--where {text!r}: unknown column {column!r}; {hint}")
    if comparison in ("=", "!="):
        patterns = [part.strip().lower() for part in wanted.split(",")]
        return lambda record: _is(record[column], patterns) == (comparison == "=")
    try:
        bound = float(wanted.removesuffix("%")) / (100 if wanted.endswith("%") else 1)
    except ValueError as error:
        raise InputError(f"--where {text!r}: {wanted!r} is not a number to compare with") from error
    compare = COMPARISONS[comparison]
    return lambda record: isinstance(record[column], int | float) and compare(record[column], bound)


def chosen(wholes: Iterable[Mapping[str, Any]], conditions: Iterable[str]) -> list[Mapping[str, Any]]:
    """The jobs that satisfy every condition."""
    flattened = [(whole, flat(whole)) for whole in wholes]
    tests = [condition(text, flattened[0][1] if flattened else COLUMNS) for text in conditions]
    return [whole for whole, record in flattened if all(test(record) for test in tests)]


def _is(value: Any, patterns: Iterable[str]) -> bool:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return any(_number(pattern) == value for pattern in patterns)
    text = "" if value is None else str(value).lower()
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
