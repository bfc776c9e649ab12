"""Stack presets: one TOML file each in presets/stacks, written by `optimize calibrate`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.errors import InvalidFile, UnknownName, nearest
from optimizer.model import Provenance
from optimizer.presets.files import presets_folder
from optimizer.readers.text import read_text
from optimizer.recomputation import MODULES
from optimizer.stack import ATTENTION, DISPATCHERS, FEATURES, PARAMETERS, SELECTIVE, Features, Fixed, Stack

DEFAULT_STACK = "megatron-core"
WORDS = {"attention": ATTENTION, "dispatcher": DISPATCHERS, "selective": SELECTIVE}
WANTED = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "tuple": "a list"}
TABLES = ("parameters", "fixed", "features", "intervals", "ranges", "residuals", "provenance")


def stack_names() -> tuple[str, ...]:
    """Names of all stack presets, sorted."""
    return tuple(sorted(path.stem for path in (presets_folder() / "stacks").glob("*.toml")))


def load_stack(name: str) -> Stack:
    """A stack preset by name, or a stack file by path.

    Raises UnknownName for a name that is neither, InvalidFile for a file with unknown or impossible values.
    """
    path = Path(name)
    if path.suffix == ".toml":
        return read_stack(path)
    if name not in stack_names():
        raise UnknownName("stack", name, stack_names())
    return _preset(name)


@cache
def _preset(name: str) -> Stack:
    return read_stack(presets_folder() / "stacks" / f"{name}.toml")


def read_stack(path: Path) -> Stack:
    """Read and check one stack file; every problem is reported at once."""
    try:
        data = tomllib.loads(read_text(path))
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFile(path, [f"is not TOML: {error}"]) from None
    problems = list(_problems(data))
    if problems:
        raise InvalidFile(path, problems)
    features: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.get("features", {}).items()
    }
    return Stack(
        name=data.get("name", path.stem),
        parent=data.get("parent", ""),
        features=Features(**features),
        parameters={key: float(value) for key, value in data.get("parameters", {}).items()},
        fixed={key: Fixed(value=float(item["value"]), why=item["why"]) for key, item in data.get("fixed", {}).items()},
        provenance=Provenance(**data.get("provenance", {})),
        runs=int(data.get("runs", 0)),
        residuals=data.get("residuals", {}),
        devices=tuple(data.get("devices", ())),
        intervals={key: float(value) for key, value in data.get("intervals", {}).items()},
        ranges={key: (float(low), float(high)) for key, (low, high) in data.get("ranges", {}).items()},
    )


def _problems(data: Mapping[str, Any]) -> list[str]:
    wrong = [name for name in TABLES if not isinstance(data.get(name, {}), Mapping)]
    if wrong:
        return [f"{name}: expected a table, but got {data[name]!r}" for name in wrong]
    return [
        *_parameter_problems("parameters", data.get("parameters", {})),
        *_fixed_problems(data.get("fixed", {}), data.get("parameters", {})),
        *_feature_problems(data.get("features", {})),
        *_interval_problems(data.get("intervals", {}), data.get("ranges", {})),
    ]


def _parameter_problems(table: str, parameters: Mapping[str, Any]) -> list[str]:
    problems = []
    for key, value in parameters.items():
        parameter = PARAMETERS.get(key)
        if parameter is None:
            hint = nearest(key, PARAMETERS)
            problems.append(f"{table}.{key}: unknown{f'; did you mean {hint[0]}?' if hint else ''}")
        elif not isinstance(value, int | float) or not parameter.low <= value <= parameter.high:
            bounds = f"{parameter.low:g} to {parameter.high:g} [{parameter.unit}]"
            problems.append(f"{table}.{key}: expected a number from {bounds}, but got {value!r}")
    return problems


def _fixed_problems(fixed: Mapping[str, Any], fitted: Mapping[str, Any]) -> list[str]:
    whole = {key: item for key, item in fixed.items() if isinstance(item, Mapping) and set(item) == {"value", "why"}}
    problems = [
        f'fixed.{key}: expected {{ value = ..., why = "..." }}, but got {item!r}'
        for key, item in fixed.items()
        if key not in whole
    ]
    problems += [f"fixed.{key}: is in parameters too; keep one of them" for key in fixed if key in fitted]
    return problems + _parameter_problems("fixed", {key: item["value"] for key, item in whole.items()})


def _feature_problems(features: Mapping[str, Any]) -> list[str]:
    problems = []
    for key, value in features.items():
        if key not in FEATURES:
            hint = nearest(key, FEATURES)
            problems.append(f"features.{key}: unknown{f'; did you mean {hint[0]}?' if hint else ''}")
            continue
        kind = type(getattr(Features(), key))
        if type(value) is not (list if kind is tuple else kind):
            wanted = {
                "bool": "true or false",
                "int": "a whole number",
                "float": "a number",
                "str": "a text",
                "tuple": "a list",
            }
            problems.append(f"features.{key}: expected {wanted[kind.__name__]}, but got {value!r}")
        elif key in WORDS and value not in WORDS[key]:
            problems.append(f"features.{key}: expected one of {', '.join(WORDS[key])}, but got {value!r}")
        elif key == "recompute_modules" and (unknown := [name for name in value if name not in MODULES]):
            problems.append(f"features.{key}: expected some of {', '.join(MODULES)}, but got {unknown}")
    if features.get("recompute_modules") and features.get("selective", "core") != "core":
        problems.append('features.recompute_modules: needs selective = "core"')
    return problems


def _interval_problems(intervals: Mapping[str, Any], ranges: Mapping[str, Any]) -> list[str]:
    problems = []
    for key, value in intervals.items():
        if not isinstance(value, int | float) or value < 0:
            problems.append(f"intervals.{key}: expected a number of at least 0, but got {value!r}")
    for key, value in ranges.items():
        if not (isinstance(value, list) and len(value) == 2 and all(isinstance(end, int | float) for end in value)):
            problems.append(f"ranges.{key}: expected two numbers, lowest and highest, but got {value!r}")
    return problems
