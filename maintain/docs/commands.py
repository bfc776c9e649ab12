"""The commands of a page, run one after the other in a folder of their own, and what they print written into it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from maintain.docs.blocks import Block, blocks
from optimizer.base.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
# What the commands of a page may name, beside the files that the page shows and those that they write.
BROUGHT = ("examples", "presets", "tests")
WIDTH = "100"
TOOL, WRITES, PIPES = "optimize", ">", "|"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command printed, to stdout and to stderr, and its exit code."""

    output: str
    messages: str
    code: int


Run = Callable[[list[str], str], Ran]  # arguments of `optimize` and its stdin, in the current folder


def apart(words: list[str], stdin: str) -> Ran:
    """`optimize` in a process of its own, as a reader runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "optimizer", *words],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": WIDTH, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)},
        check=False,
    )
    return Ran(output=done.stdout, messages=done.stderr, code=done.returncode)


def brought(folder: Path) -> None:
    """Make what the project brings reachable from the folder, as from a checkout."""
    for name in BROUGHT:
        (folder / name).symlink_to(ROOT / name)


def filled(page: str, run: Run) -> str:
    """The page with every generated block as its commands print it, run in the current folder.

    Raises InputError when a command does not return what the page says.
    """
    text, done, last = "", 0, Ran(output="", messages="", code=0)
    for block in blocks(page):
        if block.title:
            path = Path(block.title)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.runs:
            last = _run_all(lines_of(block), run, block.exit_code)
        elif block.generated:
            last = _run_all([block.command], run) if block.command else last
            text += page[done : block.start] + block.chosen(last.output, last.messages)
            done = block.end
    return text + page[done:]


def lines_of(block: Block) -> list[str]:
    r"""The commands of a block, one a line, continued lines put together and comments left out.

    >>> lines_of(next(blocks("```bash\n# why\noptimize \\\n  --json  # all\n```\n")))
    ['optimize --json  # all']
    """
    joined = re.sub(r"\\\n\s*", "", block.text)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def _run_all(lines: list[str], run: Run, exit_code: int = 0) -> Ran:
    """What all commands of a block print; only the last may return something else than 0."""
    results = [_run_line(line, run) for line in lines]
    wanted = [0] * (len(results) - 1) + [exit_code]
    for line, result, code in zip(lines, results, wanted, strict=True):
        if result.code != code:
            raise InputError(f"{line} returned {result.code}, not {code}:\n{result.messages}")
    return Ran(
        output=_portable("".join(result.output for result in results)),
        messages=_portable("".join(result.messages for result in results)),
        code=results[-1].code,
    )


def _run_line(line: str, run: Run) -> Ran:
    result = Ran(output="", messages="", code=0)
    for words, target in _stages(line):
        if words[0] == TOOL:
            result = run(words[1:], result.output)
        elif words[0] == "cat":
            text = "".join(Path(name).read_text(encoding="utf-8") for name in words[1:])
            result = Ran(output=text, messages="", code=0)
        else:
            raise InputError(f"{words[0]} is no command that a page may run: {TOOL} or cat")
        if target:
            Path(target).write_text(result.output, encoding="utf-8")
            result = Ran(output="", messages=result.messages, code=result.code)
    return result


def _stages(line: str) -> Iterator[tuple[list[str], str]]:
    """The commands of a pipe, and the file into which the last one writes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = [*lexer, PIPES]
    while words:
        stage = words[: words.index(PIPES)]
        words = words[len(stage) + 1 :]
        target = stage.pop() if WRITES in stage else ""
        yield [word for word in stage if word != WRITES], target


def _portable(text: str) -> str:
    """What is printed without the day and the folder of this run."""
    return text.replace(date.today().isoformat(), "DATE").replace(f"{Path.cwd()}/", "")
