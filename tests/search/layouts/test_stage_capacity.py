"""How many layers stages have room for, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import BY_VIRTUAL_STAGE, Features
from optimizer.search.layouts.bounds.stage_capacity import StageCapacity, obliged_layers
from tests.search.jobs import DENSE, small_job

NOTHING = ("outside_layers", "less", "obliged_recompute", "recompute_each", "fewer", "spare", "per_byte")
NO_OTHERS = ("other", "other_bytes", "predicted", "predicted_bytes")
ROOMY = {**dict.fromkeys((*NOTHING, *NO_OTHERS), 0.0), "layer": 1.0, "memory": 100.0, "whole": 1.0, "least": 1.0}
# A layer takes a second and a byte; to recompute one takes a second more and saves half of its bytes.
RECOMPUTES = {"recomputes": True, "memory": 3, "per_byte": 2, "recompute_each": 1, "least": 0.5}


def capacity(depth: tuple[int, ...] = (1,), others: int = 0, predicts: bool = False, **stage: float) -> StageCapacity:
    """Plans of so many stages, which are all alike."""
    stages = sum(depth)
    columns: dict[str, Any] = {name: np.full(stages, float(value)) for name, value in (ROOMY | stage).items()}
    truths = {name: np.full(stages, bool(stage.get(name))) for name in ("lost", "recomputes")}
    first = np.cumsum((0, *depth[:-1]))
    plan = np.repeat(np.arange(len(depth)), depth)
    return StageCapacity(others=others, predicts=predicts, first=first, plan=plan, **columns | truths)


@pytest.mark.parametrize(
    ("stage", "seconds", "layers"),
    [
        ({}, 3, 3),
        ({}, 2.99, 2),
        ({"outside_layers": 1}, 3, 2),
        ({"outside_layers": 4}, 3, 0),
        ({"less": 1}, 3, 4),
        ({"memory": 3}, 9, 3),
        ({"memory": 0.3, "whole": 0.1}, 9, 3),  # 0.3 / 0.1 < 3
        ({"memory": 3, "fewer": 1}, 9, 4),
        ({"memory": 3, "fewer": -4}, 9, 0),
        ({"lost": True}, 9, -inf),
        (RECOMPUTES, 3, 3),
        (RECOMPUTES, 9, 5),  # four of five recomputed
        (RECOMPUTES, 8.9, 4),
        (RECOMPUTES, 99, 6),
        (RECOMPUTES | {"spare": 1}, 99, 8),
        (RECOMPUTES | {"recomputes": False}, 99, 3),
        ({"obliged_recompute": 1, "recompute_each": 1}, 3, 2),
        ({"obliged_recompute": 3, "recompute_each": 1}, 4, 2),  # both of two
        ({"obliged_recompute": 3, "recompute_each": 1}, 5.9, 2),
    ],
)
def test_a_stage_has_room_for_so_many_layers(stage: dict[str, Any], seconds: float, layers: float) -> None:
    assert capacity(**stage).layers(np.array([seconds])).tolist() == [layers]


@pytest.mark.parametrize(
    ("others", "stage", "seconds", "layers"),
    [
        (1, {"other": 2}, 5, 8),
        (1, {"other": 2}, 2, 2),
        (1, {"other": 2}, 1.9, -inf),
        (2, {"other": 1}, 3, 4),
        (2, {"other": 1.5}, 3, 3),  # both on one stage
        (3, {"other": 1}, 3, 3),
        (1, {"other_bytes": 2, "memory": 5}, 9, 8),
        (1, {"other_bytes": 2, "memory": 2}, 9, 2),
        (1, {"other_bytes": 2, "memory": 1}, 9, -inf),
        (1, {"other_bytes": 2, "memory": 1, "spare": 1}, 9, 1),
        (0, {"predicted": 1}, 3, 5),
        (0, {"predicted_bytes": 2, "memory": 5}, 9, 8),
        (0, {"predicted": 3.1}, 3, -inf),
        (1, {"predicted": 1, "other": 0.5}, 3, 4),
        (1, {"predicted": 1, "other": 2.2}, 3, 2),  # each on a stage of its own
        (1, {"predicted": 1.5, "other": 1.5}, 3, 3),  # both on one
        (2, {"predicted": 1, "other": 1}, 3, 3),
    ],
)
def test_two_stages_lose_least_to_what_lies_beside_the_common_layers(
    others: int, stage: dict[str, float], seconds: float, layers: float
) -> None:
    predicts = any(name.startswith("predicted") for name in stage)
    found = capacity((2,), others, predicts, **stage).layers(np.array([seconds]))
    assert found.tolist() == [layers]


def test_plans_are_told_apart_and_some_may_be_taken() -> None:
    both = capacity((1, 3), 1, other=1)
    times = np.array([3.0, 5.0])
    assert both.layers(times).tolist() == [2, 14]
    assert both.take(np.array([1, 0])).layers(times[::-1]).tolist() == [14, 2]
    assert both.take(np.array([1])).layers(times[1:]).tolist() == [14]


@pytest.mark.parametrize(
    ("pp", "vpp", "each", "together"),
    [
        *((1, 1, 1, 1), (2, 1, 1, 0), (3, 1, 1, 1), (4, 1, 1, 2)),  # the ends may hold none of twelve layers
        *((2, 2, 1, 2), (2, 3, 2, 4), (4, 3, 2, 8), (4, 4, 0, 0)),
    ],
)
def test_stages_that_recompute_alike_do_so_many_layers_at_least(pp: int, vpp: int, each: int, together: int) -> None:
    job = small_job(4, features=Features(recompute_by=BY_VIRTUAL_STAGE))
    plans = Plans.of([Plan(pp=pp, vpp=vpp, recompute=mode) for mode in ("full", "none")])
    assert [found.tolist() for found in obliged_layers(job, plans)] == [[each, 0], [together, 0]]
    predicting = replace(job, model=replace(DENSE, mtp_layers=1))
    assert obliged_layers(predicting, plans)[1][0] == (together if vpp > 1 or pp == 1 else 0)
    apart = replace(job, stack=replace(job.stack, features=Features(recompute_by="stage")))
    assert [found.tolist() for found in obliged_layers(apart, plans)] == [[0, 0], [0, 0]]
