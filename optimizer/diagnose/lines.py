"""The lines of a log file: unpacked, decoded, without colours, with the rank and the time that each one names."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from optimizer.base.errors import InvalidFile
from optimizer.base.files import MB, read_bytes
from optimizer.catalog.readers.text import ENCODINGS
from optimizer.frameworks.every import RANKS
from optimizer.frameworks.huggingface.notebook import summaries
from optimizer.frameworks.log_line import Mark

MOST = 400 * MB  # of a log, unpacked: reading takes several times as much memory
GZIP = b"\x1f\x8b"
MOSTLY = 0.3  # share of NUL bytes above which a file is no text in a single-byte encoding
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# No number that a program prints of a run, and more than a float holds; decimals may be as many as it has.
LONG = 17  # digits, from which on a number before its point is none of those
_ENDLESS = re.compile(rf"(?<![.\d])\d{{{LONG},}}|\d{{31,}}")
_TO_ZERO = str.maketrans(dict.fromkeys("123456789", "0"))  # by which a file without long numbers is known quickly
# What launchers put before a line to say which process wrote it.
_LABELS = (
    r"\[(?:rank|default)\s?(\d+)\]:?\s?",  # torchrun, torchelastic
    r"(\d{1,5}):\s",  # srun --label
    r"(?=[\w.-]*\d)([A-Za-z][A-Za-z\d.-]*):\s(?=\s*[\[\d]|.*\biteration\b)",  # pdsh, DeepSpeed's launcher (RFC 952)
)
LABELS = tuple(re.compile(rf"\s*{label}") for label in _LABELS)
# Whether any line has a label, or a time: expressions that begin with a letter are found quickly.
_LABELLED = re.compile(rf"\n[ \t]*(?:{'|'.join(_LABELS)})")
_TIME = re.compile(
    r"\b(?P<y>20\d\d)-?(?P<m>\d\d)-?(?P<d>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?P<part>[.,]\d{1,6})?"
    r"|\b(?P<m2>\d\d)/(?P<d2>\d\d)/(?P<y2>20\d\d) (?P<clock2>\d\d:\d\d:\d\d)(?P<part2>[.,]\d{1,6})?"
)
_DATED = re.compile(r"20\d\d(?:-?\d\d-?\d\d[T ]| )\d\d:")


class LoggedLine(NamedTuple):
    """One line: its place in the file, its text, the process that wrote it ("" if none is named), its time [s].

    suspect: it may tell of a failure; marks: bits of those that stand in it.
    """

    number: int
    text: str
    rank: str = ""
    time: float | None = None
    suspect: bool = False
    marks: int = 0


@dataclass(frozen=True, kw_only=True)
class LogText:
    """The lines of a file that have one of the texts looked for, of `count` in all.

    bits: of the marks, by which lines name them; unfinished: the last line of the file has no end; remarks: on how it
    was read.
    """

    lines: tuple[LoggedLine, ...]
    bits: Mapping[Mark, int]
    count: int
    unfinished: bool
    remarks: tuple[str, ...]

    def marked(self, marks: Sequence[Mark]) -> list[LoggedLine]:
        """The lines that have one of these marks."""
        wanted = sum({self.bits[mark] for mark in marks})
        if not any(marked & wanted for marked in self._marked):
            return []
        return [line for line in self.lines if line.marks & wanted]

    @cached_property
    def _marked(self) -> frozenset[int]:
        """What marks lines have: few combinations in a file of many lines."""
        return frozenset(line.marks for line in self.lines)


def read_lines(path: Path, marks: Sequence[Mark], signals: Sequence[str]) -> LogText:
    """The lines of a log file, plain or packed by gzip, in UTF-8 or UTF-16, or of a notebook's outputs, that have one
    of the marks, or of the signals in whatever case; all others of a large log are passed over quickly.

    Raises InvalidFile when it cannot be read or is no text.
    """
    remarks: list[str] = []
    try:
        data = read_bytes(path, MOST)
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}; give the path of a training log"]) from None
    if data.startswith(GZIP):
        data = _unpacked(path, data, remarks)
    whole = plain(io.StringIO(_outputs(_decoded(path, data, remarks), remarks), newline=None).read())
    unfinished = bool(whole) and not whole.endswith("\n")
    lower = whole.lower()
    suspects = _with(lower if len(lower) == len(whole) else whole, signals, range(len(signals)))
    bits = {mark: 2**place for place, mark in enumerate(dict.fromkeys(marks))}
    spans = _with(whole, tuple(bits), tuple(bits.values()))
    # What no line of the file has need not be looked for in each.
    labels = LABELS if _LABELLED.search("\n" + whole) else ()
    ranks = tuple(pattern for pattern in RANKS if pattern.search(whole))
    timed = _DATED.search(whole) is not None
    lines: list[LoggedLine] = []
    number, counted = 1, 0
    for start in sorted(spans.keys() | suspects.keys()):
        end, marked = spans.get(start, (0, 0))
        number, counted = number + whole.count("\n", counted, start), start
        text, rank = whole[start : end or suspects[start][0]], ""
        if labels or ranks:
            text, rank = unlabelled(text, labels, ranks)
        lines.append(LoggedLine(number, text, rank, time_of(text) if timed else None, start in suspects, marked))
    return LogText(
        lines=tuple(lines),
        bits=bits,
        count=whole.count("\n") + unfinished,
        unfinished=unfinished,
        remarks=tuple(remarks),
    )


def _with(text: str, wanted: Sequence[Mark], bits: Sequence[int]) -> dict[int, tuple[int, int]]:
    r"""Of the lines that have one of these texts: by where each begins, where it ends and the bits of what it has.

    >>> _with("one\ntwo\nthree", ("e", "n", re.compile("o")), (1, 2, 4))
    {0: (3, 7), 8: (13, 1), 4: (7, 4)}
    """
    spans: dict[int, tuple[int, int]] = {}
    for each, bit in zip(wanted, bits, strict=True):
        places = _places(text, each) if isinstance(each, str) else (match.start() for match in each.finditer(text))
        end = 0
        for place in places:
            if place < end:
                continue
            start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
            end = len(text) if end == -1 else end
            spans[start] = (end, spans[start][1] | bit if start in spans else bit)
    return spans


def _places(text: str, wanted: str) -> Iterator[int]:
    """Where a text stands in each line, once."""
    place = text.find(wanted)
    while place >= 0:
        yield place
        if not (end := text.find("\n", place) + 1):
            return
        place = text.find(wanted, end)


def plain(text: str) -> str:
    r"""A text without colours, and without numbers that are longer than any that a program prints.

    >>> plain("\x1b[32mstep: 5\x1b[0m of " + "9" * 20)
    'step: 5 of ?'
    >>> plain("1" * LONG + ".5"), plain("1" * 16), LONG
    ('?.5', '1111111111111111', 17)
    >>> plain("CurrSamplesPerSec=0.41971019455482256")
    'CurrSamplesPerSec=0.41971019455482256'
    """
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    return _ENDLESS.sub("?", text) if "0" * LONG in text.translate(_TO_ZERO) else text


def unlabelled(
    text: str, labels: Sequence[re.Pattern[str]] = LABELS, ranks: Sequence[re.Pattern[str]] = RANKS
) -> tuple[str, str]:
    """A line without the labels of its launcher, and the process that wrote it; `ranks` are how programs name it.

    >>> unlabelled("[rank3]:step:  5"), unlabelled("17:  iteration 5"), unlabelled("loss: 5")
    (('step:  5', '3'), (' iteration 5', '17'), ('loss: 5', ''))
    >>> unlabelled("node-1: [INFO] 5"), unlabelled("rep_0: [INFO] 5")
    (('[INFO] 5', 'node-1'), ('rep_0: [INFO] 5', ''))
    """
    rank = ""
    for label in labels:
        if match := label.match(text):
            rank, text = rank or match[1], text[match.end() :]
    for pattern in () if rank else ranks:
        if match := pattern.search(text, 0, 200):
            return text, match[1]
    return text, rank


def time_of(text: str) -> float | None:
    """The time at the front of a line [s since 1970, in the zone of the machine that wrote it], None for none.

    >>> time_of("[2026-01-02 10:00:01,500] [INFO]") - time_of("01/02/2026 10:00:00 [INFO|DP=0]")
    1.5
    """
    match = _TIME.search(text, 0, 120)
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
    most = MOST + 1
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(most)
    except (EOFError, OSError, zlib.error):
        try:
            content = zlib.decompressobj(wbits=31).decompress(data, most)
        except zlib.error as error:
            raise InvalidFile(path, [f"is a broken gzip file: {error}; give the whole log"]) from None
        remarks.append("the gzip file is cut short; what is there was read")
    if not content:
        raise InvalidFile(path, ["is an empty or broken gzip file; give the whole log"])
    if len(content) > MOST:
        raise InvalidFile(path, [f"unpacks to more than the {MOST / MB:,.0f} MB that are read; give a part of the log"])
    return content


def _decoded(path: Path, data: bytes, remarks: list[str]) -> str:
    """Text of the bytes of a log; bytes that are none are replaced, since one broken character spoils no number."""
    data = re.sub(rb"\A\0{16,}(?=[^\0])", b"", data)  # where a log that is written to was emptied
    encoding = next((name for mark, name in ENCODINGS.items() if data.startswith(mark)), "")
    start = data[:4096]
    if not encoding and start.count(0) > MOSTLY * len(start):
        encoding = max("utf-16-le", "utf-16-be", key=lambda name: sum(map(str.isascii, start.decode(name, "replace"))))
    text = data.decode(encoding or "utf-8", errors="replace")
    broken = text.count("\ufffd")
    if len(text) and (broken + text.count("\0")) / len(text) > 0.05:
        raise InvalidFile(path, ["is no text; give the log that the training program printed"])
    if broken:
        remarks.append(f"{broken:,} characters could not be decoded")
    return text.replace("\0", "")


def _outputs(text: str, remarks: list[str]) -> str:
    r"""What the cells of a notebook printed, and any other text as it is.

    Source: jupyter/nbformat, docs/format_description.rst (code cell outputs).

    >>> printed = {"output_type": "stream", "name": "stdout", "text": ["step 1\n", "step 2"]}
    >>> _outputs(json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "outputs": [printed]}]}), [])
    'step 1\nstep 2\n'
    >>> _outputs('{"nbformat"', [])
    '{"nbformat"'
    """
    if '"nbformat"' not in text:
        return text
    printed: list[str] = []
    try:
        for cell in json.loads(text)["cells"]:
            begun, tables = len(printed), ""
            for output in cell.get("outputs", ()):
                data = output.get("data", {})
                shown = output.get("text") or data.get("text/plain") or output.get("traceback", ())
                printed.append("".join(shown))
                tables += "".join(data.get("text/html", ()))
            if not any("train_runtime" in each for each in printed[begun:]):  # which is more exact
                printed += summaries(tables)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return text
    remarks.append("of the notebook what its cells printed was read, and lines are counted there")
    return "".join(f"{each}\n" for each in printed)
