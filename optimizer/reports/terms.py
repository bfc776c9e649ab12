"""What the terms of an estimate are called in reports, and what the short words of the field mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from optimizer.base.content import content
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


def words_in(texts: Iterable[str]) -> dict[str, str]:
    """The words of the glossary that stand in a text, in the order of the glossary.

    >>> list(words_in(["TP 4 SP, DP 8", "MFU 40 %"]))
    ['TP', 'SP', 'DP', 'MFU']
    """
    whole, glossary = " ".join(texts), content("optimizer.reports", "words.toml")["glossary"]
    return {
        word: meaning for word, meaning in glossary.items() if re.search(rf"(?<![\w-]){re.escape(word)}(?!\w)", whole)
    }
