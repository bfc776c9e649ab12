"""Each strategy alone, and plans from pins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.studies.strategies import broken_rules, compare, pinned_plan, pure_plan


def test_every_strategy_takes_all_gpus_and_the_whole_batch(llama_job: Job) -> None:
    for name in ("dp", "fsdp", "tp", "pp"):
        plan = pure_plan(llama_job, name)
        assert plan.gpus == 16
        assert plan.dp * plan.micro_batch * plan.num_microbatches == 64


def test_relations_between_the_strategies(llama_job: Job) -> None:
    """A layer of P parameters: DP sends each gradient of 4 B there and back, 8 P; FSDP its weights of 2 B twice and the
    gradient once, 8 P as well, but for every micro-batch, and those of the embedding and the head beside it.

    A pipeline sends least of all.
    """
    job = replace(llama_job, gpus=8, global_batch=8)
    studies = {s.name: s.study for s in compare(job) if s.study}
    sent = {name: sum(row.volume_per_layer for row in study.rows) for name, study in studies.items()}
    assert sent["dp"] == pytest.approx(8 * job.model.dense_layer_params * 7 / 8)
    assert sent["fsdp"] == pytest.approx(sent["dp"])
    assert sent["pp"] < sent["tp"] < sent["dp"]


def test_a_strategy_that_is_impossible_says_why(llama_job: Job) -> None:
    """64 GPUs are more than the 32 heads and layers; DP needs 64 of the 64 sequences."""
    found = {each.name: each for each in compare(replace(llama_job, gpus=64))}
    assert found["dp"].study is not None
    assert found["tp"].study is None
    assert any("heads" in reason for reason in found["tp"].reasons)
    assert found["pp"].study is None
    assert any("layers" in reason for reason in found["pp"].reasons)


def test_memory_and_rules_are_remarked(llama_job: Job) -> None:
    found = {each.name: each for each in compare(llama_job)}
    assert not found["dp"].fits  # 8 billion parameters x 18 B
    assert "tp-scale-up" in found["tp"].remarks


def test_unknown_strategy_and_micro_batch(llama_job: Job) -> None:
    with pytest.raises(InputError, match="unknown strategy 'zero'; use one of dp, fsdp, tp, pp"):
        compare(llama_job, ["zero"])
    with pytest.raises(InputError, match="micro_batch must be at least 1, but got 0"):
        compare(llama_job, micro_batch=0)


def test_pins_make_a_plan(llama_job: Job) -> None:
    plan = pinned_plan(llama_job, {"tp": 4, "pp": 2, "vpp": 2, "micro_batch": 2})
    assert (plan.dp, plan.num_microbatches, plan.schedule) == (2, 16, "interleaved")
    assert "gpu-product" not in broken_rules(llama_job, plan)


def test_pins_that_make_no_plan(llama_job: Job) -> None:
    with pytest.raises(InputError, match="tp x cp x pp x dp must be exactly 16 GPUs"):
        pinned_plan(llama_job, {"tp": 3})
    with pytest.raises(InputError, match="64"):
        pinned_plan(llama_job, {"micro_batch": 5})
    with pytest.raises(InputError, match="etp must"):
        pinned_plan(llama_job, {"tp": 2, "etp": 1_000_000})
    sharded = llama_job.with_limits(fixed={"shard": 1000})
    with pytest.raises(InputError, match="sharding group must divide"):
        pinned_plan(sharded, sharded.limits.fixed)
