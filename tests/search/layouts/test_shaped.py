"""No layout beats the bound of all shapes of its pipeline, which the fastest shape reaches where everything fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.model import Experts
from optimizer.job.plan import Knobs, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.layouts.bounds.shaped import ShapedPipelines
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
    numbers, shaped = np.arange(len(plans)), ShapedPipelines()
    for limit in (float(np.median(best)), np.inf):
        bounds = shaped.bounds(prospects, numbers, numbers, limit)
        assert np.all(prospects.bounds <= bounds)
        assert np.all(bounds <= best)
        assert np.all(bounds == ShapedPipelines().bounds(prospects, numbers, numbers, limit))
    free = (plans.vpp > 1) & (plans.recompute == 0)
    assert free.any()
    assert np.min(bounds[free] / best[free]) > 0.99
    beaten = np.flatnonzero(prospects.bounds < 0.99 * bounds)
    assert (len(beaten) > 0) == (vocab > 1024)
    # Nothing is known of plans without virtual stages; of the others all are ruled out at the least of their bounds.
    open_plans = shaped.open(prospects.floors, numbers, float(bounds[plans.vpp > 1].min()))
    assert open_plans.tolist() == np.flatnonzero(plans.vpp == 1).tolist()
    assert shaped.open(prospects.floors, numbers, np.inf).tolist() == numbers.tolist()
