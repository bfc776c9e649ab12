"""What stages need, by hand: how many layers they have room for, and where it may be chosen what is recomputed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_model
from optimizer.job.model import Experts
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.linear_stage import linear_stage
from optimizer.search.layouts.bounds.stage_needs import Needs, _apart, common, needs_of
from tests.search.jobs import MIXTURE, small_job


def needs(*plans: Plan) -> Needs:
    job, every = small_job(4, features=Features(recompute_by="stage")), Plans.of(plans)
    return needs_of(job, every, linear_stage(layer_costs_of(job, every)))


def test_layers_need_not_be_recomputed_under_full_recomputation_alone() -> None:
    recomputing = [Plan(pp=2, dp=2, num_microbatches=24, recompute=mode) for mode in ("none", "full", "selective")]
    assert needs(*recomputing).chosen.tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize(
    ("changes", "usable"),
    [
        ({}, 2 + 3 * 2),  # what a stage has anyhow, and three layers
        ({"obliged_recompute": 1}, 2 + 1 + 3 * 2),  # what is held while a layer is recomputed, once
        ({"spare": 1}, 2 - 1 + 3 * 2),
        ({"chosen": True, "whole": 0.5, "obliged_recompute": 1}, 2 + 3 * 0.5),  # nothing recomputed
        ({"whole": 1, "obliged_recompute": 1}, 2 + 1 + 3 * 2),
    ],
)
def test_a_stage_has_room_for_three_layers_from_so_many_bytes_on(changes: dict[str, float], usable: float) -> None:
    values = {"bare": 2, "layer": 2, "whole": 4, "obliged_recompute": 0, "spare": 0, "chosen": False} | changes
    stage = replace(needs(Plan(dp=4, num_microbatches=12)), count=3, **{k: np.array([v]) for k, v in values.items()})
    assert stage.have_capacity(usable).tolist() == [True]
    assert stage.have_capacity(usable - 0.01).tolist() == [False]


def test_a_stage_without_room_for_a_layer_holds_none_but_is_no_hindrance() -> None:
    values = {"bare": [2, 7.5], "layer": [2, 2], "whole": [4, 4], "obliged_recompute": [1, 1], "spare": [0, 0]}
    stages = {name: np.array(each) for name, each in values.items()}
    pair = replace(needs(Plan(pp=2, dp=2, num_microbatches=24)), **stages, chosen=np.array([False, False]))
    assert replace(pair, count=2).have_capacity(8).tolist() == [True]
    assert replace(pair, count=3).have_capacity(8).tolist() == [False]


@pytest.mark.parametrize(
    ("pp", "vpp", "even", "compared"),
    [
        *((45, 2, False, True), (46, 2, False, False)),  # 90 virtual stages are filled by 88 layers and the two ends
        *((45, 2, True, False), (44, 2, True, True), (8, 4, True, False), (4, 1, False, False)),
    ],
)
def test_kinds_that_alternate_are_as_unlike_as_can_be_where_no_shapes_are_compared(
    pp: int, vpp: int, even: bool, compared: bool
) -> None:
    hybrid = load_model("nemotron-3-super-120b-a12b")
    assert hybrid.layers == 88
    assert (_apart(hybrid, pp, vpp, even=even) < vpp * common(hybrid).apart) is compared


@pytest.mark.parametrize(("layers", "count", "share"), [(3, 2, 0.0), (4, 4, 0.5)])
def test_kinds_alternate_from_four_runs_on(layers: int, count: int, share: float) -> None:
    """Else bounds count by the layers of the more frequent kind."""
    model = replace(MIXTURE, layers=layers, experts=Experts(count=8, top_k=2, ffn_hidden=1024, every=2))
    assert model.moe_pattern == (0, 1, 0, 1)[:layers]
    assert (common(model).count, common(model).share) == (count, share)
