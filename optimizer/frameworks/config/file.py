"""Configs in YAML, JSON and TOML: every value by its path of keys, and one value changed where it stands."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import isfinite
from typing import Any

from optimizer.base.errors import InvalidFile
from optimizer.base.units import HUGE
from optimizer.catalog.readers.text import json_of, shown, toml_of
from optimizer.frameworks.torchtitan.python import titan_changed, titan_spans, titan_values

Span = tuple[int, int]
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
PYTHON = "python"
OVERRIDES = "overrides"  # a.b=c, a line each
OVERRIDE = re.compile(r"^\s*(?:-\s*)?\+{0,2}(?P<key>[A-Za-z_][\w]*(?:\.[\w]+)*)=(?P<value>[^\n#]*)", re.MULTILINE)
NUMBER = re.compile(r"^[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?$")


@dataclass(frozen=True)
class ConfigFile:
    """One config: its text, format ("yaml", "json", "toml", "python" or "overrides"), and what it says.

    `function` is the one that a Python file makes the config with.
    """

    name: str
    text: str
    kind: str
    function: str = ""

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The whole content; raises InvalidFile where it is none. That of Python is flat already."""
        try:
            found = self._parsed()
        except InvalidFile:
            raise
        except RecursionError:
            raise InvalidFile(self.name, [f"not {self.kind.upper()}: nested too deeply"]) from None
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InvalidFile(self.name, [f"not {self.kind.upper()}: {reason}"]) from None
        if not isinstance(found, dict):
            raise InvalidFile(self.name, ["expected named values, but there are none"])
        return found

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
        if self.kind == OVERRIDES:
            return {key: _flow(value) for key, value, *_ in self._lines()}
        import yaml

        return yaml.load(self.text, Loader=_loader())

    def _lines(self) -> Iterator[tuple[str, str, Span]]:
        """Key, value and the value's place of every `a.b=c`."""
        for match in OVERRIDE.finditer(self.text):
            value = match["value"].strip()
            start = match.start("value")
            yield match["key"], value.strip("\"'"), (start, start + len(match["value"].rstrip()))

    @cached_property
    def values(self) -> dict[str, Any]:
        """Every leaf by its keys joined with dots; references to other values and defaults are filled in."""
        leaves = dict(_leaves(self.tree, "", 0))
        return {path: _meant(_resolved(value, leaves, path)) for path, value in leaves.items()}

    @cached_property
    def spans(self) -> dict[str, Span]:
        """Where the scalars of YAML and JSON stand in the text."""
        if self.kind == "toml":
            return {}
        if self.kind == PYTHON:
            return titan_spans(self.text, self.function)
        if self.kind == OVERRIDES:
            return {key: span for key, _, span in self._lines()}
        import yaml

        root = yaml.compose(self.text, Loader=_loader())
        return dict(_spans(root, "", 0))

    def changed(self, path: str, value: Any) -> ConfigFile:
        """The config with one value set, added where it is not there, or taken out where it is None."""
        if self.kind == PYTHON:
            return replace(self, text=titan_changed(self.text, self.function, path, value))
        if self.kind == "toml":
            return ConfigFile(self.name, _toml(self.text, path.split("."), value), self.kind)
        if path in self.spans:
            start, end = self.spans[path]
            if value is None:
                first = self.text.rfind("\n", 0, start) + 1
                last = self.text.find("\n", end)
                return ConfigFile(self.name, self.text[:first] + self.text[last + 1 :], self.kind)
            return ConfigFile(self.name, self.text[:start] + written(value) + self.text[end:], self.kind)
        return ConfigFile(self.name, self._added(path, value), self.kind)

    def _added(self, path: str, value: Any) -> str:
        """The text with a new key, before the first key of its section."""
        if self.kind == OVERRIDES:
            end = "" if not self.text or self.text.endswith("\n") else "\n"
            return self.text if value is None else f"{self.text}{end}{path}={written(value)}\n"
        section, _, key = path.rpartition(".")
        beside = [other for other in self.spans if other.rpartition(".")[0] == section]
        if value is None or not beside:
            inner = f'{{"{key}": {written(value)}}}' if self.kind == "json" else f"{{{key}: {written(value)}}}"
            return self._added(section, _Raw(inner)) if section and value is not None else self.text
        start = self.spans[beside[0]][0]
        first = self.text.rfind("\n", 0, start) + 1
        indent = re.match(r"[ \t]*", self.text[first:])
        blank = indent[0] if indent else ""
        line = f'{blank}"{key}": {written(value)},\n' if self.kind == "json" else f"{blank}{key}: {written(value)}\n"
        return self.text[:first] + line + self.text[first:]


