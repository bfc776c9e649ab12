"""Facts of a stack about memory: optimizer states below fp32, activations on the host, weights gathered by matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.host_memory import activations_fit_host, host_memory_per_gpu, on_host
from optimizer.objectives.step.linear_stage import stage_memory, states_of_model
from optimizer.objectives.step.memory_terms import largest_matrix
from optimizer.objectives.step.price import price
from optimizer.search.check.plan_rules import rule_findings

SHARDED = Plan(dp=128, micro_batch=4, zero_stage=3, recompute="selective")


def job(**features: Any) -> Job:
    """Llama 3.1 70B on 128 TPU v6e, 4 sequences of 8,192 tokens on each."""
    stack = load_stack("maxtext")
    return Job(
        model=load_model("llama3.1-70b"),
        cluster=load_cluster("tpu-v6e-pod"),
        stack=replace(stack, features=replace(stack.features, **features)),
        gpus=128,
        seq_len=8192,
        global_batch=512,
    )


def memory(question: Job, term: str, plan: Plan = SHARDED) -> float:
    """One term of the fullest stage [B]."""
    plans = Plans.of([plan])
    return float(stage_memory(layer_costs_of(question, plans), stages_of(question.model, plans)).terms[term].max())


def test_moments_of_two_bytes_save_a_third_of_the_state() -> None:
    assert memory(job(optimizer_bytes=8), "optimizer") == pytest.approx(memory(job(), "optimizer") * 8 / 12)


def test_what_selective_recomputation_keeps_lies_on_the_host_but_for_two_layers() -> None:
    there, here = memory(job(), "activations"), memory(job(selective_on_host=False), "activations")
    # Input, queries, keys and values of a layer: (8192 + 8192 + 2 x 1024) x 2 B for 32,768 tokens, kept for 80 layers.
    layer = (8192 + 8192 + 2 * 1024) * 2 * 4 * 8192
    assert here - there == pytest.approx((80 - 2) * layer * job().stack["activation_factor"], rel=1e-6)


def test_full_recomputation_keeps_its_inputs_on_the_device() -> None:
    full = replace(SHARDED, recompute="full")
    assert memory(job(), "activations", full) == memory(job(selective_on_host=False), "activations", full)


def test_what_lies_there_takes_room_of_the_host() -> None:
    """Input, queries, keys and values of 80 layers for 32,768 tokens: 97 GB x the stack's factor of activations."""
    question, plans = job(), Plans.of([SHARDED])
    layer = (8192 + 8192 + 2 * 1024) * 2 * 4 * 8192
    there = float(on_host(layer_costs_of(question, plans), Knobs())[0])
    assert there == pytest.approx(80 * layer * question.stack["activation_factor"], rel=1e-6)
    assert there < host_memory_per_gpu(question) == pytest.approx(0.8 * 1536 * 2**30 / 8)
    small = question.with_host_memory(8 * there)
    assert not activations_fit_host(layer_costs_of(small, plans))[0]
    assert not HostActivations().check(small, plans)[0]
    assert [found.holds for found in rule_findings(small, SHARDED, Knobs()) if found.name == "host-memory"] == [False]
    full = replace(SHARDED, recompute="full")
    assert activations_fit_host(layer_costs_of(small, Plans.of([full])))[0]
    assert on_host(layer_costs_of(question, Plans.of([full])), Knobs())[0] == 0


def test_a_slow_host_shows() -> None:
    fast = job()
    slow = replace(fast, cluster=replace(fast.cluster, host_bandwidth=1e9))
    times = [float(price(question, Plans.of([SHARDED])).step_time[0]) for question in (fast, slow)]
    assert times[1] > 1.5 * times[0]


def test_a_matrix_at_a_time_is_less_than_a_layer() -> None:
    plans = Plans.of([SHARDED])
    assert largest_matrix(layer_costs_of(job(), plans)) == pytest.approx(np.array([8192.0 * 28672]))
    assert memory(job(), "buffers") < memory(job(gathers_layers=True), "buffers")


@pytest.mark.parametrize(
    ("optimizer_bytes", "grad_bytes", "param_bytes", "traffic"), [(12, 4, 2, 30), (8, 2, 2, 20), (6, 4, 0, 16)]
)
def test_the_optimizer_moves_the_bytes_that_memory_counts(
    optimizer_bytes: int, grad_bytes: int, param_bytes: int, traffic: int
) -> None:
    """States are read and written, gradients read, weights written; on the host the gradient is written before."""
    question = job(optimizer_bytes=optimizer_bytes, grad_bytes=grad_bytes, param_bytes=param_bytes)
    plans = Plans.of([Plan(dp=128, micro_batch=4)])
    state = stage_memory(layer_costs_of(question, plans), stages_of(question.model, plans)).terms["optimizer"].max()
    updated = state / optimizer_bytes
    device = updated * traffic * question.stack["optimizer_passes"] / question.cluster.device.memory_bandwidth
    host = updated * (traffic + grad_bytes) / question.cluster.host_bandwidth
    for offload, seconds in ((0.0, device), (1.0, host), (0.5, (device + host) / 2)):
        assert float(price(question, plans, Knobs(offload=offload)).time["optimizer"][0]) == pytest.approx(seconds)


