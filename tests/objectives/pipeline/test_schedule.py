from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.objectives.pipeline.interleaved import interleaved
from optimizer.objectives.pipeline.one_f_one_b import one_f_one_b
from optimizer.objectives.pipeline.schedule import Pass
from optimizer.objectives.pipeline.schedules import schedule_order
from optimizer.objectives.pipeline.zero_bubble import zero_bubble_h1, zero_bubble_h2


def letters(stage: tuple[Pass, ...]) -> str:
    return " ".join(f"{step.kind}{step.microbatch}" for step in stage)


def test_one_forward_one_backward_on_three_stages() -> None:
    first, second, third = one_f_one_b(3, 1, 4)
    assert letters(first) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert letters(second) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert letters(third) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_fewer_microbatches_than_stages_run_all_forwards_first() -> None:
    assert letters(one_f_one_b(4, 1, 2)[0]) == "F0 F1 B0 B1"


def test_interleaving_visits_the_virtual_stages_in_groups_of_pp() -> None:
    # Two stages, two virtual stages, four micro-batches: stage 0 runs (2 - 1) * 2 + 2 * (2 - 0 - 1) = 4 forwards ahead.
    first = [f"{step.kind}{step.virtual}{step.microbatch}" for step in interleaved(2, 2, 4)[0]]
    assert first[:6] == ["F00", "F01", "F10", "F11", "F02", "B10"]
    assert first[6:10] == ["F03", "B11", "F12", "B00"]
    assert first[-4:] == ["B12", "B13", "B02", "B03"]


def test_weights_wait_for_as_many_backwards_as_the_stage_has_ahead_of_it() -> None:
    assert letters(zero_bubble_h1(3, 1, 3)[2]) == "F0 B0 F1 B1 F2 B2 W0 W1 W2"
    assert letters(zero_bubble_h1(3, 1, 3)[0]) == "F0 F1 F2 B0 W0 B1 W1 B2 W2"
    assert letters(zero_bubble_h2(2, 1, 3)[0]) == "F0 F1 F2 B0 W0 B1 W1 B2 W2"


@given(
    schedule=st.sampled_from(["1f1b", "interleaved", "zero-bubble", "zero-bubble-2p"]),
    pp=st.integers(1, 6),
    vpp=st.integers(2, 4),
    rounds=st.integers(1, 4),
)
def test_every_pass_runs_once_on_every_stage(schedule: str, pp: int, vpp: int, rounds: int) -> None:
    vpp = vpp if schedule == "interleaved" else 1
    microbatches = pp * rounds
    kinds = "FBW" if schedule.startswith("zero") else "FB"
    wanted = Counter(Pass(k, virtual, i) for k in kinds for virtual in range(vpp) for i in range(microbatches))
    for stage in schedule_order(schedule, pp, vpp, microbatches):
        assert Counter(stage) == wanted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gpipe", 2, 1, 4), "schedule must be one of 1f1b, interleaved"),
        (("1f1b", 0, 1, 4), "pp must be at least 1, but got 0"),
        (("1f1b", 2, 2, 4), "one virtual stage per stage, but got vpp = 2"),
        (("interleaved", 4, 2, 6), "rounds of pp = 4, but got 6; the nearest that work are 4 and 8"),
    ],
)
def test_what_cannot_run_is_said(arguments: tuple[str, int, int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        schedule_order(*arguments)
