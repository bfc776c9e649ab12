"""Which cases are tried: a sample in the suite, every one of them with OPTIMIZE_TEST_THOROUGH=1.

    OPTIMIZE_TEST_THOROUGH=1 python -m pytest

For tests whose every case is a search or a brute force of its own, of one law. The sample is the same on every run, so
that whoever sees a failure sees it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")
THOROUGH = os.environ.get("OPTIMIZE_TEST_THOROUGH") == "1"


def cases(thorough: int, *, sample: int) -> int:
    """The number of cases to draw."""
    return thorough if THOROUGH else sample


def sampled(every: Iterable[Case], step: int) -> list[Case]:
    """All cases, of which the suite takes the first of each `step`."""
    return list(every)[:: 1 if THOROUGH else step]
