"""The best of the even splits, of which as few are looked at stage by stage as may differ."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price
from optimizer.search.lattice.oracle import sweep
from optimizer.search.layouts import one_layout
from optimizer.search.layouts.one_layout import best_even
from tests.search.jobs import MIXTURE, small_job


@pytest.mark.parametrize(
    ("job", "looked_at"),
    [
        (small_job(8), 1),
        (small_job(8, model=MIXTURE), 20),
        (small_job(8, bubble=1.0, fixed={"pp": 2, "vpp": 2}), 20),
    ],
    ids=["dense", "mixture", "interleaved"],
)
def test_leading_even_splits_are_looked_at_stage_by_stage(job: Job, looked_at: int) -> None:
    points = sweep(job, structural(job)).points
    assert points is not None
    with mock.patch.object(one_layout, "stage_memory", wraps=one_layout.stage_memory) as asked:
        found = best_even(job, points)
        assert best_even(job, replace(points, fits=points.fits & False)) is None
    assert [len(call.args[0]) for call in asked.call_args_list] == [looked_at]
    assert found is not None
    assert found.solved
    costs = price(job, Plans.of([found.plan]), found.knobs)
    assert found.value == pytest.approx(float(costs.step_time[0]), rel=1e-9)
    assert found.value >= points.values[points.fits].min() * (1 - 1e-9)
