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
