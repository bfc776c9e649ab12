"""Configs in YAML, JSON, TOML and Python: every value by its path of keys, and one value changed where it stands."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import isfinite
from typing import Any

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import HUGE
from optimizer.catalog.readers.text import json_of, shown, toml_of
from optimizer.frameworks.config.toml_edit import toml_changed
from optimizer.frameworks.config.yaml_edit import scalar, yaml_changed
from optimizer.frameworks.nemo.recipe import recipe_changed, recipe_values
from optimizer.frameworks.torchtitan.python import titan_changed, titan_values
from optimizer.frameworks.unsloth.script import script_changed, script_values

INNERMOST = re.compile(r"\$\{([^${}]*)\}")
RESOLVERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "multiply": operator.mul,
    "divide": operator.floordiv,
    "divide_floor": operator.floordiv,
    "divide_ceil": lambda a, b: -(-a // b),
    "add": operator.add,
    "subtract": operator.sub,
}
DEEPEST = 50
LONGEST = 10_000  # characters of a value whose references are filled in
PYTHON, UNSLOTH, NEMO = "python", "unsloth", "nemo"  # the last two: their programs
OVERRIDES = "overrides"  # a.b=c, a line each
OVERRIDE = re.compile(r"^\s*(?:-\s*)?\+{0,2}(?P<key>[A-Za-z_][\w]*(?:\.[\w]+)*)=(?P<value>[^\n#]*)", re.MULTILINE)
PARAMETERS = "parameters"
NUMBER = re.compile(r"^[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?$")


@dataclass(frozen=True)
class ConfigFile:
    """One config.

    Attributes:
        name: of its file.
        text: all of it, its lines ended by a newline.
        kind: "yaml", "json", "toml", "python", "unsloth", "nemo", "overrides", or "bash" for the keys of a command.
        function: the one that a Python file makes the config with.
        data: the bytes of the file, whose encoding and ends of lines an edit keeps.
        writer: the script that writes it when it runs, "" for a file that is there.
    """

    name: str
    text: str
    kind: str
    function: str = ""
    data: bytes = b""
    writer: str = ""

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The content, of a run of MosaicML's platform its parameters; raises as `content`."""
        return self.content[PARAMETERS] if self.root else self.content

    @property
    def root(self) -> str:
        """The section that is the config, of a run of MosaicML's platform, with a dot behind it; "" for all of it.

        Source: https://docs.mosaicml.com/projects/mcli/en/latest/training/yaml_schema.html
        """
        run = self.kind == "yaml" and "command" in self.content and isinstance(self.content.get(PARAMETERS), dict)
        return f"{PARAMETERS}." if run else ""

    @cached_property
    def content(self) -> dict[str, Any]:
        """The whole content; raises InvalidFile where it is none. That of Python is flat already."""
        try:
            values = self._parsed()
        except InvalidFile:
            raise
        except InputError as error:
            raise InvalidFile(self.name, [str(error)]) from None
        except RecursionError:
            raise InvalidFile(self.name, [f"not {self.kind.upper()}: nested too deeply"]) from None
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InvalidFile(self.name, [f"not {self.kind.upper()}: {reason}"]) from None
        if not isinstance(values, dict):
            raise InvalidFile(self.name, ["expected named values, but there are none"])
        return values

    @property
    def whole(self) -> bool:
        """Whether the text is of its format at all."""
        try:
            return bool(self.tree)
        except InvalidFile:
            return False

    def _parsed(self) -> Any:
        if self.kind == "toml":
            return toml_of(self.text, self.name)
        if self.kind == "json":
            return json_of(self.text, self.name)
        if self.kind == PYTHON:
            return titan_values(self.text, self.function)
        if self.kind == UNSLOTH:
            return script_values(self.text)
        if self.kind == NEMO:
            return recipe_values(self.text)
        from optimizer.catalog.readers.yaml_nodes import yaml_of

        if self.kind == OVERRIDES:
            texts = {match["key"]: match["value"].strip().strip("\"'") for match in OVERRIDE.finditer(self.text)}
            return {key: yaml_of(text, self.name) if text[:1] in "[{" else plain(text) for key, text in texts.items()}
        return yaml_of(self.text, self.name)

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """Every value as it is written, by its keys joined with dots."""
        return dict(_leaves(self.tree, "", 0))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The same with references to other values and defaults filled in."""
        return self.under({})

    def under(self, over: Mapping[str, Any]) -> dict[str, Any]:
        """The same where other files say these values, by path, over those that its own refer to."""
        known: dict[str, Any] = {}
        leaves = {**self.leaves, **over}
        return {path: _meant(_resolved(value, leaves, path, known)) for path, value in self.leaves.items()}

    def changed(self, path: str, value: Any) -> ConfigFile:
        """The config with one value set, added where it is not there, or taken out where it is None.

        Raises InputError where the text has no place for it.
        """
        if self.writer:
            raise InputError(f"no patch: {self.writer} writes {self.name} when it runs; make it by hand")
        path = self.root + path
        if self.kind == PYTHON:
            return replace(self, text=titan_changed(self.text, self.function, path, value))
        if self.kind == UNSLOTH:
            return replace(self, text=script_changed(self.text, path, value))
        if self.kind == NEMO:
            return replace(self, text=recipe_changed(self.text, path, value))
        if self.kind == "toml":
            return replace(self, text=toml_changed(self.text, path, value))
        if self.kind != OVERRIDES:
            return replace(self, text=yaml_changed(self.text, path, value, strict=self.kind == "json"))
        lines = [match for match in OVERRIDE.finditer(self.text) if match["key"] == path]
        if not lines:
            end = "" if not self.text or self.text.endswith("\n") else "\n"
            return replace(self, text=self.text if value is None else f"{self.text}{end}{path}={scalar(value)}\n")
        start, end_of = lines[-1].start("value"), lines[-1].start("value") + len(lines[-1]["value"].rstrip())
        if value is None:
            return replace(self, text=self.text[: lines[-1].start()] + self.text[end_of:].partition("\n")[2])
        return replace(self, text=self.text[:start] + scalar(value) + self.text[end_of:])

    @property
    def bytes(self) -> bytes:
        """The text as a file, encoded and its lines ended as it was found."""
        from optimizer.catalog.readers.text import encoded

        return encoded(self.text, self.data)


def _leaves(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping) and tree and depth < DEEPEST:
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key), depth + 1)
    else:
        yield path, tree


def _meant(value: Any) -> Any:
    """A value; a number that is none, or beyond all that is counted or measured, as the text that readers refuse.

    >>> _meant(8), _meant(float("inf")), _meant([1, float("nan")]), _meant(-HUGE) == -HUGE, _meant(int(HUGE) + 1)
    (8, 'inf', [1, 'nan'], True, 'a number too large to read')
    """
    if isinstance(value, list):
        return [_meant(item) for item in value]
    if isinstance(value, int | float) and not abs(value) <= HUGE:
        return shown(str(value)).strip('"') if isinstance(value, float) else "a number too large to read"
    return value


def _resolved(value: Any, leaves: Mapping[str, Any], path: str, known: dict[str, Any], depth: int = 0) -> Any:
    """A value with `${section.key}`, `${.key}`, `${multiply:4, ${.key}}` and `${VARIABLE:default}` filled in.

    Source: omry/omegaconf, docs/source/usage.rst (interpolations); NVIDIA/NeMo-Framework-Launcher,
    launcher_scripts/main.py (multiply and divide_ceil).

    Args:
        value: as it is written.
        leaves: every value as it is written, by path.
        path: where the value stands.
        known: what was resolved so far, by path; it is added to.
        depth: of references that lead here.

    >>> leaves = {"model.hidden": 512, "model.ffn": "${multiply:4, ${.hidden}}", "length": "${LENGTH:2048}"}
    >>> [_resolved(text, leaves, "model.other", {}) for text in ("${.ffn}", "${length}", "${x.y}")]
    [2048, 2048, '${x.y}']
    """
    text = value
    for _ in range(DEEPEST):
        match = INNERMOST.search(text) if isinstance(text, str) and len(text) <= LONGEST else None
        if match is None or depth > DEEPEST:
            break
        part = _interpolated(match[1].strip(), leaves, path, known, depth)
        if part is None or "${" in str(part):  # not said here, or in a circle
            return value
        text = part if match[0] == text else f"{text[: match.start()]}{part}{text[match.end() :]}"
    return plain(text) if isinstance(text, str) and text != value else text


def _interpolated(body: str, leaves: Mapping[str, Any], path: str, known: dict[str, Any], depth: int) -> Any:
    """What `${body}` stands for, None where nothing here says it."""
    name, colon, rest = body.partition(":")
    if colon and name in RESOLVERS:
        numbers = [plain(part.strip()) for part in rest.split(",")]
        if len(numbers) < 2 or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
            return None
        try:
            return reduce(RESOLVERS[name], numbers)
        except (ArithmeticError, ValueError):
            return None
    if colon:
        return rest.partition(",")[2].strip() if name == "oc.env" else rest
    dots = len(name) - len(name.lstrip("."))
    outer = path.split(".")[:-dots] if dots else []
    wanted = ".".join([*outer, name.lstrip(".")])
    if wanted not in leaves:  # a file that others hold in a section of that name
        wanted = wanted.partition(".")[2]
    if wanted not in leaves:
        return None
    if wanted not in known:
        known[wanted] = leaves[wanted]  # as it is, for one that leads back to itself
        known[wanted] = _resolved(leaves[wanted], leaves, wanted, known, depth + 1)
    return known[wanted]


def plain(text: str) -> Any:
    """A default's text as the value that YAML would make of it.

    >>> plain("8"), plain("true"), plain("llama3.yaml")
    (8, True, 'llama3.yaml')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if NUMBER.match(text) and isfinite(number := float(text)):
        return int(number) if number == int(number) and "." not in text else number
    return text
