"""The critical batch against its own definition and published sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.purchase.price.batch_size import chinchilla_loss, critical_batch, tokens_needed


def test_the_published_batch_needs_the_published_tokens() -> None:
    assert float(tokens_needed(15.6e12, 16e6, 16e6, 11e6)) == pytest.approx(15.6e12)


def test_at_the_critical_batch_twice_the_fewest_tokens_are_needed() -> None:
    fewest = float(tokens_needed(2e12, 8e6, 1e-6, 8e6))
    assert fewest == pytest.approx(1e12)


@given(st.floats(1e5, 1e9), st.floats(1e5, 1e9))
def test_bigger_batches_need_more_tokens(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert float(tokens_needed(1e12, 4e6, low, 8e6)) <= float(tokens_needed(1e12, 4e6, high, 8e6))


def test_the_critical_batch_is_of_the_order_of_published_ones() -> None:
    # GPT-3 trained at 3.2 M tokens, Llama 3 405B at up to 16 M.
    assert 3e6 < float(critical_batch(175e9, 300e9)) < float(critical_batch(405e9, 15.6e12)) < 16e6


def test_the_loss_of_chinchilla() -> None:
    # 1.69 + 406.4 / (70e9)^0.34 + 410.7 / (1.4e12)^0.28, the terms 0.083 and 0.163
    assert float(chinchilla_loss(70e9, 1.4e12)) == pytest.approx(1.69 + 0.0834 + 0.1635, abs=2e-3)
