"""The ledger of a student: predictions, reflections and designs; saved as CSV or JSON, gathered by an instructor.

A page without an instructor's sheet keeps ledgers in the visitors' sessions alone. `optimize page --learn-out FILE`
names a sheet, which the server tells this room as SHEET; every entry is then appended to it as it is made.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError
from optimizer.page.learn.question import Question
from optimizer.page.learn.textbook.design import Design

SHEET = "learn_out"  # in what the server tells its rooms
DESIGN = "design"
MOST = 500  # entries of one visitor
LONGEST = 80  # characters of a name
LONGEST_HEAD = 1000  # characters of a first line that is looked at
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would take a cell for that begins so


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a ledger. Empty cells do not apply: predictions have no design, designs no question."""

    time: str
    visitor: str
    name: str = ""
    context: str = ""
    act: str = ""
    kind: str = ""
    question: str = ""
    answer: str = ""
    right: str = ""
    tp: str = ""
    pp: str = ""
    dp: str = ""
    microbatches: str = ""
    memory_gb: str = ""
    bubble_percent: str = ""
    mfu_percent: str = ""
    failures: str = ""


COLUMNS = tuple(field.name for field in fields(Entry))


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Who writes: a random `key` of the session, and the name that the student gives, if any."""

    key: str
    name: str = ""
    context: str = ""

    def stamp(self) -> dict[str, str]:
        """The cells that every entry of theirs has, at this moment."""
        name = " ".join(self.name.split())[:LONGEST]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"time": now, "visitor": self.key, "name": name, "context": self.context}


def answered(visitor: Visitor, question: Question, key: str) -> Entry:
    """What is kept of an answer."""
    return Entry(
        **visitor.stamp(),
        act=question.act,
        kind=question.kind,
        question=question.name,
        answer=key,
        right="yes" if question.is_right(key) else "no",
    )


def designed(visitor: Visitor, design: Design) -> Entry:
    """What is kept of a design of Act II."""
    return Entry(
        **visitor.stamp(),
        act="II",
        kind=DESIGN,
        right="yes" if design.good else "no",
        tp=str(design.tp),
        pp=str(design.pp),
        dp=str(design.dp) if design.divides else "",
        microbatches=str(design.microbatches),
        memory_gb=f"{design.memory / 1e9:.2f}",
        bubble_percent=f"{100 * design.bubble:.3f}",
        mfu_percent=f"{100 * design.mfu:.2f}",
        failures="; ".join(design.failures),
    )


def with_entry(entries: Sequence[Entry], entry: Entry) -> tuple[Entry, ...]:
    """The ledger with one entry more; the last MOST of them are kept."""
    return (*entries, entry)[-MOST:]


def as_csv(entries: Iterable[Entry], *, header: bool = True) -> str:
    """The ledger as CSV. What a spreadsheet would run as a formula gets an apostrophe in front.

    >>> print(as_csv([Entry(time="t", visitor="v", name="=1+1")], header=False).split(",")[2])
    '=1+1
    """
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([_harmless(value) for value in asdict(entry).values()] for entry in entries)
    return out.getvalue()


def as_json(entries: Iterable[Entry]) -> str:
    """The ledger as JSON: a list of objects keyed by column, empty cells left out."""
    kept: list[Mapping[str, Any]] = [{key: value for key, value in asdict(entry).items() if value} for entry in entries]
    return json.dumps(kept, indent=2, ensure_ascii=False)


def gather(entries: Sequence[Entry], sheet: Path) -> None:
    """Append entries to an instructor's sheet, whole lines at a time however many visitors write at once.

    Raises InputError where the sheet cannot be written, or is another file than a sheet of answers.
    """
    import fcntl

    try:
        with sheet.open("a+", encoding="utf-8", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            head = file.readline(LONGEST_HEAD).rstrip("\r\n")
            if head not in ("", ",".join(COLUMNS)):
                raise InputError(f"{sheet} is another file than a sheet of answers; nothing was written there")
            file.write(as_csv(entries, header=not head))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{sheet}: answers cannot be written there: {error}") from None


def sheet_named(told: Mapping[str, Any]) -> Path | None:
    """The instructor's sheet in what the server tells its rooms, None where there is none.

    >>> sheet_named({}), sheet_named({"learn_out": ""})
    (None, None)
    """
    named = str(told.get(SHEET, ""))
    return Path(named) if named else None


def tier(right: Mapping[str, bool], saved: Sequence[Design]) -> str:
    """How far a student is: "optimal" with the predictions of both acts right, a good design saved and none of the
    further acts that they played wrong; "partial" with one prediction right, else "developing".

    >>> good = [Design(tp=4, pp=16, microbatches=64)]
    >>> tier({"act-1": True, "act-2": True}, good), tier({"act-1": True, "act-2": True, "act-5": False}, good)
    ('optimal', 'partial')
    """
    if right.get("act-1") and right.get("act-2") and all(right.values()) and any(design.good for design in saved):
        return "optimal"
    return "partial" if any(right.values()) else "developing"


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell
