"""Every way in which a flag of a script is changed: at the variable that holds it, at its place, behind its flag."""

from __future__ import annotations

import pytest

from optimizer.frameworks.bash.edit import cut, edited, replaced
from optimizer.frameworks.bash.flags import flags_of, flat
from optimizer.frameworks.bash.script import read_bash
from optimizer.frameworks.launch import FlagChange


@pytest.mark.parametrize(
    ("script", "flag", "after", "ways"),
    [
        (
            *("TP=8\nrun --tp=$TP --pp 4\n", "--tp", "2"),
            ["TP=2\nrun --tp=$TP --pp 4\n", "TP=8\nrun --tp=2 --pp 4\n", "TP=8\nrun --tp 2 --pp 4\n"],
        ),
        ("run '--tp 8' --pp 4\n", "--tp", None, ["run --pp 4\n"]),
        ('run "--on" --pp 4\n', "--on", None, ["run --pp 4\n"]),
        ('A="--tp 8"\nrun $A --pp 4\n', "--tp", None, ["A=\nrun $A --pp 4\n"]),
        (
            *('A="--tp 8"\nrun $A --pp 4\n', "--tp", "2"),
            ['A="--tp 2"\nrun $A --pp 4\n', 'A="--tp 2"\nrun $A --pp 4\n', "A=\nrun $A --tp 2 --pp 4\n"],
        ),
        ("X=4\nrun --pp $X$X --tp 8\n", "--pp", "2", ["X=4\nrun --pp 2 --tp 8\n"]),
        ("run --names x y --pp 4\n", "--names", None, ["run --pp 4\n"]),
        ("run --names x y --pp 4\n", "--names", "z", ["run --names z --pp 4\n"]),
        # New ones, on lines of their own where the first of the others begins its line.
        ("A=(--tp 8)\nrun ${A[@]} --pp 4\n", "--cp", "2", ["A=(--cp 2 --tp 8)\nrun ${A[@]} --pp 4\n"]),
        ("run \\\n --pp 4", "--cp", "2", ["run \\\n --cp 2 \\\n --pp 4"]),
        (
            *("A='\n --pp 4\n --tp 8\n'\nrun $A", "--cp", "2"),
            ["A='\n --cp 2\n --pp 4\n --tp 8\n'\nrun $A"],
        ),
        ("A='\n --pp 4\n --tp 8\n'\nrun $A", "--pp", None, ["A='\n --tp 8\n'\nrun $A"]),
    ],
)
def test_a_flag_is_changed_in_these_ways(script: str, flag: str, after: str | None, ways: list[str]) -> None:
    data = script.encode()
    flags = flags_of(flat(read_bash(data, {}).commands[-1].words))
    before = next((" ".join(each.values) for each in flags if each.written == flag), None)
    found = [each.decode() for each in edited(data, flags, (FlagChange(flag=flag, before=before, after=after),))]
    assert found == (ways if len(ways) == len(found) else ways * len(found))


@pytest.mark.parametrize(
    ("text", "start", "end", "left"),
    [
        ("run --on --tp\n", 4, 8, "run --tp\n"),
        ("run --on\n", 4, 8, "run \n"),
        ("run --on", 4, 8, "run "),
        ("--on\nrun\n", 0, 4, "run\n"),
        ("a\n --on # off\nb\n", 3, 7, "a\nb\n"),
        ("a\n --on \\\nb\n", 3, 7, "a\nb\n"),
        ("a\n --on x\nb\n", 3, 7, "a\n x\nb\n"),
        ("a\n --on", 3, 7, "a\n"),
    ],
)
def test_words_are_cut_out_with_a_line_that_held_nothing_else(text: str, start: int, end: int, left: str) -> None:
    data = text.encode()
    assert replaced(data, [cut(data, start, end)]).decode() == left
