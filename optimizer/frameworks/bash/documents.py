"""Scripts that a script writes: here-documents read as bash, each word traced to where the outer script holds it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

from optimizer.frameworks.bash.pieces import Piece, Site, Word
from optimizer.frameworks.bash.script import Document, Find, ScriptRun, aside, read_bash
from optimizer.frameworks.machines import batch_options, batch_variables

Options = Mapping[str, tuple[int, str, Piece]]


def inner_script(document: Document, outer: ScriptRun, options: Options, find: Find) -> tuple[ScriptRun, Options]:
    """What a document would run as a script, with the variables of the outer one, and what its #SBATCH lines add."""
    text = document.text.encode()
    options = {**options, **batch_options(text)}
    given = {
        name: tuple(map(aside, words[0])) for name, words in outer.variables.items() if words and name[0].isidentifier()
    }
    inner = read_bash(text, given | batch_variables(options), find)
    trace = Trace(document.word)
    inner.commands = [
        replace(each, words=tuple(tuple(map(trace.outer, word)) for word in each.words)) for each in inner.commands
    ]
    return inner, options


class Trace:
    """Where the parts of a text stand that was put together of these pieces."""

    def __init__(self, word: Word) -> None:
        self.pieces = word
        self.starts = [0]
        for piece in word:
            self.starts.append(self.starts[-1] + len(piece.text.encode()))

    def outer(self, piece: Piece) -> Piece:
        """A piece that was read in the text, with its places in the outer script."""
        return replace(piece, sites=tuple(place for site in piece.sites for place in self._places(site)))

    def _places(self, site: Site) -> tuple[Site, ...]:
        """A place in the text, outside of it; a place below zero is one of the outer script, set aside."""
        start, end = site
        if start < 0:
            return ((-start - 1, -end - 1),)
        number = bisect_right(self.starts, start) - 1
        if number >= len(self.pieces) or not self.pieces[number].sites:
            return ()
        piece, first = self.pieces[number], self.starts[number]
        if (first, self.starts[number + 1]) == site:
            return piece.sites
        low, high = piece.sites[0]
        plain = high - low == len(piece.text.encode())  # written as it is, so that its parts have places too
        inside = end <= self.starts[number + 1]
        return ((low + start - first, low + end - first),) if plain and inside else ()
