"""How sure gains are: by their size, and by how alike the two plans are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.improve.certainty import chance_to_gain
from optimizer.improve.state import State
from tests.improve.test_report import NOW, edit


def at(state: State, share: float) -> State:
    """A state whose step takes this share of what runs."""
    return replace(state, estimate=replace(state.estimate, step_time=share * NOW.estimate.step_time))


def test_a_gain_is_as_likely_as_not_where_nothing_is_gained_and_surer_the_larger_it_is() -> None:
    assert chance_to_gain(NOW, NOW) == pytest.approx(0.5)
    chances = [chance_to_gain(NOW, at(NOW, share)) for share in (1.1, 1.02, 0.98, 0.9, 0.7)]
    assert chances == sorted(chances)
    assert chances[1] < 0.5 < chances[2]
    assert chances[-1] > 0.99


def test_plans_that_are_alike_err_alike() -> None:
    plan, count = NOW.plan, NOW.plan.num_microbatches
    near = edit(micro_batch=2, num_microbatches=count // 2).after
    far = edit(tp=1, pp=1, dp=plan.tp * plan.pp * plan.dp, num_microbatches=1, recompute="full").after
    assert chance_to_gain(NOW, at(NOW, 0.9)) > chance_to_gain(NOW, at(near, 0.9)) > chance_to_gain(NOW, at(far, 0.9))
