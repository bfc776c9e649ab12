"""Every term of an estimate with its formula, inputs and source, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import show
from optimizer.objectives.step.explain import Explanation
from optimizer.reports.terms import label

if TYPE_CHECKING:
    from rich.console import RenderableType


def explain_report(terms: Sequence[Explanation]) -> RenderableType:
    """Terms by unit, largest first: value, formula, inputs with their origin, source and label."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = []
    for unit, title in (("s", "Seconds"), ("B", "Bytes")):
        lines.append(Text(f"\n{title}, term by term", style="bold"))
        for term in sorted((term for term in terms if term.unit == unit), key=lambda term: -term.value):
            lines.append(Text(f" {label(term.name)}: {show(term.value, unit)} [{term.label}]", style="cyan"))
            lines.append(Text(f"   = {term.formula}"))
            lines.append(Text(f"   {', '.join(f'{name} = {_shown(value)}' for name, value in term.values.items())}"))
            lines.append(Text(f"   {term.about}", style="dim"))
            lines += [Text(f"   {name}: {text}", style="dim") for name, text in term.kernels.items()]
            if term.inputs:
                inputs = ", ".join(f"{name} = {value}" for name, value in term.inputs.items())
                lines.append(Text(f"   inputs: {inputs}"))
            if term.source:
                lines.append(Text(f"   source: {term.source}", style="dim"))
    return Group(*lines)


def _shown(value: float | tuple[float, ...]) -> str:
    """A number, or one for each kind of layer (embedding, dense, MoE, prediction, head, as the model has them)."""
    return f"{value:.6g}" if isinstance(value, float) else f"({', '.join(f'{number:.6g}' for number in value)})"
