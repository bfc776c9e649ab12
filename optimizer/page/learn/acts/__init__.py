"""Every act, by its number: what it computes for its blanks, charts and tables."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.page.learn.act import Act, usual
from optimizer.page.learn.acts import eight, five, four, nine, one, seven, six, three, two

ACTS: Mapping[int, Act] = {
    number: Act(number=number, facts=act.facts, shown=act.shown, controls=getattr(act, "controls", usual))
    for number, act in enumerate((one, two, three, four, five, six, seven, eight, nine), 1)
}
