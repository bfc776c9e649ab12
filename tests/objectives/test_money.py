"""Rent, ownership, break-even and fair prices, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.objectives.money import (
    Ownership,
    break_even,
    ownership_cost,
    parity_price,
    rent_cost,
    running_cost,
    surcharge,
)

YEAR = 365.25 * 86400


def test_llama_3_at_a_rent_of_two_dollars() -> None:
    # 30.84 M GPU-hours x 2 USD.
    duration = 30.84e6 / 16384 * 3600
    assert float(rent_cost(16384, duration, 2.0 / 3600)) == pytest.approx(61.68e6)


def test_owning_a_node_for_a_year() -> None:
    own = Ownership(
        lifetime=5 * YEAR,
        residual=0.1,
        support=0.07 / YEAR,
        staff=0.10 / YEAR,
        software=1500 / YEAR,
        electricity=0.0826 / 3.6e6,
        colocation=200 * 12 / (1e3 * YEAR),
    )
    capex = 333_333.3
    running = float(running_cost(capex, 8, 10_200, 7_000 * 1.25, own)) * YEAR
    assert running == pytest.approx(0.17 * capex + 12_000 + 10.2 * 2400 + 8.75 * 8766 * 0.0826, rel=1e-9)
    assert float(ownership_cost(capex, YEAR, running / YEAR, own)) == pytest.approx(0.9 * capex / 5 + running)
    assert float(surcharge(1000, own)) * YEAR == pytest.approx(1000 * (0.9 / 5 + 0.07 + 0.10))


def test_break_even_is_where_the_two_bills_meet() -> None:
    time = float(break_even(1e6, 0.5, 2.0))
    assert 1e6 + 0.5 * time == pytest.approx(2.0 * time)
    assert np.isinf(break_even(1e6, 2.0, 2.0))


def test_at_the_parity_price_both_cost_the_same() -> None:
    price = parity_price(5e7, 4096, 40 * 86400)
    assert float(rent_cost(4096, 40 * 86400, price)) == pytest.approx(5e7)
