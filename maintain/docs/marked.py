"""Sections of a page that are generated: each begins and ends with a line that marks it."""

from __future__ import annotations

from optimizer.base.errors import InputError


def replaced(text: str, block: str) -> str:
    """The text with the section between the first and the last line of the block replaced by it.

    Raises InputError when these lines are not there.
    """
    start, *_, end = block.splitlines() * 2
    if start not in text or end not in text:
        raise InputError(f"the text lacks the lines {start} and {end}")
    return text[: text.index(start)] + block + text[text.index(end) + len(end) :]
