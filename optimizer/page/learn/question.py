"""What the Learn tab asks a worker: an act with the values of its controls, or what a locked choice reveals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from optimizer.base.content import Values
from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.priced import CONTEXTS, SMALL

SLIDER, STEPS, DROPDOWN, SWITCH, TEXT = "slider", "steps", "dropdown", "switch", "text_area"


@dataclass(frozen=True, kw_only=True)
class LearnQuestion:
    """An act as a reader has set it. `question` and `key` name a locked choice, `sheet` what gathers answers."""

    act: int = 1
    context: str = SMALL
    values: tuple[tuple[str, str], ...] = ()  # of its controls, as they were written; the usual one where none is
    question: str = ""
    key: str = ""
    sheet: str = ""

    @property
    def searched(self) -> LearnQuestion:
        """The act: a worker that has shown it has its runs and plans at hand."""
        return LearnQuestion(act=self.act, context=self.context)

    @property
    def name(self) -> str:
        """What a file is called."""
        return "learn"

    def flags(self) -> str:
        """What serves the tab."""
        return "optimize page"

    def address(self) -> str:
        """The question as the part of an address after "?"."""
        return urlencode([("act", self.act), ("context", self.context), *self.values])


def asked(sheet: str, pairs: Sequence[tuple[str, str]]) -> LearnQuestion:
    """The question of an address. Raises InputError for an act, a context or a question that there is not.

    >>> asked("", [("act", "2"), ("tp", "4")]).values
    (('tp', '4'),)
    """
    given = dict(pairs)
    act, context = given.pop("act", "1"), given.pop("context", SMALL)
    question, key = given.pop("question", ""), given.pop("key", "")
    if not is_count(act) or int(act) not in ACTS:
        raise InputError(f"act {act[:20]!r} must be one of {', '.join(map(str, ACTS))}")
    if context not in CONTEXTS:
        raise InputError(f"context {context[:40]!r} must be one of {', '.join(CONTEXTS)}")
    named = {each["name"] for each in ACTS[int(act)].content["control"]}
    values = tuple(sorted((name, value) for name, value in given.items() if name in named))
    return LearnQuestion(act=int(act), context=context, values=values, question=question, key=key, sheet=sheet)


def controls(asks: LearnQuestion, pasted: str) -> Mapping[str, Values]:
    """The controls of the act by name, each with its `value`; raises InputError for one out of its range."""
    act, given = ACTS[asks.act], dict(asks.values)
    more = act.controls(asks.context, pasted)
    shown = [{**each, **more.get(each["name"], {})} for each in act.content["control"]]
    return {each["name"]: {**each, "value": _value(each, given.get(each["name"]), pasted)} for each in shown}


def _value(control: Values, text: str | None, pasted: str) -> Any:
    """The value of a control as it was written, the usual one where it was not."""
    kind = control["kind"]
    if kind == TEXT:
        return pasted
    values = allowed(control)
    if text is None:
        return values[0] if kind == DROPDOWN else control.get("value", False)
    known = {written(value): value for value in values}
    if text in known:
        return known[text]
    if kind == SWITCH:
        return False
    rule = f"must be one of {', '.join(known)}" if kind == DROPDOWN else f"must be from {values[0]} to {values[-1]}"
    raise InputError(f"{control['label']} {rule}, but got {text[:20]!r}")


def allowed(control: Values) -> Sequence[Any]:
    """The values that a control may have."""
    match control["kind"]:
        case "switch":
            return (False, True)
        case "dropdown":
            return tuple(control["options"].values())
        case "steps":
            return tuple(control["steps"])
    low, high, _ = control["range"]
    return range(low, high + 1)


def written(value: Any) -> str:
    """A value as an address has it.

    >>> written(True), written(8)
    ('yes', '8')
    """
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
