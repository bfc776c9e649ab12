"""Goodput against the published table, Llama 3 and the definition of an optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray
from optimizer.purchase.price.goodput import (
    PATIENCE,
    cheapest_count,
    exact_goodput,
    mean_time_between_failures,
    optimal_interval,
)

RATE = 3.79e-3 / 8 / 86400  # Llama 3: interruptions per GPU and second


def goodput(stall: float, restart: float, gpus: ArrayLike) -> FloatArray:
    """With checkpoints at the optimal interval."""
    mtbf = mean_time_between_failures(RATE, gpus)
    return exact_goodput(optimal_interval(stall, mtbf), stall, restart, mtbf)


@pytest.mark.parametrize(
    ("stall", "restart", "table"),
    [
        (60.0, 900.0, {1024: (77 * 60, 0.969), 8192: (27 * 60, 0.890), 16384: (19 * 60, 0.824)}),
        (5.0, 600.0, {1024: (22 * 60, 0.989), 8192: (8 * 60, 0.952), 16384: (5.6 * 60, 0.917)}),
        (1.0, 300.0, {1024: (10 * 60, 0.995), 8192: (3.5 * 60, 0.977), 16384: (2.5 * 60, 0.960)}),
    ],
    ids=["synchronous", "asynchronous", "in-memory"],
)
def test_the_published_table_of_first_order_estimates_is_met(
    stall: float, restart: float, table: dict[int, tuple[float, float]]
) -> None:
    for gpus, (interval, share) in table.items():
        mtbf = mean_time_between_failures(RATE, gpus)
        found = optimal_interval(stall, mtbf)
        assert float(found) == pytest.approx(interval, rel=0.05)
        assert float(exact_goodput(found, stall, restart, mtbf)) == pytest.approx(share, abs=0.02)


def test_llama_3_trains_more_than_nine_tenths_of_the_time_on_16384_gpus() -> None:
    assert float(goodput(5.0, 600.0, 16384)) > 0.9


def test_the_exact_form_stays_sensible_where_the_first_order_breaks_down() -> None:
    # FT-HSDP reports 44 % (synchronous) to 80 % (fault tolerant) at 100,000 GPUs.
    slow = float(goodput(60.0, 900.0, 100_000))
    fast = float(goodput(1.0, 300.0, 100_000))
    assert slow == pytest.approx(0.44, abs=0.03)
    assert fast == pytest.approx(0.80, abs=0.04)


@given(st.floats(0.1, 300.0), st.floats(600.0, 1e7), st.floats(0.0, 3600.0))
def test_the_optimal_interval_is_a_maximum(stall: float, mtbf: float, restart: float) -> None:
    best = optimal_interval(stall, mtbf)
    around = exact_goodput(np.array([0.9, 1.0, 1.1]) * best, stall, restart, mtbf)
    assert around[1] >= max(around[0], around[2]) - 1e-12


@given(st.floats(0.1, 60.0), st.floats(1e5, 1e8))
def test_the_rule_of_young_and_daly_is_the_limit_of_the_optimal_interval(stall: float, mtbf: float) -> None:
    assert float(optimal_interval(stall, mtbf)) == pytest.approx(math.sqrt(2 * stall * mtbf), rel=0.03)


def test_more_gpus_train_a_smaller_share() -> None:
    shares = goodput(5.0, 600.0, 2 ** np.arange(10, 18))
    assert np.all(np.diff(shares) < 0)


@pytest.mark.parametrize(
    ("together", "cheap", "found"),
    [(1, 0, 0), (1, PATIENCE + 1, PATIENCE + 1), (1, PATIENCE + 2, 0), (4, PATIENCE + 4, PATIENCE + 4)],
)
def test_spares_are_tried_until_a_few_more_gain_nothing(together: int, cheap: int, found: int) -> None:
    """Every count costs the same but one."""
    assert cheapest_count(lambda spares: -float(spares == cheap), together=together) == found


def test_no_more_spares_are_taken_than_there_may_be() -> None:
    assert cheapest_count(lambda spares: -float(spares), most=20) == 20
