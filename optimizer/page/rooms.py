"""The rooms that are served, and where each is."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Room:
    """A room at `path`; `about` says in a sentence what is done there."""

    path: str
    title: str
    about: str


PLAN = Room(
    path="/plan",
    title="Plan",
    about="A model and a cluster in, the proven best plan out: move a slider and see.",
)
LEARN = Room(
    path="/learn",
    title="Learn",
    about="The Parallelism Paradox: predict, then see what the cost model says.",
)
LAB = "optimizer.page.learn.app"  # a marimo app, served at LEARN's path where it is installed


def lab_file() -> Path | None:
    """Where the marimo app of the Learn room lies; None where this installation has none."""
    try:
        found = find_spec(LAB)
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found and found.origin else None


def rooms() -> tuple[Room, ...]:
    """The rooms of this installation."""
    return (PLAN, LEARN) if lab_file() else (PLAN,)
