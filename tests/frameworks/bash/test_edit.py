"""A flag changed, taken out or added: every other byte of the script stays."""

from __future__ import annotations

import pytest

from optimizer.frameworks.bash.edit import edited
from optimizer.frameworks.bash.flags import flags_of, flat
from optimizer.frameworks.bash.script import read_bash
from optimizer.frameworks.launch import FlagChange


@pytest.mark.parametrize(
    ("script", "flag", "after", "expected"),
    [
        ("run --tp 8 --pp 4\n", "--tp", "2", "run --tp 2 --pp 4\n"),
        ("run --tp=8 --pp 4\n", "--tp", "16", "run --tp=16 --pp 4\n"),
        ("TP=8\nrun --tp $TP --pp 4\n", "--tp", "2", "TP=2\nrun --tp $TP --pp 4\n"),
        ("TP=8\nrun --tp ${TP} --pp $TP\n", "--tp", "2", "TP=2\nrun --tp ${TP} --pp $TP\n"),
        ("run --tp 8 --pp 4\n", "--tp", None, "run --pp 4\n"),
        ("run --tp 8  \t --pp 4\n", "--tp", None, "run --pp 4\n"),
        ("run --pp 4 --tp 8\n", "--tp", None, "run --pp 4 \n"),
        ("run --pp 4 --tp 8", "--tp", None, "run --pp 4 "),
        ("run --pp 4 --tp=8 --on\n", "--tp", None, "run --pp 4 --on\n"),
        ("run --pp 4 --on --tp 8\n", "--on", None, "run --pp 4 --tp 8\n"),
        ("run \\\n  --tp 8 \\\n  --pp 4\n", "--tp", None, "run \\\n  --pp 4\n"),
        ("run \\\n  --tp 8 --cp 2 \\\n  --pp 4\n", "--tp", None, "run \\\n  --cp 2 \\\n  --pp 4\n"),
        ("A=(--tp 8\n  --pp 4  # four\n  --cp 2)\nrun ${A[@]}\n", "--pp", None, "A=(--tp 8\n  --cp 2)\nrun ${A[@]}\n"),
        ('run "--tp" 8 --pp 4\n', "--tp", "2", 'run "--tp" 2 --pp 4\n'),
    ],
)
def test_one_flag_of_a_script(script: str, flag: str, after: str | None, expected: str) -> None:
    data = script.encode()
    flags = flags_of(flat(read_bash(data, {}).commands[-1].words))
    before = next(" ".join(each.values) for each in flags if each.written == flag)
    first = next(edited(data, flags, (FlagChange(flag=flag, before=before, after=after),)))
    assert first.decode() == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("run --tp 8 --pp 4\n", "run --cp 2 --tp 8 --pp 4\n"),
        ("run \\\n  --tp 8 \\\n  --pp 4\n", "run \\\n  --cp 2 \\\n  --tp 8 \\\n  --pp 4\n"),
    ],
)
def test_a_new_flag_comes_before_the_others(script: str, expected: str) -> None:
    data = script.encode()
    flags = flags_of(flat(read_bash(data, {}).commands[-1].words))
    assert next(edited(data, flags, (FlagChange(flag="--cp", before=None, after="2"),))).decode() == expected
