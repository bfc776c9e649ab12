"""What rows of NVIDIA's tables leave out, their container's recipes say."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.calibration.row_release import as_released
from optimizer.calibration.runs import read_run

ROW: dict[str, Any] = {
    "table": "25.11 NeMo Container / Pre-Training / DGX-GB200",
    "stack": "megatron-bridge-2025",
    "model": "Qwen3-235B-A22B",
    "gpu": "GB200",
    "gpus": "64",
    "gpus_per_node": "72",
    "tp": "2",
    "ep": "64",
    "micro_batch": "1",
    "global_batch": "1024",
    "step_time_s": "15",
}


def test_a_row_that_names_no_dispatcher_has_that_of_the_recipes() -> None:
    run = read_run(ROW, 2)
    assert run.plan is not None
    assert run.job is not None
    assert run.plan.dispatcher == "hybridep"
    assert run.job.stack.features.graphed == ("attention", "router", "shared_experts")
    assert any("recipes of 25.11" in said for said in run.assumed)


def test_experts_of_a_fixed_capacity_go_with_all_to_all_whatever_the_recipe() -> None:
    notes = "variant: tokendrop; overrides: moe_flex_dispatcher_backend=hybridep"
    run = read_run({**ROW, "notes": notes}, 2)
    assert run.plan is not None
    assert run.job is not None
    assert run.plan.dispatcher == "alltoall"
    assert not run.job.stack.features.synchronised


def test_virtual_stages_on_h100_overlapped_in_25_11() -> None:
    h100 = {**ROW, "gpu": "H100", "tp": "1", "ep": "8", "pp": "2", "vpp": "24", "gpus": "16", "gpus_per_node": "8"}
    assert as_released(h100, [])["ep_overlap"] == "on"
    assert "ep_overlap" not in as_released({**h100, "vpp": "1"}, [])


@pytest.mark.parametrize(
    "other",
    [
        {"dispatcher": "alltoall"},
        {"table": "Table 3"},
        {"ep": "1"},
        {"ep": ""},
        {"model": "GPT OSS 120B"},
        {"notes": "matching recipe QWEN3 overrides:"},
    ],
)
def test_what_a_row_says_or_no_recipe_tells_stays(other: dict[str, str]) -> None:
    said: list[str] = []
    row = {**ROW, **other}
    assert as_released(row, said) == row
    assert not said


DEEPSEEK = {**ROW, "model": "DeepSeek-V3", "tp": "1", "ep": "8", "pp": "16", "vpp": "1", "gpus": "256"}


@pytest.mark.parametrize(
    ("row", "dispatcher", "graphed", "overlap"),
    [
        ({"gpu": "H100", "table": "25.09 NeMo Container", "notes": "variant: dropless"}, "deepep", False, False),
        ({"gpu": "B200"}, "alltoall", False, False),
        ({"gpu": "B300", "table": "26.02 NeMo Container"}, "hybridep", False, False),
        (
            {"gpu": "B300", "table": "26.04 NeMo Container", "model": "Qwen3_30B_a3B", "pp": "1"},
            "hybridep",
            True,
            False,
        ),
        ({"gpu": "B300", "table": "26.04 NeMo Container", "model": "GPT OSS 120B", "pp": "1"}, "alltoall", True, False),
        ({"gpu": "B200", "model": "Qwen3_235B_a22B", "pp": "8", "vpp": "2"}, "alltoall", False, True),
    ],
)
def test_each_release_has_its_dispatchers(row: dict[str, str], dispatcher: str, graphed: bool, overlap: bool) -> None:
    run = read_run({**DEEPSEEK, "gpus_per_node": "8", **row}, 2)
    assert run.job is not None
    assert run.plan is not None
    assert run.plan.dispatcher == dispatcher
    assert bool(run.job.stack.features.graphed) == graphed
    assert run.plan.overlap_exchange == overlap


@pytest.mark.parametrize(
    ("row", "layers", "predicts"),
    [
        ({"gpu": "B200"}, (4,) * 15 + (1,), True),
        ({"gpu": "GB200", "pp": "4", "vpp": "4"}, (4,) * 15 + (1,), False),
        ({"gpu": "GB200", "pp": "8", "vpp": "4"}, (1, *(2,) * 30, 0), False),
        ({"gpu": "B300", "table": "26.04.01 NeMo Container", "pp": "8"}, (8,) * 7 + (5,), True),
        ({"gpu": "GB300", "table": "26.04 NeMo Container", "model": "Kimi-K2"}, (4,) * 15 + (1,), False),
        ({"gpu": "B200", "notes": "layout Et*3|(t*4|)*14t*2mL"}, (3, *(4,) * 14, 2), True),
        ({"gpu": "B200", "table": "Table 3"}, (), True),
    ],
)
def test_deepseek_is_laid_out_as_its_recipes_have_it(
    row: dict[str, str], layers: tuple[int, ...], predicts: bool
) -> None:
    run = read_run({**DEEPSEEK, **row}, 2)
    assert run.job is not None
    assert run.plan is not None
    assert run.plan.layers_per_stage == layers
    assert (run.job.model.mtp_layers > 0) == predicts
