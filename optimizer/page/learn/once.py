"""What takes a while is worked out once, however many visitors ask for it at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


def once(work: Callable[Given, Found]) -> Callable[Given, Found]:
    """The same function, which keeps what it found for each set of arguments; who asks meanwhile waits.

    >>> calls = []
    >>> double = once(lambda value: calls.append(value) or 2 * value)
    >>> double(2), double(2), calls
    (4, 4, [2])
    """
    kept: dict[Hashable, Found] = {}
    busy = Lock()

    @wraps(work)
    def found(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        asked = (args, tuple(sorted(kwargs.items())))
        with busy:
            if asked not in kept:
                kept[asked] = work(*args, **kwargs)
            return kept[asked]

    return found
