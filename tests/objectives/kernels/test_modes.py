"""Modes of recomputation by their number."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.job.recomputation import MODES, MODULES, RECOMPUTE, modules_of
from optimizer.objectives.kernels.modules import modes, recomputes

EVERY = np.arange(len(RECOMPUTE))


@pytest.mark.parametrize("module", MODULES)
def test_a_mode_recomputes_the_modules_in_its_name(module: str) -> None:
    named = [module in modules_of(name) for name in RECOMPUTE]
    assert recomputes(EVERY, module).tolist() == named
    assert any(named)
    assert not all(named)


def test_sets_of_modules_recompute_no_whole_layer() -> None:
    found = modes(EVERY)
    assert found[: len(MODES)].tolist() == list(range(len(MODES)))
    assert set(found[len(MODES) :].tolist()) == {RECOMPUTE.index("none")}
