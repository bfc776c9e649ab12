"""The plans that three well-known runs published: each is found or beaten under the model, and the reason is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.cli import cli
from optimizer.job.job import EVEN_RISK, Job
from optimizer.reports.terms import label
from optimizer.reports.why_report import verdict
from optimizer.search.plan.planner import plan
from optimizer.search.why.comparison import Comparison, Pins, why_not


@dataclass(frozen=True, kw_only=True)
class Published:
    """A run and the plan that its authors chose; larger micro-batches than `largest` are not looked at."""

    model: str
    cluster: str
    gpus: int
    seq_len: int
    global_batch: int
    pins: Pins
    stack: str = "megatron-core"
    largest: int = 16

    def job(self, bubble: float) -> Job:
        """The run as a question; it ran, so that what is predicted to fit will do."""
        job = Job(
            model=load_model(self.model),
            cluster=load_cluster(self.cluster),
            stack=load_stack(self.stack),
            gpus=self.gpus,
            seq_len=self.seq_len,
            global_batch=self.global_batch,
        )
        return job.with_limits(bubble=bubble, oom_risk=EVEN_RISK, max_micro_batch=self.largest)


A100 = Published(
    model="gpt3",
    cluster="dgx-a100-80",
    gpus=1024,
    seq_len=2048,
    global_batch=1536,
    pins={"tp": 8, "pp": 8, "micro_batch": 1},
)
# arXiv 2104.04473, table 2: PTD-P on 384 and 1,536 GPUs, with full recomputation and without sharding.
TABLE_2 = replace(A100, pins={"tp": 8, "pp": 12, "vpp": 1, "micro_batch": 1}, stack="megatron-2021")
RUNS = {
    "SC'21 degrees on 1,024 GPUs": A100,
    "SC'21 degrees and software": replace(A100, stack="megatron-2021"),
    "SC'21 table 2, 384 GPUs": replace(TABLE_2, gpus=384),
    "SC'21 table 2, 384 GPUs, all recomputed": replace(TABLE_2, gpus=384, pins={**TABLE_2.pins, "recompute": "full"}),
    "SC'21 table 2, 1,536 GPUs": replace(TABLE_2, gpus=1536),
    # arXiv 2407.21783, table 4.
    "Llama 3.1 405B": Published(
        model="llama3.1-405b",
        cluster="dgx-h100",
        gpus=16_384,
        seq_len=8192,
        global_batch=2048,
        pins={"tp": 8, "pp": 16, "dp": 128},
    ),
    # arXiv 2412.19437, section 3.2; on 2,048 GPUs these degrees leave 128 replicas.
    "DeepSeek-V3": Published(
        model="deepseek-v3",
        cluster="dgx-h800",
        gpus=2048,
        seq_len=4096,
        global_batch=15_360,
        pins={"tp": 1, "pp": 16, "ep": 64, "dp": 128, "zero_stage": 1},
        largest=2,
    ),
}
# These pipelines idle longer than the default ceiling of 10 % allows.
DEEP = ("SC'21 table 2, 1,536 GPUs", "Llama 3.1 405B", "DeepSeek-V3")


@cache
def compared(name: str, bubble: float) -> tuple[Answer, Comparison]:
    job = RUNS[name].job(bubble)
    answer = plan(job, top=0, trials=0, read_twice=False)
    return answer, why_not(job, answer, RUNS[name].pins)


@pytest.mark.parametrize("name", RUNS)
def test_the_published_plan_is_found_or_beaten_and_the_seconds_are_named(name: str) -> None:
    answer, found = compared(name, 0.25)
    assert answer.status == "optimal"
    assert found.verdict in ("same", "slower")
    assert found.plan is not None
    assert found.estimate is not None
    assert answer.estimate is not None
    for variable, value in RUNS[name].pins.items():
        assert getattr(found.plan, variable) == value
    lost = found.estimate.step_time - answer.estimate.step_time
    assert sum(item.more for item in found.time) == pytest.approx(lost, abs=1e-9)
    if found.verdict == "slower":
        worst = max(found.time, key=lambda item: item.more)
        assert f"of {label(worst.term)}" in verdict(found)
        assert f"{found.slower:.2%} slower" in verdict(found)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in DEEP])
def test_a_shallow_plan_is_compared_under_the_default_ceiling_too(name: str) -> None:
    _, found = compared(name, 0.10)
    assert found.verdict in ("same", "slower")
    assert found.broken == ()


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        # (pp - 1) / (vpp m + pp - 1): 11 / (96 + 11), 15 / (4 x 16 + 15), 15 / (120 + 15)
        ("SC'21 table 2, 1,536 GPUs", "bubble 10.0% -> 10.3%"),
        ("Llama 3.1 405B", "bubble 10.0% -> 19.0%"),
        ("DeepSeek-V3", "bubble 10.0% -> 11.2%"),
    ],
)
def test_a_deep_plan_breaks_the_default_ceiling_and_is_told_which_would_do(name: str, needed: str) -> None:
    _, found = compared(name, 0.10)
    assert found.verdict == "infeasible"
    rules = {clash.rule: clash for clash in found.broken}
    assert rules["bubble"].relaxation == needed
    assert "bubble" in verdict(found)


def test_1f1b_needs_nearly_half_of_the_405b_step() -> None:
    """15 / (16 + 15) of the pipeline idles without interleaving."""
    job = RUNS["Llama 3.1 405B"].job(0.25)
    answer, _ = compared("Llama 3.1 405B", 0.25)
    found = why_not(job, answer, {**RUNS["Llama 3.1 405B"].pins, "vpp": 1})
    rules = {clash.rule: clash.relaxation for clash in found.broken}
    assert rules["bubble"] == "bubble 25.0% -> 48.4%"
    at_half = job.with_limits(bubble=0.5)
    slower = why_not(at_half, answer, {**RUNS["Llama 3.1 405B"].pins, "vpp": 1})
    assert slower.verdict == "slower"
    assert slower.time[0].term == "bubble"


def test_the_command_prints_the_rule_then_the_seconds() -> None:
    asked = (
        "--model llama3.1-405b --gpus 16384 --seq-len 8192 --global-batch 2048 --trials 0 --oom-risk 50% --prefer fast"
    )
    pins = ("--why-not", "tp=8,pp=16,dp=128")
    refused = CliRunner().invoke(cli, [*asked.split(), *pins])
    assert refused.exit_code == 0
    assert "Why not tp=8,pp=16,dp=128?" in refused.stdout
    assert "enough: bubble 10.0% -> 19.0%" in refused.stdout
    allowed = CliRunner().invoke(cli, [*asked.split(), "--bubble-ceiling", "25%", *pins])
    assert allowed.exit_code == 0
    words = " ".join(allowed.stdout.split())
    _, found = compared("Llama 3.1 405B", 0.25)
    assert verdict(found) in words
    assert "seconds per step, ours against yours pipeline bubble" in words
