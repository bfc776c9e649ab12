"""Plans priced in blocks cost what they do together, and what each of them does by itself."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.step import price as module
from optimizer.objectives.step.estimate import Costs
from optimizer.objectives.step.price import price
from optimizer.search.lattice.enumerate import lattice


def columns(costs: Costs) -> dict[str, np.ndarray]:
    """Every column of a price, its breakdown too."""
    found = {f.name: getattr(costs, f.name) for f in fields(Costs) if f.name not in ("time", "memory")}
    return found | {
        f"{what} {name}": column for what in ("time", "memory") for name, column in getattr(costs, what).items()
    }


def test_blocks_change_no_number(gpt3_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = Plans.joined(list(lattice(gpt3_job, structural(gpt3_job))))
    together = columns(price(gpt3_job, plans))
    monkeypatch.setattr(module, "BLOCK", 100)
    apart = columns(price(gpt3_job, plans))
    assert len(plans) > 1000
    assert apart.keys() == together.keys()
    for name, column in together.items():
        assert np.array_equal(apart[name], np.broadcast_to(column, len(plans))), name


def test_plans_priced_by_themselves_cost_the_same(gpt3_job: Job) -> None:
    plans = Plans.joined(list(lattice(gpt3_job, structural(gpt3_job))))
    together = price(gpt3_job, plans)
    for index in range(0, len(plans), 97):
        alone = price(gpt3_job, plans.take([index]))
        assert alone.step_time[0] == pytest.approx(together.step_time[index], rel=1e-12)
        assert alone.reserved[0] == pytest.approx(together.reserved[index], rel=1e-12)