def test_temporaries_of_an_update_are_of_all_tensors_where_its_kernels_are() -> None:
    """PyTorch's AdamW has them, bitsandbytes' of 8 bits updates one tensor after the other. They lie where activations
    lay, 2 GB and more at 2,048 tokens: so a step takes the larger of both.
    """
    one = replace(
        job(), seq_len=1, gpus=1, global_batch=2, model=load_model("llama3.1-8b"), stack=load_stack("hf-2026")
    )
    weights = one.model.params
    whole, eight = (
        memory(replace(one, optimizer=name), "gradients", Plan(micro_batch=2)) for name in ("", "adamw-8bit")
    )
    assert whole == pytest.approx(weights * (2 + 2), rel=1e-3)
    assert eight == pytest.approx(weights * 2)
    long, short = (memory(replace(one, seq_len=length), "gradients", Plan(micro_batch=2)) for length in (2048, 1))
    kept = memory(replace(one, seq_len=2048), "activations", Plan(micro_batch=2))
    assert short - long == pytest.approx(min(kept, 2 * weights), rel=0.02)


def tuned(optimizer: str = "", micro_batch: int = 1, **features: Any) -> float:
    """What Llama 3.2 1B takes whole on one H200, sequences of 2,048 tokens [B]."""
    stack = load_stack("hf-2026")
    question = Job(
        model=load_model("llama3.2-1b"),
        cluster=load_cluster("h200"),
        stack=replace(stack, features=replace(stack.features, **features)),
        **{"gpus": 1, "seq_len": 2048, "global_batch": micro_batch, "optimizer": optimizer},
    )
    plan = Plan(micro_batch=micro_batch, recompute="full")
    return sum(memory(question, term, plan) for term in ("gradients", "optimizer", "activations", "logits"))


@pytest.mark.parametrize(("optimizer", "moments"), [("adamw-8bit", 2), ("", 0), ("paged-adamw-8bit", 0)])
def test_moments_of_embeddings_are_in_fp32_beside_those_of_8_bits(optimizer: str, moments: int) -> None:
    more = tuned(optimizer) - tuned(optimizer, wide_embedding=False)
    assert more == pytest.approx(moments * (4 - 1.016) * 128256 * 2048, rel=1e-6)


def test_temporaries_of_an_update_lie_where_logits_lay() -> None:
    """Logits of 2,048 tokens take 3.5 GB, temporaries of 1.24 billion weights 2.5."""
    assert tuned() == pytest.approx(tuned("adamw-fused"), rel=1e-9)
    few = {"loss_chunks": 4096}
    assert 2.0e9 < tuned(**few) - tuned("adamw-fused", **few) < 2.472e9


def test_deepspeed_has_gradients_of_a_group_in_fp32_while_it_updates_them() -> None:
    """6 B of each of 1.24 billion weights, or of 0.1 billion in ZeRO-3's groups; nothing where activations lay."""
    plan = Plan(zero_stage=3, recompute="full")

    def held(group: float, stage: int, micro_batch: int = 1) -> float:
        stack = load_stack("hf-2026")
        facts = {
            "optimizer_bytes": 12,
            "master_bytes": 4,
            "update_bytes": 0,
            "update_group": group,
            "loss_chunks": 4096,
        }
        question = Job(
            model=load_model("llama3.2-1b"),
            cluster=load_cluster("h200"),
            stack=replace(stack, features=replace(stack.features, **facts)),
            **{"gpus": 1, "seq_len": 2048, "global_batch": micro_batch},
        )
        return memory(question, "optimizer", replace(plan, zero_stage=stage, micro_batch=micro_batch))

    whole = held(0, 3)
    assert held(1e9, 2) - whole == pytest.approx(6 * 1.236e9, rel=0.08)
    assert held(1e9, 3) - whole == pytest.approx(6e9, rel=0.08)
    assert held(1e8, 3) - whole < held(1e9, 3) - whole - 5e9
    assert held(1e9, 3, micro_batch=16) < held(1e9, 3)


@pytest.mark.parametrize(
    ("model", "plan"),
    [("llama3-8b", Plan(dp=64)), ("llama3-8b", Plan(tp=2, dp=32, zero_stage=3)), ("mixtral-8x7b", Plan(dp=64, ep=8))],
)
def test_of_one_stage_what_may_leave_the_model_is_what_may_leave_the_stage(model: str, plan: Plan) -> None:
    question = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=64,
        seq_len=4096,
        global_batch=64,
    )
    plans = Plans.of([plan])
    costs = layer_costs_of(question, plans)
    stage = stage_memory(costs, stages_of(question.model, plans))
    leaving, states = states_of_model(costs, offloadable=True), states_of_model(costs)
    assert leaving == pytest.approx(stage.offloadable.sum(axis=0), rel=1e-12)
    assert states > leaving
