"""Values as JSON, the contract with other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

SCHEMA_VERSION = 1


def as_json(value: Any, **keys: str) -> Any:
    """A value as JSON knows it: dataclasses by their fields, tuples as lists, what is not finite as null.

    Args:
        value: Anything of dataclasses, mappings, sequences, numbers and texts.
        keys: The key of a field of the outermost dataclass where it is not the field's name, as it carries its unit;
            "" leaves the field out.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Run:
    ...     time: float
    ...     sizes: tuple[int, ...] = (1, 2)
    >>> as_json(Run(3.0)), as_json(Run(float("inf")), time="time_s", sizes="")
    ({'time': 3.0, 'sizes': [1, 2]}, {'time_s': None})
    """
    if is_dataclass(value):
        named = {field.name: keys.get(field.name, field.name) for field in fields(value)}
        return {key: as_json(getattr(value, name)) for name, key in named.items() if key}
    if isinstance(value, Mapping):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return finite(value)


def finite(value: Any) -> Any:
    """The value, None in the place of a number that is not finite."""
    return None if isinstance(value, float) and not isfinite(value) else value


def json_text(content: Mapping[str, Any]) -> str:
    """A document as strict JSON, indented, with the version of its schema first."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **as_json(content)}, indent=2, allow_nan=False)
