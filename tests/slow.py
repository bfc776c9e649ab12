"""Which tests are slow, as measured: every other one is quick.

    python -m pytest --costs costs.jsonl
    python -m tests.slow costs.jsonl

The second line rewrites `tests/slow.txt`: functions of which a case took more than CASE seconds of CPU, or all cases
more than FUNCTION. Another machine moves a few lines; a new test is quick until somebody measures.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
SLOW = frozenset(LIST.read_text(encoding="utf-8").split())
CASE = 0.1  # [s]
FUNCTION = 1.0  # [s]


def function_of(test: str) -> str:
    """A test without its parameters.

    >>> function_of("tests/test_cli.py::test_help[--help]")
    'tests/test_cli.py::test_help'
    """
    return test.partition("[")[0]


def slow(lines: Iterable[str]) -> list[str]:
    """The slow functions of what `--costs` wrote."""
    costs: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        test, seconds = json.loads(line)
        costs[function_of(test)].append(seconds)
    return sorted(name for name, cases in costs.items() if max(cases) > CASE or sum(cases) > FUNCTION)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as stream:
        LIST.write_text("\n".join(slow(stream)) + "\n", encoding="utf-8")
