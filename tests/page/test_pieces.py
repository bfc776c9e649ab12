"""What views of the tabs are made of, reckoned by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster
from optimizer.cli import cli
from optimizer.job.fields import EXPECTED, FIELDS
from optimizer.job.plan import Plan
from optimizer.page.plan.controls import control
from optimizer.page.plan.own_files import packed, unpacked
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.answer import surcharge
from optimizer.page.plan.views.compared import difference_chart, distance, nearest, row_of
from optimizer.page.plan.views.map import map_values, valued
from optimizer.page.plan.views.shown import signed_bars
from optimizer.page.plan.views.studies import counts, ends, sensitivity_chart
from optimizer.page.studies import view
from optimizer.page.studies.batch import ORDERS
from optimizer.reports.charts.palette import BLUE, ORANGE
from optimizer.search.why.comparison import Difference
from optimizer.studies.cells import FITS, FULL
from tests.search.jobs import small_job


def test_a_job_without_an_answer_comes_behind_the_worst_that_has_one() -> None:
    names = {"MFU": "mfu", "tokens per dollar": "tokens_per_usd", "tokens per joule": "tokens_per_joule"}
    for order, name in names.items():
        some, none = {name: 0.5}, {name: None}
        assert sorted((none, some), key=ORDERS[order]) == [some, none]
    late, none = {"step_time_s": 1e9}, {"step_time_s": None}
    assert sorted((none, late), key=ORDERS["step time"]) == [late, none]


@pytest.mark.parametrize(
    ("values", "fewer", "span", "colours"),
    [
        ([-0.5, 1.5], False, [-1.5, 2.5], [ORANGE, BLUE]),
        ([-0.5, 1.5], True, [-1.5, 2.5], [BLUE, ORANGE]),
        ([1.0, 2.0], False, [0.0, 3.0], [BLUE, BLUE]),
        ([-1.0], True, [-1.5, 0.0 + 0.5], [BLUE]),
        ([0.0], True, [0.0, 0.5], [BLUE]),
        ([], False, [0.0, 0.5], []),
    ],
)
def test_bars_to_both_sides_have_room_for_their_texts(
    values: list[float], fewer: bool, span: list[float], colours: list[str]
) -> None:
    """Half of what they span lies beyond each end that has a bar, and beyond zero at the right."""
    found = signed_bars([(f"{value}", value, "text") for value in values], " s", fewer=fewer, height=30)
    assert found["layout"]["xaxis"]["range"] == span
    assert found["layout"]["height"] == 80 + 30 * max(1, len(values))
    (drawn,) = found["data"]
    assert list(drawn["marker"]["color"]) == colours


def test_a_difference_is_drawn_where_it_is_noticed_and_less_is_blue() -> None:
    """Terms of a step of 100 s: what differs by less than 0.05 s is in the table alone."""
    terms = {"gemm": (50.0, 40.0), "bubble": (20.0, 25.0), "launch": (1.0, 1.04), "optimizer": (2.0, 1.94)}
    time = tuple(Difference(term=name, ours=ours, theirs=theirs) for name, (ours, theirs) in terms.items())
    one: Any = SimpleNamespace(pins="tp=4", time=time, memory=time[:1], our_estimate=SimpleNamespace(step_time=100.0))
    chart = difference_chart("mine-0", one)
    (drawn,) = chart.figure["data"]
    assert list(drawn["x"]) == pytest.approx([-10.0, 5.0, -0.06])
    assert list(drawn["marker"]["color"]) == [BLUE, ORANGE, BLUE]
    assert chart.figure["layout"]["height"] == 80 + 30 * 3
    assert len(chart.rows) == 4 + 1
    assert chart.rows[0][1:] == ("50 s", "40 s", "-10 s")
    assert chart.rows[-1][0].startswith("memory: ")
    assert chart.words == "All terms together: -5.02 s per step."


@pytest.mark.parametrize(
    ("count", "passes", "drawn"),
    [(48, 4608, 20), (8, 100, 8), (20, 1000, 20), (100, 10_000, 20), (100, 10_100, 19), (1, 10**6, 1)],
)
def test_no_more_passes_are_drawn_than_can_be_seen(count: int, passes: int, drawn: int) -> None:
    """Of 100 passes a micro-batch 20 at each end are 4,000."""
    assert ends(count, passes) == drawn


@pytest.mark.parametrize(
    ("gpus", "most", "sizes"),
    [(8, 4096, [2, 4, 8, 16, 32]), (6, 24, [3, 6, 12, 24]), (6, 23, [3, 6, 12]), (1, 4096, [1, 2, 4])],
)
def test_gpus_around_those_asked_for_are_whole_and_there(gpus: int, most: int, sizes: list[int]) -> None:
    job = small_job()
    assert counts(replace(job, gpus=gpus, cluster=replace(job.cluster, max_gpus=most))) == sizes


def test_unlike_jobs_are_doublings_apart() -> None:
    job = small_job()
    other = replace(job, gpus=32, seq_len=2048)
    assert (distance(job, job), distance(job, other), distance(other, job)) == (0.0, 3.0, 3.0)
    elsewhere = replace(job, cluster=load_cluster("dgx-h200"))
    assert distance(job, elsewhere) == 4.0
    runs: list[Any] = [SimpleNamespace(job=each) for each in (None, elsewhere, other, job)]
    assert nearest(job, runs) == runs[::-1]
    assert nearest(job, runs, 2) == [runs[3], runs[2]]
    assert len(nearest(job, runs * 2)) == 6


def test_a_run_is_told_by_its_gap() -> None:
    job = small_job()
    row = {"source": "s", "table": "t"}
    run: Any = SimpleNamespace(job=job, step_time=2.0, plan=None, row=row)
    gap: Any = SimpleNamespace(run=run, ratio=1.125)
    cells = row_of(gap)
    assert (cells[0], cells[1:4], cells[4], cells[6:]) == (
        "small",
        ("8 × h100", "4,096", ""),
        "2 s",
        ("+12.5%", "s, t"),
    )
    gap.ratio = None
    assert row_of(gap)[6] == ""
    for nothing in ({"job": None}, {"step_time": None}):
        missing: Any = SimpleNamespace(run=SimpleNamespace(**vars(run) | nothing), ratio=1.0)
        assert row_of(missing) == ()


def test_a_cell_of_the_map_is_the_paler_the_slower() -> None:
    """From (94, 174, 222) to (237, 245, 250) at twice the value; halfway (165.5, 209.5, 236), rounded to even."""

    def cell(tp: int, pp: int, value: float, kind: str = FITS) -> Any:
        return SimpleNamespace(tp=tp, pp=pp, value=value, kind=kind, text=f"{value} s", words="words")

    every = [cell(2, 1, 4.0), cell(1, 2, 3.0), cell(1, 1, 2.0), cell(2, 4, 1.0, FULL), cell(4, 1, 9.0)]
    values = map_values(small_job(), every)
    assert [(tp, [colour for _, colour in line]) for tp, line in values["lines"]] == [
        (1, ["#a6d2ec", "#5eaede"]),
        (2, ["#edf5fa", ""]),
        (4, ["#edf5fa"]),
    ]
    assert values["pps"] == [1, 2, 4]
    assert values["fastest"] is every[2]
    assert values["words"].endswith("with TP 1 and PP 1: 2.0 s.")
    assert [row[0] for row in values["rows"]] == ["2 × 1", "1 × 2", "1 × 1", "2 × 4", "4 × 1"]
    nothing = map_values(small_job(), every[3:4])
    assert (nothing["fastest"], nothing["words"]) == (None, "No cell holds a plan that fits.")
    assert nothing["lines"][0][1][0][1] == ""
    assert valued(Answer(status="infeasible", job=small_job())) is None


@pytest.mark.parametrize(
    ("minimize", "prefer", "best", "told"),
    [
        ("time", EXPECTED, 2.5, "25.0%"),
        ("time", EXPECTED, 2.0011, "0.1%"),
        ("time", EXPECTED, 2.0009, ""),
        ("energy", EXPECTED, 2.5, ""),
        ("time", "fast", 2.5, ""),
    ],
)
def test_what_is_expected_costs_is_told_where_it_is_seen(minimize: str, prefer: str, best: float, told: str) -> None:
    certificate: Any = SimpleNamespace(minimize=minimize, prefer=prefer, best=best)
    answer = Answer(status="optimal", job=small_job(), plan=Plan(dp=8), certificate=certificate)
    estimate: Any = SimpleNamespace(step_time=2.0)
    assert surcharge(answer, estimate) == told
    assert surcharge(replace(answer, certificate=None), estimate) == ""


def test_inputs_that_change_nothing_are_counted() -> None:
    """A gain of a hundredth of a per cent is seen, half of it is none."""

    def effect(name: str, gain: float, best: object = "plan") -> Any:
        variation = SimpleNamespace(name=name, change="+10%")
        return SimpleNamespace(variation=variation, gain=gain, changed=("tp", "pp"), best=best)

    base = SimpleNamespace(job=small_job())
    study: Any = SimpleNamespace(effects=[effect("a", 0.25), effect("b", -1e-4), effect("c", 5e-5, None)], base=base)
    chart = sensitivity_chart(study)
    assert chart.words == "a (+10%) moves them most, by +25.00%; 1 of 3 change nothing."
    (drawn,) = chart.figure["data"]
    assert list(drawn["x"]) == pytest.approx([25.0, -0.01, 0.005])
    assert chart.figure["layout"]["height"] == 80 + 34 * 3
    assert [row[3] for row in chart.rows] == ["tp, pp", "tp, pp", "no plan fits"]
    none: Any = SimpleNamespace(effects=study.effects[2:], base=base)
    assert sensitivity_chart(none).words == "None of these changes anything."


def test_a_file_of_an_address_has_16_000_bytes_at_most() -> None:
    assert len(unpacked("model", packed("x" * 16_000))) == 16_000
    with pytest.raises(InputError, match="more than 16,000 bytes"):
        unpacked("model", packed("x" * 16_001))
    assert len(unpacked("model", packed("x" * 9), most=9)) == 9
    with pytest.raises(InputError, match="more than 8 bytes"):
        unpacked("model", packed("x" * 9), most=8)


@pytest.mark.parametrize(
    ("value", "risks"),
    [
        (None, ["0.5", "0.2", "0.1", "0.05", "0.02", "0.01"]),
        (0.3, ["0.5", "0.3", "0.2", "0.1", "0.05", "0.02", "0.01"]),
    ],
)
def test_risks_are_offered_with_that_of_the_address(value: float | None, risks: list[str]) -> None:
    found = control(FIELDS["oom_risk"], PlanQuestion(oom_risk=value)).groups[""]
    assert [name for name, _ in found] == risks
    assert found[0] == ("0.5", "at most 50%")
    assert found[-1] == ("0.01", "at most 1%")


@pytest.mark.parametrize("words", [["--port", "1"], ["--no-browser"], ["--learn-out", "x"], ["--store", "x.db"]])
def test_a_copy_serves_nothing(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("optimizer.page.offline.questions", lambda models, gpus: (models, gpus))
    monkeypatch.setattr("optimizer.page.offline.write_offline", lambda place, grid: written.append(place) or 2_560_000)
    refused = CliRunner().invoke(cli, ["page", "--static", "copy", *words])
    assert (refused.exit_code, written) == (2, [])
    assert "--static serves nothing" in refused.stderr
    done = CliRunner().invoke(cli, ["page", "--static", "copy"])
    assert (done.exit_code, done.stdout, written) == (0, "", [Path("copy")])
    assert "wrote 2.6 MB to copy" in done.stderr


@pytest.mark.parametrize(("words", "port"), [([], 0), (["--port", "8123"], 8123)])
def test_a_page_is_served_on_the_port_asked_for(words: list[str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, Any]] = []
    monkeypatch.setattr("optimizer.page.server.serve", lambda port, **how: asked.append((port, how)))
    assert CliRunner().invoke(cli, ["page", *words, "--no-browser"]).exit_code == 0
    assert asked == [(port, {"browser": False, "learn_out": None, "store": ""})]
    for lone in (["--static-models", "gpt3"], ["--static-gpus", "8"]):
        refused = CliRunner().invoke(cli, ["page", *lone])
        assert refused.exit_code == 2
        assert "belong to --static DIR" in refused.stderr


def test_a_rent_is_told_by_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    offer = SimpleNamespace(value=1e-3)
    monkeypatch.setattr(view, "rent_offer", lambda campaign, design: offer)
    nothing: Any = None
    assert view.PRICES["rent"](nothing, nothing) == (pytest.approx(3.6), offer)
