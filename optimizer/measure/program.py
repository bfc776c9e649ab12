"""The file that users run on their nodes: the node program with a request written into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

EMPTY = "REQUEST: dict[str, Any] = {}\n"


def program_text(request: Mapping[str, Any]) -> str:
    """The source of the node program, whole and importing nothing of ours, with this request in place of its empty one.

    >>> text = program_text({"seconds": 60.0})
    >>> 'REQUEST: dict[str, Any] = {"seconds": 60.0}' in text, "optimizer" in text
    (True, False)
    """
    source = files("optimizer.measure").joinpath("node_program.py").read_text(encoding="utf-8")
    before, after = source.split(EMPTY)
    return f"{before}REQUEST: dict[str, Any] = {_python(request)}\n{after}"


def _python(request: Mapping[str, Any]) -> str:
    """A request as a literal, one key a line where there are several; JSON of numbers, texts and lists is Python."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in request.items()]
    return "{" + lines[0] + "}" if len(lines) == 1 else "{\n    " + ",\n    ".join(lines) + ",\n}"
