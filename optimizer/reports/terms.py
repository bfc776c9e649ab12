"""What the terms of an estimate are called in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.time_terms import TIME_TERMS

LABELS: Mapping[str, str] = {name: term.label for name, term in {**MEMORY_TERMS, **TIME_TERMS}.items()}


def label(term: str) -> str:
    """Name of a term for people.

    >>> label("tp_communication"), label("weights")
    ('TP communication', 'weights')
    """
    return LABELS.get(term, term.replace("_", " "))


def largest_first(terms: Mapping[str, float], *, below: float = 0.0005) -> tuple[list[tuple[str, float]], float]:
    """Terms by size, and the sum of those smaller than `below` of the total.

    >>> largest_first({"a": 1.0, "b": 3.0, "c": 0.001})
    ([('b', 3.0), ('a', 1.0)], 0.001)
    """
    total = sum(terms.values())
    shown = sorted(((name, value) for name, value in terms.items() if value > below * total), key=lambda t: -t[1])
    return shown, sum(value for value in terms.values() if 0 < value <= below * total)


def runs(counts: Sequence[int]) -> str:
    """Counts with repetitions written as products.

    >>> runs((5, 4, 4, 4, 3))
    '5 3×4 3'
    """
    parts: list[list[int]] = []
    for count in counts:
        if parts and parts[-1][1] == count:
            parts[-1][0] += 1
        else:
            parts.append([1, count])
    return " ".join(f"{times}×{count}" if times > 1 else str(count) for times, count in parts)
