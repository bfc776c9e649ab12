"""The keys a configuration file may have: their types and defaults, and every problem of a file at once."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from optimizer.errors import InvalidFile
from optimizer.readers.text import read_text

REQUIRED: Final = object()
_MEANING = {
    "count": "a whole number above 0",
    "number": "a whole number, 0 or more",
    "real": "a number above 0",
    "flag": "true or false",
    "text": "text",
    "numbers": "a list of whole numbers",
    "texts": "a list of texts",
}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key: `kind` is one of those in _MEANING, `names` its other spellings, a default of None allows null."""

    kind: str
    default: object = REQUIRED
    names: tuple[str, ...] = ()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises InvalidFile with line and column of a syntax error."""
    text = _text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidFile(path, [f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}"]) from None
    if not isinstance(data, dict):
        raise InvalidFile(path, [f"expected an object with named values, got {_shown(data)}"])
    return data


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; raises InvalidFile with line and column of a syntax error."""
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(path, [f"not TOML: {error}"]) from None


def values(
    path: Path, data: Mapping[str, Any], keys: Mapping[str, Key], *, where: str = "", strict: bool = False
) -> dict[str, Any]:
    """Values of the keys, defaults filled in; nested tables have dotted names.

    Without `strict`, keys that are not listed are ignored unless they look like a misspelled one that is absent.
    `where` names the part of the file in messages. Raises InvalidFile with all problems.
    """
    flat = flatten(data)
    found, problems = _validate(flat, keys, where)
    problems += _unknown(flat, keys, where, strict)
    if problems:
        raise InvalidFile(path, problems)
    return found


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one level with dotted names.

    >>> flatten({"layers": 2, "experts": {"count": 8}})
    {'layers': 2, 'experts.count': 8}
    """
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise InvalidFile(path, [f"byte {error.start}: not UTF-8 text"]) from None
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}"]) from None


def _validate(flat: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> tuple[dict[str, Any], list[str]]:
    from pydantic import AliasChoices, ConfigDict, Field, ValidationError, create_model

    types = _types()
    names = {f"key_{number}": name for number, name in enumerate(keys)}
    schema: dict[str, Any] = {}
    for field, name in names.items():
        key = keys[name]
        kind = types[key.kind] | None if key.default is None else types[key.kind]
        alias = AliasChoices(name, *key.names)
        default = ... if key.default is REQUIRED else key.default
        schema[field] = (kind, Field(default, validation_alias=alias))
    model = create_model("File", __config__=ConfigDict(strict=True, loc_by_alias=False), **schema)
    try:
        built = model.model_validate(dict(flat))
    except ValidationError as error:
        wrong = {str(problem["loc"][0]): problem for problem in error.errors()}
        return {}, [_problem(names[field], keys, problem, flat, where) for field, problem in wrong.items()]
    return {name: getattr(built, field) for field, name in names.items()}, []


def _types() -> dict[str, Any]:
    from typing import Annotated

    from pydantic import Field

    positive, natural = Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]
    return {
        "count": positive,
        "number": natural,
        "real": Annotated[float, Field(gt=0)],
        "flag": bool,
        "text": str,
        "numbers": list[int],
        "texts": list[str],
    }


def _problem(name: str, keys: Mapping[str, Key], problem: Any, flat: Mapping[str, Any], where: str) -> str:
    meaning = _MEANING[keys[name].kind]
    if problem["type"] != "missing":
        spelled = next(spelling for spelling in (name, *keys[name].names) if spelling in flat)
        return f"{where}{spelled}: expected {meaning}, got {_shown(flat[spelled])}"
    other = f" (or {', '.join(keys[name].names)})" if keys[name].names else ""
    near = difflib.get_close_matches(name, flat, n=1, cutoff=0.8)
    hint = f"; is {near[0]!r} misspelled?" if near and near[0] not in keys else ""
    return f"{where}{name}{other}: missing, expected {meaning}{hint}"


def _unknown(flat: Mapping[str, Any], keys: Mapping[str, Key], where: str, strict: bool) -> list[str]:
    known = {spelling: name for name, key in keys.items() for spelling in (name, *key.names)}
    absent = [name for name, key in keys.items() if not {name, *key.names} & flat.keys()]
    optional = [name for name in absent if keys[name].default is not REQUIRED]
    problems = []
    for name in flat:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known if strict else optional, n=1, cutoff=0.5 if strict else 0.9)
        if strict or near:
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(keys)}"
            problems.append(f"{where}{name}: unknown key{hint}")
    return problems


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