class _Raw(str):
    """Text that is written as it is."""


def written(value: Any) -> str:
    """A value as YAML and JSON both write it.

    >>> written(True), written(8), written("full"), written(None)
    ('true', '8', '"full"', 'null')
    """
    return str(value) if isinstance(value, _Raw) else json.dumps(value)


def _loader() -> Any:
    """YAML's safe loader; unknown tags are plain values, and 1e-5 is a number."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def plain(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node)
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("", plain)
    return Loader


def _leaves(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping) and tree and depth < DEEPEST:
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key), depth + 1)
    else:
        yield path, tree


def _spans(node: Any, path: str, depth: int) -> Iterator[tuple[str, Span]]:
    import yaml

    if isinstance(node, yaml.MappingNode) and depth < DEEPEST:
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            yield from _spans(value, inner, depth + 1)
    elif isinstance(node, yaml.ScalarNode):
        yield path, (node.start_mark.index, node.end_mark.index)


def _meant(value: Any) -> Any:
    """A value; a number that is none, or beyond all that is counted or measured, as the text that readers refuse.

    >>> _meant(8), _meant(float("inf")), _meant([1, float("nan")])
    (8, 'inf', [1, 'nan'])
    """
    if isinstance(value, list):
        return [_meant(item) for item in value]
    if isinstance(value, int | float) and not abs(value) <= HUGE:
        return shown(str(value)).strip('"') if isinstance(value, float) else "a number too large to read"
    return value


def _resolved(value: Any, leaves: Mapping[str, Any], path: str = "", depth: int = 0) -> Any:
    """A value with `${section.key}`, `${.key}`, `${multiply:4, ${.key}}` and `${VARIABLE:default}` filled in.

    Source: omry/omegaconf, docs/source/usage.rst (interpolations); NVIDIA/NeMo-Framework-Launcher,
    launcher_scripts/main.py (multiply and divide_ceil).

    >>> leaves = {"model.hidden": 512, "model.ffn": "${multiply:4, ${.hidden}}", "length": "${LENGTH:2048}"}
    >>> _resolved("${.ffn}", leaves, "model.other"), _resolved("${length}", leaves), _resolved("${x.y}", leaves)
    (2048, 2048, '${x.y}')
    """
    text = value
    for _ in range(DEEPEST):
        match = INNERMOST.search(text) if isinstance(text, str) else None
        if match is None or depth > DEEPEST:
            break
        found = _interpolated(match[1].strip(), leaves, path, depth)
        if found is None or "${" in str(found):  # not said here, or in a circle
            return value
        text = found if match[0] == text else f"{text[: match.start()]}{found}{text[match.end() :]}"
    return plain(text) if isinstance(text, str) and text != value else text


def _interpolated(body: str, leaves: Mapping[str, Any], path: str, depth: int) -> Any:
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
    return _resolved(leaves[wanted], leaves, wanted, depth + 1)


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


def _flow(text: str) -> Any:
    """The value of an override: lists and tables as YAML has them.

    >>> _flow("{bf16: true}"), _flow("[mlp, moe]"), _flow("8")
    ({'bf16': True}, ['mlp', 'moe'], 8)
    """
    if not text.startswith(("[", "{")):
        return plain(text)
    import yaml

    return yaml.safe_load(text)


def _toml(text: str, keys: list[str], value: Any) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document
    for key in keys[:-1]:
        if key not in table:
            table[key] = tomlkit.table()
        table = table[key]
    if value is None:
        table.pop(keys[-1], None)
    else:
        table[keys[-1]] = value
    return tomlkit.dumps(document)
