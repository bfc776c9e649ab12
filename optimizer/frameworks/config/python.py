"""A config that is a Python function: what it returns, from its syntax tree; nothing is run.

Understood are keyword arguments of nested calls, assignments to names and attributes, arithmetic of literals, and calls
of other functions of the file, whose config is then changed. What hangs on anything else is left open.

Source of the form: pytorch/torchtitan, torchtitan/models/llama3/config_registry.py.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
CLASS = "()"  # the key under which a section tells what was called to make it
DEEPEST = 20
LARGEST = 10**15
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Leaf:
    """A value, and where its expression stands in the function that was read; no place where another one holds it."""

    value: Any
    span: Span | None = None


@dataclass
class ConfigCall:
    """What a call makes: its name as written, its positional and its keyword arguments."""

    called: str
    positional: list[Any] = field(default_factory=list)
    entries: dict[str, Any] = field(default_factory=dict)

    def copied(self) -> ConfigCall:
        """The same without places: it stands in another function, whose other users must not change."""
        entries = {
            key: value.copied() if isinstance(value, ConfigCall) else bare(value) for key, value in self.entries.items()
        }
        return ConfigCall(self.called, [bare(value) for value in self.positional], entries)


def bare(value: Any) -> Any:
    """A value without its place."""
    return Leaf(value.value) if isinstance(value, Leaf) else value


class Unread:
    """A value that only running the file would tell."""


OPEN = Unread()


def config_functions(text: str) -> list[str]:
    r"""Names of the functions that make a config and take nothing, in order; raises SyntaxError for what is no Python.

    >>> config_functions("def tiny() -> Trainer.Config:\n    return Trainer.Config()\ndef helper(x):\n    return x")
    ['tiny']
    """
    return [
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        and not node.args.args
        and node.returns
        and "Config" in ast.unparse(node.returns)
    ]


def read_function(text: str, name: str) -> dict[str, Leaf]:
    r"""Every value of the config that a function returns, by its keys joined with dots.

    >>> text = "def big():\n    c = Trainer.Config(training=T(steps=2 * 8))\n    c.mesh.tp = 4\n    return c"
    >>> {path: leaf.value for path, leaf in read_function(text, "big").items()}
    {'()': 'Trainer.Config', 'training.()': 'T', 'training.steps': 16, 'mesh.()': '', 'mesh.tp': 4}
    """
    config = Reader(text).call(name, [], 0)
    return dict(_flat(config, "")) if isinstance(config, ConfigCall) else {}


def _flat(section: ConfigCall, path: str) -> Iterator[tuple[str, Leaf]]:
    yield f"{path}{CLASS}", Leaf(section.called)
    for place, value in enumerate(section.positional):
        if isinstance(value, Leaf):
            yield f"{path}{place}", value
    for key, value in section.entries.items():
        if isinstance(value, ConfigCall):
            yield from _flat(value, f"{path}{key}.")
        elif isinstance(value, Leaf):
            yield f"{path}{key}", value


class Reader:
    """The functions of one file."""

    def __init__(self, text: str) -> None:
        """Parse, and note where every line begins."""
        self.text = text
        self.body = ast.parse(text).body
        self.functions = {node.name: node for node in self.body if isinstance(node, ast.FunctionDef)}
        self.globals: dict[str, Any] = {}
        for node in self.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.globals[node.targets[0].id] = bare(self.value(node.value, {}, 0))

    def assigned_once(self) -> dict[str, Any]:
        """Names that functions assign, and nothing assigns twice, by their values; arguments are none of them."""
        tree = ast.Module(body=self.body, type_ignores=[])
        stored = Counter(
            node.id if isinstance(node, ast.Name) else node.arg
            for node in ast.walk(tree)
            if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        )
        names: dict[str, Any] = {}
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
            target = node.targets[0]
            if len(node.targets) == 1 and isinstance(target, ast.Name) and stored[target.id] == 1:
                names[target.id] = bare(self.value(node.value, names, 0))
        return names

    def call(self, name: str, arguments: Sequence[Any], depth: int) -> Any:
        """What a function returns."""
        node = self.functions.get(name)
        if node is None or depth > DEEPEST:
            return OPEN
        names = dict(zip((each.arg for each in node.args.args), arguments, strict=False))
        for statement in node.body:
            if isinstance(statement, ast.Return):
                return self.value(statement.value, names, depth) if statement.value else OPEN
            self.statement(statement, names, depth)
        return OPEN

    def statement(self, node: ast.stmt, names: dict[str, Any], depth: int) -> None:
        """An assignment; anything else changes nothing that can be told."""
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value, names, depth), names)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, self.value(node.value, names, depth), names)
        elif isinstance(node, ast.AugAssign):
            self.assign(node.target, OPEN, names)

    def assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        """Set a name, or an attribute of a section that may not be there yet."""
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            section = self.section(target.value, names)
            if section is not None:
                section.entries[target.attr] = value

    def section(self, node: ast.expr, names: Mapping[str, Any]) -> ConfigCall | None:
        """The section that a chain of attributes names, made where it only has its defaults."""
        if isinstance(node, ast.Name):
            section = names.get(node.id)
            return section if isinstance(section, ConfigCall) else None
        outer = self.section(node.value, names) if isinstance(node, ast.Attribute) else None
        if outer is None or not isinstance(node, ast.Attribute):
            return None
        inner = outer.entries.setdefault(node.attr, ConfigCall(""))
        return inner if isinstance(inner, ConfigCall) else None

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
        """A leaf, a section, or OPEN."""
        if depth > DEEPEST:
            return OPEN
        if isinstance(node, ast.Constant):
            return Leaf(node.value, self.span(node))
        if isinstance(node, ast.Name):
            return names.get(node.id, self.globals.get(node.id, OPEN))
        if isinstance(node, ast.Attribute):
            outer = self.value(node.value, names, depth + 1)
            return outer.entries.get(node.attr, OPEN) if isinstance(outer, ConfigCall) else OPEN
        if isinstance(node, ast.UnaryOp | ast.BinOp):
            return self.arithmetic(node, names, depth)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, names, depth + 1) for item in node.elts]
            plain = [item.called if isinstance(item, ConfigCall) else getattr(item, "value", None) for item in items]
            return Leaf(plain, self.span(node))
        return self.made(node, names, depth) if isinstance(node, ast.Call) else OPEN

    def arithmetic(self, node: ast.UnaryOp | ast.BinOp, names: Mapping[str, Any], depth: int) -> Any:
        """A number made of numbers."""
        parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        values = [getattr(self.value(part, names, depth + 1), "value", None) for part in parts]
        numbers = [number for number in values if isinstance(number, int | float) and not isinstance(number, bool)]
        if len(numbers) < len(parts):
            return OPEN
        if isinstance(node, ast.UnaryOp):
            return Leaf(-numbers[0], self.span(node)) if isinstance(node.op, ast.USub) else OPEN
        function = OPERATORS.get(type(node.op))
        if function is None or (isinstance(node.op, ast.Div | ast.FloorDiv) and not numbers[1]):
            return OPEN
        result = function(*numbers)
        return Leaf(result, self.span(node)) if abs(result) <= LARGEST else OPEN

    def made(self, node: ast.Call, names: Mapping[str, Any], depth: int) -> Any:
        """What a call makes: the config of another function of the file, or a section."""
        called = ast.unparse(node.func)
        positional = [self.value(argument, names, depth + 1) for argument in node.args]
        entries = {word.arg: self.value(word.value, names, depth + 1) for word in node.keywords if word.arg}
        if called in self.functions:
            result = self.call(called, positional, depth + 1)
            return result.copied() if isinstance(result, ConfigCall) else bare(result)
        if called.rpartition(".")[2] == "replace" and positional and isinstance(positional[0], ConfigCall):
            copy = positional[0].copied()
            copy.entries |= entries
            return copy
        return ConfigCall(called, positional, entries)

    def span(self, node: ast.expr) -> Span:
        """First character of an expression and the one after its last."""
        return place(self.text, node.lineno, node.col_offset), place(
            self.text, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        )


def place(text: str, line: int, column: int) -> int:
    r"""The character at a line, counted from 1, and a column in UTF-8 bytes, as Python's parser counts.

    >>> place("a\nbc", 2, 1)
    3
    """
    lines = text.split("\n")
    before = sum(len(each) + 1 for each in lines[: line - 1])
    return before + len(lines[line - 1].encode()[:column].decode())


def with_lines(text: str, name: str, lines: Sequence[str]) -> str:
    r"""The text with lines of code before a function returns; `config` in them is what it returns.

    >>> print(with_lines("def big():\n    return C(x=1)\n", "big", ["config.y = 2"]), end="")
    def big():
        config = C(x=1)
        config.y = 2
        return config
    """
    node = next(each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == name)
    last = next(each for each in node.body if isinstance(each, ast.Return))
    start = place(text, last.lineno, last.col_offset)
    end = place(text, last.end_lineno or last.lineno, last.end_col_offset or 0)
    indent = " " * last.col_offset
    returned = ast.get_source_segment(text, last.value) or "None" if last.value else "None"
    known = isinstance(last.value, ast.Name)
    variable = returned if known else "config"
    named = [line.replace("config.", f"{variable}.", 1) if line.startswith("config.") else line for line in lines]
    body = [*([] if known else [f"config = {returned}"]), *named, f"return {variable}"]
    return text[:start] + f"\n{indent}".join(body) + text[end:]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a call: its value, whether the text tells it, and where its expression stands."""

    value: Any
    known: bool
    span: Span


