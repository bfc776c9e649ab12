"""A layout that is found is worth what its plan is priced at, whatever is minimised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.plan import Plans
from optimizer.job.stack import RECOMPUTE_BY, Features
from optimizer.objectives.minimised.registry import NAMES
from optimizer.objectives.step.price import price
from optimizer.search.lattice.enumerate import Space
from optimizer.search.layouts.candidates import lay_out
from optimizer.search.plan.alternatives import estimate_of, value_of
from tests.search.jobs import MIXTURE, small_job


@pytest.mark.parametrize("minimize", NAMES)
@pytest.mark.parametrize("by", [*RECOMPUTE_BY, ""])
def test_a_candidate_is_worth_what_it_is_priced_at(minimize: str, by: str) -> None:
    """Where software recomputes layers they are recomputed; else the optimizer is on the host."""
    features = Features(recompute_by=by, recompute=("full",)) if by else Features(zero_stages=(1,))
    job = small_job(4, model=MIXTURE, features=features, hbm=9e9 if by else 6e9, fixed={"pp": 4})
    job = replace(job.with_host_memory(2e12), minimize=minimize)
    solved = [each for each in lay_out(job, Space(job, structural(job))).candidates if each.solved]
    assert solved
    assert any(each.plan.recompute == "full" if by else each.knobs.offload > 0 for each in solved)
    for each in solved:
        costs = estimate_of(job, price(job, Plans.of([each.plan]), each.knobs), 0)
        assert each.value == pytest.approx(value_of(job, each.plan, each.knobs, costs), rel=1e-9)
