"""`optimize read --watch`: lines on a log that grows, and where it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.commands.launch.read import diagnoses_of
from optimizer.commands.launch.watch import POLL, NextEdit, grown, next_edit, watch, watched_line
from optimizer.diagnose.diagnosis import BELOW, Diagnosis
from optimizer.diagnose.measured import Measured, logged_runs, measured
from optimizer.diagnose.reference import Reference, script_reference
from tests.diagnose import written
from tests.search.jobs import small_job

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


def told(log: Path, looks: int, step: float | None, last: int = 30, steps: float = 0.0) -> list[str]:
    """What is said in so many looks at a log that is written before the first one."""
    said: list[str] = []
    run: Any = SimpleNamespace(last=last, step_time=step, failure="", steady=SimpleNamespace(seconds=6.0, spread=0.0))
    pauses = iter(range(looks))

    def sleep(seconds: float) -> None:
        assert seconds == POLL
        if next(pauses, None) is None:
            raise KeyboardInterrupt

    edit = NextEdit(words="other", gain=0.25, stop=30.0, steps=steps) if steps else None
    watch([log], lambda: (run, None), edit, said.append, sleep)
    return [*said, f"{len(list(pauses))} looks left"]


@pytest.mark.parametrize(
    ("looks", "step", "asked"),
    [(60, 6.0, []), (61, 6.0, ["122 s, 20 steps"]), (99, 6.0, ["122 s, 20 steps"]), (21, 2.0, ["42 s, 21 steps"])],
)
def test_more_than_twenty_steps_of_silence_make_one_ask(
    tmp_path: Path, looks: int, step: float, asked: list[str]
) -> None:
    """The first look is at what is new; each after it is 2 s later."""
    log = tmp_path / "train.log"
    log.write_text("step", encoding="utf-8")
    said = told(log, looks, step)[1:-1]
    assert said == [f"nothing new for {words}: does it hang?" for words in asked]
    assert told(log, looks, None)[1:-1] == []


@pytest.mark.parametrize(("last", "left"), [(69, 0), (70, 5), (71, 5)])
def test_it_ends_with_the_last_step_of_the_run(tmp_path: Path, last: int, left: int) -> None:
    log = tmp_path / "train.log"
    log.write_text("step", encoding="utf-8")
    assert told(log, 5, 6.0, last, 70.0)[-1] == f"{left} looks left"


def test_logs_are_looked_at_as_one_and_waited_for(tmp_path: Path) -> None:
    logs, pauses = [tmp_path / "a", tmp_path / "b"], [0.0]

    def sleep(_: float) -> None:
        pauses[0] += 1
        if pauses[0] in (2, 5):
            logs[pauses[0] == 5].write_text("x" * 9)
        if pauses[0] == 3:
            logs[1].touch()

    found = grown(logs, sleep)
    assert [(next(found), pauses[0]) for _ in range(5)] == [(0.0, 2), (0.0, 3), (2.0, 4), (0.0, 5), (2.0, 6)]


def test_the_next_edit_is_that_of_improve(expected: Reference) -> None:
    edit = next_edit([SCRIPT], expected)
    assert edit is not None
    assert edit.gain > 0
    assert edit.steps > 1000
    assert edit.stop == expected.job.try_cost
    assert next_edit([], expected) is None


@pytest.mark.parametrize(
    ("gains", "sure", "fits", "words"),
    [
        ((0.2, 0.1), (True, True), True, "the first"),
        ((0.2, 0.1), (False, True), True, "the second"),
        ((0.2, 0.1), (False, True), False, "the first"),
        ((0.2,), (False,), True, ""),
        ((0.0,), (True,), True, ""),
        ((), (), False, ""),
    ],
)
@pytest.mark.parametrize(("tokens", "steps"), [(1e9, 1e9 / 2**20), (None, 0.0)])
def test_the_next_edit_is_the_first_that_is_sure_and_pays(
    gains: Any, sure: Any, fits: bool, words: str, tokens: Any, steps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what does not run, the first of all."""
    named = zip(("the first", "the second"), gains, sure, strict=False)
    edits = [SimpleNamespace(words=name, gain=gain, sure=certain) for name, gain, certain in named]
    question = SimpleNamespace(settings={"tokens": tokens}, job=SimpleNamespace(tokens=2**20))
    improvement = SimpleNamespace(edits=edits, current=SimpleNamespace(fits=fits))
    clusters: list[str] = []
    for name, value in {
        "frameworks.files.read_files": lambda _: None,
        "frameworks.read.read_launch": lambda *_: SimpleNamespace(launch=None),
        "frameworks.launch_as_read.launch_as_read": lambda _, asked, __: clusters.append(asked.cluster) or question,
        "improve.writable.improve_files": lambda *_: improvement,
        "improve.report.changes_text": lambda edit: edit.words,
    }.items():
        monkeypatch.setattr(f"optimizer.{name}", value)
    for job in (small_job(), replace(small_job(), cluster=replace(small_job().cluster, name="mine"))):
        found = next_edit([SCRIPT], SimpleNamespace(job=job))
        told = (
            NextEdit(words=words, gain=gains[words == "the second"], stop=job.try_cost, steps=steps) if words else None
        )
        assert found == told
    assert clusters == ["dgx-h100", ""]


