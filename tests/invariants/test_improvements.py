"""Better hardware and wider limits never make an answer slower, on random jobs of the presets."""

from __future__ import annotations

import pytest

from optimizer.job.fields import FIELDS
from tests.invariants.run import Tally, bettered
from tests.thorough import cases

BROKEN = (9052, 9154, 9175)  # once: interleaved layouts of short sequences


@pytest.mark.parametrize("prefer", FIELDS["prefer"].choices)
@pytest.mark.parametrize("seed", [*range(cases(6, sample=2)), *BROKEN])
def test_nothing_better_makes_an_answer_slower(seed: int, prefer: str) -> None:
    tally = Tally(patience=5.0, prefer=prefer)
    bettered(tally, seed)
    assert tally.broken == 0
