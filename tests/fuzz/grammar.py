"""What inputs are made of: odd numbers, hostile texts, and ways to damage a text or a document that is whole."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

NUMBERS = (
    *("0", "-0", "-1", "1", "3", "7", "1.5", "1e3", "1e30", "1e400", "-1e400", "1e-400", "nan", "inf", "-inf", "0x10"),
    *("9" * 5000, "1" + "0" * 400, "2147483647", "2147483648", "18446744073709551616", "1_000", "1,000", "1__0", "+5"),
    *("²", "٣", "Ⅷ", "½", "1e", "1e999999999", "0b1", "007", "1.", ".5", "--5", "1:0", "1..", "1..0", "5%", "500%"),
)
HOSTILE = (
    *(
        "",
        " ",
        "\t",
        "x",
        "gpt3",
        "h100",
        "true",
        "null",
        "None",
        "on",
        "~",
        ".",
        "..",
        "/",
        "//",
        "://",
        "a://b:c@d:e/f",
    ),
    *(
        "/etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "/nonexistent/x.toml",
        "x.toml",
        "x.json",
        "./",
        "~nobody/x",
        "\\",
        "@",
    ),
    *(
        "\x1b[2J",
        "\x1b]0;t\x07",
        "[/]",
        "[bold]",
        "<b>",
        "${X}",
        "$(id)",
        "`id`",
        "{{x}}",
        "%s",
        "{0}",
        "'",
        '"',
        "#",
        ";",
    ),
    *("\r", "\x00", "\x7f", "\u202e", "\ufeff", "é", "😀", "x" * 5000, "=" * 50, "," * 50, "*", "[", "]", "(", "\\1"),
    *("t*1000000000", "(t|)*999999999", "1,2,3", "tp=8", "tp", "=", "==", "tp=", "=8", "none", "full", "@any", "x@y"),
)
SCALARS: Sequence[Any] = (
    *(0, -1, 1, 7, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), True, False, None),
    *(
        "",
        "h100",
        "1e400 GB",
        "5 us",
        "-5 GB",
        "64:8",
        "1:1000000000",
        "9" * 5000,
        "\x1b[2J",
        "<img src=x>",
        "tp=8",
        "*",
    ),
    *("a\0.toml", "/dev/zero", "../x.toml", "80GB", "10%", "nan", "² GB", "1e999 B/s", "x" * 300),
)
TOKEN = re.compile(r"[\w.]+|\s+|[^\w\s]")


@st.composite
def damaged_text(draw: st.DrawFn, texts: Sequence[str]) -> str:
    """One of the texts with up to four of its tokens replaced, dropped, doubled or swapped, or cut off."""
    text = draw(st.sampled_from(texts))
    tokens = TOKEN.findall(text)
    for _ in range(draw(st.integers(1, 5))):
        if not tokens:
            break
        place = draw(st.integers(0, len(tokens) - 1))
        numbers = [spot for spot in range(place, min(place + 60, len(tokens))) if tokens[spot][:1].isdigit()]
        deed = draw(st.integers(0, 7))
        if deed <= 2 and numbers:
            tokens[numbers[0]] = draw(st.sampled_from(NUMBERS))
        elif deed == 3:
            tokens[place] = draw(st.sampled_from((*HOSTILE, *NUMBERS)))
        elif deed == 4:
            del tokens[place : place + draw(st.integers(1, 12))]
        elif deed == 5:
            tokens[place:place] = tokens[place : place + 8] * draw(st.sampled_from((1, 1, 3, 200)))
        elif deed == 6:
            other = draw(st.integers(0, len(tokens) - 1))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        else:
            tokens[place:place] = [draw(st.sampled_from(HOSTILE))]
    if draw(st.integers(0, 19)) == 0:
        tokens = tokens[: draw(st.integers(0, len(tokens)))]
    return "".join(tokens)[:200_000]


@st.composite
def damaged_document(draw: st.DrawFn, documents: Sequence[Any]) -> Any:
    """One of the documents with up to four of its places replaced, renamed, dropped, doubled or nested."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(1, 5))):
        holder, key = document, None
        while isinstance(holder, dict | list) and holder:
            inner = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
            if isinstance(holder[inner], dict | list) and holder[inner] and draw(st.integers(0, 5)):
                holder = holder[inner]
            else:
                key = inner
                break
        if key is None:
            break
        _change(draw, holder, key)
    return document


def _change(draw: st.DrawFn, holder: Any, key: Any) -> None:
    deed, value = draw(st.integers(0, 9)), holder[key]
    if deed == 0:
        del holder[key]
    elif deed == 1 and isinstance(holder, dict):
        holder[draw(st.sampled_from((str(key) + "s", str(key)[:-1], str(key).upper(), *HOSTILE)))] = holder.pop(key)
    elif deed == 2:
        holder[key] = [value] * draw(st.sampled_from((0, 1, 2, 300)))
    elif deed == 3:
        depth = draw(st.sampled_from((1, 3, 70, 2000)))
        for _ in range(depth):
            value = [value] if draw(st.just(True)) and depth % 2 else {"x": value}
        holder[key] = value
    elif deed == 4 and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = value * draw(st.sampled_from((-1, 0, 2, 3, 1000, 10**9)))
    else:
        holder[key] = draw(st.sampled_from(SCALARS))


def as_json(value: Any) -> str:
    """A document as JSON; one that is nested too deeply for Python's encoder as some of its brackets."""
    try:
        return json.dumps(value)
    except (RecursionError, ValueError):
        return "[" * 5000


def as_toml(document: Mapping[str, Any]) -> str:
    """A document as TOML, what JSON has and TOML has not as it would be mistyped."""
    from tests.catalog.readers.test_damage import toml

    try:
        return "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in document.items())
    except (RecursionError, ValueError):
        return "x = " + "[" * 5000
