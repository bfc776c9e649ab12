"""What NeMo's callbacks set when a training starts, and which conditions of a program are known to hold."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.frameworks.files import File
from optimizer.frameworks.nemo.recipe import FLEX, UNREAD, _by_callbacks
from optimizer.frameworks.read import read_launch
from tests.frameworks.launches import NEMO_RECIPE

STRATEGY, CALLBACKS, CONFIG = "trainer.strategy.", "trainer.callbacks.", "model.config."
OVERLAP = f"{CALLBACKS}MegatronCommOverlapCallback"
ON = {OVERLAP: "MegatronCommOverlapCallback"}
SETS = {
    f"{OVERLAP}.overlap_p2p_comm": False,
    f"{OVERLAP}.overlap_grad_reduce": True,
    f"{OVERLAP}.overlap_param_gather": True,
    f"{OVERLAP}.bucket_size": 128 * 2**20,
}
TP_OVERLAP = {f"{OVERLAP}.tp_comm_overlap": True}
SPLIT = {f"{STRATEGY}sequence_parallel": True, f"{STRATEGY}tensor_model_parallel_size": 2}


@pytest.mark.parametrize(
    ("values", "sets", "gone", "unread"),
    [
        ({}, {f"{CONFIG}overlap_p2p_comm": False}, set(), None),
        ({f"{CONFIG}overlap_p2p_comm": True}, {f"{CONFIG}overlap_p2p_comm": True}, set(), None),
        (ON, SETS, set(ON), None),
        # Tensor parallelism is overlapped with sequence parallelism alone.
        ({**ON, **TP_OVERLAP, **SPLIT}, SETS, set(ON), None),
        ({**ON, **TP_OVERLAP, **SPLIT, f"{STRATEGY}sequence_parallel": False}, SETS, {*ON, *TP_OVERLAP}, None),
        ({**ON, **TP_OVERLAP, f"{STRATEGY}sequence_parallel": True}, SETS, {*ON, *TP_OVERLAP}, None),
        ({**ON, **TP_OVERLAP, **SPLIT, f"{STRATEGY}tensor_model_parallel_size": 1}, SETS, {*ON, *TP_OVERLAP}, None),
        # And a pipeline with virtual stages.
        (
            {**ON, f"{STRATEGY}virtual_pipeline_model_parallel_size": 2},
            *({**SETS, f"{OVERLAP}.overlap_p2p_comm": True}, set(ON), None),
        ),
        ({**ON, f"{STRATEGY}virtual_pipeline_model_parallel_size": 1}, SETS, set(ON), None),
        ({**ON, f"{STRATEGY}virtual_pipeline_model_parallel_size": None}, SETS, set(ON), None),
        # What the callback itself is told counts, what it sets over does not.
        (
            {**ON, f"{OVERLAP}.overlap_grad_reduce": False},
            *({path: value for path, value in SETS.items() if "grad_reduce" not in path}, set(ON), None),
        ),
        ({**ON, f"{STRATEGY}ddp.bucket_size": 7}, SETS, {*ON, f"{STRATEGY}ddp.bucket_size"}, None),
        ({**ON, f"{CONFIG}tp_comm_overlap": True}, SETS, {*ON, f"{CONFIG}tp_comm_overlap"}, None),
        ({**ON, f"{STRATEGY}ddp.other": 7}, SETS, set(ON), None),
        (
            {f"{CALLBACKS}DeepEPCallback": "DeepEPCallback"},
            *({**FLEX, f"{CONFIG}overlap_p2p_comm": False}, {f"{CALLBACKS}DeepEPCallback"}, None),
        ),
        (
            {f"{CALLBACKS}Own": "Own", f"{CALLBACKS}Other": "Other"},
            *({f"{CONFIG}overlap_p2p_comm": False}, {f"{CALLBACKS}Own", f"{CALLBACKS}Other"}, "Own; Other"),
        ),
    ],
)
def test_what_callbacks_set(values: dict[str, Any], sets: dict[str, Any], gone: set[str], unread: str | None) -> None:
    left = dict(values)
    assert _by_callbacks(left) == sets
    assert values.keys() - left.keys() == gone
    assert left.get(UNREAD) == unread


@pytest.mark.parametrize(
    ("condition", "tp"),
    [
        ("2 > 1", 4),
        ("1 > 2", 2),
        ("not 1 > 2", 4),
        ("'a' == 'a'", 4),
        ("'a' != 'a'", 2),
        ("True", 4),
        ("False", 2),
        ("2 >= 2", 4),
        ("2 <= 1", 2),
    ],
)
def test_known_conditions_of_a_program(condition: str, tp: int) -> None:
    lines = (
        f"    if {condition}:\n        recipe.trainer.strategy.tensor_model_parallel_size = 4\n"
        "    else:\n        recipe.trainer.strategy.tensor_model_parallel_size = 2\n    return recipe"
    )
    text = NEMO_RECIPE.replace("    return recipe", lines)
    assert read_launch([File("pretrain.py", text.encode())]).launch.settings["tp"] == tp
