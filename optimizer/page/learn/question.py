"""A question with its choices: what is asked, which choice is right, and what each reveals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optimizer.base.errors import InputError
from optimizer.page.learn.content_files import Values, filled_in

PREDICTION = "prediction"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One choice.

    Attributes:
        key: its letter.
        text: what it says.
        reveal: what is shown once it is taken; called then, as its numbers may take work.
    """

    key: str
    text: str
    reveal: Callable[[], str]

    @property
    def label(self) -> str:
        """The letter and the text, as a button shows them."""
        return f"{self.key}. {self.text}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of an act; exactly one choice, `right`, is right.

    Attributes:
        name: its identity in ledgers.
        act: the act's Roman number.
        kind: prediction or reflection.
        text: what is asked.
        right: the letter of the right choice.
        choices: in their order.

    >>> ask = question_of({"name": "q", "kind": PREDICTION, "text": "{n}?", "right": "A", "choice": [
    ...     {"key": "A", "text": "yes", "reveal": "so"}, {"key": "B", "text": "no", "reveal": "{n}"}]}, "I", {"n": 2})
    >>> ask.text, ask.options, ask.choice("B").reveal(), ask.is_right("B")
    ('2?', {'A. yes': 'A', 'B. no': 'B'}, '2', False)
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


def question_of(content: Values, act: str, facts: Values) -> Question:
    """The question that an entry of an act's [[question]] describes, its blanks filled in with these facts."""
    choices = tuple(
        Choice(
            key=each["key"],
            text=filled_in(each["text"], facts),
            reveal=lambda template=each["reveal"]: filled_in(template, facts),  # type: ignore[misc]
        )
        for each in content["choice"]
    )
    plain = {name: content[name] for name in ("name", "kind", "right")}
    return Question(**plain, act=act, text=filled_in(content["text"], facts), choices=choices)
