"""Losses of fine-tuning: what a text means, and the passes, memory and micro-batches that they take."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from optimizer.answer.reading import read_answer
from optimizer.base.errors import InputError
from optimizer.calibration.predict import with_parameters
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.cli import cli
from optimizer.constraints.rules.together import Together
from optimizer.job.job import Job
from optimizer.job.loss import loss_of, losses
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.flops import model_flops, useful_flops
from optimizer.objectives.step.price import Costs, price
from optimizer.search.check.verification import verify
from optimizer.search.plan.planner import plan

JOB = Job(
    model=load_model("llama3.1-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("hf-2026"),
    gpus=8,
    seq_len=2048,
    global_batch=64,
    loss="sft",
)
PLAN = Plan(dp=8, micro_batch=2, num_microbatches=4, zero_stage=2, recompute="full")
SHARDED = replace(PLAN, zero_stage=3)


def priced(loss: str, train: str = "full", shape: Plan = PLAN) -> Costs:
    """The price of one plan under a loss."""
    return price(replace(JOB, loss=loss, train=train), Plans.of([shape]), Knobs())


def term(costs: Costs, name: str) -> float:
    """One term of the memory [B]."""
    return float(costs.memory[name][0])


def test_supervised_fine_tuning_is_what_nothing_says() -> None:
    assert priced("sft").step_time == priced("").step_time
    assert priced("sft").reserved == priced("").reserved


def test_each_pass_without_gradients_takes_as_long_as_another() -> None:
    """DPO has one besides what SimPO has, KTO three; each grows a step by as much."""
    sft, simpo, dpo, kto = (float(priced(loss).step_time[0]) for loss in ("sft", "simpo", "dpo", "kto"))
    assert kto - dpo == pytest.approx(2 * (dpo - simpo), rel=0.15)
    forward = 2 / 8 * sft  # of forward, recomputation and twice as long a backward pass
    assert dpo - simpo == pytest.approx(forward, rel=0.25)


def test_log_probabilities_of_all_tokens_are_read_and_written() -> None:
    """SimPO moves 34 + 66 bytes of each logit where a cross-entropy moves 14 + 6, four micro-batches a step."""
    more = priced("simpo").time["head"][0] - priced("sft").time["head"][0]
    moved = 4 * 2 * 2048 * JOB.model.vocab * (34 + 66 - 14 - 6) * JOB.stack["elementwise_passes"]
    rate = JOB.cluster.device.memory_bandwidth * JOB.stack["hbm_efficiency"]
    assert more == pytest.approx(moved / rate, rel=0.01)


def test_dpo_on_one_h200_takes_as_long_as_measured() -> None:
    """0.355 s: Llama-3.2-1B, all weights, two pairs of 2,048 tokens, TRL; 0.276 without its log-probabilities. Its
    launches and products are as the rows of presets/finetune-h200.csv, of the same card, have them."""
    stack = with_parameters(JOB.stack, {"launch": 3.39e-5, "gemm_efficiency": 0.9})
    own = replace(
        JOB, model=load_model("llama3.2-1b"), cluster=load_cluster("h200"), gpus=1, global_batch=4, stack=stack
    )
    one = Plan(micro_batch=4, zero_stage=0, recompute="full")
    assert float(price(replace(own, loss="dpo"), Plans.of([one])).step_time[0]) == pytest.approx(0.355, rel=0.05)


@pytest.mark.parametrize(("chunks", "each"), [(1, 16.0), (4096, 16.0), (0, 13.32 * 4096 / 128256)])
def test_all_logits_are_there_at_once_unless_kernels_never_have_them(chunks: int, each: float) -> None:
    """TRL's parts are those of supervised fine-tuning alone; Liger's kernels have a vocabulary / hidden-th of them."""
    stack = replace(JOB.stack, features=replace(JOB.stack.features, loss_chunks=chunks))
    costs = price(replace(JOB, loss="dpo", stack=stack), Plans.of([PLAN]))
    assert term(costs, "logits") == pytest.approx(each * 2 * 2048 * 128256, rel=0.01)


def test_the_reference_is_a_copy_unless_adapters_are_trained() -> None:
    weights = JOB.model.params * 2
    assert term(priced("dpo"), "weights") == pytest.approx(2 * weights, rel=1e-3)
    assert term(priced("dpo", shape=SHARDED), "weights") == pytest.approx(2 * weights / 8, rel=1e-3)
    assert term(priced("dpo", "lora"), "weights") == term(priced("sft", "lora"), "weights")
    assert term(priced("orpo"), "weights") == term(priced("sft"), "weights")


@pytest.mark.parametrize("train", ["full", "lora", "qlora"])
def test_a_teacher_lies_beside_what_is_trained_and_is_read(train: str) -> None:
    own, taught = priced("sft", train), priced("distillation:16B", train)
    assert term(taught, "weights") - term(own, "weights") == pytest.approx(16e9 * 2, rel=1e-6)
    assert taught.step_time > priced("dpo", train).step_time


def test_a_reward_has_no_vocabulary() -> None:
    assert term(priced("reward"), "logits") == 0
    head = JOB.model.vocab * JOB.model.hidden * 2
    assert term(priced("sft"), "weights") - term(priced("reward"), "weights") == pytest.approx(head, rel=1e-3)
    assert useful_flops(replace(JOB, loss="reward")) / useful_flops(JOB) == pytest.approx(7.0 / 7.5, rel=0.02)


def test_operations_count_every_pass() -> None:
    whole = model_flops(JOB.model, JOB.seq_len, JOB.tokens)
    assert useful_flops(replace(JOB, loss="dpo")) == pytest.approx(whole * 4 / 3)
    assert useful_flops(JOB) == whole


def test_samples_lie_in_one_micro_batch() -> None:
    sizes = Plans.of([replace(PLAN, micro_batch=size) for size in (1, 2, 3, 4)])
    for loss, allowed in (("dpo", [0, 1, 0, 1]), ("kto", [0, 1, 1, 1]), ("distillation:7B", [1, 1, 1, 1])):
        assert Together().check(replace(JOB, loss=loss), sizes).astype(int).tolist() == allowed
    answer = plan(replace(JOB, loss="dpo"), top=0, trials=0)
    assert answer.plan is not None
    assert answer.plan.micro_batch % 2 == 0
    assert verify(read_answer(json.dumps(answer.to_dict()))).broken == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dpp", "the loss must be one of sft, dpo"),
        ("dpo:2", "nothing follows dpo"),
        ("distillation", "give the parameters of the teacher"),
        ("distillation:70X", "give the parameters of the teacher"),
        ("distillation:0", "give the parameters of the teacher"),
    ],
)
def test_other_losses_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        loss_of(text)


def test_a_step_has_whole_samples_and_no_packed_ones() -> None:
    asked = ["--model", "llama3.2-1b", "--gpus", "1", "--loss", "dpo", "--global-batch", "63"]
    assert "must be a multiple of 2, but got 63" in CliRunner().invoke(cli, asked).output
    assert plan(replace(JOB, loss="dpo", global_batch=72), top=0, trials=0).plan is not None
    with pytest.raises(InputError, match="leave out --packing"):
        replace(JOB, loss="dpo", lengths="900", packing="on")


def test_every_loss_has_a_price() -> None:
    for name in losses():
        costs = priced(f"{name}:7B" if name == "distillation" else name, shape=replace(PLAN, micro_batch=2))
        assert np.isfinite(costs.step_time).all()


def test_what_does_not_fit_is_refused_with_its_pairs_whole() -> None:
    """Relaxations move the batch by single sequences, which no plan of pairs has."""
    tight = replace(JOB, loss="dpo", gpus=1, global_batch=16, cluster=load_cluster("rtx-4090"))
    answer = plan(tight, top=0, trials=0)
    assert answer.plan is None
    assert any(clash.rule == "memory" for clash in answer.conflict)
