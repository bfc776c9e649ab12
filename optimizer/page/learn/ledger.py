"""The ledger of a student: predictions, reflections and designs; saved as CSV or JSON, gathered by an instructor.

A ledger is kept in its student's browser. `optimize page --learn-out FILE` names a sheet, to which every entry is then
appended as it is made.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError
from optimizer.page.learn.act import ActQuestion
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.content_files import texts
from optimizer.page.learn.question import LearnQuestion, controls
from optimizer.reports.render.html import marked_up, report_page
from optimizer.reports.report import Report, Table, columns, section
from optimizer.studies.textbook import LabDesign

DESIGN = "design"
LONGEST = 80  # characters of a name
LONGEST_HEAD = 1000  # characters of a first line that is looked at
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would take a cell for that begins so
LETTERS = ("A", "B", "C", "D")
DEGREES = ("tp", "pp", "microbatches")
GROUPS = columns("name or group | students [1] | answers [1] | right [%]")


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
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


COLUMNS = tuple(column.name for column in fields(LedgerEntry))
SHOWN_COLUMNS = tuple(name for name in COLUMNS if name not in ("visitor", "name", "context", "question", "failures"))


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Who writes."""

    key: str  # random, of a browser
    name: str = ""  # that the student gives
    context: str = ""

    def stamp(self) -> dict[str, str]:
        """The cells that every entry of theirs has, at this moment."""
        name = " ".join(self.name.split())[:LONGEST]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"time": now, "visitor": self.key, "name": name, "context": self.context}


def answered(visitor: Visitor, question: ActQuestion, key: str) -> LedgerEntry:
    """The entry of an answer."""
    return LedgerEntry(
        **visitor.stamp(),
        act=question.act,
        kind=question.kind,
        question=question.name,
        answer=key,
        right="yes" if question.is_right(key) else "no",
    )


def designed(visitor: Visitor, design: LabDesign) -> LedgerEntry:
    """The entry of a design of Act II."""
    degrees = {name: str(getattr(design, name)) for name in ("tp", "pp", "microbatches")}
    return LedgerEntry(
        **visitor.stamp(),
        **degrees,
        act="II",
        kind=DESIGN,
        right="yes" if design.good else "no",
        dp=str(design.dp) if design.divides else "",
        memory_gb=f"{design.memory / 1e9:.2f}",
        bubble_percent=f"{100 * design.bubble:.3f}",
        mfu_percent=f"{100 * design.mfu:.2f}",
        failures="; ".join(design.failures),
    )


def as_csv(entries: Iterable[LedgerEntry], *, header: bool) -> str:
    """Entries as CSV. What a spreadsheet would run as a formula gets an apostrophe in front.

    >>> print(as_csv([LedgerEntry(time="t", visitor="v", name="=1+1")], header=False).split(",")[2])
    '=1+1
    """
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    cells = (asdict(entry).values() for entry in entries)
    writer.writerows([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in line] for line in cells)
    return out.getvalue()


def gather(entries: Sequence[LedgerEntry], sheet: Path) -> None:
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


def entry_view(asks: LearnQuestion, body: bytes) -> dict[str, Any]:
    """The entry of a locked choice or a saved design; on the instructor's sheet too, if there is one.

    Args:
        asks: the sheet, if there is one, and the act.
        body: JSON with visitor, name and context, and a question with its key or a design.

    Returns:
        The entry, and `trouble`: why it is not on the sheet.
    """
    sent = _json(body)
    visitor = Visitor(**{name: str(sent.get(name, ""))[:LONGEST] for name in ("key", "name", "context")})
    if "design" in sent:
        entry = designed(visitor, _design(sent["design"]))
    else:
        entry = answered(visitor, ACTS[asks.act].question(asks.question), asks.key)
    trouble = ""
    if asks.sheet:
        try:
            gather([entry], Path(asks.sheet))
        except InputError as problem:
            trouble = str(problem)
    return {"entry": cells_of(entry), "trouble": trouble}


def cells_of(entry: LedgerEntry) -> dict[str, str]:
    """The cells that are not empty, by column."""
    return {name: value for name, value in asdict(entry).items() if value}


def takeaways_view(asks: LearnQuestion) -> dict[str, Any]:
    """What to take away, which a page asks for once the predictions of both acts are locked."""
    return {"html": marked_up(texts("lab.md")["takeaways"])}


def class_page(asks: LearnQuestion) -> bytes:
    """For the teacher: how many of a class took each choice, from the gathered sheet; the last answer of each counts.

    Raises InputError without a sheet, and for a file that is none.
    """
    if not asks.sheet:
        raise InputError("nothing is gathered: start `optimize page --learn-out answers.csv`")
    path = Path(asks.sheet)
    with path.open(encoding="utf-8", newline="", errors="replace") if path.exists() else StringIO() as file:
        others = ("", "question")  # of a design, of another ledger that was put behind the first
        lines = [row for row in csv.DictReader(file) if row.get("question", "") not in others]
    if any(None in row.values() or not set(COLUMNS) <= row.keys() for row in lines):
        raise InputError(f"{path} is another file than a sheet of answers")
    taken = {(row["visitor"], row["question"]): row["answer"] for row in lines}
    questions = [question for act in ACTS.values() for question in act.questions]
    rows = []
    for question in questions:
        keys = Counter(key for (_, name), key in taken.items() if name == question.name)
        cells = [
            f"{keys[key]}{' *' * (key == question.right)}" if key in question.options.values() else ""
            for key in LETTERS
        ]
        share = keys[question.right] / keys.total() if keys else 0.0
        rows.append(
            (f"Act {question.act}: {question.text}", *cells, f"{share:.0%}" if keys else "", share if keys else None)
        )
    heads = columns(f"question ~ | {' | '.join(f'{key} [text]' for key in LETTERS)} | right [text] | [bar]")
    report = Report(
        title=f"{len({visitor for visitor, _ in taken})} students",
        subject=(f"Choices by question, of {path.name}; * is the right one.",),
        sections=(section("Choices", Table(heads, rows)), section("Groups", Table(GROUPS, _groups(lines)))),
        note="Counted from the sheet at this moment.",
    )
    return report_page(report).encode()


def _groups(lines: Sequence[Mapping[str, str]]) -> list[tuple[str, int, int, float]]:
    """Each name or group: its students, their answers, and which share of these is right; the last of each counts."""
    last = {(row["visitor"], row["question"]): row for row in lines}.values()
    groups = [(name, [row for row in last if row["name"] == name]) for name in sorted({row["name"] for row in last})]
    return [
        (
            name or "no name",
            len({row["visitor"] for row in rows}),
            len(rows),
            sum(row["right"] == "yes" for row in rows) / len(rows),
        )
        for name, rows in groups
    ]


def _json(body: bytes) -> dict[str, Any]:
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict) or not isinstance(sent.get("design", {}), dict):
        raise InputError("the progress that was sent is damaged; clear it with Start over")
    return sent


def _design(given: Mapping[str, Any]) -> LabDesign:
    """A design of the sliders of Act II. Raises InputError for another."""
    asks = LearnQuestion(act=2, values=tuple((name, str(given[name])) for name in DEGREES if name in given))
    return LabDesign(**{name: each["value"] for name, each in controls(asks, "").items() if name in DEGREES})
