"""The lattice is the same however its rules are asked."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Plan, Plans
from optimizer.search.lattice import enumerate as enumerated
from optimizer.search.lattice.enumerate import lattice, plans_of
from tests.search.jobs import MIXTURE, small_job


@pytest.mark.parametrize("job", [small_job(24), small_job(64, model=MIXTURE)], ids=["dense", "mixture"])
def test_rules_asked_of_pairs_of_values_leave_the_same_plans_in_the_same_order(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(tabled: int) -> list[tuple[int, ...]]:
        monkeypatch.setattr(enumerated, "TABLED", tabled)
        plans = Plans.joined(list(lattice(job, structural(job))))
        return [*zip(*(getattr(plans, name).tolist() for name in FIELDS), strict=True)]

    asked = rows(2**40)
    assert len(asked) > 50
    assert rows(0) == asked


def test_columns_that_are_not_there_are_neutral() -> None:
    plans = plans_of({"tp": np.array([1, 2, 4])})
    assert [plans.plan(index) for index in range(3)] == [Plan(), Plan(tp=2), Plan(tp=4)]
