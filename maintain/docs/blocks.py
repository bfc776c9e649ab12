"""Fenced blocks of a Markdown page: the files it shows, the commands it runs and what these print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r'(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_FROM_TO = re.compile(
    r'(?P<stream>output|messages)(?: of "(?P<command>[^"]+)")?(?: from "(?P<first>[^"]+)")?'
    r'(?: (?P<end>to|until) "(?P<last>[^"]+)")?$'
)
CUT = "...\n"
COMMANDS, PRINTED = "bash", "text"
SKIPPED = "not run: "
CODE = re.compile(r"exit code (\d)$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block. `note` is the HTML comment on the line above it, `title` the file that it shows; `start` and
    `end` are the places of its text in the page.
    """

    language: str
    title: str
    note: str
    text: str
    start: int
    end: int

    @property
    def runs(self) -> bool:
        """Whether it holds commands that are run."""
        return self.language == COMMANDS and not self.title and not self.note.startswith(SKIPPED)

    @property
    def generated(self) -> bool:
        """Whether it holds what the commands before it print."""
        return self.language == PRINTED and _FROM_TO.match(self.note) is not None

    @property
    def command(self) -> str:
        r"""The command whose output it holds, "" where the block of commands before it says that.

        >>> next(blocks('<!-- output of "optimize presets" -->\n```text\n```\n')).command
        'optimize presets'
        """
        asked = _FROM_TO.match(self.note)
        return (asked["command"] or "") if asked else ""

    @property
    def exit_code(self) -> int:
        r"""What its last command returns.

        >>> next(blocks("<!-- exit code 3 -->\n```bash\noptimize\n```\n")).exit_code
        3
        """
        match = CODE.match(self.note)
        return int(match[1]) if match else 0

    def chosen(self, output: str, messages: str) -> str:
        r"""The lines of the output, or of the messages, that its note asks for: from one to another, or until one.

        >>> block = next(blocks('<!-- output from "b" to "c" -->\n```text\n```\n'))
        >>> block.chosen("a\n b 1\nx\nc 2\nd\n", "")
        '...\n b 1\nx\nc 2\n...\n'
        """
        asked = _FROM_TO.match(self.note)
        if asked is None:
            raise ValueError(f"{self.note!r} does not say what is printed")
        lines = (output if asked["stream"] == "output" else messages).splitlines(keepends=True)
        first = _line(lines, asked["first"], 0) if asked["first"] else 0
        end = _line(lines, asked["last"], first) + (asked["end"] == "to") if asked["last"] else len(lines)
        shown = "".join(lines[first:end]).rstrip("\n") + "\n"
        return f"{CUT * (first > 0)}{shown}{CUT * (end < len(lines))}"


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    for match in _FENCE.finditer(page):
        yield Block(
            language=match["language"],
            title=match["title"] or "",
            note=(match["note"] or "").strip(),
            text=match["text"],
            start=match.start("text"),
            end=match.end("text"),
        )


def _line(lines: list[str], begins: str, start: int) -> int:
    for number in range(start, len(lines)):
        if lines[number].strip().startswith(begins):
            return number
    raise ValueError(f"no line begins with {begins!r} in:\n{''.join(lines)}")
