"""A command line as flags with their values, each with the place that it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optimizer.frameworks.bash.pieces import Piece, Site, Word, split_words, text_of, unknown_in

FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?$", re.DOTALL)
QUOTES = "\"'"
OBJECT = re.compile(r"(?:[\w.+-]+=)?\{\s*\"[^{:]*:")  # how JSON that is one word begins


@dataclass(frozen=True)
class Flag:
    """One flag: its name with dashes, as it is written, and its values; `words` are the values' pieces.

    `joined`: the value follows an equals sign, in the same word.
    """

    name: str
    written: str
    values: tuple[str, ...]
    word: Word
    words: tuple[Word, ...]
    unknown: str = ""
    joined: bool = False

    @property
    def value(self) -> str:
        """The first value, "" for none."""
        return self.values[0] if self.values else ""

    @property
    def site(self) -> Site | None:
        """Where the flag itself is written."""
        return self.word[0].sites[0] if self.word and self.word[0].sites else None


def flat(words: Iterable[Word]) -> list[Word]:
    """Words cut at every blank but in JSON: what reaches a program through quotes, eval and bash -c alike."""
    return [_unquoted(part) for word in words for part in ((word,) if _is_json(text_of(word)) else split_words(word))]


def _is_json(text: str) -> bool:
    return text.endswith("}") and OBJECT.match(text) is not None


def _unquoted(word: Word) -> Word:
    text = text_of(word)
    if len(word) == 1 and text[:1] in QUOTES and text[-1:] in QUOTES and len(text) > 1:
        piece = word[0]
        site = piece.sites[0] if piece.sites else None
        inner = ((site[0] + 1, site[1] - 1), *piece.sites[1:]) if site else ()
        return (Piece(text[1:-1], inner, piece.unknown),)
    return word


def flags_of(words: Sequence[Word]) -> list[Flag]:
    """The flags of a command line in order; a value that starts with a dash must be a number.

    >>> [(flag.name, flag.values) for flag in flags_of([(Piece(text),) for text in "--lr -1 --bf_16 --tp=8".split()])]
    [('--lr', ('-1',)), ('--bf-16', ()), ('--tp', ('8',))]
    """
    flags: list[Flag] = []
    place = 0
    while place < len(words):
        text = text_of(words[place])
        match = FLAG.match(text)
        if not match:
            place += 1
            continue
        name, equals, joined = text.partition("=")
        after = place + 1
        while not equals and after < len(words) and not FLAG.match(text_of(words[after])):
            after += 1
        values = [words[place]] if equals else list(words[place + 1 : after])
        flags.append(
            Flag(
                name=name.replace("_", "-"),
                written=name,
                values=(joined.strip(QUOTES),) if equals else tuple(map(text_of, values)),
                word=words[place],
                words=tuple(values),
                unknown=unknown_in(values[0]) if values else "",
                joined=bool(equals),
            )
        )
        place = after
    return flags
