"""Commands that are asked about the same job say the same: the answer, its saved form, scaling, a check and a study."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

JOBS = (
    "--model llama3.2-1b --gpus 16 --seq-len 2048 --global-batch 64",
    "--model mixtral-8x7b --cluster dgx-h200 --gpus 4 --seq-len 4096 --global-batch 12",
    "--model gemma3-4b --stack torchtitan-2024 --gpus 8 --seq-len 4096 --global-batch 32",
)


def printed(line: str, given: str | None = None) -> str:
    """What a command prints when it succeeds."""
    result = CliRunner().invoke(cli, line.split(), input=given)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.mark.parametrize("job", JOBS)
def test_commands_agree_on_one_job(job: str, tmp_path: Path) -> None:
    saved = printed(f"{job} --trials 0 --json")
    answer = json.loads(saved)
    step = answer["estimate"]["step_time_s"]
    assert sum(answer["estimate"]["time_s"].values()) == pytest.approx(step, rel=1e-9)
    best = next(point for point in json.loads(printed(f"scaling {job} --json"))["points"] if "best" in point["series"])
    assert best["step_time_s"] == pytest.approx(step, rel=1e-6)
    assert "The plan holds" in printed("check -", saved)
    sent = json.loads(printed(f"communication {job} --best --json"))
    drawn = json.loads(printed(f"timeline {job} --best --json"))
    for name in ("tp", "cp", "pp", "dp", "micro_batch", "zero_stage"):
        assert found(sent, name) == found(drawn, name) == answer["plan"][name]


def found(node: object, name: str) -> object:
    """The value of a field of the first plan in some JSON."""
    if isinstance(node, dict) and isinstance(node.get("plan"), dict):
        return node["plan"][name]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next((value for child in children if (value := found(child, name)) is not None), None)
