"""Settings that are found once are those that are found each time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import optuna
import pytest

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.search.lattice import knobs
from optimizer.search.lattice.knobs import BOX, NAMES, SIDE, ZOOMS, OwnSettings, _Spot, at_risk, random_moves, unhosted
from optimizer.search.lattice.oracle import Tuning
from tests.search.jobs import small_job

PLANS = Plans.of(
    [Plan(tp=8, pp=8, dp=16, vpp=vpp, num_microbatches=96, sequence_parallel=True) for vpp in (1, 2, 3, 4)]
)


def test_moves_are_those_of_optuna() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(5))
    step = 1 / (SIDE - 1)
    drawn = [[trial.suggest_float(name, -step, step) for name in BOX] for trial in (study.ask() for _ in range(10))]
    assert [list(move) for move in random_moves(10, 5)] == drawn


def test_nothing_is_tried_unless_it_is_asked_for() -> None:
    assert (OwnSettings().trials, Tuning().own()) == (0, OwnSettings())


def test_where_nothing_gains_settings_are_the_defaults() -> None:
    """One GPU has no messages to cut into buckets; 0.12 of 132 multiprocessors are 16."""
    job = small_job(1, features=Features(settable=("bucket", "comm_sm_share")))
    found = unhosted(layer_costs_of(job, Plans.of([Plan(num_microbatches=48)])))
    for name in BOX:
        assert getattr(found, name)[0] == pytest.approx(getattr(Knobs(), name), rel=0.02)


@pytest.mark.parametrize("trials", [0, 10, 11])
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


@dataclass(frozen=True, kw_only=True)
class Bowl(_Spot):
    """Plans that take least at a point each, and ever more around it."""

    lowest: FloatArray  # rows of bucket and share, a column for each plan
    asked: list[int] = field(default_factory=list)  # places looked at together
    widths: list[float] = field(default_factory=list)  # of those of the last plan

    def once(self, place: FloatArray) -> FloatArray:
        self.asked.append(place.shape[1])
        self.widths.append(float(np.ptp(place[0, :, -1])))
        return np.asarray(((place - self.lowest[:, None]) ** 2).sum(axis=0))


def bowl(*lowest: tuple[float, float]) -> Bowl:
    costs: Any = [None] * len(lowest)
    return Bowl(layer_costs=costs, stages=cast(Any, None), lowest=np.array(lowest).T)


def test_each_plan_zooms_in_on_its_own_best_place() -> None:
    lowest = ((0.0, 1.0), (1.0, 0.5), (0.0, 0.05), (0.3, 0.71))
    plans = bowl(*lowest)
    found = plans.zoomed()
    assert plans.asked == [1 + 8 * 8, *[9] * 10]
    assert plans.widths[1:] == pytest.approx([2.0 / (SIDE - 1) / 2**zoom for zoom in range(1, 11)])
    assert np.abs(found.T - lowest).max() <= 2.0**-ZOOMS / (SIDE - 1) / 2


def test_a_trial_is_taken_where_it_gains_a_noteworthy_share_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "Step", lambda **_: SimpleNamespace(rest=np.array([100.0, 100.0, 100.0])))
    monkeypatch.setattr(_Spot, "knobs", lambda self, place: None)
    monkeypatch.setattr(knobs, "random_moves", lambda trials, seed: ((0.1, 0.0), (0.0, -0.1)))
    place = np.array([[0.5, 0.5, 0.95], [0.5, 0.5, 0.5]])
    # A tenth nearer gains 0.2 d - 0.01 of a square of the distance d; a millionth of the step is noteworthy.
    enough, too_little = ((0.01 + share * 1e-4) / 0.2 for share in (1.01, 0.99))
    spot = bowl((0.5, 0.5 - enough), (0.5, 0.5 - too_little), (1.0, 0.5))
    assert spot.tried(place, 2, 0, None).T.tolist() == [[0.5, 0.4], [0.5, 0.5], [1.0, 0.5]]


def test_trials_are_told_the_fastest_step_and_move_within_a_step_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is what plans do once in it, and the rest: 5 s at the places themselves."""
    made, create = [], optuna.create_study
    monkeypatch.setattr(optuna, "create_study", lambda **options: made.append(create(**options)) or made[-1])
    monkeypatch.setattr(knobs, "Step", lambda **_: SimpleNamespace(rest=np.array([5.0, 5.0])))
    monkeypatch.setattr(_Spot, "knobs", lambda self, place: None)
    place, lowest = np.array([[0.5, 1.0], [0.5, 0.5]]), ((0.55, 0.4), (0.9, 0.52))
    found = bowl(*lowest).tried(place, 11, 3, None)
    (study,) = made
    moves = np.array([[trial.params[name] for name in BOX] for trial in study.trials])
    assert len(moves) == 11
    assert 0.5 / (SIDE - 1) < np.abs(moves).max() <= 1 / (SIDE - 1)
    places = np.clip(place + moves[:, :, None], 0.0, 1.0)
    after, before = (((each - np.array(lowest).T) ** 2).sum(axis=-2) for each in (places, place))
    assert [trial.value for trial in study.trials] == pytest.approx((5.0 - before + after).min(axis=1).tolist())
    for plan in range(2):
        assert found[:, plan].tolist() == places[np.argmin(after[:, plan]), :, plan].tolist()


@pytest.mark.parametrize(
    ("sms", "share", "whole"),
    [
        *((132, 0.12, 16 / 132), (132, 0.0, 2 / 132), (132, 0.5, 39 / 132), (4, 0.5, 1 / 4), (2, 0.5, 1 / 2)),
        *((1, 0.5, Knobs().comm_sm_share), (0, 0.5, Knobs().comm_sm_share)),
    ],
)
def test_communication_takes_whole_multiprocessors(sms: int, share: float, whole: float) -> None:
    job = small_job(8)
    device = replace(job.cluster.device, sms=sms)
    job = replace(job, cluster=replace(job.cluster, device=device))
    assert knobs._whole_sms(job, np.array([share])).tolist() == [whole]
