"""Exceptions a user can meet, and the exit code each one becomes.

OptimizerError            1  our bug, unless a subclass says otherwise
├── InputError            2  a name, number, option or file that cannot be used
│   ├── UnknownName       2  no preset of that name; carries the nearest ones
│   └── InvalidFile       2  a file with one or more problems, all reported at once
├── Infeasible            3  proven: no plan satisfies every rule
├── TimeLimit             4  the time limit passed before any answer was found
└── PartialFailure        5  some jobs of a batch failed; the others are kept
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import islice

LONGEST_MESSAGE = 1800  # bytes that a message may have on stderr, beside the usage of a command
MOST_PROBLEMS = 12
LONGEST_PROBLEM = 700
OF_FILES = ("model", "cluster", "stack")  # what may be a file wherever it is a preset


class OptimizerError(Exception):
    """Base class: `str(error)` is the whole message shown to the user."""

    exit_code = 1


class InputError(OptimizerError):
    """Something the user gave cannot be used: what, the offending value, what to do."""

    exit_code = 2


class UnknownName(InputError):
    """No preset of this kind has this name."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        self.nearest = nearest(name, known)
        hint = f" Did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        file = "; a path to a file works too" * (kind in OF_FILES)
        super().__init__(f"unknown {kind} {name!r}.{hint} `optimize presets` lists every {kind}{file}.")


class InvalidFile(InputError):
    """A file that cannot be used, with every problem found in it."""

    def __init__(self, path: object, problems: Sequence[str]) -> None:
        self.path, self.problems = str(path), tuple(problems)
        shown = (p if len(p) <= LONGEST_PROBLEM else f"{p[: LONGEST_PROBLEM - 3]}..." for p in self.problems)
        lines = "\n".join(f"  - {problem}" for problem in islice(shown, MOST_PROBLEMS))
        if more := len(self.problems) - MOST_PROBLEMS:
            lines += f"\n  - and {more:,} more" * (more > 0)
        super().__init__(f"{self.path}: {len(self.problems)} problem{'s' * (len(self.problems) != 1)}\n{lines}")


class Infeasible(OptimizerError):
    """Proven: no plan satisfies every rule."""

    exit_code = 3


class TimeLimit(OptimizerError):
    """The time limit passed before any feasible plan was found."""

    exit_code = 4


class PartialFailure(OptimizerError):
    """Some jobs of a batch failed; every other result is kept."""

    exit_code = 5


def nearest(name: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The known names closest to a mistyped one, best first.

    >>> nearest("lama3-8b", ["llama3-8b", "llama3-70b", "gpt3"])[0]
    'llama3-8b'
    """
    lowered = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), lowered, n=count, cutoff=0.5)
    return tuple(lowered[match] for match in matches)


def shortened(message: str) -> str:
    """A message of at most LONGEST_MESSAGE bytes, without its middle where it has more.

    >>> shortened("short"), len(shortened("x" * 10**6))
    ('short', 1772)
    """
    data = message.encode("utf-8", "replace")
    if len(data) <= LONGEST_MESSAGE:
        return message
    half = LONGEST_MESSAGE // 2 - 30
    start, end = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{start} ... ({len(message):,} characters) ... {end}"
