"""Text of a shell script with the places that it comes from, so that what was read can be changed where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

Site = tuple[int, int]  # first byte and the byte after the last, in the file


@dataclass(frozen=True)
class Piece:
    """A bit of text. `sites`: where it is written, then where each variable that carried it here is used.

    unknown: the variable or command whose value the script does not say; the text then is that variable, as written.
    """

    text: str
    sites: tuple[Site, ...] = ()
    unknown: str = ""

    def used_at(self, site: Site) -> Piece:
        """The same text where a variable that holds it is used."""
        return replace(self, sites=(*self.sites, site))


Word = tuple[Piece, ...]


def text_of(word: Iterable[Piece]) -> str:
    """What a word says."""
    return "".join([piece.text for piece in word])


def known_text(word: Iterable[Piece]) -> str:
    """What a word says, nothing for what the script leaves open: a variable that nobody set is empty."""
    return "".join("" if piece.unknown else piece.text for piece in word)


def unknown_in(word: Iterable[Piece]) -> str:
    """The first variable in a word whose value the script does not say; "" when it says all."""
    return next((piece.unknown for piece in word if piece.unknown), "")


def split_words(word: Word) -> Iterator[Word]:
    """A word cut at its blanks, as the shell cuts what it did not find in quotes.

    >>> [text_of(part) for part in split_words((Piece("--tp 8"), Piece("  "), Piece("--bf"), Piece("16")))]
    ['--tp 8', '--bf16']
    """
    current: list[Piece] = []
    for piece in word:
        if piece.text and not piece.text.strip():
            if current:
                yield tuple(current)
            current = []
        elif piece.text:
            current.append(piece)
    if current:
        yield tuple(current)
