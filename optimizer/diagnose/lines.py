"""The lines of a log file: unpacked, decoded, without colours, with the rank and the time that each one names."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from optimizer.base.errors import InvalidFile
from optimizer.base.files import MB, read_bytes
from optimizer.catalog.readers.text import ENCODINGS
from optimizer.frameworks.every import RANKS
from optimizer.frameworks.log_line import Mark

MOST = 400 * MB  # of a log, unpacked: reading takes several times as much memory
GZIP = b"\x1f\x8b"
MOSTLY = 0.3  # share of NUL bytes above which a file is no text in a single-byte encoding
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDLESS = re.compile(r"\d{17,}")  # no number that a program prints of a run, and more than a float holds
# What launchers put before a line to say which process wrote it.
_LABELS = (
    re.compile(r"\s*\[(?:rank|default)\s?(\d+)\]:?\s?"),  # torchrun, torchelastic
    re.compile(r"\s*(\d{1,5}):\s"),  # srun --label
    re.compile(r"\s*(?=[\w.-]*\d)([A-Za-z][\w.-]*):\s(?=\s*[\[\d]|.*\biteration\b)"),  # pdsh, DeepSpeed's launcher
)
_TIME = re.compile(
    r"\b(?P<y>20\d\d)-?(?P<m>\d\d)-?(?P<d>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?P<part>[.,]\d{1,6})?"
    r"|\b(?P<m2>\d\d)/(?P<d2>\d\d)/(?P<y2>20\d\d) (?P<clock2>\d\d:\d\d:\d\d)(?P<part2>[.,]\d{1,6})?"
)


class LoggedLine(NamedTuple):
    """One line: its place in the file, its text, the process that wrote it ("" if none is named), its time [s].

    suspect: it may tell of a failure.
    """

    number: int
    text: str
    rank: str = ""
    time: float | None = None
    suspect: bool = False


@dataclass(frozen=True, kw_only=True)
class LogText:
    """The lines of a file that have one of the texts looked for, of `count` in all.

    marks: those that stand in it; unfinished: the last line of the file has no end; remarks: on how it was read.
    """

    lines: tuple[LoggedLine, ...]
    marks: frozenset[Mark] = frozenset()
    count: int = 0
    unfinished: bool = False
    remarks: tuple[str, ...] = ()


def read_lines(path: Path, marks: Sequence[Mark], signals: Sequence[str]) -> LogText:
    """The lines of a log file, plain or packed by gzip, in UTF-8 or UTF-16, that have one of the marks, or of the
    signals in whatever case; all others of a large log are passed over quickly.

    Raises InvalidFile when it cannot be read or is no text.
    """
    remarks: list[str] = []
    try:
        data = read_bytes(path, MOST)
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}; give the path of a training log"]) from None
    if data.startswith(GZIP):
        data = _unpacked(path, data, remarks)
    text = _decoded(path, data, remarks)
    whole = io.StringIO(text, newline=None).read()
    unfinished = bool(whole) and not whole.endswith("\n")
    lower = whole.lower()
    suspects = _with(lower if len(lower) == len(whole) else whole, signals)
    ends = [match.start() for match in re.finditer("\n", whole)]
    ranks = tuple(pattern for pattern in RANKS if pattern.search(whole))
    lines = tuple(
        line_of(bisect_left(ends, end) + 1, whole[start:end], suspect=start in suspects, ranks=ranks)
        for start, end in sorted({**_with(whole, marks), **suspects}.items())
    )
    return LogText(
        lines=lines,
        marks=frozenset(mark for mark in marks if (mark in whole if isinstance(mark, str) else mark.search(whole))),
        count=len(ends) + unfinished,
        unfinished=unfinished,
        remarks=tuple(remarks),
    )


def pattern_of(mark: Mark) -> str:
    """A mark as the text of a pattern."""
    return re.escape(mark) if isinstance(mark, str) else mark.pattern


def _with(text: str, wanted: Sequence[Mark]) -> dict[int, int]:
    r"""Where the lines that have one of these texts begin and end.

    >>> _with("one\ntwo\nthree", ("e",))
    {0: 3, 8: 13}
    """
    spans = {}
    for each in wanted:
        if not isinstance(each, str):
            for match in each.finditer(text):
                end = text.find("\n", match.start())
                spans[text.rfind("\n", 0, match.start()) + 1] = len(text) if end < 0 else end
            continue
        place = text.find(each)
        while place >= 0:
            start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
            end = len(text) if end < 0 else end
            spans[start] = end
            place = text.find(each, end)
    return spans


def line_of(number: int, row: str, suspect: bool = False, ranks: Sequence[re.Pattern[str]] = RANKS) -> LoggedLine:
    r"""One line without colours and without the labels of its launcher; `ranks` are how programs name a process.

    >>> line_of(7, "\x1b[32m[rank3]:\x1b[0m 2026-01-02 10:00:01,500 step:  5").rank
    '3'
    >>> line_of(7, "[rank3]:step:  5").text, line_of(8, "17:  iteration 5").rank, line_of(9, "loss: 5").text
    ('step:  5', '17', 'loss: 5')
    """
    text, rank = _COLOUR.sub("", row) if "\x1b" in row else row, ""
    text = _ENDLESS.sub("?", text)
    for label in _LABELS:
        if match := label.match(text):
            rank, text = rank or match[1], text[match.end() :]
    if ranks and not rank:
        rank = next((match[1] for pattern in ranks if (match := pattern.search(text[:200]))), "")
    return LoggedLine(number=number, text=text, rank=rank, time=time_of(text), suspect=suspect)


def time_of(text: str) -> float | None:
    """The time at the front of a line [s since 1970, in the zone of the machine that wrote it], None for none.

    >>> time_of("[2026-01-02 10:00:01,500] [INFO]") - time_of("01/02/2026 10:00:00 [INFO|DP=0]")
    1.5
    """
    match = _TIME.search(text[:120])
    if match is None:
        return None
    year, month, day = (match[name] or match[f"{name}2"] for name in ("y", "m", "d"))
    clock, part = match["clock"] or match["clock2"], match["part"] or match["part2"]
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{clock}+00:00").timestamp()
    except ValueError:
        return None
    return moment + (float("0." + part[1:]) if part else 0.0)


def _unpacked(path: Path, data: bytes, remarks: list[str]) -> bytes:
    """What gzip packed, as far as it goes."""
    if len(data) < 18:
        raise InvalidFile(path, ["is an empty or broken gzip file; give the whole log"])
    stream = zlib.decompressobj(wbits=31)
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(MOST + 1)
    except (EOFError, OSError, zlib.error):
        try:
            content = stream.decompress(data, MOST + 1)
        except zlib.error as error:
            raise InvalidFile(path, [f"is a broken gzip file: {error}; give the whole log"]) from None
        remarks.append("the gzip file is cut short; what is there was read")
    if len(content) > MOST:
        raise InvalidFile(path, [f"unpacks to more than the {MOST / MB:,.0f} MB that are read; give a part of the log"])
    return content


def _decoded(path: Path, data: bytes, remarks: list[str]) -> str:
    """Text of the bytes of a log; bytes that are none are replaced, since one broken character spoils no number."""
    encoding = next((name for mark, name in ENCODINGS.items() if data.startswith(mark)), "")
    zeros = data[:4096].count(0) / max(1, len(data[:4096]))
    if not encoding and zeros > MOSTLY:
        encoding = "utf-16-le" if data[1:4096:2].count(0) > data[:4096:2].count(0) else "utf-16-be"
    text = data.decode(encoding or "utf-8", errors="replace")
    broken = text.count("\ufffd")
    if len(text) and (broken + text.count("\0")) / len(text) > 0.05:
        raise InvalidFile(path, ["is no text; give the log that the training program printed"])
    if broken:
        remarks.append(f"{broken:,} characters could not be decoded")
    return text.replace("\0", "")
