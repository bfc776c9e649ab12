"""Passes of a layer: what modes of recomputation add, and the seconds under which communication hides."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.layer.phases import TERMS, LayerTime, Phase


def phase(seconds: float, hidden: float = 0.0, outlasting: float = 0.0) -> Phase:
    """A pass of one shape, every term of which takes so long."""
    return Phase(
        terms={term: np.full(1, seconds) for term in TERMS},
        hidden=np.full(1, hidden),
        outlasting=np.full(1, outlasting),
    )


LAYER = LayerTime(
    forward=phase(1.0),
    backward=phase(2.0),
    selective=phase(0.25),
    full=phase(1.0, hidden=0.5, outlasting=0.125),
    host=np.zeros(1),
    collectives=np.zeros(1),
    modules={"layernorm": phase(0.0625), "mlp": phase(0.5, hidden=0.25)},
)


@pytest.mark.parametrize(
    ("mode", "seconds", "hidden", "outlasting"),
    [
        ("none", 0.0, 0.0, 0.0),
        ("selective", 0.25, 0.0, 0.0),
        ("full", 1.0, 0.5, 0.125),
        ("layernorm", 0.0625, 0.0, 0.0),
        ("layernorm+mlp", 0.5625, 0.25, 0.0),
    ],
)
def test_a_mode_recomputes_its_modules(mode: str, seconds: float, hidden: float, outlasting: float) -> None:
    added = LAYER.recomputation(np.array([RECOMPUTE.index(mode)]))
    assert {float(times[0]) for times in added.terms.values()} == {seconds}
    assert (float(added.hidden[0]), float(added.outlasting[0])) == (hidden, outlasting)
    assert added.total[0] == pytest.approx(seconds * len(TERMS))


def test_messages_hide_under_computation_and_waiting_for_launches() -> None:
    one = phase(1.0, hidden=0.5, outlasting=0.125)
    assert float(one.compute[0]) == 3.0  # products, attention, element-wise
    assert float(one.window[0]) == 3.0 - 0.5 + 1.0
    assert float(one.busy[0]) == 3.0 + 1.0 + 0.125
    rows = np.zeros(3, dtype=np.int64)
    assert LAYER.take(rows).full.total.shape == (3,)
