"""Lengths of documents as a user gives them: in so many words, or in a file with a length a line."""

from __future__ import annotations

import re

from optimizer.base.errors import InvalidFile
from optimizer.base.units import is_count
from optimizer.catalog.readers.text import readable
from optimizer.job.lengths import LONGEST, quantile_text

ADVICE = "give a text file with the tokens of one document in a line"
WORDS = re.compile(r"[p\d.:,k\s]*$")  # what is no path


def lengths_text(typed: str) -> str:
    """What `--lengths` means, as optimizer.job.lengths reads it: of a file the per cents of what it lists.

    Raises InvalidFile for a file that cannot be read, or has anything but a length a line below a heading.

    >>> lengths_text("900:600")
    '900:600'
    """
    if WORDS.match(typed):
        return typed
    sizes, wrong = [], []
    for number, line in enumerate(readable(typed, ADVICE).splitlines(), start=1):
        text = line.strip().rstrip(",")
        if is_count(text) and 1 <= int(text) <= LONGEST:
            sizes.append(float(text))
        elif text and (sizes or number > 1):
            wrong.append(f"line {number}: {text[:40]!r} is no length of 1 to {LONGEST:,} tokens; {ADVICE}")
    if wrong or not sizes:
        raise InvalidFile(typed, wrong[:3] or [f"holds no length; {ADVICE}"])
    return quantile_text(sizes)
