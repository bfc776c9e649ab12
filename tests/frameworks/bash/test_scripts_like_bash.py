"""Whole scripts run the commands that bash runs: arguments, arrays, functions, loops over arguments, conditions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from optimizer.base.errors import InputError
from optimizer.frameworks.bash import script as script_module
from optimizer.frameworks.bash import words as words_module
from optimizer.frameworks.bash.flags import flat
from optimizer.frameworks.bash.pieces import text_of
from optimizer.frameworks.bash.script import ScriptRun, read_bash

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
SCRIPTS = [
    # Arguments of functions, those of the outer one being there again behind it.
    'go() { run $# $1 "$2" $3; }\ngo a "b c" d',
    'go() { run "$@"; run $*; run ${@} ${*}; }\ngo a b',
    'go() { run x$@y; run "x$*y"; }\ngo a b c',
    "inner() { run $1 $#; }\nouter() { inner b; run $1 $2; }\nouter a c",
    "go() { run $1; shift; run $1 $#; shift 2; run $1 $#; }\ngo a b c d",
    "go() { shift 0; run $1; }\ngo a b",
    *(f"go() {{ shift {count} 2> /dev/null; run $# $*; }}\ngo a b" for count in ("", 1, 2, 3, -1, "$((1 + 1))")),
    "go() { run $#; }\ngo",
    "function go { run $1; }\ngo a",
    "go() { A=$1; }\ngo 8\nrun $A",
    # Loops over arguments.
    "go() { while [ $# -gt 0 ]; do case $1 in --tp) TP=$2; shift 2;; --pp=*) PP=${1#*=}; shift;; *) shift;; esac; "
    "done; run $TP $PP; }\ngo --tp 8 x --pp=4",
    "go() { while [[ $# -gt 0 ]]; do run $1; shift; done; }\ngo a b",
    # Options.
    *(
        f"go() {{ while getopts {takes} one 2> /dev/null; do run $one $OPTARG; done; run $OPTIND; "
        f"shift $((OPTIND - 1)); run $# $*; }}\ngo {given}"
        for takes in ('"t:vp:"', "':t:vp:'")
        for given in (
            *("-t 8 -v x", "-v -v", "-vt8 -p 4 x y", "-vvt 8 -p4 -- -v", "-- -t 8", "x -t 8", "- -v", "-t -v", "-t8"),
            *("-p '' x", "-pt -v", "-z -v", "-zv x", ""),
        )
    ),
    'go() { TP=1; while getopts "t:" one; do case $one in t) TP=$OPTARG;; esac; done; run $TP; }\ngo -t 8 -t 4',
    "for A in 8; do run $A; done",
    "for A in 8; do B=$A; done\nrun $A $B",
    # Arrays.
    "A=(a b c)\nrun ${A[0]} ${A[-1]} ${A[-3]} ${A[2]} ${#A[@]} ${#A[*]} ${#A} $A",
    "I=1\nA=(a b c)\nrun ${A[I]} ${A[$I]} ${A[I+1]}",
    'A=(a "b c")\nrun ${A[@]} x\nrun "${A[*]}"',
    "A=(a)\nA+=(b c)\nA+=d\nrun ${A[@]}",
    "A=()\nrun x ${A[@]} y",
    "A=(a\n# none of it\nb)\nrun ${A[@]}",
    'A=(--x "$(echo a b)")\nrun ${A[@]}',
    # Strings.
    "A=a\nA+=b\nB=$A$A\nrun $B",
    'A="x\ny"\nrun $A',
    "A='$B'\nB=8\nrun \"$A\" '$B'",
    'A=8\nrun "a\\"b" a\\ b "\\$A" \\$A',
    "A=8\nrun \"$A\"'$A'$A",
    "A=big/x.yaml\nrun ${A%.*} ${A##*/} ${A%%/*} ${A#*/}",
    "N=A\nA=8\nrun ${!N} ${#A}",
    # Defaults.
    "run ${A:-8} ${A-9} x${A:+9}y\nA=\nrun ${A:-8} x${A-9}y x${A+9}y x${A:+9}y",
    ": ${A:=8} ${B=$A}\nrun $A $B",
    "A=2\nrun ${B:-$((A * 4))} ${B:-${A}x} ${A:+$A$A}",
    "A=8\nrun ${A:?not there}",
    "unset A\nrun ${A:-1}\nA=2\nunset A\nrun ${A:-3}",
    # Conditions.
    "A=1\n[ $A = 1 ] && B=2\n[ $A = 2 ] && B=3\nrun $B",
    "A=1\n[ $A = 2 ] || B=2\n[ $A = 1 ] || B=3\nrun $B",
    "[ 1 = 1 ] && [ 1 = 2 ] || A=8\nrun $A",
    "[ 1 = 2 ] && A=1 || A=2\nrun $A",
    "[[ 1 = 1 ]] && { A=1; B=2; }\nrun $A $B",
    "if ! [[ 1 = 2 ]]; then A=1; fi\nrun $A",
    "if [ 1 = 1 -a 2 = 3 ]; then A=1; else A=2; fi\nrun $A",
    "if [ 1 = 2 -o 3 = 3 ]; then A=1; else A=2; fi\nrun $A",
    "if [ 1 = 1 -a 2 = 2 -a 3 = 4 -o 5 = 5 ]; then A=1; else A=2; fi\nrun $A",
    "if [ 1 = 2 -o 2 = 2 -a 3 = 4 ]; then A=1; else A=2; fi\nrun $A",
    "if [ -z x -o -n y ]; then A=1; else A=2; fi\nrun $A",
    "if [ -n x -a ! -z y ]; then A=1; else A=2; fi\nrun $A",
    "N=4\nif [ $N -ne -1 -a $N -gt -2 ]; then A=1; else A=2; fi\nrun $A",
    "if [ -a not-there ]; then A=1; else A=2; fi\nrun $A",
    "if [ x = x -a -f not-there ]; then A=1; else A=2; fi\nrun $A",
    "if [ x -a y -o ]; then A=1; else A=2; fi 2> /dev/null\nrun 2",
    "if [ ! 1 = 2 -a x ]; then A=1; else A=2; fi\nrun $A",
    "if [ 4 -gt 3 -a 2 -le 2 ]; then A=1; else A=2; fi\nrun $A",
    "if [ 4 -lt 3 -o 2 -le 1 ]; then A=1; else A=2; fi\nrun $A",
    'if [ "$A" = "" -o "$B" = "x" ]; then A=1; else A=2; fi\nrun $A',
    "if true; then A=1; fi\nrun $A",
    "if false; then A=1; else A=2; fi\nrun $A",
    "if [ 1 = 2 ]; then A=1; elif [ 2 = 2 ]; then\n  if [ 1 = 1 ]; then A=2; else A=3; fi\nelse A=4; fi\nrun $A",
    "if ((2 > 1)) && [[ -n x ]]; then A=1; fi\nrun $A",
    "if [ -z $NOBODY ]; then A=1; fi\nrun $A",
    "A=3\nif [[ $A -ge 3 && $A -lt 4 ]]; then run in; fi",
    "case 70b in 7b) run a;; 7*|8*) run b;; *) run c;; esac",
    "case x in 7b) run a;; *) run c;; esac",
    'case "a b" in "a b") run a;; esac',
    # What prints and what is printed.
    "A=$(echo 8)\nrun $A `echo 9` $(expr 2 + 3)",
    "A=$(echo a   b)\nrun $A",
    "A=$(cat <<EOF\n--tp 8\nEOF\n)\nrun $A",
    "IFS=, read -r A B <<< 2,4\nrun $A $B",
    'read -r A B <<< "2 4 5"\nrun $A $B',
    "TP=2 run x",
    "export A=8 B=9\nrun $A $B",
    "declare A=8\nreadonly B=9\nrun $A $B",
    "A=8; B=$((A / 3 + A % 3)); run $B",
    "run a \\\n  b \\\n  c",
    "{ run a; run b; }",
    "( run a )",
    "A=8 # --old\nrun $A # --new",
]


def commands(reading: ScriptRun) -> list[str]:
    return [" ".join(text_of(word) for word in flat(command.words)) for command in reading.commands]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_what_bash_runs(script: str) -> None:
    head = 'run() { echo "run $*"; }\n'
    done = subprocess.run(["bash", "-c", head + script], capture_output=True, text=True, timeout=60, check=False)
    told = [" ".join(line.split()) for line in done.stdout.splitlines()]
    ours = [" ".join(each.split()) for each in commands(read_bash(script.encode(), {})) if each.startswith("run")]
    assert ours == told


def test_what_is_sourced_is_read_in_its_place() -> None:
    files = {"env.sh": b"TP=8\ngo() { run $TP $1; }\n", "deep.sh": b"source env.sh\nPP=4\n"}
    reading = read_bash(b"source deep.sh\n. none.sh\ngo $PP\n", {}, files.get)
    assert commands(reading) == ["run 8 4"]
    assert (reading.sourced, reading.missing) == (["deep.sh", "env.sh"], ["none.sh"])


def test_a_script_that_is_started_gets_its_arguments() -> None:
    files = {"train.sh": b"run $1 $# $TP\n"}
    reading = read_bash(b"export TP=8\nbash train.sh a b\nrun $1\n", {}, files.get)
    assert [each for each in commands(reading) if each.startswith("run")] == ["run a 2 8", "run $1"]
    assert (reading.started, reading.commands[0].starter) == (["train.sh"], ("bash",))


def test_files_that_source_themselves_end() -> None:
    own = read_bash(b"source own.sh\nrun x\n", {}, lambda path: b"source own.sh\nA=8\n")
    assert commands(own) == ["run x"]
    assert 1 < len(own.sourced) <= script_module.DEEPEST


@pytest.mark.parametrize(
    ("opens", "closes"),
    [
        ("{ ", "; }"),
        ("( ", " )"),
        ("if true; then ", "; fi"),
        ("if false; then x; else ", "; fi"),
        ("case x in x) ", ";; esac"),
    ],
)
def test_statements_are_read_so_deep_in_others(opens: str, closes: str) -> None:
    for depth, read in ((script_module.DEEPEST - 1, True), (script_module.DEEPEST, False)):
        found = commands(read_bash(f"{opens * depth}run x{closes * depth}\n".encode(), {}))
        assert ("run x" in found) is read


@pytest.mark.parametrize(("line", "most"), [("bash one.sh", -1), (". one.sh", 0)])
def test_so_many_other_files_are_read(line: str, most: int) -> None:
    """A script that starts or sources more is read without them."""
    count = script_module.DEEPEST + most
    for more in (0, 1, 2):
        reading = read_bash(f"{line}\n".encode() * (count + more), {}, lambda path: b"run\n")
        assert commands(reading).count("run") == count


def test_a_long_chain_is_no_deeper_than_a_short_one() -> None:
    assert commands(read_bash((" && ".join(["true"] * 100) + " && run x\n").encode(), {}))[-1] == "run x"
    assert len(commands(read_bash((" && ".join(["run x"] * 100) + "\n").encode(), {}))) == 100


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (b"run" + b" | cat" * 10, "MOST_JOINED"),
        (b"A=(1)\n" * 10, "MOST_OPENED"),
        (b"cat <<E\nx\nE\n" * 10, "MOST_OPENED"),
    ],
)
def test_more_than_anybody_writes_is_refused(text: bytes, most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_module, most, 10)
    read_bash(text, {})
    monkeypatch.setattr(script_module, most, 9)
    with pytest.raises(InputError, match="but this one has more"):
        read_bash(text, {})


def test_a_variable_that_doubles_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    doubling = b"A=x\n" + b'A="$A$A"\n' * 6  # 126 pieces of a character, each of which counts for a hundred more
    monkeypatch.setattr(words_module, "MOST_CARRIED", 126 * 101)
    read_bash(doubling, {})
    monkeypatch.setattr(words_module, "MOST_CARRIED", 126 * 101 - 1)
    with pytest.raises(InputError, match="is one made of itself again and again"):
        read_bash(doubling, {})


@pytest.mark.parametrize(
    ("script", "guess"),
    [
        ("for A in 2 4; do run $A; done", ["A = 2, the first turn of its loop"]),
        ("for A in 2; do run $A; done", []),
        ("if nvidia-smi; then A=1; else A=2; fi\nrun $A", ["A = 2: only a run would tell whether nvidia-smi holds"]),
        ("if true; then A=1; fi\nrun $A", []),
        ("if nvidia-smi; then A=1; else A=2; fi\nrun x", []),
        (
            "G=$(nvidia-smi | wc -l)\nif [ $G = 8 ]; then A=1; else A=2; fi\nrun $A",
            ["A = 2: only a run would tell whether [ $G = 8 ] holds"],
        ),
    ],
)
def test_guesses_are_told(script: str, guess: list[str]) -> None:
    reading = read_bash(script.encode(), {})
    assert reading.guesses == guess


def test_nothing_here_is_run(tmp_path: Path) -> None:
    read_bash(f"touch {tmp_path}/ran\n".encode(), {})
    assert not list(tmp_path.iterdir())
