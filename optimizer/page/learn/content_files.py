"""The lab's content files: acts, questions, charts and equations in TOML, texts in Markdown, numbers left as blanks.

A blank is a field of `str.format` that names a value and, if need be, a unit before its format: `{step.sent:G .2f}` is
`step.sent` in 1e9 with two digits. Values come from the functions of the acts (acts.py); nothing here knows a number.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

Values = Mapping[str, Any]
# what a value is multiplied with and divided by before it is written
UNITS: Mapping[str, tuple[float, float]] = {
    "": (1, 1),
    **{"%": (100, 1), "m": (1e3, 1), "u": (1e6, 1)},
    **{"M": (1, 1e6), "G": (1, 1e9), "T": (1, 1e12), "Mi": (1, 2**20), "Gi": (1, 2**30)},
}


class _Blank(LookupError):
    """A blank of a template has no value."""


class _Blanks(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise _Blank
        unit, _, spec = format_spec.rpartition(" ")
        times, over = UNITS[unit]
        return format(value * times / over if unit else value, spec)


_BLANKS = _Blanks()


def filled_in(template: str, values: Values) -> str:
    """The template with its blanks filled in; "" where a value is None.

    >>> filled_in("{ratio:% .1f} % of {size:G .0f} GB", {"ratio": 0.125, "size": 80e9}), filled_in("{x}", {"x": None})
    ('12.5 % of 80 GB', '')
    """
    try:
        return _BLANKS.vformat(template, (), values)
    except _Blank:
        return ""


def value_of(path: str, values: Values) -> Any:
    """The value that a path names.

    >>> value_of("job.real", {"job": 3})
    3
    """
    return _BLANKS.get_field(path, (), values)[0]


@cache
def table(name: str) -> Mapping[str, Any]:
    """A TOML file of the content; line breaks in its strings are blanks.

    >>> table("act_1.toml")["message"]["sender"]
    'the lead of training infrastructure'
    """
    return _one_line(tomllib.loads(read(name)))  # type: ignore[no-any-return]


@cache
def texts(name: str) -> Mapping[str, str]:
    """The texts of a Markdown file of the content, by the names in the comments above them.

    >>> texts("lab.md")["header"].splitlines()[0]
    '# The Parallelism Paradox'
    """
    parts = re.split(r"^<!-- (\w+) -->\n", read(name), flags=re.MULTILINE)[1:]
    return {key: text.strip() for key, text in zip(parts[::2], parts[1::2], strict=True)}


def read(name: str) -> str:
    """The text of a file of the content."""
    return (files("optimizer.page.learn") / "content" / name).read_text(encoding="utf-8")


def _one_line(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _one_line(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_one_line(each) for each in value]
    return " ".join(value.split()) if isinstance(value, str) else value
