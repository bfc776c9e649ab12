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


SCRIPTS = (
    "run --tp 8 --pp 4 --on --dir a/b --names x y\n",
    "TP=8\nPP=$TP\nrun --tp $TP --pp=$PP --on\n",
    "TP=8\nrun --tp ${TP} --pp 1$TP --dir $TP/b\n",
    "A='--tp 8 --pp=4'\nA+=' --on'\nrun $A --cp 2\n",
    'A="\n  --tp 8 \\\n  --pp 4 \\\n"\nrun $A\n',
    "A=(--tp 8\n  --pp 4  # four\n  --on\n)\nrun ${A[@]} --cp 2\n",
    'run "--tp" "8" \'--pp\' 4 "--on"\n',
    "N=--tp\nrun $N 8 --pp 4\n",
    "go() {\n  run --tp $1 --pp $2\n}\ngo 8 4\n",
    "if [ 1 = 1 ]; then TP=8; else TP=4; fi\nrun --tp $TP --pp 4\n",
    "run \\\n  --tp 8 \\\n  --pp 4\n",
    "eval run --tp 8 --pp ${X:-4}\n",
)
# Flags that are not taken out alone: one between quotes of two sorts, a variable's, one with a default.
LEFT = {(SCRIPTS[6], "--pp"), (SCRIPTS[7], "--tp"), (SCRIPTS[11], "--pp")}


def flags_in(data: bytes) -> list[tuple[str, tuple[str, ...]]]:
    return [(flag.written, flag.values) for flag in flags_of(flat(read_bash(data, {}).commands[-1].words))]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("after", ["7", "a b|c", None])
def test_some_edit_changes_a_flag_alone(script: str, after: str | None) -> None:
    """Of those that are tried one after the other: what is read back is the script with the flag changed."""
    data = script.encode()
    before = flags_in(data)
    for flag, values in before:
        if after == "a b|c" and (len(values) != 1 or flag != "--dir"):
            continue
        if after is None and (script, flag) in LEFT:
            continue
        others = [each for each in before if each[0] != flag]
        wanted = sorted([*others, *([] if after is None else [(flag, tuple(after.split(" ")))])])
        flags = flags_of(flat(read_bash(data, {}).commands[-1].words))
        tried = edited(data, flags, (FlagChange(flag=flag, before=" ".join(values), after=after),))
        assert wanted in [sorted(flags_in(text)) for text in tried], flag