def test_one_byte_is_news_and_the_files_are_not_there_at_first(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("x")
    assert next(grown([log], lambda _: None)) == 0.0


def test_there_is_no_edit_without_a_launch_or_a_plan() -> None:
    plan: Any = SimpleNamespace()
    assert (next_edit([], plan), next_edit([SCRIPT], None)) == (None, None)


def test_lines_are_no_json() -> None:
    refused = CliRunner().invoke(cli, ["read", "train.log", "--watch", "--json"])
    assert refused.exit_code == 2
    assert "--watch prints lines" in refused.output


def test_an_empty_log_is_waited_for(tmp_path: Path) -> None:
    log, looks = tmp_path / "train.log", iter(range(3))
    log.touch()

    def sleep(_: float) -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt

    found: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(grown([log], sleep))
    assert found == []


@pytest.mark.parametrize(
    ("measured", "verdict", "explained", "told"),
    [
        (7.0, "below", True, "expected (4 s to 6 s at 90%): +40.0%; likeliest cause, 60%: the network"),
        (7.0, "below", False, "expected (4 s to 6 s at 90%): +40.0%"),
        (5.5, "within", True, "expected (4 s to 6 s at 90%): +40.0%; within the interval"),
        (4.0, "within", True, "expected (4 s to 6 s at 90%): +40.0%; within the interval"),
        (3.9, "within", True, "expected (4 s to 6 s at 90%): +40.0%; faster than the interval"),
    ],
)
def test_a_line_says_where_the_run_lies(measured: float, verdict: str, explained: bool, told: str) -> None:
    run: Any = SimpleNamespace(last=1200, steady=SimpleNamespace(seconds=measured, spread=0.01), failure="")
    cause = SimpleNamespace(share=0.6, says="the network")
    diagnosis: Any = SimpleNamespace(
        predicted=5.0,
        interval=SimpleNamespace(low=4.0, high=6.0),
        gap=0.4,
        unlike="",
        verdict=BELOW if verdict == "below" else verdict,
        explanations=[cause] * explained,
        measured=measured,
    )
    assert watched_line(run, diagnosis, None) == f"step 1,200: {measured:g} s ± 1.0%, 5 s {told}"
    plain = f"step 1,200: {measured:g} s ± 1.0%"
    assert watched_line(run, None, None) == plain
    edit = NextEdit(words="other", gain=0.25, stop=30.0)
    assert watched_line(run, None, edit) == f"{plain}; other pays where more than {150 / measured:,.0f} steps remain"
    failed: Any = SimpleNamespace(last=1200, steady=None, failure="out of memory")
    assert watched_line(failed, None, None) == "step 1,200: no steady step yet; out of memory"
    failed.steady = run.steady
    assert watched_line(failed, None, None) == f"{plain}; out of memory"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (0, "pays: 100 steps remain, 100 s saved for 90 s"),
        (10, "pays: 90 steps remain, 90 s saved for 90 s"),
        (11, "no longer pays: 89 steps remain, 89 s saved for 90 s"),
        (120, "no longer pays: 0 steps remain, 0 s saved for 90 s"),
    ],
)
def test_an_edit_pays_while_it_saves_what_it_takes(step: int, told: str) -> None:
    """A quarter more tokens a second saves a fifth of each step of 5 s."""
    assert NextEdit(words="other", gain=0.25, stop=90.0, steps=100).sentence(step, 5.0) == f"other {told}"
