"""What a bash script would run: every construct that launch scripts are written in."""

import pytest

from optimizer.frameworks.bash.documents import Trace
from optimizer.frameworks.bash.flags import flags_of, flat
from optimizer.frameworks.bash.pieces import Piece, Site, text_of
from optimizer.frameworks.bash.script import read_bash


def command(text: str, **given: str) -> str:
    reading = read_bash(text.encode(), {name: (Piece(value),) for name, value in given.items()})
    return " ".join(text_of(word) for word in flat(reading.commands[-1].words))


@pytest.mark.parametrize(
    ("count", "known"),
    [
        ("$(cat $PBS_NODEFILE | uniq | wc -l)", True),
        ("`wc -l < ${PBS_NODEFILE}`", True),
        ('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)', True),
        ("$(cat hosts | wc -l)", False),
        ("$(scontrol show hostnames | head -n 1)", False),
        ("$(wc -l < $PBS_NODEFILE)  # mpiprocs=4", False),
        ("$(sort -u $PBS_NODEFILE | wc -l)  # mpiprocs=4", True),
    ],
)
def test_commands_that_count_the_nodes_of_a_job(count: str, known: bool) -> None:
    assert (command(f"N={count}\nrun $((N * 4))", SLURM_NNODES="2") == "run 8") is known
    assert command(f"N={count}\nrun $((N * 4))") != "run 8"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("TP=8\nrun --tp $TP", "run --tp 8"),
        ("run --tp ${TP:-8}", "run --tp 8"),
        ('run --tp ${1:-"8"}', "run --tp 8"),
        (': "${TP:=4}"\nrun --tp $TP', "run --tp 4"),
        ("export TP=2\nrun --tp ${TP:-8}", "run --tp 2"),
        ("N=4\nG=8\nW=$(($N*G))\nrun --world $W", "run --world 32"),
        ("N=4\nrun $[ N + 1 ] $(expr $N \\* 2) `expr $N / 2`", "run 5 8 2"),
        ("X=7\nrun $((X > 3 ? 1 : 2))", "run 1"),
        ('N=4\nB="${B:-$((16 * N))}"\nrun $B ${C:-$((N/2))}', "run 64 2"),
        ("A=(--tp 8\n  # --old 1\n  --pp 4)\nrun ${A[@]}", "run --tp 8 --pp 4"),
        ('A=(--tp 8)\nA+=(--pp 4)\nB=("${A[@]}" --cp 2)\nrun "${B[@]}"', "run --tp 8 --pp 4 --cp 2"),
        ('A=("--tp 8" "--pp 4")\nrun ${A[@]}', "run --tp 8 --pp 4"),
        ('ARGS="\n  --tp 8 \\\n  --pp 4 \\\n"\nrun $ARGS', "run --tp 8 --pp 4"),
        ('A="--tp 8"\nA="$A --pp 4"\nA+=" --cp 2"\nrun $A', "run --tp 8 --pp 4 --cp 2"),
        ('D=fp8\nif [[ "$D" == "fp8" ]]; then A=--fp8; else A=--bf16; fi\nrun $A', "run --fp8"),
        ("if [ 1 = 2 ]; then A=1; elif [ 1 = 3 ]; then A=2; elif [ 1 = 1 ]; then A=3; else A=4; fi\nrun $A", "run 3"),
        ("if [ 1 = 2 ]; then A=1; elif [ 1 = 3 ]; then A=2; elif [ 1 = 4 ]; then A=3; else A=4; fi\nrun $A", "run 4"),
        ("if [ 1 = 1 ]; then A=1; elif [ 1 = 1 ]; then A=2; elif [ 1 = 1 ]; then A=3; else A=4; fi\nrun $A", "run 1"),
        ('if [ -n "$NOBODY" ]; then A=--one; elif [ 3 -gt 2 ]; then A=--two; fi\nrun $A', "run --two"),
        ("if [ ! -f data ]; then exit 1; fi\nrun --on", "run --on"),
        ("M=7b\ncase $M in\n 7b) L=32;;\n 70b) L=80;;\nesac\nrun --layers $L", "run --layers 32"),
        ("go() { run --tp $1; }\ngo 4", "run --tp 4"),
        ("for TP in 2 4; do run --tp $TP; done", "run --tp 2"),
        ("L='run --tp 8'\nC=' --pp 2'\nsrun bash -c '$L --rank $R $C'", "srun bash -c run --tp 8 --rank $R --pp 2"),
        ('C="run --tp 8"\neval $C', "eval run --tp 8"),
        ("F=conf/big.sh\nrun ${F##*/} ${F%.sh}", "run big.sh conf/big"),
        ("A=(1 2 3)\nrun ${#A[@]} ${A[1]}", "run 3 2"),
        ("run --save $1 --tp 8 2>&1 | tee log", None),
    ],
)
def test_constructs(script: str, expected: str | None) -> None:
    if expected is None:
        reading = read_bash(script.encode(), {})
        first = " ".join(text_of(word) for word in reading.commands[0].words)
        assert first == "run --save $1 --tp 8"
    else:
        assert command(script) == expected


def test_slurm_fills_its_variables() -> None:
    assert command("run --nnodes ${SLURM_NNODES:-1}", SLURM_NNODES="16") == "run --nnodes 16"


@pytest.mark.parametrize(
    ("end", "filled"), [("EOT", '"4 $M"'), ("'EOT'", r'"$M \$M"'), ('"EOT"', r'"$M \$M"'), (r"\EOT", r'"$M \$M"')]
)
def test_a_here_document_is_filled_in_unless_its_end_is_quoted(end: str, filled: str) -> None:
    script = f'M=4\ncat <<{end} > ds.json\n{{"name": "$M \\$M"}}\nEOT\n'
    (document,) = read_bash(script.encode(), {}).documents
    assert document.target == "ds.json"
    assert document.text.strip() == f'{{"name": {filled}}}'


def test_every_value_knows_where_it_is_written() -> None:
    script = b'TP=8\nARGS="--tp $TP"\nrun $ARGS --pp=4\n'
    tp, pp = flags_of(flat(read_bash(script, {}).commands[-1].words))
    start, end = tp.words[0][0].sites[0]
    assert script[start:end] == b"8"
    assert [script[slice(*site)] for site in tp.words[0][0].sites[1:]] == [b"$TP", b"$ARGS"]
    assert (pp.value, pp.joined) == ("4", True)


def test_nothing_is_run(tmp_path: object) -> None:
    marker = f"{tmp_path}/ran"
    read_bash(f"touch {marker}; X=$(touch {marker})\nrun $X".encode(), {})
    from pathlib import Path

    assert not Path(marker).exists()


def test_endless_scripts_end() -> None:
    assert read_bash(b"f() { f; f; f; }\nf\n", {}).commands == []


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ((0, 1), ((10, 11),)),
        ((1, 2), ((11, 12),)),
        ((2, 5), ((20, 23),)),
        ((3, 5), ((21, 23),)),
        ((1, 3), ()),  # of two pieces
        ((5, 6), ((30, 34),)),  # a variable's value, written otherwise
        ((6, 7), ()),
        ((7, 8), ()),  # nothing of the text
        ((-11, -13), ((10, 12),)),  # set aside
    ],
)
def test_a_place_in_a_document_is_one_of_the_outer_script(inside: Site, outside: tuple[Site, ...]) -> None:
    trace = Trace((Piece("ab", ((10, 12),)), Piece("cde", ((20, 23),)), Piece("x", ((30, 34),)), Piece("y")))
    assert trace.outer(Piece("?", (inside,))).sites == outside
