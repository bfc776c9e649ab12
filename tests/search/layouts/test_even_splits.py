"""Even splits by count: layers of each kind, what they reserve at least, and cuts that take about the least time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.model import Experts
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.search.layouts.bounds.even_splits import _moe_layers, _options, even_memory, only_even
from optimizer.search.layouts.problem import layout_problem, runs_of
from optimizer.search.layouts.solve.layout import assess, even_layout
from optimizer.search.layouts.solve.shapes import least_slowest, near_cuts
from tests.search.jobs import DENSE, MIXTURE, small_job

BY_STAGE = Features(recompute_by="stage", recompute=("none", "full"))
LEADING = replace(MIXTURE, experts=Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=5))
EVERY_OTHER = replace(MIXTURE, experts=Experts(count=8, top_k=2, ffn_hidden=1024, every=2))


@pytest.mark.parametrize(
    ("model", "pp", "vpp", "counts"),
    [
        (MIXTURE, 1, 1, (11,)),
        (MIXTURE, 2, 1, (5, 6)),
        (MIXTURE, 2, 3, (5, 6)),
        (LEADING, 3, 1, (0, 3, 4)),
        (LEADING, 3, 2, (2, 2, 3)),
        (EVERY_OTHER, 3, 1, (2, 2, 2)),
        (DENSE, 3, 1, (0, 0, 0)),
    ],
)
def test_moe_layers_of_each_stage(model: object, pp: int, vpp: int, counts: tuple[int, ...]) -> None:
    assert _moe_layers(small_job(model=model), pp, vpp) == counts


@pytest.mark.parametrize("model", [DENSE, MIXTURE, LEADING])
def test_an_even_split_reserves_the_least_of_what_it_may_recompute(model: object) -> None:
    job = small_job(model=model, features=BY_STAGE)
    plans = [
        Plan(dp=8, num_microbatches=6, recompute="full"),
        Plan(dp=8, num_microbatches=6),
        Plan(pp=2, dp=4, num_microbatches=12, recompute="full"),
        Plan(pp=4, dp=2, num_microbatches=24, recompute="full", micro_batch=1),
    ]
    found = even_memory(layer_costs_of(job, Plans.of(plans)), np.zeros(len(plans)))
    for plan, least in zip(plans, found.tolist(), strict=True):
        even = tuple([job.model.layers // plan.pp] * plan.pp)
        rows = [plan]
        if plan.recompute == "full":
            rows += [replace(plan, layers_per_stage=even, recompute_layers=(0,) * plan.pp)]
            moe = _moe_layers(job, plan.pp, 1)
            rows += [replace(plan, layers_per_stage=even, recompute_layers=moe)] if any(moe) else []
        reserved = price(job, Plans.of(rows)).reserved
        assert least <= min(reserved) * (1 + 1e-9)
        if plan.pp == 1:
            assert least == pytest.approx(min(reserved))


def test_one_layer_with_experts_may_be_recomputed_alone() -> None:
    """Where the dense ones take more while they are recomputed than that frees; stages of a pipeline one by one."""
    one = replace(MIXTURE, experts=Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=11))
    job, plan = small_job(model=one, features=BY_STAGE), Plan(pp=2, dp=4, num_microbatches=12, recompute="full")
    placements = [placed[0] for placed in _options(job, Plans.of([plan]))]
    assert [placed.recomputed for placed in placements] == [(6, 6), (0, 0), (0, 1)]
    kept = [placed[0].recomputed for placed in _options(job, Plans.of([replace(plan, recompute="none")]))]
    assert kept == [()]
    dense = [placed[0].recomputed for placed in _options(small_job(features=BY_STAGE), Plans.of([plan]))]
    assert dense == [(6, 6), (0, 0)]


def test_first_layers_are_recomputed_on_every_virtual_stage_where_that_may_be_least() -> None:
    job = small_job(model=LEADING, features=replace(BY_STAGE, recompute_by="virtual stage"))
    plans = Plans.of([Plan(pp=2, dp=4, num_microbatches=12, recompute=kind) for kind in ("full", "none")])
    assert [[placed.first for placed in both] for both in _options(job, plans)][1:6] == [[n, 0] for n in range(1, 6)]


def test_what_cannot_be_cut_otherwise_is_even() -> None:
    plans = Plans.of([Plan(), Plan(pp=2), Plan(pp=2, vpp=2)])
    assert only_even(small_job(), plans).tolist() == [True, False, False]
    assert only_even(small_job(features=Features(uneven_stages=False)), plans).tolist() == [True, True, True]


@pytest.mark.parametrize("layers", [96, 61, 126])
@pytest.mark.parametrize("pp", [8, 16])
def test_near_cuts_hold_all_layers_and_take_about_the_least(layers: int, pp: int) -> None:
    job = small_job(pp, model=replace(DENSE, layers=layers), bubble=1.0)
    plan = Plan(pp=pp, dp=1, num_microbatches=48)
    problem = layout_problem(job, plan)
    cuts, (_, slowest) = near_cuts(problem), least_slowest(problem)
    assert len(cuts.counts)
    assert np.all(cuts.counts.sum(axis=1) == layers)
    assert np.all(cuts.counts >= 0)
    some = cuts.counts[:: max(1, len(cuts.counts) // 20)].tolist()
    taken = [assess(problem, runs_of(problem, row, 0), [{}] * pp).slowest for row in some]
    assert taken == pytest.approx([slowest] * len(taken), rel=2e-6)
    assert even_layout(problem, recompute=False).slowest >= slowest * (1 - 2e-6)
