"""The text of users' files, UTF-8 or what Windows' shells write of a command's output, and the TOML or JSON in it."""

from __future__ import annotations

import io
import json
import re
import tomllib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from optimizer.base.errors import InvalidFile
from optimizer.base.files import read_bytes

# Keys that files of one kind alone have at their top.
MARKS = {"tiers": "cluster", "features": "stack", "like": "device", "peak_flops": "device", "layers": "model"}
DEEPEST = 60  # tables and lists in each other
# A key of more tables than that, at which tomllib takes memory by the square.
DEEP_KEY = re.compile(
    rf"""(?:^|[\[{{,])[ \t]*+(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""", re.MULTILINE
)
T = TypeVar("T")
ENCODINGS = {BOM_UTF8: "utf-8-sig", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}


def read_text(path: str | Path) -> str:
    """The text of a file, its lines ended by a newline.

    Raises OSError when it cannot be read as optimizer.base.files says, UnicodeDecodeError when it is no text.
    """
    return decoded(read_bytes(path))


def decoded(data: bytes) -> str:
    r"""Bytes as text: UTF-8 unless a byte-order mark says UTF-16, as that of PowerShell's `>` does.

    Raises UnicodeDecodeError for other bytes.

    >>> decoded("a\r\nb".encode("utf-16")), decoded(b"a\nb")
    ('a\nb', 'a\nb')
    """
    encoding = next((name for mark, name in ENCODINGS.items() if data.startswith(mark)), "utf-8")
    return io.StringIO(data.decode(encoding), newline=None).read()


def encoded(text: str, like: bytes) -> bytes:
    r"""The bytes of a text in the encoding and with the ends of lines that a file had.

    >>> encoded("a\nc\n", b"a\r\nb\r\n"), decoded(encoded("a", "b".encode("utf-16")))
    (b'a\r\nc\r\n', 'a')
    """
    encoding = next((name for mark, name in ENCODINGS.items() if like.startswith(mark)), "utf-8")
    crlf = "\r\n" in like.decode(encoding, "replace")
    return (text.replace("\n", "\r\n") if crlf else text).encode(encoding)


def read_toml(path: Path, advice: str = "give the path of a TOML file") -> dict[str, Any]:
    """The tables of a TOML file.

    Raises InvalidFile: with the advice when it cannot be read, with line and column of a syntax error.
    """
    return toml_of(readable(path, advice), path)


def kind_in(data: Iterable[str]) -> str:
    """What the keys of a TOML file describe, "" where none is of one kind alone.

    >>> kind_in(["name", "tiers"]), kind_in(["layers"]), kind_in(["name"])
    ('cluster', 'model', '')
    """
    return next((kind for key, kind in MARKS.items() if key in data), "")


def read_described(path: Path, kind: str) -> dict[str, Any]:
    """The tables of a TOML file that should describe this kind of thing.

    Raises InvalidFile as read_toml does, and where the file describes another kind: one sentence says all.
    """
    data = read_toml(path)
    kind_seen = kind_in(data)
    if kind_seen in ("", kind):
        return data
    where = "name it in a cluster file" if kind_seen == "device" else f"give it to --{kind_seen}"
    raise InvalidFile(path, [f"describes a {kind_seen}, not a {kind}: {where}"])


def read_json(path: Path, advice: str = "give the path of a JSON file") -> dict[str, Any]:
    """The object in a JSON file; raises InvalidFile as read_toml does."""
    data = json_of(readable(path, advice), path)
    if not isinstance(data, dict):
        raise InvalidFile(path, [f"expected an object with named values, but got {shown(data)}"])
    return data


def toml_of(text: str, where: object) -> dict[str, Any]:
    """The tables in a TOML text; raises InvalidFile, which names `where`, for what is none or nested too deeply."""
    if DEEP_KEY.search(text):
        raise InvalidFile(where, [f"not TOML: nested more than {DEEPEST} deep"])
    return _parsed(tomllib.loads, text, "TOML", where)


def json_of(text: str, where: object) -> Any:
    """The value in a JSON text; raises InvalidFile as toml_of does.

    >>> json_of("[1e400, 12]", "a"), json_of("1" + 400 * "0", "a")
    ([inf, 12], inf)
    """

    def number(text: str) -> int | float:
        """A whole number; beyond what floats hold infinite, as JSON's readers take 1e400 to be."""
        return int(text) if isfinite(value := float(text)) else value

    return _parsed(partial(json.loads, parse_int=number), text, "JSON", where)


def _parsed(read: Callable[[str], T], text: str, kind: str, where: object) -> T:
    try:
        return _shallow(read(text), kind, where)
    except RecursionError:
        problem = f"not {kind}: nested too deeply"
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}, column {error.colno}: not {kind}: {error.msg}"
    except ValueError as error:
        problem = f"not {kind}: {error}"
    raise InvalidFile(where, [problem])


def _shallow(value: T, kind: str, where: object) -> T:
    """The value; raises InvalidFile where tables and lists lie deeper in each other than any file of ours needs."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inner for item in items]
        if not level:
            return value
    raise InvalidFile(where, [f"not {kind}: nested more than {DEEPEST} deep"])


def shown(value: object) -> str:
    """A value as files write it, cut where it is long.

    >>> shown(True), shown("a" * 80)[-9:]
    ('true', 'aaaaaa...')
    """
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):
        return "a value too large to show"
    return text if len(text) <= 60 else f"{text[:57]}..."


def readable(path: str | Path, advice: str) -> str:
    """The text of a file; raises InvalidFile with the advice when it cannot be read."""
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise InvalidFile(path, [f"byte {error.start}: not UTF-8 text; {advice}"]) from None
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}; {advice}"]) from None
