"""One value of a TOML text changed in its line: every other line stays byte for byte."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from optimizer.base.errors import InputError

HEADER = re.compile(r"^[ \t]*\[(?P<array>\[)?(?P<name>[^\[\]\n]+)\]\]?[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
KEY = r"""[ \t]*(?P<key>(?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:[ \t]*\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*'))*)[ \t]*="""
ENTRY = re.compile(rf"^{KEY}[ \t]*(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\n#]*[^\s#]|)", re.MULTILINE)


def toml_changed(text: str, path: str, value: Any) -> str:
    r"""The text with one value set: where it stands, else in a line of its own in its table.

    Args:
        text: TOML.
        path: the keys to the value, joined with dots.
        value: what it shall be; None takes the key out.

    Raises:
        InputError: the text has no place for it, or would then say other things too.

    >>> print(toml_changed("[model]\ntp = 2  # of 8\n[training]\nsteps = 9\n", "model.tp", 4), end="")
    [model]
    tp = 4  # of 8
    [training]
    steps = 9
    >>> print(toml_changed("[model]\ntp = 2\n", "model.pp", 8), end="")
    [model]
    pp = 8
    tp = 2
    >>> print(toml_changed("[model]\ntp = 2\n", "float8.recipe", "rowwise"), end="")
    [model]
    tp = 2
    <BLANKLINE>
    [float8]
    recipe = "rowwise"
    """
    wanted = _set(tomllib.loads(text), path, value)
    changed = _edited(text, path, value)
    try:
        same = tomllib.loads(changed) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise InputError(f"{path} stands where one line cannot set it: write it by hand")
    return changed


def _set(tree: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The content that the changed text shall have."""
    keys = path.split(".")
    table: Any = tree
    for place, key in enumerate(keys[:-1], 1):
        if key not in table and value is None:
            return tree
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"{'.'.join(keys[:place])} is no table to write {keys[-1]} in")
    if value is None:
        table.pop(keys[-1], None)
    else:
        table[keys[-1]] = value
    return tree


def _edited(text: str, path: str, value: Any) -> str:
    written = "" if value is None else json.dumps(value, ensure_ascii=False)
    tables = list(_tables(text))
    for name, start, end in reversed(tables):
        for entry in ENTRY.finditer(text, start, end):
            if ".".join([*name, *_keys(entry["key"])]) == path:
                if value is None:
                    return text[: entry.start()] + text[entry.end() :].partition("\n")[2]
                return text[: entry.start("value")] + written + text[entry.end("value") :]
    if value is None:
        return text
    table, _, key = path.rpartition(".")
    for name, start, _ in reversed(tables):
        if ".".join(name) == table:
            line = f"{key} = {written}\n"
            return f"{text[:start]}{line}{text[start:]}"
    end_of_line = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end_of_line}\n[{table}]\n{key} = {written}\n"


def _tables(text: str) -> Iterator[tuple[list[str], int, int]]:
    """Each table's keys and where its entries stand; an array's tables have no key that a path could name."""
    heads = list(HEADER.finditer(text))
    ends = [*(head.start() for head in heads), len(text)]
    yield [], 0, ends[0]
    for head, end in zip(heads, ends[1:], strict=True):
        if not head["array"]:
            yield _keys(head["name"]), min(head.end() + 1, len(text)), end


def _keys(dotted: str) -> list[str]:
    """The keys of a dotted name, without quotes.

    >>> _keys('model . "a"'), _keys("training.steps")
    (['model', 'a'], ['training', 'steps'])
    """
    return [key.strip().strip("\"'") for key in dotted.split(".")]
