"""Published costs of whole runs, held to the ranges that a purchase gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.catalog import load_cluster, load_model
from optimizer.cli import cli
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, TrainingRun
from optimizer.purchase.designs.figures import figures
from optimizer.purchase.designs.points import Point, Workshop
from optimizer.purchase.ranges import Range, combined

HOUR = 3600.0


def asked(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["pareto", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    (point,) = json.loads(result.stdout)["front"]
    found: dict[str, Any] = point
    return found


def test_deepseek_v3_at_two_dollars_an_hour() -> None:
    # arXiv 2412.19437, table 1: 2.788 M H800-hours, 5.576 M USD at 2 USD an hour, 2.664 M of them for 14.8 T tokens.
    asking = ("--model", "deepseek-v3", "--tokens", "14.8T", "--hardware", "h800", "--gpus", "2048", "--dtype", "fp8")
    found = asked(*asking, "--seq-len", "4k", "--global-batch", "15360", "--rent", "h800=2")
    low, high = found["ranges"]["cost_usd"]
    assert low < 5.328e6 < 5.576e6 < high
    assert found["cost_usd"] == pytest.approx(5.576e6, rel=0.15)
    assert high / low < 3.0


def test_the_gpu_hours_of_llama_3_1_405b() -> None:
    # Model card of Llama 3.1: 30.84 M H100-hours; arXiv 2407.21783, table 4: 16,384 GPUs, 16Mi tokens a step.
    asking = ("--model", "llama3.1-405b", "--tokens", "15.6T", "--hardware", "h100", "--gpus", "16k")
    found = asked(*asking, "--rent", "h100=2")
    low, high = (days * 24 * found["gpus"] for days in found["ranges"]["time_to_train_days"])
    assert low < 30.84e6 < high
    assert found["goodput"] == pytest.approx(0.92, abs=0.03)
    assert high / low < 2.0


def test_the_power_of_nodes_that_train_gpt_3_in_mlperf() -> None:
    # MLPerf Training v4.0, GPT-3 175B in FP8 on 64 DGX H100: 7.0 kW a node at the median, immersion cooled, and about
    # 8.0 with air, whose fans are the upper end of the host's share.
    run = TrainingRun(model=load_model("gpt3"), tokens=300e9, seq_len=2048, global_batch=2048)
    campaign = Campaign(runs=(run,), assumptions=assumptions(False, {"pue": "1"}))
    # Of so much memory, all that an H100 has is left at the usual risk: these runs are known to have fitted.
    design = Design(kind="h100", cluster=load_cluster("h100"), gpus=512, dtype="fp8", hbm=110e9)
    point = Workshop(campaign=campaign).point(design)
    assert isinstance(point, Point)

    def node_power(**changes: float) -> float:
        return figures(campaign, design, point.planned, campaign.scenario(**changes)).mean_power / 64

    swings = [
        (node_power(**{item.name: item.value.low}), node_power(**{item.name: item.value.high}))
        for item in campaign.assumptions
        if item.name in ("gpu_power", "host_share", "pue")
    ]
    found: Range = combined(node_power(), swings)
    assert found.low < 7000 < found.high
    assert found.high / found.low < 1.6
    # The rating of the node.
    assert found.high < 10_200


@pytest.mark.xfail(
    reason="predicted hours end below the published ones since a step's host time is 0.02 s: 70B on 16,384 GPUs 4.5 to "
    "6.5 M, 8B on 8,192 0.8 to 1.1 M; what took the rest nobody has said"
)
@pytest.mark.parametrize(("model", "gpus", "hours"), [("llama3-70b", "16k", 7.0e6), ("llama3-8b", "4k", 1.46e6)])
def test_the_gpu_hours_of_llama_3_1_70b_and_8b(model: str, gpus: str, hours: float) -> None:
    # Model card of Llama 3.1: 7.0 M and 1.46 M H100-hours for "15T+" tokens. It does not say on how many GPUs, and
    # ai.meta.com/blog/meta-llama-3 only that runs went up to 16K at once.
    found = asked("--model", model, "--tokens", "15T", "--hardware", "h100", "--gpus", gpus, "--seq-len", "8k")
    low, high = (days * 24 * found["gpus"] for days in found["ranges"]["time_to_train_days"])
    assert low < hours < high
    assert high / low < 2.0
