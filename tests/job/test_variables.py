"""The table of variables agrees with the plans that have them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.constraints.pin_text import code
from optimizer.job.plan import FIELDS, Placement, Plan, Plans, balanced
from optimizer.job.variables import DERIVED, FREE, OPTION, UNLIMITED, VARIABLES, names_of


def test_every_variable_is_a_field_of_plans_and_the_other_way_round() -> None:
    assert set(VARIABLES) == set(FIELDS)
    assert set(VARIABLES) <= {field.name for field in fields(Plan)}
    assert sorted((*names_of(FREE), *names_of(OPTION), *names_of(DERIVED))) == sorted(VARIABLES)


def test_a_plan_is_neutral_unless_it_says_otherwise() -> None:
    plans = Plans.of([Plan()])
    assert {name: int(getattr(plans, name)[0]) for name in FIELDS} == {
        name: variable.neutral for name, variable in VARIABLES.items()
    }


@pytest.mark.parametrize("name", VARIABLES)
def test_the_bounds_of_a_variable_are_those_that_pins_accept(name: str) -> None:
    known = VARIABLES[name]
    assert known.least <= known.neutral <= known.most
    if known.names:
        assert [code(name, word) for word in known.names] == list(range(known.least, known.most + 1))
        return
    assert code(name, known.least) == known.least
    for outside in (known.least - 1, *([known.most + 1] if known.most < UNLIMITED else [])):
        with pytest.raises(InputError, match=name):
            code(name, outside)


def test_plans_keep_values_in_words_as_numbers() -> None:
    plan = Plan(recompute="full", schedule="zero-bubble", sequence_parallel=True)
    plans = Plans.of([plan])
    assert plans.plan(0) == plan
    assert plans.sequence_parallel.dtype == np.bool_
    assert [VARIABLES[name].shown(int(getattr(plans, name)[0])) for name in ("recompute", "schedule")] == [
        "full",
        "zero-bubble",
    ]


def test_every_variable_shows_in_the_summary_of_a_plan() -> None:
    """But the number of micro-batches, which follows from the others: plans that differ do not print alike."""
    plan = Plan(tp=4, cp=2, ep=4, etp=2, pp=4, vpp=2, dp=8, micro_batch=2, dispatcher="deepep", schedule="interleaved")
    other = {"tp": 8, "cp": 4, "ep": 8, "etp": 4, "pp": 2, "vpp": 4, "dp": 16, "micro_batch": 1, "zero_stage": 3}
    other |= {"shard": 8, "recompute": "full", "activation_offload": 50, "dispatcher": "alltoall"}
    other |= {"schedule": "zero-bubble", "sequence_parallel": True, "overlap_exchange": True}
    assert {*other, "num_microbatches"} == set(VARIABLES)
    assert len({replace(plan, **{name: value}).summary() for name, value in other.items()} | {plan.summary()}) == 17


def test_a_plan_occupies_the_product_of_its_degrees() -> None:
    plan = Plan(tp=2, cp=3, pp=5, dp=7, ep=7)
    assert plan.gpus == Plans.of([plan]).gpus[0] == 2 * 3 * 5 * 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recompute_layers": (1, 0)}, "1 layer recomputed"),
        ({"recompute_layers": (1, 1)}, "2 layers recomputed"),
        ({"recompute_first": 1}, "1 recomputed per stage"),
        ({"recompute_first": 1, "vpp": 2}, "1 recomputed per virtual stage"),
        ({}, "full recompute"),
    ],
)
def test_how_much_is_recomputed_is_said_once(changes: dict[str, Any], said: str) -> None:
    plan = Plan(pp=2, recompute="full", **changes)
    assert plan.summary().endswith(f"ZeRO-1, {said}")


def test_plans_with_layers_placed_are_joined_with_others() -> None:
    some, others = Plans.of([Plan(tp=2), Plan()]), Plans.of([Plan(pp=2, layers_per_stage=(3, 4))])
    assert others.placements is not None
    joined = Plans.joined([some, others])
    assert joined.placements == (Placement(), Placement(), *others.placements)
    assert [joined.plan(place) for place in range(3)] == [Plan(tp=2), Plan(), Plan(pp=2, layers_per_stage=(3, 4))]
    assert Plans.joined([some, some]).placements is None


@pytest.mark.parametrize(
    ("layers", "pp", "counts"),
    [(9, 3, (3, 3, 3)), (8, 3, (3, 3, 2)), (7, 3, (2, 3, 2)), (5, 4, (1, 1, 2, 1)), (6, 4, (1, 2, 2, 1)), (1, 1, (1,))],
)
def test_layers_that_are_missing_are_those_of_the_last_the_first_and_then_the_others(
    layers: int, pp: int, counts: tuple[int, ...]
) -> None:
    assert balanced(layers, pp) == counts


@pytest.mark.parametrize("name", [name for name, variable in VARIABLES.items() if variable.names])
def test_words_begin_with_what_a_plan_has_unasked(name: str) -> None:
    assert VARIABLES[name].names[VARIABLES[name].neutral] == getattr(Plan(), name)
