"""At most so many GPUs, a batch that may move, and a default batch that grows as published runs' did."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.usual_batch import STEPS, usual_tokens
from optimizer.cli import cli
from optimizer.job.job import Job
from optimizer.search.plan.planner import plan
from optimizer.studies.best_use import batches_near, best_use, counts_at_most, with_batches

BUYER = ["pareto", "--model", "llama3-8b", "--tokens", "15T", "--hardware", "h100", "--json"]


def job(gpus: int, batch: int = 256) -> Job:
    stack, cluster = load_stack("megatron-core"), load_cluster("dgx-h100")
    model = load_model("llama3-8b")
    return Job(model=model, cluster=cluster, stack=stack, gpus=gpus, seq_len=8192, global_batch=batch)


def quick(question: Job) -> Answer:
    return plan(question, top=0, trials=0, priced_risk=False, explained=False, read_twice=False)


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(("most", "node"), [(1000, 8), (2304, 8), (1000, 72), (7, 8), (8, 8), (4097, 4)])
def test_counts_are_whole_nodes_not_too_few_and_what_was_asked_first(most: int, node: int) -> None:
    counts = counts_at_most(most, node)
    assert counts[0] == most
    assert all(0.75 * most <= count <= most for count in counts)
    assert all(count % node == 0 for count in counts[1:] if most >= node)
    assert list(counts[1:]) == sorted(set(counts[1:]), reverse=True)


def test_batches_stay_within_reach() -> None:
    for gpus in (96, 1000, 2304):
        first, *others = batches_near(1024, 0.05, gpus)
        assert first == 1024
        assert others
        assert all(0.95 * 1024 <= batch <= 1.05 * 1024 for batch in others)
    assert batches_near(8, 0.01, 64) == (8,)


def test_the_best_use_is_the_best_of_all_that_were_tried() -> None:
    # 104 GPUs are 13 nodes: 256 sequences leave no data parallelism but by 13 pipeline stages of 32 layers.
    jobs = [job(count) for count in counts_at_most(104, 8)]
    found = best_use(jobs)
    rates = {}
    for question in jobs:
        answer = quick(question)
        rates[question.gpus] = question.tokens / answer.estimate.step_time if answer.estimate else 0.0
    assert found.best.job.gpus == max(rates, key=lambda gpus: rates[gpus])
    assert found.best.worth == pytest.approx(max(rates.values()))
    assert found.asked.worth == pytest.approx(rates[104])
    assert all(use.worth <= max(rates.values()) * (1 + 1e-9) for use in found.tried)
    assert found.spare == 104 - found.best.job.gpus > 0
    assert f"{found.spare} spare" in found.words()


def test_what_was_asked_for_is_kept_where_nothing_is_faster() -> None:
    found = best_use([job(count) for count in counts_at_most(64, 8)])
    assert found.best == found.asked
    assert found.words() == ""
    assert found.gain == 0.0


def test_a_batch_that_moves_a_little_can_be_shared_by_odd_counts() -> None:
    found = best_use(with_batches(job(72), 0.05))
    assert found.best.job.global_batch != 256
    assert abs(found.best.job.global_batch / 256 - 1) <= 0.05
    assert found.gain > 0.01


def test_the_options_of_optimize() -> None:
    asked = ["--model", "llama3-8b", "--global-batch", "256", "--trials", "0", "--json"]
    plain = run(*asked, "--gpus", "104")
    best = run(*asked, "--gpus", "at-most:104")
    used = best["job"]["gpus"]
    assert used < 104
    assert any("spare for failures" in line for line in best["assumptions"])
    assert any("--gpus at-most:104" in flag for flag in plain["flags"])
    flexed = run(*asked, "--gpus", "72", "--flex", "batch=5%")
    assert 244 <= flexed["job"]["global_batch"] <= 268
    assert not any("at-most" in flag for flag in run(*asked, "--gpus", "64")["flags"])


def test_the_options_of_pareto() -> None:
    found = run(*BUYER, "--gpus", "at-most:104", "--global-batch", "256")
    (point,) = found["points"]
    assert point["gpus"] < 104
    assert any("at most 104" in note for note in found["notes"])
    rigid, loose = (
        run(*BUYER, "--gpus", "72", "--global-batch", "256", *more)["points"][0]
        for more in ([], ["--flex", "batch=5%"])
    )
    assert loose["time_to_train_days"] < 0.99 * rigid["time_to_train_days"]
    assert 244 <= loose["global_batch"] <= 268
    assert loose["global_batch"] != 256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llama3-8b", "--gpus", "at-most:none"], "is not a whole number"),
        (["--model", "llama3-8b", "--gpus", "8", "--flex", "batch"], "batch=5%"),
        (["--model", "llama3-8b", "--gpus", "8", "--flex", "tp=5%"], "batch=5%"),
        (["--model", "llama3-8b", "--gpus", "8", "--flex", "batch=90%"], "batch=5%"),
        ([*BUYER, "--gpus", "at-most:64:128"], "must name one number"),
    ],
)
def test_wrong_input_says_what_to_write(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_the_default_batch_is_near_every_published_run_s() -> None:
    ratios = [usual_tokens(step.accelerators) / step.tokens for step in STEPS]
    assert all(1 / 2.3 < ratio < 2.3 for ratio in ratios)
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1.0, abs=0.1)


def test_the_default_batch_grows_alike_for_optimize_and_pareto() -> None:
    alone = {
        gpus: run("--model", "llama3-8b", "--gpus", str(gpus), "--trials", "0", "--json")["job"]["global_batch"]
        for gpus in (512, 8192)
    }
    assert alone == {512: 512, 8192: 1024}
    points = run(*BUYER, "--gpus", "512,8192")["points"]
    assert {point["gpus"]: point["global_batch"] for point in points} == alone


def test_a_count_without_a_plan_is_tried_without_being_explained() -> None:
    impossible = job(1000, batch=7)
    told, unidentified = (plan(impossible, top=1, trials=0, priced_risk=False, explained=how) for how in (True, False))
    assert told.status == unidentified.status == "infeasible"
    assert told.conflict
    assert not unidentified.conflict
