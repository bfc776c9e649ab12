"""Conditions, arithmetic and expansions mean what bash itself makes of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from optimizer.frameworks.bash.arithmetic import whole_number
from optimizer.frameworks.bash.flags import flat
from optimizer.frameworks.bash.pieces import Piece, text_of
from optimizer.frameworks.bash.script import read_bash

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
SET = 'A=7b\nB=70b\nN=4\nM=10\nZ=\nF=conf/big.v2.sh\nW="7b"\n'
WORDS = ("$A", '"$A"', "7b", "7*", '"7*"', "$B", "$Z", '"$Z"', "x", "?b", "$W")
NUMBERS = ("$N", "$M", "3", "4", "10", "-1", "$((N * 2))")
SIGNS = ("-eq", "-ne", "-gt", "-ge", "-lt", "-le")


def ours(lines: Sequence[str]) -> list[str]:
    """What is read of `run WORDS` after each line."""
    return [
        " ".join(text_of(word) for word in flat(read_bash(f"{SET}{line}".encode(), {}).commands[-1].words))
        for line in lines
    ]


def theirs(lines: Sequence[str]) -> list[str]:
    """What bash prints, one line after the other."""
    script = SET + 'run() { echo "run $*"; }\n' + "\n".join(f"( {line}\n)" for line in lines)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines()


def unlike(words: Sequence[str], lines: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(w, one, other) for w, one, other in zip(words, ours(lines), theirs(lines), strict=True) if one != other]


def test_conditions_hold_where_they_hold_in_bash() -> None:
    plain = [word for word in WORDS if not {*"*?"} & {*word} and word != "$Z"]
    halves = ("$A == 7b", "$A == x", "-n $Z", "$N -gt 3")
    tests = [
        *(f"[[ {one} {sign} {other} ]]" for one, sign, other in product(WORDS, ("==", "!=", "="), WORDS)),
        *(f"[ {one} {sign} {other} ]" for one, sign, other in product(plain, ("=", "!="), plain)),
        *(f"[[ {one} {sign} {other} ]]" for one, sign, other in product(NUMBERS, SIGNS, NUMBERS)),
        *(f"[ {one} {sign} {other} ]" for one, sign, other in product(NUMBERS, SIGNS, NUMBERS)),
        *(f"(( {one} {sign} {other} ))" for one, sign, other in product(NUMBERS, ("<", ">=", "=="), NUMBERS)),
        *("(( (N + 1) * 2 > (3 + 6) ))", "(( N ))", "(( N - 4 ))", "(( N > 3 && M < 3 ))", "((N>3||M<3))"),
        *(f"[[ {sign} {word} ]]" for sign, word in product(("-z", "-n", "! -z", "! -n"), ('"$A"', '"$Z"', "$Z", "x"))),
        *(f"[[ -v {name} ]]" for name in ("A", "NOBODY")),
        *(f"[[ {one} {sign} {other} ]]" for one, sign, other in product(halves, ("&&", "||"), halves)),
        *(f"[[ ! ( {one} && {other} ) ]]" for one, other in product(halves, halves)),
        *(f"[[ {one} ]] {sign} [[ {other} ]]" for one, sign, other in product(halves, ("&&", "||"), halves)),
    ]
    assert unlike(tests, [f"if {test}; then run yes; else run no; fi" for test in tests]) == []


def drawn(random: Random, depth: int) -> str:
    """An expression of small numbers."""
    if depth == 0:
        return random.choice(("N", "$M", "3", "7", "1", "2"))
    one, other = drawn(random, depth - 1), drawn(random, depth - 1)
    sign = random.choice(("+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||"))
    return f"({one} {sign} {other})" if random.random() < 0.6 else f"{one} {sign} {other}"


def test_arithmetic_is_that_of_bash() -> None:
    """What is not understood, as three numbers that are compared in a row, is left as it is."""
    random = Random(0)
    random_ones = [drawn(random, random.choice((1, 1, 2, 2, 3))) for _ in range(700)]
    signs = ("+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|")
    every = [
        *random_ones,
        *(f"{one} {sign} {number}" for one, sign, number in product(("N", "M", "(-7)"), signs, (1, 2, 3))),
        *("N > 3 ? M : 1", "N > 4 ? M : 1", "N == 4 ? 1 : N == 5 ? 2 : 3", "N == 5 ? 1 : N == 4 ? 2 : 3", "-N"),
        *("N * (M + 1) / 3", "-7 / -2", "7 / -2", "7 % -2", "-7 % 2", "N ** 0", "N << 0", "0 ** 2", "1 << 62"),
    ]
    told = theirs([f"( echo run $(( {each} )) ) 2>/dev/null || echo error" for each in every])
    triples = list(zip(every, ours([f"run $(( {each} ))" for each in every]), told, strict=True))
    known = [row for row in triples if not row[1].startswith("run $((") and row[2] != "error"]
    assert [row for row in known if row[1] != row[2]] == []
    assert len(known) > 0.8 * len(triples)
    assert not any(one.startswith("run $((") for _, one, _ in triples[len(random_ones) :])


def test_arithmetic_has_a_thousand_characters_at_most() -> None:
    assert [whole_number(f"{' ' * more}1{'+1' * 499}", {}.get) for more in (1, 2)] == [500, None]


def test_expansions_are_those_of_bash() -> None:
    patterns = ("conf/", "*/", "*.", ".*", ".sh", "b*", "*g", "?", "x", "*")
    words = [
        *(f"${{F{sign}{pattern}}}" for sign, pattern in product(("#", "##", "%", "%%"), patterns)),
        *(f"${{{name}{sign}other}}" for name, sign in product(("A", "Z", "NOBODY"), (":-", "-", ":+", "+", ":="))),
        *(
            "${#F}",
            "'$A'",
            "\\$A",
            '"$A $B"',
            "$(expr $N + 1)",
            "$[N * 2]",
            "$((N * 2))",
            "$'q r'",
            '$"q r$N"',
            '"$""q"',
        ),
        *('"q\\nr $N"', '"q\\"r"', "${Z:-$N/xy}", "${Z:-xy$N}"),
    ]
    assert unlike(words, [f"run a{word}.z" for word in words]) == []


def test_a_heredoc_is_read_into_a_variable_and_is_no_document() -> None:
    text = "read -r -d '' FLAGS <<EOF\n--tp $N\nEOF\ncat > a.yaml <<EOF\nb: $N\nEOF\nrun $FLAGS"
    found = read_bash(f"{SET}{text}".encode(), {})
    assert [text_of(word) for word in flat(found.commands[-1].words)] == ["run", "--tp", "4"]
    assert [document.target for document in found.documents] == ["a.yaml"]


def test_a_quoted_word_lies_between_its_quotes() -> None:
    for text, inner, sites in (('"--lr"', "--lr", ((11, 15),)), ("'a'", "a", ((11, 12),)), ("ab", "ab", ((10, 12),))):
        ((piece,),) = flat([(Piece(text, ((10, 10 + len(text)),)),)])
        assert (piece.text, piece.sites) == (inner, sites)
    ((piece,),) = flat([(Piece("'a'", ((10, 13), (20, 22))),)])
    assert piece.sites == ((11, 12), (20, 22))


def test_what_is_set_to_nothing_before_a_command_is_none_of_its_words() -> None:
    (command,) = read_bash(b"E= N=4 run --tp 8\n", {}).commands
    assert [text_of(word) for word in flat(command.words)] == ["run", "--tp", "8"]


def test_words_end_where_they_end_in_bash() -> None:
    """How many arguments a function gets, and which the first and the last are."""
    head = "X='a b'\nL=(one 'two three' four)\nR=X\nE=\ngo() { run $# \"${1//x/x}\" \"${@: -1}\"; }\n"
    ours_of = "go() { COUNT=$#; FIRST=$1; }\n"
    words = [
        *("$X", '"$X"', "a$X", 'a"$X"', "'$X'", '"$X"c', "${X}", '"${X}"', "${E:-p q}", '"${E:-p q}"'),
        *('"${L[@]}"', "${L[@]}", '"${L[1]}"', "${L[1]}", "${L[-1]}", "${!R}", '"${!R}"', "$(echo $X)"),
        *('$"p q"', "$'p q'", '"$(echo $X)"', "$((2 + 1))", '"p q" r', "p\\ q r", "$E p", '"$E" p'),
    ]
    for word in words:
        found = read_bash(f"{head.partition('go()')[0]}{ours_of}go {word}".encode(), {}).variables
        count, first = (text_of(found[name][0]) for name in ("COUNT", "FIRST"))
        script = f'{head.partition("go()")[0]}go() {{ echo "$#:$1"; }}\ngo {word}'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert f"{count}:{first}" == done.stdout.rstrip("\n"), word


def test_what_is_unset_or_read_is_open() -> None:
    """Nobody knows what will be typed; what is unset has its default again."""
    for line, said in (("unset A", "9"), ("read A", "9"), ("unset B", "7b"), (":", "7b")):
        assert ours([f"{line}\nrun ${{A:-9}}"]) == [f"run {said}"]
    lines = ["go() { A=1; }; A=2; unset -f go; go 2>/dev/null; run $A"]
    assert ours(lines) == theirs(lines) == ["run 2"]


@pytest.mark.parametrize(
    ("script", "line"),
    [("a\nb\nc\n", 0), ("a\nb\n      fi )\n", 3), ("A=(1\n", 1)],
)
def test_the_first_line_that_is_no_bash_is_told(script: str, line: int) -> None:
    assert read_bash(script.encode(), {}).broken == line
