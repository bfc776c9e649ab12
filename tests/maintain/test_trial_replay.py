"""The replay: groups are left out of the fit, and every policy is judged by the same measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maintain.default_replay import choice, replayed
from maintain.default_replay import table as table_of_choices
from maintain.trial_groups import (
    TrialGroup,
    adaptive,
    at_random,
    curve,
    expected_losses,
    groups_of,
    made_wrong,
    ranking,
    together,
)
from maintain.trial_replay import main, tpe
from optimizer.calibration.runs import read_runs
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.trial.belief import Belief, Gaussian

TABLE = """id,source,table,stack,model,layers,hidden,ffn_hidden,heads,vocab,seq_len,gpu,gpu_mem_gb,gpus,gpus_per_node,\
tp,pp,dp,micro_batch,global_batch,recompute,dtype,step_time_s,status,group
"""


JOB = Job(
    model=load_model("llama3-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("megatron-core"),
    gpus=64,
    seq_len=8192,
    global_batch=64,
)


def group(predicted: list[float], measured: list[float], alike: float = 0.0) -> TrialGroup:
    count = len(predicted)
    covariance = 0.01 * ((1 - alike) * np.eye(count) + alike)
    return TrialGroup(
        name="made up",
        job=JOB,
        plans=tuple(Plan(tp=2**place, dp=2 ** (count - place)) for place in range(count)),
        measured=np.array(measured),
        seconds=np.array(predicted),
        reserved=np.full(count, 0.5 * JOB.usable_memory),
        longer=np.ones(count),
        belief=Belief.untried(
            Gaussian(mean=np.log(predicted), covariance=covariance),
            Gaussian(mean=np.full(count, -5.0), covariance=1e-4 * np.eye(count)),
        ),
    )


def test_regret_counts_the_best_tried_and_goes_on_where_none_trained() -> None:
    found = group([1.0, 1.1, 1.2, 1.3], [2.0, np.inf, 1.0, 3.0])
    assert found.regret([0]) == 1.0
    assert found.regret([0, 2]) == 0.0
    assert found.regret([1]) == 1.0
    assert found.best == 1.0
    assert ranking(found, 9) == [0, 1, 2, 3]


def test_the_first_that_runs_out_of_memory_is_the_one_ranked_first() -> None:
    found = group([1.0, 1.1, 1.2, 1.3], [1.0, 2.0, 3.0, 4.0]).without_first()
    assert np.isinf(found.measured).tolist() == [True, False, False, False]
    assert found.regret([1]) == 0.0
    assert adaptive(found, 2)[1] == 1


def test_every_policy_tries_each_plan_once_and_finds_the_best_in_the_end() -> None:
    found = group([1.0, 1.02, 1.01, 1.05, 1.2], [1.3, 1.1, 1.2, 1.0, 1.4])
    for policy in (adaptive, together, ranking, at_random, tpe):
        order = list(policy(found, 5, 3))
        assert sorted(order) == [0, 1, 2, 3, 4], policy
        assert found.regret(order) == 0.0


def test_a_wrong_first_sends_the_second_trial_elsewhere() -> None:
    covariance = 0.01 * np.array([[1, 0.99, 0], [0.99, 1, 0], [0, 0, 1.0]])
    found = group([1.0, 1.001, 1.03], [1.3, 1.3, 1.0])
    belief = Belief.untried(Gaussian(mean=np.log([1.0, 1.001, 1.03]), covariance=covariance), found.belief.memory)
    alike = replace(found, belief=belief)
    assert adaptive(alike, 2) == [0, 2]
    assert ranking(alike, 2) == [0, 1]


def test_the_default_gives_up_little_for_a_plan_that_surely_fits() -> None:
    """Half a per cent of time buys no chance of one in three to run out of memory; five per cent do not either way."""
    found = group([1.0, 1.005, 1.01, 1.2], [np.inf, 1.0, 1.1, 1.3])
    usable = JOB.usable_memory
    edge = replace(found, reserved=usable * np.array([0.97, 0.5, 0.5, 0.5]))
    assert choice(edge, "fast") != choice(replace(edge, reserved=usable * np.array([0.5] * 4)), "fast")
    tight = replace(found, reserved=np.array([safe_memory(JOB), *[0.5 * usable] * 3]))
    assert (choice(tight, "fast"), choice(tight, "expected")) == (0, 1)
    assert replayed([tight], "fast").failed == (True,)
    assert replayed([tight], "expected").regret == (0.0,)
    assert "| fast | 1 |" in table_of_choices([tight])
    full = replace(found, reserved=usable * np.array([1.4, 1.3, 1.2, 1.1]))
    assert choice(full, "expected") == 3


def test_curves_are_means_over_groups_and_seeds() -> None:
    groups = [group([1.0, 1.1], [1.0, 2.0]), group([1.0, 1.1], [3.0, 1.0])]
    assert curve("ranking", groups, ranking, count=2).mean == [1.0, 0.0]
    drawn = curve("random", groups, at_random, count=2, seeds=range(400)).mean
    assert drawn[0] == pytest.approx(0.75, abs=0.06)
    assert drawn[1] == 0.0
    assert expected_losses(groups, 2)[0, 1] < expected_losses(groups, 2)[0, 0]


def test_made_wrong_by_a_fifth_within_bounds() -> None:
    stack = load_stack("megatron-core")
    wrong = made_wrong(stack.parameters, 0)
    factors = {round(wrong[name] / value, 3) for name, value in stack.parameters.items()}
    assert {1.2, 0.833} <= factors
    assert wrong["dp_overlap"] <= 1.0
    assert wrong != made_wrong(stack.parameters, 1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two groups of made-up runs of a stack, and one of too few plans."""
    rows = []
    for name, layers, plans in (("a", 24, 5), ("b", 32, 4), ("c", 40, 2)):
        for place in range(plans):
            tp = 2 ** (place % 3)
            shape = f"megatron-2021,m,{layers},2048,8192,16,50304,2048,A100,80,8,8"
            step = (3.0 + 0.1 * place) * layers / 24
            batch = f"{1 + place // 3},64,full,fp16,{step}"
            rows.append(f"{name}{place},mine:t,{name},{shape},{tp},1,{8 // tp},{batch},ok,")
    path = tmp_path / "runs.csv"
    path.write_text(TABLE + "\n".join(rows) + "\n")
    return path


def test_groups_are_predicted_without_their_own_runs(table: Path) -> None:
    runs = read_runs(table)
    found = list(groups_of(runs))
    assert [len(item.plans) for item in found] == [5, 4]
    assert all(item.belief.chance.min() == 1.0 for item in found)
    fast = [line if not line.startswith("a") else _faster(line) for line in table.read_text().splitlines()]
    table.write_text("\n".join(fast) + "\n")
    again = list(groups_of(read_runs(table)))
    assert again[0].belief.seconds.mean.tolist() == pytest.approx(found[0].belief.seconds.mean.tolist(), rel=1e-3)
    assert again[1].belief.seconds.mean[0] < found[1].belief.seconds.mean[0] - 0.01
    assert list(groups_of(runs, oom=True)) == []


def _faster(line: str) -> str:
    cells = line.split(",")
    cells[22] = str(0.7 * float(cells[22]))
    return ",".join(cells)


def test_the_command_prints_a_table(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--runs", str(table)])
    printed = capsys.readouterr().out
    assert "| ranking order |" in printed
    assert "as predicted (2)" in printed
