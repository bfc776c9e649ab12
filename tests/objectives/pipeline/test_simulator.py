"""The simulator against hand-made timelines, and the closed forms against the simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optimizer.base.errors import InputError
from optimizer.job.plan import SCHEDULES, Plan, Plans
from optimizer.objectives.pipeline.one_f_one_b import one_f_one_b
from optimizer.objectives.pipeline.schedule import Pass
from optimizer.objectives.pipeline.schedules import filled_passes, in_flight, schedule_order
from optimizer.objectives.pipeline.simulator import PassTimes, Timeline, simulate
from optimizer.objectives.pipeline.zero_bubble import zero_bubble_h1, zero_bubble_h2
from optimizer.objectives.step.time_terms import bubble
from tests.thorough import cases

Case = tuple[int, int, int, NDArray[np.float64], NDArray[np.float64]]


def random_case(rng: np.random.Generator, spread: float) -> Case:
    """pp, vpp, micro-batches, forward and backward times; those of one stage are equal, stages differ by `spread`."""
    pp = int(rng.integers(2, 17))
    vpp = int(rng.integers(1, 7))
    microbatches = pp * int(rng.integers(1, 9)) if vpp > 1 else int(rng.integers(1, 80))
    stage = rng.uniform(1 - spread, 1 + spread, (pp, 1)) * rng.uniform(0.1, 2.0) / vpp
    forward = stage * np.ones((pp, vpp))
    return pp, vpp, microbatches, forward, forward * rng.uniform(1.0, 3.0)


def priced(microbatches: int, vpp: int, slowest: float, whole: float, filled: float = 0.0) -> float:
    """The pipeline as a step is priced: the work of the slowest stage and the bubble [s]."""
    times = (np.array(value, dtype=np.float64) for value in (slowest, whole, vpp, filled, 0.0))
    return microbatches * slowest + float(bubble(*times))


def run(case: Case, transfer: float = 0.0) -> Timeline:
    pp, vpp, microbatches, forward, backward = case
    order = schedule_order("interleaved" if vpp > 1 else "1f1b", pp, vpp, microbatches)
    return simulate(order, PassTimes(forward=forward.tolist(), backward=backward.tolist(), transfer=transfer))


def test_two_stages_and_two_microbatches_by_hand() -> None:
    # Stage 1 runs F 2-3, B 3-5, F 5-6, B 6-8; gradients reach stage 0 one second after 5 and 8.
    timeline = simulate(one_f_one_b(2, 1, 2), PassTimes(forward=[[1.0]] * 2, backward=[[2.0]] * 2, transfer=1.0))
    first, second = timeline.stages
    assert second.start.tolist() == [2.0, 3.0, 5.0, 6.0]
    assert first.start.tolist() == [0.0, 1.0, 6.0, 9.0]
    assert timeline.makespan == 11.0
    assert timeline.bubble.tolist() == pytest.approx([5 / 11, 5 / 11])


def test_recomputation_lengthens_backward_passes_of_its_stage_alone() -> None:
    times = PassTimes(forward=[[1.0]] * 2, backward=[[2.0]] * 2, recompute=[[1.0], [0.0]])
    first, second = simulate(one_f_one_b(2, 1, 3), times).stages
    assert (first.busy, second.busy) == (12.0, 9.0)


def test_equal_pipelines_agree_with_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    for _ in range(cases(500, sample=100)):
        case = random_case(rng, 0.0)
        pp, vpp, microbatches, forward, backward = case
        stage = float((forward + backward)[0].sum())
        expected = priced(microbatches, vpp, stage, pp * stage)
        assert run(case).makespan == pytest.approx(expected, rel=1e-9)


def test_uneven_stages_take_no_longer_than_is_priced() -> None:
    """The price charges all waiting, some of which a slow stage fills: 1.7 % too much in the mean, never too little."""
    rng = np.random.default_rng(1)
    excess: list[float] = []
    for _ in range(cases(300, sample=60)):
        case = random_case(rng, 0.3)
        _, vpp, microbatches, forward, backward = case
        stages = (forward + backward).sum(axis=1)
        excess.append(priced(microbatches, vpp, stages.max(), stages.sum()) / run(case).makespan - 1)
    assert min(excess) > -1e-9
    assert np.mean(excess) < 0.02


def test_activations_in_flight_are_those_of_the_memory_model() -> None:
    rng = np.random.default_rng(2)
    for _ in range(cases(200, sample=40)):
        case = random_case(rng, 0.3)
        pp, vpp, microbatches = case[:3]
        schedule = "interleaved" if vpp > 1 else "1f1b"
        plans = Plans.of([Plan(pp=pp, vpp=vpp, num_microbatches=microbatches, schedule=schedule)] * pp)
        expected = in_flight(plans, np.arange(pp, dtype=np.float64))
        np.testing.assert_allclose(run(case, transfer=0.01).peak_in_flight, expected)


def zero_bubble(name: str, pp: int, microbatches: int, forward: float, backward: float, weight: float) -> float:
    """What is priced for equal stages: m (F + B + W) + (pp - 1) (F + B - W), under ZB-2p (pp - 1) (F + B - 2 W) [s].

    Source: Qi et al., arXiv 2401.10241, section 2.3.
    """
    stage = forward + backward + weight
    filled = float(filled_passes(SCHEDULES.index(name), pp, microbatches)) * weight
    return priced(microbatches, 1, stage, pp * stage, filled)


def test_the_bubbles_of_equal_passes_by_hand() -> None:
    """F = B = W = 1, 8 micro-batches, 4 stages: 24 of work and 3 x 1 or none; of 2 micro-batches 5 x 2 + 1."""
    assert zero_bubble("zero-bubble", 4, 8, 1.0, 1.0, 1.0) == 27.0
    assert zero_bubble("zero-bubble-2p", 4, 8, 1.0, 1.0, 1.0) == 24.0
    assert zero_bubble("zero-bubble", 4, 2, 1.0, 1.0, 1.0) == 11.0
    assert zero_bubble("zero-bubble-2p", 4, 4, 1.0, 1.0, 1.0) == 15.0


@settings(max_examples=60)
@given(
    pp=st.integers(1, 10),
    microbatches=st.integers(1, 50),
    forward=st.floats(1.0, 2.0),
    backward=st.floats(1.0, 2.0),
    share=st.floats(0.3, 1.0),
)
def test_zero_bubble_schedules_reach_the_published_bubbles(
    pp: int, microbatches: int, forward: float, backward: float, share: float
) -> None:
    weight = share * min(forward, backward)
    times = PassTimes(forward=[[forward]] * pp, backward=[[backward]] * pp, weight=[[weight]] * pp)
    first = simulate(zero_bubble_h1(pp, 1, microbatches), times)
    expected = zero_bubble("zero-bubble", pp, microbatches, forward, backward, weight)
    assert first.makespan == pytest.approx(expected, rel=1e-9)
    assert first.peak_in_flight.tolist() == [min(pp, microbatches)] * pp

    # ZB-H2's stages start and end one after the other: its bubble is that inside each stage's own span.
    second = simulate(zero_bubble_h2(pp, 1, microbatches), times)
    spans = [stage.end[-1] - stage.start[0] for stage in second.stages]
    bound = zero_bubble("zero-bubble-2p", pp, microbatches, forward, backward, weight)
    assert max(spans) <= bound * (1 + 1e-9)
    assert max(spans) >= (microbatches + pp - 1) * (forward + backward) * (1 - 1e-9)
    assert second.peak_in_flight.max() <= min(microbatches, 2 * pp - 1)


def test_a_slow_stage_works_while_it_would_have_waited() -> None:
    # Stage 1 of 4 takes 3.5 instead of 3: 3 to fill and drain stage 0, 16 x 3.5 of work, and of the 6 that the later
    # stages take it does 2 forwards (1 each) meanwhile at the start and 2 backwards (2.5 each) at the end: 4 + 1.
    times = PassTimes(forward=[[1.0]] * 4, backward=[[2.0], [2.5], [2.0], [2.0]])
    assert simulate(one_f_one_b(4, 1, 16), times).makespan == 3 + 56 + 4 + 1
    assert priced(16, 1, 3.5, 12.5) == 65.0


def test_an_order_that_waits_for_itself_is_refused() -> None:
    order = ((Pass("B", 0, 0), Pass("F", 0, 0)),)
    with pytest.raises(InputError, match="stage 0 waits for ever"):
        simulate(order, PassTimes(forward=[[1.0]], backward=[[1.0]]))


def test_missing_times_are_named() -> None:
    with pytest.raises(InputError, match="backward times are missing for stage 1: 1 virtual stages need one each"):
        simulate(one_f_one_b(2, 1, 2), PassTimes(forward=[[1.0]] * 2, backward=[[1.0]]))
    with pytest.raises(InputError, match="weight times are missing for stage 0"):
        simulate(zero_bubble_h1(2, 1, 2), PassTimes(forward=[[1.0]] * 2, backward=[[1.0]] * 2))