@dataclass(frozen=True, kw_only=True)
class WrittenCall:
    """A call as it stands in a program: its last name and what is before it, its first positional argument, those by
    name, and the place after its opening parenthesis.
    """

    name: str
    owner: str
    first: Argument | None
    named: Mapping[str, Argument]
    inside: int


def calls_of(text: str, names: Sequence[str]) -> list[WrittenCall]:
    r"""The calls of functions of these names, wherever they stand; raises SyntaxError for what is no Python.

    >>> (call,) = calls_of("N = 4\nmodel = Fast.load('m', length=2 * N, dtype=f())", ["load"])
    >>> call.first.value, call.named["length"].value, call.named["dtype"].known
    ('m', 8, False)
    """
    reader = Reader(text)
    names_once = reader.assigned_once()

    def argument(node: ast.expr) -> Argument:
        leaf = reader.value(node, names_once, 0)
        known = isinstance(leaf, Leaf)
        return Argument(value=leaf.value if known else None, known=known, span=reader.span(node))

    return [
        WrittenCall(
            name=name,
            owner=owner,
            first=argument(node.args[0]) if node.args else None,
            named={word.arg: argument(word.value) for word in node.keywords if word.arg},
            inside=text.index("(", reader.span(node.func)[1]) + 1,
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for owner, _, name in [ast.unparse(node.func).rpartition(".")]
        if name in names
    ]
