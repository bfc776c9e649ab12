"""Two documents compared leaf by leaf: what was saved, and what this version would have written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from math import isclose
from typing import Any

from optimizer.base.units import GB
from optimizer.search.check.plan_rules import Finding

TOLERANCE = 1e-6  # relative: what a number may be off by
NOISE = 1e-12  # of the largest number beside it: what is left of nothing where sums cancel
LONGEST = 60  # characters of a value in a message


def disagreements(
    saved: Any, fresh: Any, unchecked: Iterable[str], path: str = "", scale: float = 0.0
) -> Iterator[Finding]:
    """Every value that is absent, unknown, of another type or off by more than TOLERANCE.

    `unchecked` are places that are not compared, such as "search_s" or "certificate.candidates".
    """
    if _matches(path, unchecked):
        return
    if isinstance(fresh, dict) and isinstance(saved, dict):
        # Inputs of a formula have units of their own: what is noise beside one is not beside another.
        alike = () if path.endswith(".values") else fresh.values()
        scale = max((abs(value) for value in alike if _is_number(value)), default=0.0)
        for name in dict.fromkeys((*fresh, *saved)):
            place = f"{path}.{name}" if path else name
            if name in saved and name in fresh:
                yield from disagreements(saved[name], fresh[name], unchecked, place, scale)
            elif not _matches(place, unchecked):
                reason = f"unknown to this version: {shown(saved[name])}" if name in saved else "missing"
                yield Finding(name=place, holds=False, reason=reason)
    elif isinstance(fresh, list) and isinstance(saved, list):
        if len(saved) != len(fresh):
            reason = f"{len(saved)} entries; this version finds {len(fresh)}"
            yield Finding(name=path, holds=False, reason=reason)
        for index, pair in enumerate(zip(saved, fresh, strict=False)):
            yield from disagreements(*pair, unchecked, f"{path}[{index}]", scale)
    elif not same(saved, fresh, scale):
        yield Finding(
            name=path, holds=False, reason=f"claimed {shown(saved, path)}, this version finds {shown(fresh, path)}"
        )


def same(saved: Any, fresh: Any, scale: float = 0.0) -> bool:
    """Whether two leaves agree: numbers within the tolerance, counts and all else exactly.

    >>> same(1.0000001, 1.0), same(1.00001, 1.0), same(8, 8), same(8.0, 8), same(True, 1)
    (True, False, True, False, False)
    """
    if isinstance(fresh, float) and _is_number(saved):
        return isclose(saved, fresh, rel_tol=TOLERANCE, abs_tol=NOISE * scale)
    return type(saved) is type(fresh) and bool(saved == fresh)


def leaves(value: Any) -> int:
    """How many values a part of a document holds.

    >>> leaves({"a": [1, 2], "b": None})
    3
    """
    if isinstance(value, dict | list):
        return sum(map(leaves, value.values() if isinstance(value, dict) else value))
    return 1


def shown(value: Any, path: str = "") -> str:
    """A value for a message: numbers to seven digits in the unit that the path names, long texts cut.

    >>> shown(8.25e10, "estimate.memory_bytes.weights"), shown(1.5, "certificate.best_s"), shown(0.25, "estimate.mfu")
    ('82.5 GB', '1.5 s', '0.25')
    """
    if isinstance(value, float):
        bytes_, seconds = "_bytes" in path, re.search(r"_s\b", path) is not None
        return f"{value / GB:.7g} GB" if bytes_ else f"{value:.7g}{' s' if seconds else ''}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _matches(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of these places or inside; the certificate of a number format is a certificate."""
    plain = re.sub(r"\.by_format\.[^.]+", "", path)
    return any(plain == place or plain.startswith((f"{place}.", f"{place}[")) for place in places)
