"""Whole-number arithmetic of the shell, `$((NNODES * 8))`, computed without running anything."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

LARGEST = 2**63
OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: Mapping[type, Callable[[int, int], bool]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
NAME = re.compile(r"\$\{?(?P<argument>\d+)\}?|\$?\{?(?P<variable>[A-Za-z_]\w*)\}?")


def whole_number(expression: str, value_of: Callable[[str], str]) -> int | None:
    """The value of an expression, None where it cannot be told. `value_of` gives the text of a variable, "" if unset.

    >>> whole_number("$NODES * GPUS / (TP)", {"NODES": "4", "GPUS": "8", "TP": "2"}.get)
    16
    >>> whole_number("${10} / $2", {"10": "64", "2": "8"}.get)
    8
    >>> whole_number("UNSET * 8", lambda name: "") is None
    True
    """
    missing = []

    def number(match: re.Match[str]) -> str:
        name = match["argument"] or match["variable"]
        text = value_of(name) or ""
        if not re.fullmatch(r"-?\d+", text):
            missing.append(name)
        return f"({text or 0})"

    text = NAME.sub(number, expression).replace("/", "//")
    if missing or len(text) > 1000:
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        result = OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        if abs(result) < LARGEST:
            return result
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return int(COMPARISONS[type(node.ops[0])](_value(node.left), _value(node.comparators[0])))
    raise ValueError("no whole-number arithmetic")
