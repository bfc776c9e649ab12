"""No layout beats the bound of all shapes of its pipeline, which the fastest shape reaches where everything fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.model import Experts
from optimizer.job.plan import Knobs, Plans
from optimizer.job.stack import RECOMPUTE_BY, Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.layouts.bounds.shaped import shaped_bounds
from optimizer.search.layouts.bounds.shares import plan_floors, prospects_at
from tests.search.brute_force import every_layout
from tests.search.jobs import MIXTURE, small_job


@pytest.mark.parametrize(("layers", "behind", "vocab"), [(6, 1, 400_000), (6, 0, 1024), (5, 1, 100_000)])
@pytest.mark.parametrize("recompute", [("none",), ("none", "full")])
def test_no_layout_beats_the_bound_of_all_shapes(
    layers: int, behind: int, vocab: int, recompute: tuple[str, ...]
) -> None:
    experts = Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=2)
    model = replace(MIXTURE, layers=layers, mtp_layers=behind, experts=experts, vocab=vocab)
    job = small_job(
        8,
        model=model,
        features=Features(recompute=recompute),
        max_vpp=2,
        bubble=1.0,
        fixed={"tp": 1, "cp": 1, "micro_batch": 1, "pp": 2},
    )
    every = every_layout(job)
    assert every is not None
    plans, laid, owners = every
    costs = price(job, Plans.of(laid))
    assert np.all(costs.reserved <= safe_memory(job))
    best = np.full(len(plans), np.inf)
    np.minimum.at(best, owners, costs.step_time)
    prospects = prospects_at(plan_floors(layer_costs_of(job, plans), Knobs()), np.zeros(len(plans)), np.inf)
    every = np.arange(len(plans))
    for limit in (float(np.median(best)), np.inf):
        bounds = shaped_bounds(prospects, every, limit)
        assert np.all(prospects.bounds <= bounds)
        assert np.all(bounds <= best)
    free = (plans.vpp > 1) & (plans.recompute == 0)
    assert free.any()
    assert np.min(bounds[free] / best[free]) > 0.99
    beaten = np.flatnonzero(prospects.bounds < 0.99 * bounds)
    assert (len(beaten) > 0) == (vocab > 1024)


@pytest.mark.parametrize(("by", "hbm"), [(by, hbm) for by in RECOMPUTE_BY for hbm in (5.5e9, 6.5e9, 7e9)])
def test_no_layout_that_fits_beats_the_bound_of_those_that_may(by: str, hbm: float) -> None:
    """Whatever stages recompute so that they fit; on some pipelines the bound is reached, and some are ruled out."""
    experts = Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=2)
    job = small_job(
        8,
        model=replace(MIXTURE, layers=6, experts=experts, vocab=60_000),
        features=Features(recompute=("none", "full"), recompute_by=by),
        max_vpp=2,
        bubble=1.0,
        hbm=hbm,
        oom_risk=0.5,
        fixed={"tp": 1, "cp": 1, "micro_batch": 1, "pp": 2},
    )
    every = every_layout(job)
    assert every is not None
    plans, laid, owners = every
    best = np.full(len(plans), np.inf)
    costs = price(job, Plans.of(laid))
    np.minimum.at(best, owners, np.where(costs.reserved <= safe_memory(job), costs.step_time, np.inf))
    floors = plan_floors(layer_costs_of(job, plans), Knobs())
    prospects = prospects_at(floors, np.zeros(len(plans)), np.inf)
    bounds, loose = shaped_bounds(prospects, np.arange(len(plans)), np.inf), prospects.bounds
    assert np.all(loose <= bounds)
    assert np.all(bounds <= best)
    possible = (plans.vpp > 1) & np.isfinite(best)
    assert np.max(bounds[possible] / best[possible], initial=1.0) > 0.9999
    assert np.isinf(loose).sum() < np.isinf(bounds).sum() if hbm < 6e9 else np.any(loose[possible] < bounds[possible])
