"""Which expressions of a Python config are read, how deep, and where lines are put into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from optimizer.frameworks.config.python import DEEPEST, LARGEST, calls_of, read_function, with_lines


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
    if form == "functions":
        assert [[*read_function(text(depth), "f0")] for depth in (DEEPEST, DEEPEST + 1)] == [["()"], []]


@pytest.mark.parametrize(("depth", "known"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_names_are_read_as_deep_wherever_they_are_assigned(depth: int, known: bool) -> None:
    number = "-" * depth + "1"
    outside = read_function(f"N = {number}\n" + made("N"), "f0")
    (inside,) = calls_of(f"def f():\n    n = {number}\n    go(x=n)\n", ["go"])
    (given,) = calls_of(f"go(x={number})", ["go"])
    assert ("x" in outside, inside.named["x"].known, given.named["x"].known) == (known, known, known)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (made("1 + 0"), {"x": 1}),
        (made("7 - 2 * 3"), {"x": 1}),
        (made("7 / 2"), {"x": 3.5}),
        (made("7 // 2"), {"x": 3}),
        *((made(open_one), {}) for open_one in ("1 / 0", "1 // 0", "2 ** 3", "~1", "1 + True", "1 + 'a'", "n")),
        (made(f"{LARGEST - 1} + 1"), {"x": LARGEST}),
        (made(f"{LARGEST} + 1"), {}),
        (made(f"-{LARGEST} - 1"), {}),
        ("N = 4\nM = K = 5\n" + made("N"), {"x": 4}),
        ("M = K = 5\n" + made("K"), {}),  # of two names
        (made("n", "n: int = 4"), {"x": 4}),
        (made("n", "n: int"), {}),
        (made("n", "n = 4; n += 1"), {}),
        (made("1", "other.a.b = 3"), {"x": 1}),
        (made("c", "c = C(); c.a.b = 3"), {"x.()": "C", "x.a.()": "", "x.a.b": 3}),
        (made("replace(C(y=1, z=2), y=3)"), {"x.()": "C", "x.y": 3, "x.z": 2}),
        (made("dataclasses.replace(C(y=1))"), {"x.()": "C", "x.y": 1}),
        (made("replace(1, y=3)"), {"x.()": "replace", "x.0": 1, "x.y": 3}),
        (made("replace(y=3)"), {"x.()": "replace", "x.y": 3}),
        (made("other(C(z=2), y=3)"), {"x.()": "other", "x.y": 3}),
    ],
)
def test_what_a_python_config_says(text: str, said: dict[str, object]) -> None:
    assert {key: leaf.value for key, leaf in read_function(text, "f0").items()} == {"()": "D", **said}


def test_a_function_that_is_not_there_says_nothing() -> None:
    assert read_function(made("1"), "other") == {}


def test_places_are_those_of_the_file() -> None:
    text = "é = 1\n" + made("[1,\n        2]")
    leaf = read_function(text, "f0")["x"]
    assert leaf.span is not None
    assert text[slice(*leaf.span)] == "[1,\n        2]"
    (call,) = calls_of("é = 1\nown.go (\n 'm', x=2)", ["go"])
    assert ("é = 1\nown.go (\n 'm', x=2)"[call.inside :], call.owner) == ("\n 'm', x=2)", "own")


def test_lines_are_put_before_the_return_of_the_function() -> None:
    other, lines = "def other():\n    return E()\n", ["config.y = 'config.z'", "go()"]
    put = "    {0}.y = 'config.z'\n    go()\n    return {0}\n"
    assert with_lines(other + made("1,\n        z=2"), "f0", lines) == (
        other + "def f0():\n    c = C()\n    config = D(x=1,\n        z=2)\n" + put.format("config")
    )
    own = other + "def f0():\n    own = D()\n    return own\n"
    assert with_lines(own, "f0", lines) == own.replace("    return own\n", put.format("own"))
