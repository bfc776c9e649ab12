"""The plan command's `--why-not`: a plan of yours against ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.commands.values import Pin, merged
from optimizer.constraints.pin_text import Pinned, pin_texts

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.search.why.comparison import Comparison


class Pins(click.ParamType[Mapping[str, Pinned]]):
    """Pinned plan variables, separated by commas: "tp=4,pp=8", "tp=2,4,pp=8"."""

    name = "var=value,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, Pinned]:
        """The value, range or list of each variable by its name in Plan."""
        if not isinstance(value, str):
            return dict(value)
        pins = [Pin().convert(part, param, ctx) for part in pin_texts(value)]
        if not pins:
            self.fail(f"{value!r} names no variable; write for example tp=4,pp=8", param, ctx)
        try:
            merged(pins)
        except InputError as error:
            self.fail(str(error).replace("--fix ", ""), param, ctx)
        return dict(pins)


def comparison_of(answer: Answer, pins: Mapping[str, Pinned] | None) -> Comparison | None:
    """The comparison that was asked for; None without pins, or when there is no plan to compare with."""
    if not pins or answer.plan is None:
        return None
    from optimizer.search.why.comparison import why_not

    return why_not(answer.job, answer, pins)
