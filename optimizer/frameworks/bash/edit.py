"""Flags changed in the text of a bash script: where a value is written, or where its variable is used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.bash.pieces import Site, text_of
from optimizer.frameworks.launch import FlagChange

ANCHORS = ("--micro-batch-size", "--tensor-model-parallel-size", "--num-layers", "--global-batch-size")
SPECIAL = re.compile(r"[|*()\[\]&;]")  # what the shell does not take for text
Replacement = tuple[int, int, bytes]
ORIGIN, USE, ANEW = "origin", "use", "anew"
MIXED = 4  # changes at most that are each written in a way of its own


def edited(data: bytes, flags: Sequence[Flag], changes: Sequence[FlagChange]) -> Iterator[bytes]:
    """The script with the changes made, in each way that there is, the most natural first.

    A value is changed where it is written, else where the variable that holds it is used, else as a flag anew, else
    some of them in the first way and others in the second. The caller keeps the first that reads back right.
    """
    has = {flag.written: flag for flag in flags}
    # In quotes a value that the shell would take apart; inside of a string they must not be.
    quoted = [replace(c, after=f'"{c.after}"') if c.after and SPECIAL.search(c.after) else c for c in changes]
    count = len(changes)
    ways = [(way,) * count for way in (ORIGIN, USE, ANEW)]
    ways += [each for each in product((ORIGIN, USE), repeat=min(count, MIXED)) if len(each) == count]
    for way, wanted in product(dict.fromkeys(ways), (changes,) if quoted == [*changes] else (quoted, changes)):
        replacements = _all(data, flags, has, wanted, way)
        if replacements is not None:
            yield replaced(data, replacements)


def _all(
    data: bytes, flags: Sequence[Flag], has: Mapping[str, Flag], changes: Sequence[FlagChange], ways: Sequence[str]
) -> list[Replacement] | None:
    replacements: list[Replacement] = []
    new: list[FlagChange] = []
    for change, way in zip(changes, ways, strict=True):
        flag = has.get(change.flag)
        if change.before is None or flag is None:
            new.append(change)
        elif change.after is None:
            removal = _removal(data, flag)
            if removal is None:
                return None
            replacements.append(removal)
        else:
            value = _value(data, flag, change.after, way)
            removal = _removal(data, flag) if value is None else None
            if value is not None:
                replacements.append(value)
            elif removal is not None:
                replacements.append(removal)
                new.append(change)
            else:
                return None
    if new:
        gone = {change.flag for change in changes if change.after is None}
        insertion = _insertion(data, [flag for flag in flags if flag.written not in gone], new, replacements)
        if insertion is None:
            return None
        replacements.append(insertion)
    return replacements


def replaced(data: bytes, replacements: Sequence[Replacement]) -> bytes:
    """Bytes with parts replaced, from the last to the first.

    >>> replaced(b"--tp 8 --pp 4", [(5, 6, b"2"), (7, 13, b"")])
    b'--tp 2 '
    """
    for start, end, text in sorted(replacements, reverse=True):
        data = data[:start] + text + data[end:]
    return data


def _value(data: bytes, flag: Flag, after: str, way: str) -> Replacement | None:
    """The place of a flag's only value with the new one; None where it has no place of its own."""
    if way == ANEW or len(flag.words) != 1 or " " in after or not after:
        return None
    pieces = flag.words[0]
    if flag.joined and len(pieces) == 1:
        site = pieces[0].sites[0] if pieces[0].sites else None
        text = f"{flag.written}={after}"
        return (
            (*site, text.encode())
            if site and data[slice(*site)].decode("utf-8", "replace") == text_of(pieces)
            else None
        )
    value_pieces = pieces[1:] if flag.joined else pieces
    if len(value_pieces) != 1 or not value_pieces[0].sites:
        return None
    sites = value_pieces[0].sites
    if way == USE:
        site = _use(flag, sites)
        return (*site, after.encode()) if site else None
    return (*sites[0], after.encode()) if data[slice(*sites[0])] == value_pieces[0].text.encode() else None


def _use(flag: Flag, sites: Sequence[Site]) -> Site | None:
    """Where a value stands after its flag."""
    own = flag.site
    after = [site for site in sites if own is not None and site[0] >= own[1] - flag.joined]
    return min(after, default=None)


def _removal(data: bytes, flag: Flag) -> Replacement | None:
    """A flag with its values taken out, and its line where nothing else is on it."""
    if flag.site is None or (len(flag.word) != 1 and not flag.joined):
        return None
    start, end = flag.site
    for word in flag.words if not flag.joined else (flag.word,):
        for piece in word:
            site = _use(flag, piece.sites) if piece.sites[:1] != (flag.site,) else flag.site
            if site is None or site[1] - end > 200:
                return None
            end = max(end, site[1])
    if end < len(data) and data[end : end + 1] in (b'"', b"'") and data[start - 1 : start] == data[end : end + 1]:
        start, end = start - 1, end + 1
    return cut(data, start, end)


def cut(data: bytes, start: int, end: int) -> Replacement:
    r"""Words taken out, and their line where nothing else is on it.

    >>> text = b"train.py \\\n  --bf16 \\\n  --lr 1\n"
    >>> replaced(text, [cut(text, 13, 19)])
    b'train.py \\\n  --lr 1\n'
    """
    first = data.rfind(b"\n", 0, start) + 1
    last = (data + b"\n").find(b"\n", end)
    rest = data[end:last]
    if not data[first:start].strip() and re.fullmatch(rb"[ \t]*(\\[ \t]*)?(#.*)?", rest):
        return first, min(last + 1, len(data)), b""
    while end < last and data[end : end + 1] in b" \t":
        end += 1
    return start, end, b""


def _insertion(
    data: bytes, flags: Sequence[Flag], new: Sequence[FlagChange], replacements: Sequence[Replacement]
) -> Replacement | None:
    """New flags before one that stays: on lines of their own where that one begins its line."""
    texts = [f"{change.flag} {change.after}".strip() for change in new if change.after is not None]
    if not texts:
        return None
    anchored = sorted(
        (flag for flag in flags if flag.site and data[slice(*flag.site)].startswith(flag.written.encode())),
        key=lambda flag: ANCHORS.index(flag.name) if flag.name in ANCHORS else len(ANCHORS),
    )
    for flag in anchored:
        start = flag.site[0] if flag.site else 0
        if any(left <= start < right for left, right, _ in replacements):
            continue
        first = data.rfind(b"\n", 0, start) + 1
        indent = data[first:start]
        if indent.strip():
            return start, start, (" ".join(texts) + " ").encode()
        last = data.find(b"\n", start)
        line = data[first : last if last >= 0 else len(data)].rstrip()
        before = data[:first].rstrip(b"\n").rpartition(b"\n")[2].rstrip()
        end = b" \\\n" if line.endswith(b"\\") or before.endswith(b"\\") else b"\n"
        return first, first, b"".join(indent + text.encode() + end for text in texts)
    return None
