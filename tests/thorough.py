"""How many cases are drawn: a sample in the suite, every one of them with OPTIMIZE_TEST_THOROUGH=1.

    OPTIMIZE_TEST_THOROUGH=1 python -m pytest

For tests whose every case is a search or a brute force of its own. The sample is the first of all cases, the same on
every run, so that whoever sees a failure sees it again.
"""

from __future__ import annotations

import os

THOROUGH = os.environ.get("OPTIMIZE_TEST_THOROUGH") == "1"


def cases(thorough: int, *, sample: int) -> int:
    """The number of cases to draw."""
    return thorough if THOROUGH else sample
