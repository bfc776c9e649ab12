"""The objective as a whole: terms add up, one code path for one plan or many, and the directions physics demands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.hardware import with_network
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price


def job(model: str = "gpt3", cluster: str = "h100", **changes: Any) -> Job:
    values = {"gpus": 1024, "seq_len": 2048, "global_batch": 1536, "stack": load_stack("megatron-core")}
    values.update(changes)
    return Job(model=load_model(model), cluster=load_cluster(cluster), **values)


PLAN = Plan(
    tp=8, pp=8, vpp=2, dp=16, micro_batch=1, num_microbatches=96, sequence_parallel=True, schedule="interleaved"
)

plans = st.builds(
    lambda tp, pp, dp, micro, count, sp, zero, recompute: Plan(
        tp=2**tp,
        pp=2**pp,
        dp=2**dp,
        micro_batch=micro,
        num_microbatches=count,
        sequence_parallel=sp and tp > 0,
        zero_stage=zero,
        recompute=recompute,
    ),
    st.integers(0, 3),
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(1, 4),
    st.integers(1, 64),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from(["none", "selective", "full"]),
)


@given(plans)
@settings(max_examples=60, deadline=None)
def test_terms_add_up_and_none_is_negative(plan: Plan) -> None:
    costs = price(job(), Plans.of([plan]))
    assert sum(float(value[0]) for value in costs.time.values()) == pytest.approx(float(costs.step_time[0]), rel=1e-9)
    assert sum(float(value[0]) for value in costs.memory.values()) == pytest.approx(float(costs.reserved[0]), rel=1e-9)
    assert min(float(value[0]) for value in costs.time.values()) >= -1e-12
    assert min(float(value[0]) for value in costs.memory.values()) >= 0
    assert 0 < float(costs.mfu[0]) <= float(costs.hfu[0]) < 1


@given(st.lists(plans, min_size=2, max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_batch_prices_each_plan_as_it_would_alone(batch: list[Plan]) -> None:
    together = price(job(), Plans.of(batch))
    for index, plan in enumerate(batch):
        alone = price(job(), Plans.of([plan]))
        assert float(together.step_time[index]) == pytest.approx(float(alone.step_time[0]), rel=1e-12)
        assert float(together.reserved[index]) == pytest.approx(float(alone.reserved[0]), rel=1e-12)


def test_full_recompute_costs_time_and_saves_memory() -> None:
    modes = Plans.of([replace(PLAN, recompute=mode) for mode in ("none", "full")])
    costs = price(job(), modes)
    assert costs.step_time[1] > 1.2 * costs.step_time[0]
    assert costs.memory["activations"][1] < 0.3 * costs.memory["activations"][0]
    assert costs.mfu[1] < costs.hfu[1]
    assert costs.mfu[0] == costs.hfu[0]


def test_zero_shards_states_by_the_replicas() -> None:
    base = Plan(dp=64, micro_batch=1, num_microbatches=1)
    costs = price(job("llama3-8b", gpus=64), Plans.of([replace(base, zero_stage=stage) for stage in (0, 1, 2, 3)]))
    optimizer, gradients, weights = (costs.memory[name] for name in ("optimizer", "gradients", "weights"))
    assert optimizer[0] == pytest.approx(64 * optimizer[1])
    assert gradients[1] == pytest.approx(64 * gradients[2])
    assert weights[2] == pytest.approx(64 * weights[3])


@pytest.mark.parametrize("faster", [1.5, 4.0])
def test_a_faster_network_never_slows_a_step(faster: float) -> None:
    slow = job()
    nic = slow.cluster.tiers[1].link.bandwidth
    quick = replace(slow, cluster=with_network(slow.cluster, nic_bandwidth=faster * nic))
    wide = replace(PLAN, tp=1, pp=1, dp=1024, num_microbatches=2, vpp=1, sequence_parallel=False, zero_stage=3)
    for plan in (PLAN, wide):
        before = float(price(slow, Plans.of([plan])).step_time[0])
        assert float(price(quick, Plans.of([plan])).step_time[0]) <= before


def test_bubble_shrinks_with_virtual_stages_and_vanishes_under_zero_bubble() -> None:
    shapes = [
        replace(PLAN, vpp=1, schedule="1f1b", num_microbatches=16),
        replace(PLAN, vpp=4, num_microbatches=16),
        replace(PLAN, vpp=1, schedule="zero-bubble-2p", num_microbatches=16),
    ]
    bubbles = price(job(), Plans.of(shapes)).time["bubble"]
    assert bubbles[1] < 0.5 * bubbles[0]
    assert bubbles[2] < 0.25 * bubbles[0]


def test_few_microbatches_leave_zero_bubble_schedules_a_bubble() -> None:
    # Of the 2 (pp - 1) or 3 (pp - 1) weight-gradient passes that could fill the bubble there are only pp + m - 2.
    def filled(schedule: str, microbatches: int) -> float:
        plain = replace(PLAN, pp=8, dp=16, vpp=1, schedule="1f1b", num_microbatches=microbatches)
        both = price(job(), Plans.of([plain, replace(plain, schedule=schedule)])).time["bubble"]
        return float(both[0] - both[1])

    one = filled("zero-bubble-2p", 1) / 7
    assert one > 0
    for schedule, most in (("zero-bubble", 14), ("zero-bubble-2p", 21)):
        for microbatches in (1, 4, 8, 11, 15, 64):
            assert filled(schedule, microbatches) == pytest.approx(min(most, microbatches + 6) * one)


def test_explicit_layouts_move_the_bottleneck() -> None:
    even = replace(PLAN, pp=4, vpp=1, schedule="1f1b", layers_per_stage=(24, 24, 24, 24))
    skewed = replace(even, layers_per_stage=(30, 22, 22, 22))
    costs = price(job(), Plans.of([even, skewed]))
    assert costs.step_time[1] > 1.15 * costs.step_time[0]


def test_offloading_the_optimizer_frees_its_memory_for_time() -> None:
    resident = price(job(), Plans.of([PLAN]))
    offloaded = price(job(), Plans.of([PLAN]), Knobs(offload=1.0))
    assert float(offloaded.memory["optimizer"][0]) == 0.0
    assert float(offloaded.time["optimizer"][0]) > float(resident.time["optimizer"][0])


def test_fp8_is_faster_than_bf16_but_not_twice() -> None:
    """In products long enough to hide the messages of TP; those of one sequence wait for them in both formats."""
    long = replace(PLAN, micro_batch=2, num_microbatches=48)
    bf16 = float(price(job(), Plans.of([long])).step_time[0])
    fp8 = float(price(job(dtype="fp8"), Plans.of([long])).step_time[0])
    assert 1.1 < bf16 / fp8 < 2.0


def test_small_layers_are_bound_by_launches() -> None:
    tiny = job("gpt3-125m", gpus=8, global_batch=64, seq_len=1024, stack=load_stack("megatron-deepspeed-unfused-2022"))
    costs = price(tiny, Plans.of([Plan(dp=8, micro_batch=1, num_microbatches=8)]))
    assert float(costs.time["launch"][0]) > 0.5 * float(costs.step_time[0])


def test_memory_of_the_first_stage_by_hand() -> None:
    """One GPU, no parallelism: 2 + 4 + 12 bytes for each of the model's parameters, its vocabulary padded to 128."""
    costs = price(job("llama3.2-1b", gpus=1, global_batch=1), Plans.of([Plan(zero_stage=0)]))
    model = load_model("llama3.2-1b")
    params = model.params + (np.ceil(model.vocab / 128) * 128 - model.vocab) * model.hidden
    assert float(costs.memory["weights"][0]) == pytest.approx(2 * params, rel=1e-9)
    assert float(costs.memory["gradients"][0]) == pytest.approx(4 * params, rel=1e-9)
    assert float(costs.memory["optimizer"][0]) == pytest.approx(12 * params, rel=1e-9)


