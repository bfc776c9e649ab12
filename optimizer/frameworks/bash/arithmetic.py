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
    ast.FloorDiv: lambda one, other: abs(one) // abs(other) * (1 if one * other >= 0 else -1),  # towards 0, as in C
    ast.Mod: lambda one, other: abs(one) % abs(other) * (1 if one >= 0 else -1),
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Pow: operator.pow,
}
SPELLINGS = {"/": "//", "&&": " and ", "||": " or "}  # what Python calls them
BRACKETS = re.compile(r"\(([^()]*)\)")
MOST_BITS = 63  # of a shift or a power
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
    """The value of an expression, None where it is unknown. `value_of` gives the text of a variable, "" if unset.

    >>> whole_number("$NODES * GPUS / (TP)", {"NODES": "4", "GPUS": "8", "TP": "2"}.get)
    16
    >>> whole_number("${10} / $2", {"10": "64", "2": "8"}.get)
    8
    >>> whole_number("2 ** 22 + (1 << NODES)", {"NODES": "4"}.get), whole_number("N > 4 ? N / 4 : 1", {"N": "8"}.get)
    (4194320, 2)
    >>> whole_number("UNSET * 8", lambda name: "") is None, whole_number("$((2 * 3)) - 13 / 2", {}.get)
    (True, 0)
    """
    missing = []

    def number(match: re.Match[str]) -> str:
        name = match["argument"] or match["variable"]
        text = value_of(name) or ""
        if not re.fullmatch(r"-?\d+", text):
            missing.append(name)
        return f"({text or 0})"

    text = NAME.sub(number, expression.replace("$((", "(("))
    for written, meant in SPELLINGS.items():
        text = text.replace(written, meant)
    if missing or len(text) > 1000:
        return None
    try:
        return _evaluated(text)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluated(text: str) -> int:
    """The value of numbers and operators, the innermost brackets first, so that `a ? b : c` stands alone in each.

    >>> _evaluated("(8>4 ? 2 : 1)*3"), _evaluated("0 ? 1 : 0 ? 2 : (-2)**2"), _evaluated("0?21:43")
    (6, 4, 43)
    """
    known: dict[str, int] = {}
    while match := BRACKETS.search(text):
        known[name := f"v{len(known)}"] = _choice(match[1], known)
        text = f"{text[: match.start()]} {name} {text[match.end() :]}"
    return _choice(text, known)


def _choice(text: str, known: Mapping[str, int]) -> int:
    """The value of an expression without brackets."""
    condition, ask, rest = text.partition("?")
    if not ask:
        return _value(ast.parse(text.strip(), mode="eval").body, known)
    colons = (place for place, letter in enumerate(rest) if letter == ":")
    colon = next((place for place in colons if rest[:place].count("?") == rest[:place].count(":")), len(rest))
    return _choice(rest[:colon] if _choice(condition, known) else rest[colon + 1 :], known)


def _value(node: ast.expr, known: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left, known), _value(node.right, known)
        bounded = not isinstance(node.op, ast.Pow | ast.LShift) or (0 <= right <= MOST_BITS and abs(left) < LARGEST)
        if bounded and abs(result := OPERATORS[type(node.op)](left, right)) < LARGEST:
            return result
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return int(COMPARISONS[type(node.ops[0])](_value(node.left, known), _value(node.comparators[0], known)))
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.BoolOp):
        parts = [bool(_value(part, known)) for part in node.values]
        return int(all(parts) if isinstance(node.op, ast.And) else any(parts))
    raise ValueError("no whole-number arithmetic")
