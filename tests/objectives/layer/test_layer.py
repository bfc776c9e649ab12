"""One layer's seconds and bytes under the features of a stack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.messages import launched, layer_messages
from optimizer.objectives.network.messages import BACKWARD, FORWARD
from optimizer.objectives.step.estimate import Costs
from optimizer.objectives.step.price import price
from tests.objectives.questions import job

DENSE = Plan(tp=8, dp=8, micro_batch=1, num_microbatches=32, sequence_parallel=True)
SPARSE = Plan(ep=32, dp=64, micro_batch=1, num_microbatches=4)


def cost(question: Job, plan: Plan) -> Costs:
    return price(question, Plans.of([plan]))


def shapes(**degrees: float) -> Shapes:
    values = {"tp": 1.0, "cp": 1.0, "ep": 1.0, "etp": 1.0, "micro_batch": 1.0} | degrees
    arrays = {name: np.array([value]) for name, value in values.items()}
    return Shapes(**arrays, sequence_parallel=arrays["tp"] > 1, seq_len=4096)


def collectives(question: Job, some: Shapes, *, moe: bool) -> tuple[float, float]:
    """What the host launches in the forward and in the backward pass."""
    messages = layer_messages(question, some, moe)
    forward, backward = (np.ravel(launched(messages, phase)) for phase in (FORWARD, BACKWARD))
    return float(forward[0]), float(backward[0])


def test_collectives_of_one_pass() -> None:
    """Forward and backward: 2 blocks, each gathered and scattered, and gathered once more in the backward pass.

    Context parallelism gathers in both passes and scatters in the second; a mixture dispatches and combines. Without
    shared experts only its attention is a block: Korthikanti et al., arXiv 2205.05198, section 4.2.2.
    """
    dense, sparse = job("llama3-70b"), job("mixtral-8x22b")
    assert collectives(dense, shapes(), moe=False) == (0, 0)
    assert collectives(dense, shapes(tp=8.0), moe=False) == (4, 6)
    assert collectives(dense, shapes(tp=8.0, cp=2.0), moe=False) == (5, 8)
    assert collectives(sparse, shapes(ep=8.0), moe=True) == (2, 2)
    assert collectives(sparse, shapes(tp=8.0, ep=8.0), moe=True) == (4, 5)


def test_graphs_leave_nothing_to_launch() -> None:
    small = replace(DENSE, tp=1, dp=64, num_microbatches=4, sequence_parallel=False)
    slow = job("gpt3")
    slow = replace(slow, model=replace(slow.model, hidden=1024, heads=16, kv_heads=16, ffn_hidden=4096, head_dim=64))
    stack = replace(slow.stack, parameters={**slow.stack.parameters, "launch": 8e-5})
    bound = replace(slow, stack=stack)
    graphed = replace(bound, stack=replace(stack, features=replace(stack.features, cuda_graphs=True)))
    assert cost(graphed, small).step_time[0] < 0.7 * cost(bound, small).step_time[0]


def test_removing_duplicates_shortens_the_exchange_most_between_nodes() -> None:
    model = "qwen3-235b-a22b"
    plain, lean = (cost(job(model), replace(SPARSE, dispatcher=name)) for name in ("alltoall", "deepep"))
    assert lean.time["ep_communication"][0] < 0.7 * plain.time["ep_communication"][0]
    inside = [replace(SPARSE, ep=8, dispatcher=name) for name in ("alltoall", "deepep")]
    near = [cost(job(model), plan).time["ep_communication"][0] for plan in inside]
    assert near[1] / near[0] > lean.time["ep_communication"][0] / plain.time["ep_communication"][0]


def test_gathered_logits_cost_time_and_memory_under_tensor_parallelism_only() -> None:
    split, whole = (cost(job("llama3-70b", gathered_logits=flag), DENSE) for flag in (False, True))
    assert whole.memory["logits"][0] == pytest.approx(8 * split.memory["logits"][0], rel=0.02)
    assert whole.time["head"][0] > split.time["head"][0]
    alone = replace(DENSE, tp=1, dp=64, num_microbatches=4, sequence_parallel=False, zero_stage=3)
    same = [cost(job("llama3-8b", gathered_logits=flag), alone).step_time[0] for flag in (False, True)]
    assert same[0] == same[1]


def test_a_compiled_loss_keeps_a_logit_and_its_gradient_in_half_precision() -> None:
    eager, compiled = (cost(job("llama3-70b", compiled_loss=flag), DENSE) for flag in (False, True))
    kept = job("llama3-70b").stack["logit_memory"]
    assert compiled.memory["logits"][0] / eager.memory["logits"][0] == pytest.approx(4.0 / kept)
    assert compiled.time["head"][0] < eager.time["head"][0]


def test_a_loss_that_computes_its_logits_again_adds_a_product_and_moves_fewer_bytes() -> None:
    once, twice = (cost(job("llama3-70b", recomputed_logits=flag), DENSE) for flag in (False, True))
    assert 0.9 < twice.time["head"][0] / once.time["head"][0] < 4 / 3
    alone = replace(DENSE, tp=1, dp=64, num_microbatches=4, sequence_parallel=False)
    slow, slower = (
        cost(job("llama3-70b", recomputed_logits=flag, compiled_loss=True), alone) for flag in (False, True)
    )
    assert slower.time["head"][0] / slow.time["head"][0] == pytest.approx(4 / 3, rel=0.1)


def test_inputs_that_stay_gathered_take_memory_and_are_gathered_once() -> None:
    lean, kept = (cost(job("llama3-70b", keeps_gathered=flag), DENSE) for flag in (False, True))
    assert kept.memory["activations"][0] > 1.2 * lean.memory["activations"][0]
    assert kept.time["tp_communication"][0] < lean.time["tp_communication"][0]
    whole = replace(DENSE, sequence_parallel=False)
    same = [cost(job("llama3-70b", keeps_gathered=flag), whole) for flag in (False, True)]
    assert same[0].reserved[0] == same[1].reserved[0]
    assert same[0].step_time[0] == same[1].step_time[0]


def test_an_unsplit_head_is_slow_where_the_stack_says_so() -> None:
    alone = replace(DENSE, tp=1, dp=64, num_microbatches=4, sequence_parallel=False)
    slow = cost(job("llama3-8b", unsplit_head_rate=0.5), alone).time["head"][0]
    assert slow > 1.3 * cost(job("llama3-8b"), alone).time["head"][0]
    assert cost(job("llama3-8b", unsplit_head_rate=0.5), DENSE).step_time == cost(job("llama3-8b"), DENSE).step_time


def test_narrower_formats_are_faster() -> None:
    plan = replace(DENSE, tp=2, dp=32, num_microbatches=8)  # of TP 8 more than half is communication
    steps = [cost(job("llama3-70b", "gb200", dtype), plan).step_time[0] for dtype in ("bf16", "fp8", "fp4")]
    assert steps[0] > steps[1] > steps[2]


@pytest.mark.parametrize("what", ["core", "ops", "qkv"])
def test_selective_recomputation_lies_between_none_and_full(what: str) -> None:
    question = job("llama3-70b", selective=what)
    none, selective, full = (cost(question, replace(DENSE, recompute=mode)) for mode in ("none", "selective", "full"))
    assert none.step_time[0] < selective.step_time[0] < full.step_time[0]
    assert none.memory["activations"][0] >= selective.memory["activations"][0] > full.memory["activations"][0]


def test_an_activation_without_a_fused_kernel_moves_more() -> None:
    clamped = job("gpt-oss-120b")
    fused = replace(clamped, model=replace(clamped.model, activation="swiglu"))
    plan = replace(SPARSE, ep=8)
    assert cost(clamped, plan).time["elementwise"][0] > 1.5 * cost(fused, plan).time["elementwise"][0]


def test_a_pipeline_between_nodes_waits_for_its_collectives_where_the_stack_says_so() -> None:
    question = job("llama3-8b")
    waiting = replace(question.stack, parameters={**question.stack.parameters, "pipelined_collective": 2e-4})
    late = replace(question, stack=waiting)
    staged = Plan(tp=4, pp=4, dp=4, micro_batch=1, num_microbatches=64, sequence_parallel=True)
    assert cost(late, staged).step_time[0] > 1.5 * cost(question, staged).step_time[0]
    for calm in (DENSE, replace(staged, tp=1, dp=16, num_microbatches=16, sequence_parallel=False)):
        assert cost(late, calm).step_time == cost(question, calm).step_time


def test_gathering_weights_one_by_one_slows_full_sharding_only() -> None:
    alone = Plan(dp=64, micro_batch=1, num_microbatches=4, zero_stage=3)
    steps = [cost(job("llama3-8b", sharded_rate=rate), alone).step_time[0] for rate in (1.0, 0.1)]
    assert steps[1] > 1.2 * steps[0]
    plain = replace(alone, zero_stage=1)
    same = [cost(job("llama3-8b", sharded_rate=rate), plain).step_time[0] for rate in (1.0, 0.1)]
    assert same[0] == same[1]


def test_recomputation_that_stops_early_leaves_the_last_product_out() -> None:
    """A third of the products of a GPT layer: 4 h^2 of 12 h^2."""
    question = job("gpt3")
    features = replace(question.stack.features, stops_early=True)
    early = replace(question, stack=replace(question.stack, features=features))
    kept, whole = (cost(question, replace(DENSE, recompute=mode)).time["gemm"][0] for mode in ("none", "full"))
    stops = cost(early, replace(DENSE, recompute="full")).time["gemm"][0]
    assert (stops - kept) / (whole - kept) == pytest.approx(2 / 3, rel=0.05)
    assert cost(early, DENSE).step_time[0] == cost(question, DENSE).step_time[0]


def test_recomputation_that_stops_early_does_not_send_tokens_back() -> None:
    """Of four all-to-alls of a layer and the two recomputed, one less where experts weigh what they return.

    As experts of this stack do.
    """
    plan = replace(SPARSE, recompute="full")
    whole, early, weighed = (
        cost(job("deepseek-v3", overlap_exchange=False, **features), plan).time["ep_communication"][0]
        for features in ({}, {"stops_early": True, "weighed_early": False}, {"stops_early": True})
    )
    assert early == whole
    assert weighed / whole == pytest.approx(5 / 6, rel=0.01)