def test_fp8_keeps_the_inputs_of_products_in_one_byte() -> None:
    """LLaMA-3 70B, tp 1, per token: 8 h -> 6 h, 36,864 of attention, 6 ffn -> 5 ffn bytes."""
    one = Plan(micro_batch=1, num_microbatches=1)
    where = {"gpus": 1, "seq_len": 8192, "global_batch": 1}
    bf16, fp8 = (
        float(price(job("llama3-70b", dtype=dtype, **where), Plans.of([one])).memory["activations"][0])
        for dtype in ("bf16", "fp8")
    )
    kept16, kept8 = 8 * 8192 + 36864 + 6 * 28672, 6 * 8192 + 36864 + 5 * 28672
    embedding = 2.0 * 8192 * 8192
    assert (fp8 - embedding) / (bf16 - embedding) == pytest.approx(kept8 / kept16, rel=1e-6)


def test_a_plan_costs_the_same_whatever_is_priced_beside_it() -> None:
    """DeepSeek-V3's first stage has no experts at pp = 61: none of its collectives may come from a neighbour's."""
    question = job("deepseek-v3", gpus=1952, seq_len=4096, global_batch=1952)
    dense_first = Plan(pp=61, dp=32, ep=8, micro_batch=1, num_microbatches=61)
    other = Plan(pp=1, dp=1952, ep=8, micro_batch=1, num_microbatches=1)
    alone = price(question, Plans.of([dense_first])).step_time[0]
    beside = price(question, Plans.of([dense_first, other])).step_time[0]
    assert beside == pytest.approx(alone, rel=1e-12)


@given(st.lists(plans, min_size=2, max_size=8), st.data())
@settings(max_examples=40)
def test_plans_taken_from_priced_ones_cost_what_they_cost_alone(drawn: list[Plan], data: st.DataObject) -> None:
    """Tables that a subset inherits hold what pricing it anew would find."""
    question = job("mixtral-8x7b")
    together = Plans.of(drawn)
    price(question, together)
    chosen = data.draw(st.lists(st.integers(0, len(drawn) - 1), min_size=1, max_size=4))
    inherited, fresh = price(question, together.take(chosen)), price(question, Plans.of([drawn[i] for i in chosen]))
    np.testing.assert_allclose(inherited.step_time, fresh.step_time, rtol=1e-12)
    np.testing.assert_allclose(inherited.reserved, fresh.reserved, rtol=1e-12)
