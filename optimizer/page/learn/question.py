"""A question with its choices: what is asked, which choice is right, and what each reveals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optimizer.base.errors import InputError

PREDICTION, REFLECTION = "prediction", "reflection"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One choice: its letter, what it says, and what is said of it once it is taken.

    A `reveal` that takes work to find is a function, called when it is shown.
    """

    key: str
    text: str
    reveal: str | Callable[[], str]

    @property
    def revealed(self) -> str:
        """What is said of it."""
        return self.reveal if isinstance(self.reveal, str) else self.reveal()

    @property
    def label(self) -> str:
        """The letter and the text, as a button shows them."""
        return f"{self.key}. {self.text}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of an act, `name` being its identity in ledgers; exactly one choice, `right`, is right.

    >>> ask = Question(name="q", act="I", kind=PREDICTION, text="?", right="A",
    ...     choices=(Choice(key="A", text="yes", reveal="so"), Choice(key="B", text="no", reveal="not so")))
    >>> ask.options, ask.choice("B").revealed, ask.is_right("B")
    ({'A. yes': 'A', 'B. no': 'B'}, 'not so', False)
    """

    name: str
    act: str
    kind: str
    text: str
    right: str
    choices: tuple[Choice, ...]

    @property
    def options(self) -> Mapping[str, str]:
        """Letters by label."""
        return {choice.label: choice.key for choice in self.choices}

    def choice(self, key: str) -> Choice:
        """The choice of this letter. Raises InputError for another."""
        for choice in self.choices:
            if choice.key == key:
                return choice
        raise InputError(f"{self.name} has no choice {key!r}; use one of {', '.join(c.key for c in self.choices)}")

    def is_right(self, key: str) -> bool:
        """Whether this letter is the right one."""
        return self.choice(key).key == self.right
