"""Arrays of many plans: price each distinct combination once, and choose entry by entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optimizer.job.plan import IntArray, Plans

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Number = TypeVar("Number", float, FloatArray)
ROUNDING = 1e-9  # relative: by how much sums of the same numbers may differ
FEW = 64  # entries that are cheaper to write than to share
TABLE_LIMIT = 1 << 23  # entries of the largest look-up table built instead of sorting


def raised(value: Number) -> Number:
    """A value and a little more, so that what is equal but for rounding is at most this.

    >>> raised(2.0) - 2.0 < 1e-8, raised(0.1 + 0.7) >= 0.8
    (True, True)
    """
    return value * (1.0 + ROUNDING)


def lowered(value: Number) -> Number:
    """A value less a little, so that rounding cannot make a bound exceed what it bounds.

    >>> 2.0 - lowered(2.0) < 1e-8, lowered(0.1 + 0.2) <= 0.3
    (True, True)
    """
    return value * (1.0 - ROUNDING)


def ascending(values: FloatArray) -> IntArray:
    """Positions from the least value on; those that are equal but for rounding stay in their order, on any machine.

    >>> ascending(np.array([3.0, 0.3, 0.1 + 0.2, np.inf, 0.1])).tolist()
    [4, 1, 2, 0, 3]
    """
    with np.errstate(divide="ignore"):
        return np.argsort(np.round(np.log(values) / ROUNDING), kind="stable")


def symmetric_root(covariance: FloatArray) -> FloatArray:
    """The symmetric R with R R = covariance, by which draws are the same on every machine.

    It is unique; eigenvectors of nearly equal variances, and so draws by them, differ with a processor's rounding.

    >>> symmetric_root(np.diag([4.0, 9.0])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def distinct(plans: Plans, names: Sequence[str]) -> tuple[Plans, IntArray]:
    """The plans that differ in these variables, and for each plan the index of its representative.

    >>> from optimizer.job.plan import Plan
    >>> plans = Plans.of([Plan(tp=2, dp=4), Plan(tp=2, dp=8), Plan(tp=4, dp=4)])
    >>> some, index = distinct(plans, ["tp"])
    >>> some.tp.tolist(), index.tolist()
    ([2, 4], [0, 0, 1])
    """
    key = tuple(names)
    if key not in plans.representatives:
        plans.representatives[key] = _distinct(plans, key)
    return plans.representatives[key]


def _distinct(plans: Plans, names: Sequence[str]) -> tuple[Plans, IntArray]:
    code = np.zeros(len(plans), dtype=np.int64)
    size = 1
    for name in names:
        rank, count = ranked(getattr(plans, name).astype(np.int64, copy=False))
        if count > 1:
            code = code * count + rank
            size *= count
    index, count = ranked(code) if size <= TABLE_LIMIT else _sorted_ranks(code)
    representative = np.zeros(count, dtype=np.int64)
    representative[index] = np.arange(len(plans))
    return plans.take(representative), index


def pick(choice: IntArray, options: Sequence[FloatArray | float]) -> FloatArray:
    """options[choice[i]][i] for every i; numpy's choose is several times slower.

    >>> pick(np.array([1, 0]), (np.array([1.0, 2.0]), np.array([3.0, 4.0]))).tolist()
    [3.0, 2.0]
    """
    chosen = np.where(choice == 0, options[0], options[-1])
    for number, option in enumerate(options[1:-1], start=1):
        chosen = np.where(choice == number, option, chosen)
    return chosen


@lru_cache(maxsize=64)
def nothing(count: int) -> FloatArray:
    """So many zeros that take no memory, to be read only."""
    return np.broadcast_to(np.zeros(1), count)


def spread(value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """The value in this shape, to be read only; many equal entries take no memory.

    >>> spread(2.0, (3,)).tolist()
    [2.0, 2.0, 2.0]
    """
    given = np.asarray(value, dtype=np.float64)
    if given.shape == shape:
        return given
    return np.full(shape, given) if given.ndim == 0 and math.prod(shape) <= FEW else np.broadcast_to(given, shape)


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """A function applied to every column of a value: an array, or a dataclass, mapping or tuple of such values.

    >>> mapped({"m": (1.0, 2.0)}, lambda size: 2 * size)
    {'m': (2.0, 4.0)}
    """
    if names := _columns(value.__class__):
        return type(value)(**{name: mapped(getattr(value, name), function) for name in names})
    if isinstance(value, Mapping):
        return {name: mapped(part, function) for name, part in value.items()}
    return tuple(mapped(part, function) for part in value) if isinstance(value, tuple) else function(value)


def joined(values: Sequence[Any]) -> Any:
    """Values of one kind as one: each of their columns is theirs one after the other.

    >>> joined([{"m": np.ones(1)}, {"m": np.zeros(2)}])
    {'m': array([1., 0., 0.])}
    """
    first = values[0]
    if names := _columns(first.__class__):
        return type(first)(**{name: joined([getattr(value, name) for value in values]) for name in names})
    if isinstance(first, Mapping):
        return {name: joined([value[name] for value in values]) for name in first}
    return tuple(map(joined, zip(*values, strict=True))) if isinstance(first, tuple) else np.concatenate(values)


@cache
def _columns(kind: type) -> tuple[str, ...]:
    """Names of the fields of a dataclass, none of another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def total(rows: FloatArray) -> FloatArray:
    """Sum over the first axis, such as the kinds of layers.

    >>> total(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    return np.asarray(rows.sum(axis=0), dtype=np.float64)


def ranked(values: IntArray) -> tuple[IntArray, int]:
    """The rank of each value among the distinct ones, and how many there are.

    >>> ranks, count = ranked(np.array([5, -3, 5]))
    >>> ranks.tolist(), count
    ([1, 0, 1], 2)
    """
    if values.size == 0:
        return np.zeros(0, dtype=np.int64), 0
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(values.size, dtype=np.int64), 1
    if high - low > TABLE_LIMIT:
        return _sorted_ranks(values)
    present = _present(values, low, high)
    table = np.zeros(high - low + 1, dtype=np.int64)
    table[present] = np.arange(len(present))
    return table[values - low], len(present)


def different(values: IntArray) -> IntArray:
    """The distinct values in increasing order, of few or close ones sooner than by sorting them.

    >>> different(np.array([8, 2, 8])).tolist()
    [2, 8]
    """
    if values.size == 0:
        return values
    low, high = int(values.min()), int(values.max())
    if high - low > TABLE_LIMIT:
        return np.unique(values)
    return _present(values, low, high) + low


def _present(values: IntArray, low: int, high: int) -> IntArray:
    """By how much the values that there are exceed the lowest."""
    seen = np.zeros(high - low + 1, dtype=bool)
    seen[values - low] = True
    return np.flatnonzero(seen)


def _sorted_ranks(values: IntArray) -> tuple[IntArray, int]:
    different, index = np.unique(values, return_inverse=True)
    return index.astype(np.int64), len(different)
