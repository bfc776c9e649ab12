"""Many small cases as one test: each has its verdict, none the cost of a test of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import product
from typing import Any


def looped(**cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator like `pytest.mark.parametrize`, for cases of milliseconds: one test runs every combination.

    Args:
        cases: The values of each parameter; what else the test takes are fixtures.

    Returns:
        What makes the test; it fails with the values and the error of every combination that does.
    """
    held = {name: list(values) for name, values in cases.items()}
    assert all(held.values()), "a parameter without values tests nothing"

    def made(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def every(**fixtures: Any) -> None:
            wrong = []
            for values in product(*held.values()):
                try:
                    test(**dict(zip(held, values, strict=True)), **fixtures)
                except Exception as error:
                    wrong.append(f"{', '.join(map(str, values))}: {type(error).__name__}: {error}")
            assert not wrong, f"{len(wrong)} cases fail:\n" + "\n".join(wrong)

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in held]
        every.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        del every.__wrapped__
        return every

    return made
