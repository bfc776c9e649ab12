"""Where a key goes in a YAML text, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.frameworks.config.yaml_edit import yaml_changed


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        # Behind the last key that holds no section, with what is said of it.
        ("a: 1\nsec:\n  x: 1\n", "b", 2, "a: 1\nb: 2\nsec:\n  x: 1\n"),
        ("\na: 1\nsec:\n  x: 1\n", "b", 2, "\na: 1\nb: 2\nsec:\n  x: 1\n"),
        ("sec:\n  x: 1 # one\n", "sec.y", 2, "sec:\n  x: 1 # one\n  y: 2\n"),
        ("sec:\n    x: 1\n    in:\n      z: 1\n", "sec.y", 2, "sec:\n    x: 1\n    y: 2\n    in:\n      z: 1\n"),
        ("sec:\n  x: 1\n", "b", 2, "sec:\n  x: 1\nb: 2\n"),
        ("a: 1", "b", 2, "a: 1\nb: 2\n"),
        ("base: &b {a: 1}\nsec:\n  <<: *b\n", "sec.y", 2, "base: &b {a: 1}\nsec:\n  <<: *b\n  y: 2\n"),
        ("base: &b {a: 1}\nsec:\n  x: 1\n  <<: *b\n", "sec.y", 2, "base: &b {a: 1}\nsec:\n  x: 1\n  y: 2\n  <<: *b\n"),
        # In braces before the first one.
        ("sec: {x: 1}\n", "sec.y", 2, "sec: {y: 2, x: 1}\n"),
        ("sec: {\n  x: 1}\n", "sec.y", 2, "sec: {\n  y: 2,\n  x: 1}\n"),
        ("sec: {}\n", "sec.y", 2, "sec: {y: 2}\n"),
        # Of sections that are not there yet.
        ("sec:\n", "sec.y", 2, "sec: {y: 2}\n"),
        ("sec:\n", "sec.in.y", 2, "sec: {in: {y: 2}}\n"),
        ("sec:\n  x: 1\n", "new.deep.y", 2, "sec:\n  x: 1\nnew:\n  deep:\n    y: 2\n"),
        ("sec:\n    x: 1\n", "new.y", 2, "sec:\n    x: 1\nnew:\n    y: 2\n"),
        # Changed, taken out, and out of what was not there.
        ("sec:\n  x: 1\n", "sec.x", 3, "sec:\n  x: 3\n"),
        ("sec:\n  x: 1\n  y: 2\n", "sec.x", None, "sec:\n  y: 2\n"),
        ("sec:\n  x: 1\n", "sec.y", None, "sec:\n  x: 1\n"),
        ("sec: {x: 1, y: 2}\n", "sec.x", None, "sec: {y: 2}\n"),
        ("sec: {x: 1, y: 2}\n", "sec.y", None, "sec: {x: 1}\n"),
        ("sec: {x: 1}\n", "sec.x", None, "sec: {}\n"),
        ("x:\n- 1\n- 2\ny: 2\n", "x", 3, "x: 3\ny: 2\n"),
        ("x:\n  - 1\ny: 2\n", "x", 3, "x: 3\ny: 2\n"),
        ("x:\ny: 2\n", "x", 3, "x: 3\ny: 2\n"),
        ("", "a", None, ""),
        ("", "a", 1, "a: 1\n"),
    ],
)
def test_a_key_has_its_place(text: str, path: str, value: Any, expected: str) -> None:
    assert yaml_changed(text, path, value) == expected
