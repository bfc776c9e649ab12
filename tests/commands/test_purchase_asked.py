"""What `optimize pareto` makes of what a buyer types: designs, limits, what is printed and refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any

import click
import pytest

from optimizer.base.errors import InputError
from optimizer.base.units import DAY
from optimizer.commands.buy import campaign, pareto
from optimizer.job.job import Limits
from tests.search.jobs import small_job

FORMATS = ("as_json", "as_csv", "as_markdown")


@pytest.mark.parametrize(("ranges", "trials", "steps"), [(None, 0, 2), (None, 5, 2), ({"nic": (1.0, 2.0)}, 5, 7)])
def test_so_many_designs_and_trials_are_asked_for(
    ranges: Any, trials: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    bars: list[tuple[str, int | None]] = []

    @contextmanager
    def bar(name: str, count: int | None) -> Iterator[None]:
        bars.append((name, count))
        yield

    monkeypatch.setattr(pareto, "progress", bar)
    monkeypatch.setattr("optimizer.purchase.designs.pareto.pareto", lambda *_, **options: asked.update(options))
    monkeypatch.setattr("optimizer.purchase.dossier.dossier", lambda *_, **options: options["deadline_for_fewest"])
    grid = SimpleNamespace(designs=lambda: iter("ab"))
    question: Any = SimpleNamespace(campaign=None, grid=grid, ranges=ranges, kinds=(), deliveries=())
    assert pareto.bought(question, trials=trials, seed=3, fewest_for=9.0, most=2) == 9.0
    assert bars == [("designs", steps), ("weighing the choices", None)]
    assert (asked["trials"], asked["sampler"], asked["seed"]) == (trials, "tpe", 3)
    pareto.bought(question)
    assert (asked["trials"], asked["seed"]) == (0, 0)
    with pytest.raises(InputError, match="more than 1 designs"):
        pareto.bought(question, most=1)
    grid.designs = lambda: iter(range(20_001))
    with pytest.raises(InputError, match="more than 20,000 designs"):
        pareto.bought(question)


def purchase(words: str) -> Any:
    """The question that a command asks."""
    typed = ["--model", "gpt3", "--tokens", "300B", "--hardware", "h100,a100-80", *words.split()]
    return pareto.question_of_options(pareto.pareto.make_context("pareto", typed).params)


def test_what_a_buyer_types_is_a_grid_of_designs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = purchase("--gpus 64,128")
    assert [(kind.kind, kind.gpus) for kind in plain.kinds] == [("h100", 1), ("a100-80", 1)]
    grid, asked = plain.grid, plain.campaign
    assert (grid.kinds, grid.gpus, grid.dtypes, grid.nics, grid.scale_ups) == (
        *(plain.kinds, (64, 128), ("bf16",), (0.0,), (0,)),
    )
    assert (grid.power_caps, grid.batch_factors, grid.hbms, grid.best_counts) == ((1.0,), (1.0,), (0.0,), {})
    assert (plain.ranges, plain.deliveries, asked.bubble, asked.flex) == ({}, (), Limits.bubble, 0.0)
    bounds = purchase("--gpus 8 --deadline 1d --on-hand h100=8").campaign.bounds
    assert (bounds.deadline, bounds.budget, bounds.power, bounds.racks, bounds.on_hand) == (
        DAY,
        inf,
        inf,
        inf,
        {"h100": 8},
    )
    assert [(run.model.name, run.tokens, run.global_batch) for run in asked.runs] == [("gpt3", 300e9, 1536)]
    assert plain.assumed[0].startswith("sequences of 2,048 tokens")
    words = "--gpus 64 --nic 200:400 --hbm 80,96 --scale-up 8,72 --bubble-ceiling 0.2 --flex batch=5%"
    other = purchase(words)
    assert (other.ranges, other.grid.hbms, other.grid.scale_ups) == ({"nic": (25e9, 50e9)}, (80e9, 96e9), (8, 72))
    assert (other.campaign.bubble, other.campaign.flex) == (0.2, 0.05)
    staged = purchase("--stages 64,64@180d")
    assert (staged.grid.gpus, [delivery.gpus for delivery in staged.deliveries]) == ((64, 128), [64, 64])
    best: list[Any] = []
    monkeypatch.setattr(campaign, "_best_counts", lambda *asked: best.append(asked[2:]) or ({"h100": 48}, ["fewer"]))
    most = purchase("--gpus at-most:64 --dtype fp8,bf16")
    assert (most.grid.best_counts, best, "fewer" in most.assumed) == ({"h100": 48}, [(64, "fp8")], True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--gpus 8 --rent h200=2", "'h200' is priced or counted but not in --hardware h100,a100-80"),
        ("--gpus 8 --on-hand h200=2", "'h200' is priced or counted"),
        ("--gpus 8 --on-hand h100=x", "--on-hand h100=x must be a number of GPUs"),
        ("--gpus at-most:8,16", "--gpus at-most:8,16 must name one number"),
        ("--gpus 8 --scale-up 8:72", "--scale-up 8:72 must be a list of GPU counts"),
        ("--stages 64,64@180d --nic 200:400", "--stages asks about one design of each machine"),
        ("--stages 64,64@180d --dtype bf16,fp8", "--stages asks about one design of each machine"),
        ("--gpus 8 --stages 8", "give --gpus, as in"),
        ("--gpus 8 --model=", "missing --model and --tokens"),
    ],
)
def test_no_question_of_a_buyer_is_refused(words: str, why: str) -> None:
    with pytest.raises((InputError, click.UsageError), match=why):
        purchase(words)


@pytest.mark.parametrize(
    ("form", "printed"), [("as_json", "json\n"), ("as_csv", "csv"), ("as_markdown", "markdown"), ("", "screen\n")]
)
@pytest.mark.parametrize(
    ("staged", "front", "fewest", "code"),
    [((), "x", None, 0), ((), "", 9.0, 3), ((True, False), "", None, 0), ((False, True), "x", None, 3)],
)
def test_a_purchase_is_printed_and_its_limits_are_the_exit_code(
    form: str,
    printed: str,
    staged: tuple[bool, ...],
    front: str,
    fewest: float | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = SimpleNamespace(
        staged=[SimpleNamespace(in_limits=within) for within in staged], purchase=SimpleNamespace(front=front)
    )
    asked: list[Any] = []
    monkeypatch.setattr(pareto, "bought", lambda _, **how: asked.append(how["fewest_for"]) or answer)
    monkeypatch.setattr(pareto, "question_of_options", lambda _: SimpleNamespace(assumed=()))
    monkeypatch.setattr(pareto, "print_screen", lambda _: print("screen"))
    monkeypatch.setattr("optimizer.purchase.as_json.purchase_json", lambda *_: "json")
    monkeypatch.setattr("optimizer.purchase.as_json.purchase_csv", lambda *_: "csv")
    monkeypatch.setattr("optimizer.purchase.report.purchase_report", lambda *_: None)
    monkeypatch.setattr("optimizer.reports.render.markdown.markdown_text", lambda *_: "markdown")
    others: dict[str, Any] = {"html": None, "trials": 0, "sampler": "tpe", "seed": 0, "since": None}
    formats = {name: name == form for name in FORMATS}
    assert pareto.run_pareto(**others, **formats, min_gpus_for=fewest) == code
    assert (capsys.readouterr().out, asked) == (printed, [fewest or 0.0])


@pytest.mark.parametrize(
    "formats", [{"as_json", "as_csv"}, {"as_json", "as_markdown"}, {"as_csv", "as_markdown"}, set(FORMATS)]
)
def test_a_purchase_is_printed_in_one_form(formats: set[str]) -> None:
    others: dict[str, Any] = {"html": None, "trials": 0, "sampler": "tpe", "seed": 0, "min_gpus_for": None}
    with pytest.raises(click.UsageError, match="choose one of --json, --csv and --markdown"):
        pareto.run_pareto(since=None, **others, **{name: name in formats for name in FORMATS})


@pytest.mark.parametrize(
    ("words", "told"), [("8 are best", "8 are best"), ("", "8 GPUs are the best of 2 counts tried")]
)
def test_at_most_so_many_gpus_are_paid_for(words: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of machines that are sold by eight."""
    kind = purchase("--gpus 8").kinds[0]
    use = SimpleNamespace(best=SimpleNamespace(job=small_job(8)), tried="ab", words=lambda: words)
    asked: list[Any] = []
    monkeypatch.setattr("optimizer.studies.best_use.counts_at_most", lambda most, node: (most, 8))
    monkeypatch.setattr("optimizer.studies.best_use.best_use", lambda jobs, _: asked.extend(jobs) or use)
    eights = "optimizer.purchase.price.catalogue.paid"
    monkeypatch.setattr(eights, lambda _, design: SimpleNamespace(gpus=-(-design.gpus // 8) * 8))
    monkeypatch.setattr(type(kind), "job", lambda design, campaign, run: (design.gpus, design.dtype, run))
    question: Any = SimpleNamespace(runs=("run",))
    for most, tried in ((8, [8, 8]), (16, [16, 8]), (20, [8])):
        found = campaign._best_counts(question, (kind,), most, "fp8")
        assert found == ({"h100": 8}, [f"{kind.title}, at most {most}: {told}"])
        assert asked == [(gpus, "fp8", "run") for gpus in tried]
        asked.clear()
    with pytest.raises(InputError, match="is not sold in lots of so few GPUs"):
        campaign._best_counts(question, (kind,), 7, "fp8")
