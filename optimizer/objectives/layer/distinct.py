"""Price each distinct combination once: most terms depend on few of a plan's variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from optimizer.plan import IntArray, Plans, Table

Values = TypeVar("Values")
TABLE_LIMIT = 1 << 23  # entries of the largest look-up table built instead of sorting


def distinct(plans: Plans, names: Sequence[str]) -> tuple[Plans, NDArray[np.intp]]:
    """The plans that differ in these variables, and for each plan the index of its representative.

    >>> from optimizer.plan import Plan
    >>> plans = Plans.of([Plan(tp=2, dp=4), Plan(tp=2, dp=8), Plan(tp=4, dp=4)])
    >>> found, index = distinct(plans, ["tp"])
    >>> found.tp.tolist(), index.tolist()
    ([2, 4], [0, 0, 1])
    """
    code = np.zeros(len(plans), dtype=np.int64)
    size = 1
    for name in names:
        rank, count = _column(plans, name)
        if count > 1:
            code = code * count + rank
            size *= count
    index, count = _ranks(code) if size <= TABLE_LIMIT else _sorted_ranks(code)
    representative = np.zeros(count, dtype=np.int64)
    representative[index] = np.arange(len(plans))
    return plans.take(representative), index


def tabulated(
    plans: Plans, name: object, owner: object, keys: Sequence[str], price: Callable[[Plans], Values]
) -> tuple[Values, IntArray]:
    """What `price` makes of the plans that differ in these variables, and the row of each plan in it.

    It is kept with the plans under this name, and whatever is taken of them inherits it: the search looks at the same
    plans again and again. The variables must not be `recompute` or those that place layers.

    >>> from optimizer.plan import Plan
    >>> plans = Plans.of([Plan(tp=2, dp=4), Plan(tp=2, dp=8), Plan(tp=4, dp=4)])
    >>> squares, rows = tabulated(plans, "square", None, ["tp"], lambda few: few.tp**2)
    >>> again = tabulated(plans.take([2]), "square", None, ["tp"], lambda few: few.tp * 0)
    >>> squares[rows].tolist(), again[0][again[1]].tolist()
    ([4, 4, 16], [16])
    """
    known = plans.tables.get(name)
    if known is None or known.owner is not owner:
        name_of_keys = ("distinct", *keys)
        if name_of_keys not in plans.memo:
            plans.memo[name_of_keys] = distinct(plans, keys)
        few, rows = plans.memo[name_of_keys]
        known = plans.tables[name] = Table(owner=owner, values=price(few), rows=rows)
    found: Values = known.values
    return found, known.rows


def pick(
    choice: NDArray[np.intp] | NDArray[np.int64], options: Sequence[NDArray[np.float64] | float]
) -> NDArray[np.float64]:
    """options[choice[i]][i] for every i; numpy's choose is several times slower.

    >>> pick(np.array([1, 0]), (np.array([1.0, 2.0]), np.array([3.0, 4.0]))).tolist()
    [3.0, 2.0]
    """
    found = np.where(choice == 0, options[0], options[-1])
    for number, option in enumerate(options[1:-1], start=1):
        found = np.where(choice == number, option, found)
    return found


def _column(plans: Plans, name: str) -> tuple[NDArray[np.intp], int]:
    """Ranks of one column, remembered with the plans: several terms share columns."""
    if name not in plans.memo:
        plans.memo[name] = _ranks(getattr(plans, name).astype(np.int64, copy=False))
    rank, count = plans.memo[name]
    return rank, count


def _ranks(values: NDArray[np.int64]) -> tuple[NDArray[np.intp], int]:
    """The rank of each value among the distinct ones, and how many there are."""
    if values.size == 0:
        return np.zeros(0, dtype=np.intp), 0
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(values.size, dtype=np.intp), 1
    if high - low > TABLE_LIMIT:
        return _sorted_ranks(values)
    seen = np.zeros(high - low + 1, dtype=bool)
    seen[values - low] = True
    table = np.cumsum(seen) - 1
    return table[values - low], int(table[-1]) + 1


def _sorted_ranks(values: NDArray[np.int64]) -> tuple[NDArray[np.intp], int]:
    found, index = np.unique(values, return_inverse=True)
    return index, len(found)
