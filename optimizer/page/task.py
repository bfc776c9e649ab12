"""What a worker is asked: a view of a question of any tab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class TabQuestion(Protocol):
    """A question; equal ones have one answer."""

    @property
    def searched(self) -> TabQuestion:
        """The part that a search answers: a worker that has answered it has its plans at hand."""

    @property
    def name(self) -> str:
        """What files about it are called."""

    def flags(self) -> str:
        """The command that gives the same answer."""

    def address(self) -> str:
        """The question as the part of an address after "?"."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class PageTask:
    """A view of a question."""

    view: str
    asked: TabQuestion
    body: bytes = b""  # what a visitor sent with it
    passing: bool = False  # whether its result is forgotten once it is shown
