"""Dataclasses of equally long columns, of which some rows are taken: a column is copied when it is asked for first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

R = TypeVar("R", bound="Rows")
_OF, _AT = "_of", "_at"  # names of what rows were taken of, and at which positions


class Rows:
    """A frozen dataclass whose fields are columns, or mappings, tuples and other Rows of such, but for WHOLE.

    A search takes some of many plans hundreds of times and reads few of their columns each time.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Sizes(Rows):
    ...     WHOLE = ("name",)
    ...     name: str
    ...     bytes: Any
    ...     seconds: Any
    >>> sizes = Sizes(name="layers", bytes=np.array([1.0, 2.0, 4.0]), seconds=np.zeros(3))
    >>> some = sizes.take([2, 0]).take([1])
    >>> some.name, some.bytes.tolist(), "seconds" in vars(some)
    ('layers', [1.0], False)
    """

    WHOLE: ClassVar[tuple[str, ...]] = ()  # fields that all rows share

    def take(self: R, index: Any) -> R:
        """The rows at these positions (indices, mask or slice)."""
        state, kind = self.__dict__, _kind(self)
        if isinstance(index, list):
            index = np.array(index, dtype=np.int64)
        elif isinstance(index, np.ndarray) and index.dtype == np.bool_:
            index = np.flatnonzero(index)
        at = state.get(_AT)
        if not isinstance(at, np.ndarray) or not _columns(kind).isdisjoint(state):
            return cast(R, _rows(kind, {_OF: self, _AT: index}))
        # Nothing was read of these: what is taken of them is taken of what they are of.
        shared = {name: state[name] for name in _names(kind) if name in state}
        return cast(R, _rows(kind, {**shared, _OF: state[_OF], _AT: at[index]}))

    def changed(self: R, **columns: Any) -> R:
        """The same rows with other columns, as dataclasses.replace makes them, the others left unread."""
        state, names = vars(self), _names(_kind(self))
        same = {name: value for name, value in state.items() if name in names or name in (_OF, _AT)}
        return cast(R, _rows(_kind(self), same | columns))

    def copied(self: R) -> R:
        """The same rows, all columns read, so that what they were taken of need not stay."""
        kind = _kind(self)
        return cast(R, _rows(kind, {name: _whole(getattr(self, name)) for name in _names(kind)}))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            state = self.__dict__
            if _OF not in state or name not in self.__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value = getattr(state[_OF], name)
            if name not in self.WHOLE:
                at = state[_AT]
                value = value[at] if type(value) is np.ndarray else taken(value, at)
            state[name] = value
            return value


def taken(value: Any, index: Any) -> Any:
    """Some rows of every column of a value."""
    if isinstance(value, np.ndarray):
        return value[index]
    if isinstance(value, Rows):
        return value.take(index)
    if isinstance(value, dict | Mapping):
        return {name: taken(part, index) for name, part in value.items()}
    return tuple(taken(part, index) for part in value) if isinstance(value, tuple) else value[index]


def _whole(value: Any) -> Any:
    if isinstance(value, Rows):
        return value.copied()
    if isinstance(value, Mapping):
        return {name: _whole(part) for name, part in value.items()}
    return tuple(map(_whole, value)) if isinstance(value, tuple) else value


def _kind(rows: Rows) -> Any:
    return type(rows)


def _rows(kind: Any, state: dict[str, Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(state)
    return made


@cache
def _names(kind: Any) -> frozenset[str]:
    """Names of the fields of a dataclass."""
    return frozenset(field.name for field in fields(kind))


@cache
def _columns(kind: Any) -> frozenset[str]:
    """Those of its columns."""
    return _names(kind) - set(kind.WHOLE)
