"""A visitor's desk: what they lock or save goes into their ledger, and onto the instructor's sheet if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from optimizer.base.errors import InputError
from optimizer.page.learn.ledger import Entry, Visitor, answered, designed, gather, with_entry
from optimizer.page.learn.question import Question
from optimizer.page.learn.textbook.design import Design

Change = Callable[[Callable[[Any], Any]], None]


def new_key() -> str:
    """A random name for a session, which says nothing about its visitor."""
    return token_hex(6)


@dataclass(kw_only=True)
class Desk:
    """What changes the state of one session: answers, ledger and saved designs; `trouble` says what went wrong.

    It outlasts what its visitor types: the page puts a changed name or context into `visitor`. `answers` has what sets
    the letter of each question, by its name.
    """

    visitor: Visitor
    answers: Mapping[str, Callable[[str], None]]
    entries: Change
    designs: Change
    trouble: Change
    sheet: Path | None = None
    locked: set[str] = field(default_factory=set)

    def answer(self, question: Question, key: str) -> None:
        """Lock an answer; the first one stays."""
        if question.name in self.locked:
            return
        self.locked.add(question.name)
        self.answers[question.name](key)
        self._keep(answered(self.visitor, question, key))

    def save(self, design: Design) -> None:
        """Save a design."""
        self.designs(lambda found: (*found, design))
        self._keep(designed(self.visitor, design))

    def _keep(self, entry: Entry) -> None:
        self.entries(lambda found: with_entry(found, entry))
        if self.sheet is None:
            return
        try:
            gather([entry], self.sheet)
        except InputError as problem:
            said = str(problem)
            self.trouble(lambda _: said)
