"""The text of users' files: UTF-8, or what Windows' shells write of a command's output."""

from __future__ import annotations

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

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
