"""What a trial tells of other plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.belief.places import place
from optimizer.objectives.step.interval import mfu
from optimizer.trial.belief import Belief, Gaussian
from optimizer.trial.choice import chosen_trials, expected_gain, loss_left, next_trial, winner

SPREAD = 0.1


def belief(*seconds: float, likeness: np.ndarray | None = None, memory: tuple[float, ...] = ()) -> Belief:
    """Plans whose errors are as alike as the matrix says, all of them far below the limit unless `memory` says."""
    count = len(seconds)
    alike = np.eye(count) if likeness is None else likeness
    mean = np.log(np.array(memory)) if memory else np.full(count, -5.0)
    return Belief.untried(
        Gaussian(mean=np.log(np.array(seconds)), covariance=SPREAD**2 * alike),
        Gaussian(mean=mean, covariance=SPREAD**2 * alike),
    )


TWINS = np.array([[1.0, 0.95, 0.0], [0.95, 1.0, 0.0], [0.0, 0.0, 1.0]])


def test_a_measurement_moves_plans_like_it_and_leaves_others() -> None:
    after = belief(1.0, 1.0, 1.0, likeness=TWINS).trained(0, 1.2)
    assert np.exp(after.seconds.mean[1]) == pytest.approx(1.2**0.95, rel=0.01)
    assert after.seconds.mean[2] == pytest.approx(0.0, abs=1e-12)
    assert after.seconds.spread[1] < 0.4 * SPREAD < after.seconds.spread[2] == pytest.approx(SPREAD)


def test_what_is_certain_is_not_moved() -> None:
    sure = Gaussian(mean=np.array([1.0, 2.0]), covariance=np.diag([0.0, 1.0]))
    for after in (sure.measured(0, 5.0), sure.exceeded(0, 5.0), sure.stayed_below(0, -5.0)):
        assert (after.mean.tolist(), after.covariance.tolist()) == ([1.0, 2.0], [[0.0, 0.0], [0.0, 1.0]])


def test_out_of_memory_lowers_the_chance_of_plans_like_it_alone() -> None:
    before = belief(1.0, 1.0, 1.0, likeness=TWINS, memory=(0.95, 0.95, 0.95))
    after = before.out_of_memory(0)
    assert before.chance.tolist() == pytest.approx([0.696] * 3, abs=0.001)
    assert after.chance[0] == 0.0
    assert after.chance[1] < 0.2
    assert after.memory.mean.tolist() == before.memory.exceeded(0, 0.0).mean.tolist()
    assert after.chance[2] == pytest.approx(before.chance[2])
    assert before.trained(0, 1.0).chance[1] > before.chance[1]


def test_a_measured_peak_says_more_than_that_it_fitted() -> None:
    before = belief(1.0, 1.0, 1.0, likeness=TWINS, memory=(0.95, 0.99, 0.95))
    assert before.trained(0, 1.0, memory=0.7).chance[1] > before.trained(0, 1.0).chance[1]
    assert before.trained(0, 1.0, memory=0.999).chance[1] < before.trained(0, 1.0).chance[1]


def test_a_crash_says_nothing_of_others() -> None:
    after = belief(1.0, 1.0, likeness=TWINS[:2, :2]).crashed(0)
    assert after.chance.tolist() == pytest.approx([0.0, 1.0])
    assert after.seconds.mean[1] == 0.0


@given(st.floats(-0.5, 0.5), st.floats(0.1, 2.0))
def test_truncation_has_the_moments_of_a_truncated_normal(limit: float, spread: float) -> None:
    from scipy.stats import truncnorm  # two seconds to load, which no other test should wait for

    one = Gaussian(mean=np.zeros(1), covariance=np.array([[spread**2]]))
    above = truncnorm(limit / spread, np.inf, scale=spread)
    below = truncnorm(-np.inf, limit / spread, scale=spread)
    assert one.exceeded(0, limit).mean[0] == pytest.approx(above.mean())
    assert one.exceeded(0, limit).spread[0] == pytest.approx(above.std(), rel=1e-4)
    assert one.stayed_below(0, limit).mean[0] == pytest.approx(below.mean())


def test_truncation_far_in_the_tail_stays_finite() -> None:
    after = Gaussian(mean=np.zeros(1), covariance=np.eye(1)).exceeded(0, 40.0)
    assert after.mean[0] == pytest.approx(40.025, abs=0.01)
    assert 0.0 <= after.spread[0] < 0.1


def test_errors_of_like_plans_are_alike_as_all_intervals_have_them() -> None:
    """The covariance is positive, fades with distance, and has the spread of each plan's own interval."""
    job = Job(
        model=load_model("gpt3"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=64,
        seq_len=2048,
        global_batch=512,
    )
    plans = [Plan(tp=tp, pp=pp, dp=64 // (tp * pp)) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8)]
    slow = Belief.predicted(job, Plans.of(plans), np.full(16, 80.0), np.full(16, 0.5))
    mean, spread = error_of(job, plans[7], mfu(job, 80.0))
    assert (slow.seconds.mean[7], slow.seconds.spread[7]) == pytest.approx((np.log(80.0) + mean, spread))
    found = Belief.predicted(job, Plans.of(plans), np.full(16, 20.0), np.full(16, 0.5))
    shared = found.seconds.covariance
    assert np.linalg.eigvalsh(shared).min() > 0
    assert shared[0, 0] > shared[0, 1] > shared[0, 3] > 0
    for index in (0, 7, 15):
        mean, spread = error_of(job, plans[index], mfu(job, 20.0))
        assert found.seconds.spread[index] == pytest.approx(spread)
        assert found.seconds.mean[index] == pytest.approx(np.log(20.0) + mean)
    assert found.memory.spread[0] == pytest.approx(error_of(job, plans[0], 1.0, "memory")[1])
    slower = replace(place(job, plans[0], mfu(job, 20.0)), error=0.1)
    told = Belief.predicted(
        replace(job, stack=replace(job.stack, known=(slower,))), Plans.of(plans), np.full(16, 20.0), np.full(16, 0.5)
    )
    assert told.seconds.mean[0] > told.seconds.mean[15] > np.log(20.0)
    assert told.seconds.spread[0] < found.seconds.spread[0]


def test_trials_are_not_neighbours() -> None:
    assert chosen_trials(belief(1.0, 1.001, 1.02, likeness=TWINS), 2) == [0, 2]
    assert chosen_trials(belief(1.0, 1.001, 1.02), 2) == [0, 1]


def test_the_first_trial_of_plans_that_fit_is_the_one_ranked_first() -> None:
    steps = 1.0 + np.random.default_rng(1).random(40)
    assert chosen_trials(belief(*steps), 1) == [int(steps.argmin())]


def test_a_plan_that_hardly_fits_must_be_worth_it() -> None:
    assert chosen_trials(belief(1.0, 1.01, memory=(1.3, 0.5)), 1) == [1]
    assert chosen_trials(belief(0.5, 1.0, memory=(1.03, 0.5)), 1) == [0]


def test_no_plan_is_tried_twice_and_no_more_than_there_are() -> None:
    assert sorted(chosen_trials(belief(1.0, 1.1, 1.2), 9)) == [0, 1, 2]
    after = belief(1.0, 1.1, 1.2).trained(0, 1.0).out_of_memory(1)
    assert chosen_trials(after, 9, tried=[0, 1]) == [2]
    assert next_trial(after.crashed(2), tried=[0, 1, 2]) is None


def test_the_loss_left_shrinks_with_trials_and_vanishes_with_the_last() -> None:
    steps = (1.0, 1.02, 1.04)
    found = belief(*steps)
    losses = []
    for index, step in enumerate(steps):
        found = found.trained(index, step)
        losses.append(loss_left(found, winner(found) or 0))
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.005


def test_another_trial_gains_less_than_the_loss_left() -> None:
    found = belief(1.0, 1.02, 1.04, 1.05).trained(0, 1.0)
    following = next_trial(found, tried=[0])
    assert following is not None
    assert following.index == 1
    assert 0 < following.gain < loss_left(found, 0)
    assert expected_gain(found, [0], [0, 1, 2]) > following.gain


def test_nothing_wins_before_a_plan_trained() -> None:
    assert winner(belief(1.0, 1.1).out_of_memory(0)) is None
    assert winner(belief(1.0, 1.1).trained(1, 1.5).out_of_memory(0)) == 1


@pytest.mark.parametrize(("memory", "fits"), [(0.999, True), (1.0, True), (1.001, False)])
def test_what_takes_all_of_the_memory_fits(memory: float, fits: bool) -> None:
    sure = Gaussian(mean=np.log([memory]), covariance=np.zeros((1, 1)))
    found = replace(belief(1.0), memory=sure)
    assert np.isfinite(found.worlds(4, 0)).all() == fits
    assert np.isfinite(found.trained(0, 1.0).worlds(4, 0)).all()
    assert not np.isfinite(found.crashed(0).worlds(4, 0)).any()


def test_draws_mirror_each_other() -> None:
    one = Gaussian(mean=np.array([1.0, 2.0]), covariance=np.diag([1.0, 4.0]))
    drawn = one.draws(6, 0)
    assert drawn.shape == (6, 2)
    assert drawn[:3] + drawn[3:] == pytest.approx(2 * np.tile(one.mean, (3, 1)))
    assert one.draws(4000, 1).std(axis=0) == pytest.approx([1.0, 2.0], rel=0.05)


@pytest.mark.parametrize(("deviations", "seconds"), [(2.4, 1.0), (2.3, 2.0), (0.0, 2.0)])
def test_without_a_trial_the_fastest_that_surely_fits_is_run(deviations: float, seconds: float) -> None:
    """99 % are 2.33 deviations below the limit; a deviation is added, since nobody tried it."""
    found = belief(1.0, 2.0, memory=(np.exp(-deviations * SPREAD), 0.01))
    assert found.fallback == pytest.approx(np.log(seconds) + SPREAD)
    surest = belief(1.0, 2.0, 3.0, memory=(1.5, 1.2, 1.2))
    assert surest.fallback == pytest.approx(np.log(2.0) + SPREAD)
