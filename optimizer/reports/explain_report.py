"""Every term of an estimate with its formula, inputs and source, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.objectives.step.explain import Term
from optimizer.reports.terms import label
from optimizer.units import show

if TYPE_CHECKING:
    from rich.console import RenderableType


def explain_report(terms: Sequence[Term]) -> RenderableType:
    """Terms by unit, largest first: value, formula, inputs with their origin, source and label."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = []
    for unit, title in (("s", "Seconds"), ("B", "Bytes")):
        lines.append(Text(f"\n{title}, term by term", style="bold"))
        for term in sorted((term for term in terms if term.unit == unit), key=lambda term: -term.value):
            lines.append(Text(f" {label(term.name)}: {show(term.value, unit)} [{term.label}]", style="cyan"))
            lines.append(Text(f"   {term.formula}"))
            if term.inputs:
                inputs = ", ".join(f"{name} = {value}" for name, value in term.inputs.items())
                lines.append(Text(f"   inputs: {inputs}"))
            if term.source:
                lines.append(Text(f"   source: {term.source}", style="dim"))
    return Group(*lines)
