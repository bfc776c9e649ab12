"""Settings that are found once are those that are found each time."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import optuna
import pytest

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.search.lattice import knobs
from optimizer.search.lattice.knobs import BOX, NAMES, SIDE, OwnSettings, at_risk, random_moves, unhosted
from tests.search.jobs import small_job

PLANS = Plans.of(
    [Plan(tp=8, pp=8, dp=16, vpp=vpp, num_microbatches=96, sequence_parallel=True) for vpp in (1, 2, 3, 4)]
)


def test_moves_are_those_of_optuna() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(5))
    step = 1 / (SIDE - 1)
    drawn = [[trial.suggest_float(name, -step, step) for name in BOX] for trial in (study.ask() for _ in range(10))]
    assert [list(move) for move in random_moves(10, 5)] == drawn


def test_where_nothing_gains_settings_are_the_defaults() -> None:
    """One GPU has no messages to cut into buckets; 0.12 of 132 multiprocessors are 16."""
    job = small_job(1, features=Features(settable=("bucket", "comm_sm_share")))
    found = unhosted(layer_costs_of(job, Plans.of([Plan(num_microbatches=48)])))
    for name in BOX:
        assert getattr(found, name)[0] == pytest.approx(getattr(Knobs(), name), rel=0.02)


@pytest.mark.parametrize("trials", [0, 8, 12])
def test_plans_seen_before_keep_their_settings_at_any_risk(gpt3_job: Job, trials: int) -> None:
    """More than ten trials learn from each other, over all plans at once, and are made again."""
    costs = layer_costs_of(gpt3_job, PLANS)
    own = OwnSettings(trials=trials)
    with mock.patch.object(knobs, "unhosted", wraps=unhosted) as found:
        own.of(costs.take(np.array([1, 3])))
        again = own.of(at_risk(costs, 0.01))
        own.of(replace(costs, job=replace(gpt3_job, prefer="fast")))
    assert [len(call.args[0]) for call in found.call_args_list] == ([2, 2] if trials <= 10 else [2, 4, 4])
    alone = unhosted(costs, trials=trials)
    for name in NAMES:
        assert getattr(again, name).tolist() == getattr(alone, name).tolist()
