"""Where memory is tight the answer is that of brute force: cuts, recomputed layers and state on the host together."""

from __future__ import annotations

from random import Random

import pytest

from optimizer.job.fields import FIELDS
from tests.invariants.run import Tally, tightened
from tests.invariants.tight import tight_job
from tests.search.brute_force import compare
from tests.thorough import cases

BROKEN = (103, 169, 171, 214, 262, 363, 491, 580)  # once: MTP layers of virtual stages, and CP-SAT's presolve


@pytest.mark.parametrize("prefer", FIELDS["prefer"].choices)
@pytest.mark.parametrize("seed", range(cases(100, sample=3)))
def test_the_answer_is_that_of_brute_force(seed: int, prefer: str) -> None:
    tally = Tally(patience=5.0, prefer=prefer)
    tightened(tally, seed)
    assert tally.broken == 0


@pytest.mark.parametrize("seed", range(cases(100, sample=3)))
def test_the_answer_is_that_of_brute_force_however_a_job_is_sharded_trained_and_rounded(seed: int) -> None:
    tally = Tally(patience=5.0, prefer=FIELDS["prefer"].choices[seed % 2])
    tightened(tally, seed, various=True)
    assert tally.broken == 0


@pytest.mark.parametrize("seed", BROKEN)
def test_what_was_once_wrong(seed: int) -> None:
    assert compare(tight_job(Random(seed)))
