"""How deep expressions of a Python config are read: each form to the same depth, and what lies deeper is left open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from optimizer.frameworks.config.python import DEEPEST, read_function


def made(value: str, before: str = "c = C()") -> str:
    return f"def f0():\n    {before}\n    return D(x={value})\n"


def listed(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


# Texts of so many expressions in each other, and what is read of the innermost: its path, and its value.
FORMS: dict[str, tuple[Callable[[int], str], Callable[[int], tuple[str, object]]]] = {
    "signs": (lambda depth: made("-" * depth + "1"), lambda depth: ("x", (-1) ** depth)),
    "sums": (lambda depth: made("(" * depth + "1" + " + 1)" * depth), lambda depth: ("x", depth + 1)),
    "right sums": (lambda depth: made("(1 + " * depth + "1" + ")" * depth), lambda depth: ("x", depth + 1)),
    "lists": (lambda depth: made("[" * depth + "1" + "]" * depth), lambda depth: ("x", listed(1, depth))),
    "keywords": (lambda depth: made("E(y=" * depth + "1" + ")" * depth), lambda depth: ("x" + ".y" * depth, 1)),
    "arguments": (
        lambda depth: made("E(y=" * (depth - 1) + "E(1)" + ")" * (depth - 1)),
        lambda depth: ("x" + ".y" * (depth - 1) + ".0", 1),
    ),
    "attributes": (
        lambda depth: made("c" + ".a" * depth, "c" + ".a" * depth + " = 1").replace("    c.", "    c = C()\n    c.", 1),
        lambda depth: ("x", 1),
    ),
    "functions": (
        lambda depth: (
            "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(depth))
            + f"def f{depth}():\n    return D(x=1)\n"
        ),
        lambda depth: ("x", 1),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_how_deep_a_python_config_is_read(form: str) -> None:
    text, found = FORMS[form]
    for depth in range(1, DEEPEST):
        path, value = found(depth)
        assert {key: leaf.value for key, leaf in read_function(text(depth), "f0").items()}.get(path) == value
    path, value = found(DEEPEST)
    leaf = read_function(text(DEEPEST), "f0").get(path)
    assert leaf is None or leaf.value == listed(None, DEEPEST)
