"""The text of users' files, UTF-8 or what Windows' shells write of a command's output, and the TOML or JSON in it."""

from __future__ import annotations

import io
import json
import tomllib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import Any

from optimizer.errors import InvalidFile

ENCODINGS = {BOM_UTF8: "utf-8-sig", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}


def read_text(path: str | Path) -> str:
    """The text of a file, its lines ended by a newline.

    Raises OSError when it cannot be read, UnicodeDecodeError when it is no text.
    """
    return decoded(Path(path).read_bytes())


def decoded(data: bytes) -> str:
    r"""Bytes as text: UTF-8 unless a byte-order mark says UTF-16, as that of PowerShell's `>` does.

    Raises UnicodeDecodeError for other bytes.

    >>> decoded("a\r\nb".encode("utf-16")), decoded(b"a\nb")
    ('a\nb', 'a\nb')
    """
    encoding = next((name for mark, name in ENCODINGS.items() if data.startswith(mark)), "utf-8")
    return io.StringIO(data.decode(encoding), newline=None).read()


def read_toml(path: Path, advice: str = "give the path of a TOML file") -> dict[str, Any]:
    """The tables of a TOML file.

    Raises InvalidFile: with the advice when it cannot be read, with line and column of a syntax error.
    """
    text = readable(path, advice)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InvalidFile(path, ["not TOML: nested too deeply"]) from None
    except ValueError as error:
        raise InvalidFile(path, [f"not TOML: {error}"]) from None


def read_json(path: Path, advice: str = "give the path of a JSON file") -> dict[str, Any]:
    """The object in a JSON file; raises InvalidFile as read_toml does."""
    text = readable(path, advice)
    try:
        data = json.loads(text)
    except RecursionError:
        raise InvalidFile(path, ["not JSON: nested too deeply"]) from None
    except json.JSONDecodeError as error:
        raise InvalidFile(path, [f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}"]) from None
    except ValueError as error:
        raise InvalidFile(path, [f"not JSON: {error}"]) from None
    if not isinstance(data, dict):
        raise InvalidFile(path, [f"expected an object with named values, but got {shown(data)}"])
    return data


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
