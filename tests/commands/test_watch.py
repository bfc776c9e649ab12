"""`optimize read --watch`: lines on a log that grows, and where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.commands.launch.read import diagnoses_of
from optimizer.commands.launch.watch import POLL, NextEdit, next_edit, watch
from optimizer.diagnose.diagnosis import Diagnosis
from optimizer.diagnose.measured import Measured, logged_runs, measured
from optimizer.diagnose.reference import Reference, script_reference
from tests.diagnose import written

SCRIPT = "examples/llama3-8b.sh"


@pytest.fixture(scope="module")
def expected() -> Reference:
    return script_reference([SCRIPT], {}, [])


def followed(log: Path, pieces: list[str], expected: Reference, edit: NextEdit | None = None) -> list[str]:
    """What is said of a log whose pieces are written one after the other, a look after each; then Ctrl-C."""
    said, left = list[str](), list(pieces)

    def grow(_: float) -> None:
        if not left:
            raise KeyboardInterrupt
        with log.open("a", encoding="utf-8") as file:
            file.write(left.pop(0))

    def look() -> tuple[Measured, Diagnosis | None]:
        run = measured(logged_runs([log])[-1], expected.sizes)
        return run, diagnoses_of([run], expected)[0]

    watch([log], look, edit, said.append, grow)
    return said


def lines_of(steps: int, seconds: float = 6.0) -> list[str]:
    return written.megatron([8.0, *[seconds] * (steps - 1)], batch=256, last=100)


def test_every_piece_is_a_line_with_the_cause_and_what_still_pays(tmp_path: Path, expected: Reference) -> None:
    log, lines = tmp_path / "train.log", written.text(lines_of(60)).splitlines(keepends=True)
    pieces = ["".join(lines[start : start + 22]) for start in range(0, len(lines), 22)]
    edit = NextEdit(words="recompute full → none", gain=0.25, stop=30.0, steps=70)
    said = followed(log, pieces, expected, edit)
    assert [line.partition(":")[0] for line in said] == sorted({line.partition(":")[0] for line in said})
    assert len(said) == len(pieces)
    assert "likeliest cause" in said[-1]
    assert "6 s" in said[-1]
    assert "expected" in said[-1]
    assert "pays" in said[0]
    assert "no longer pays: 10 steps remain, 12 s saved for 30 s" in said[-1]


def test_it_ends_with_the_failure_of_the_run(tmp_path: Path, expected: Reference) -> None:
    start = written.text(lines_of(30))
    said = followed(
        tmp_path / "train.log", [start, "torch.OutOfMemoryError: CUDA out of memory.\n", "never\n"], expected
    )
    assert "OutOfMemoryError" in said[-1]
    assert "never" not in (tmp_path / "train.log").read_text()


def test_a_log_that_stays_as_it_is_makes_one_ask_once(tmp_path: Path, expected: Reference) -> None:
    looks = int(20 * 6.0 / POLL) + 5
    said = followed(tmp_path / "train.log", [written.text(lines_of(30)), *[""] * looks], expected)
    assert len(said) == 2
    assert "does it hang?" in said[1]


def test_the_next_edit_is_that_of_improve(expected: Reference) -> None:
    edit = next_edit([SCRIPT], expected)
    assert edit is not None
    assert edit.gain > 0
    assert edit.steps > 1000
    assert edit.stop == expected.job.try_cost
    assert next_edit([], expected) is None


def test_lines_are_no_json() -> None:
    refused = CliRunner().invoke(cli, ["read", "train.log", "--watch", "--json"])
    assert refused.exit_code == 2
    assert "--watch prints lines" in refused.output
