"""Which kinds of bytes a term of the memory may have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.objectives.step.memory_terms import MEMORY_TERMS

LAYERS = next(term for term in MEMORY_TERMS.values() if term.in_flight and term.fragments)
NONE: dict[str, Any] = {"per_stage": {}, "per_element": None, "per_layer": None, "in_flight": None}


def bytes_of(*_: object) -> Any:
    return np.ones(1)


@pytest.mark.parametrize(
    "sorts",
    [
        {"per_stage": {"a": bytes_of}, "per_element": bytes_of},
        {"per_layer": bytes_of, "in_flight": bytes_of},
        {"per_stage": {"a": bytes_of}, "per_layer": bytes_of, "in_flight": bytes_of},
    ],
)
def test_a_term_is_of_one_sort(sorts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a term is of one sort"):
        replace(LAYERS, **{**NONE, **sorts})
    assert len(replace(LAYERS, **{**NONE, "per_layer": bytes_of}).parts) == 1
    assert replace(LAYERS, **NONE).parts == ()


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"per_layer": bytes_of, "fragments": False}, False),
        ({"per_element": bytes_of, "fragments": False}, False),
        ({"per_layer": bytes_of, "fragments": True}, True),
        ({"in_flight": bytes_of, "fragments": False}, True),
    ],
)
def test_a_state_that_can_be_offloaded_does_not_fragment(changes: dict[str, Any], refused: bool) -> None:
    changed = {**NONE, "free_early": None, "offloadable": True, **changes}
    if refused:
        with pytest.raises(ValueError, match="per element or layer and does not fragment"):
            replace(LAYERS, **changed)
    else:
        assert replace(LAYERS, **changed).offloadable


@pytest.mark.parametrize(
    ("fragments", "early", "refused"), [(True, True, False), (False, False, False), (False, True, True)]
)
def test_what_is_freed_early_fragments(fragments: bool, early: bool, refused: bool) -> None:
    changed: dict[str, Any] = {"fragments": fragments, "free_early": bytes_of if early else None}
    if refused:
        with pytest.raises(ValueError, match="freed before anything is recomputed"):
            replace(LAYERS, **changed)
    else:
        assert replace(LAYERS, **changed).fragments is fragments


def test_bytes_of_several_functions_add_up() -> None:
    layer_costs: Any = None
    several = replace(LAYERS, **{**NONE, "per_stage": {"a": bytes_of, "b": lambda _: 2 * np.ones(1)}})
    assert several.of_stage(layer_costs).tolist() == [3.0]
    assert replace(LAYERS, **NONE).of_stage(layer_costs).tolist() == [0.0]
    assert [each.tolist() for each in replace(LAYERS, **NONE).of_element(layer_costs)] == [[0.0], [0.0]]
