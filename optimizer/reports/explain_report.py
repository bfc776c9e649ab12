"""Every term of an estimate with its formula, inputs and source, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from optimizer.base.units import show
from optimizer.objectives.step.explain import Explanation
from optimizer.reports.report import Section, Text, section
from optimizer.reports.terms import label


def explain_sections(terms: Sequence[Explanation]) -> list[Section]:
    """Terms by unit, largest first: value, formula, inputs with their origin, source and label."""
    return [
        section(
            f"{title}, term by term",
            *(
                Text("\n".join(_lines(term)), block=True)
                for term in sorted((term for term in terms if term.unit == unit), key=lambda term: -term.value)
            ),
        )
        for unit, title in (("s", "Seconds"), ("B", "Bytes"))
    ]


def _lines(term: Explanation) -> Iterator[str]:
    yield f"{label(term.name)}: {show(term.value, term.unit)} [{term.label}]"
    yield f"  = {term.formula}"
    yield f"  {', '.join(f'{name} = {_shown(value)}' for name, value in term.values.items())}"
    yield f"  {term.about}"
    yield from (f"  {name}: {text}" for name, text in term.kernels.items())
    if term.inputs:
        yield f"  inputs: {', '.join(f'{name} = {value}' for name, value in term.inputs.items())}"
    if term.source:
        yield f"  source: {term.source}"


def _shown(value: float | tuple[float, ...]) -> str:
    """A number, or one for each kind of layer (embedding, dense, MoE, MTP, head, as the model has them)."""
    return f"{value:.6g}" if isinstance(value, float) else f"({', '.join(f'{number:.6g}' for number in value)})"
