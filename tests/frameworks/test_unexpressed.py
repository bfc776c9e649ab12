"""What each program lacks: nothing for a plan that it runs, and one reason for each single change that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.deepspeed import export as deepspeed
from optimizer.frameworks.every import EVERY
from optimizer.frameworks.maxtext import export as maxtext
from optimizer.frameworks.nanotron import export as nanotron
from optimizer.frameworks.torchtitan import export as torchtitan
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan

SHARED = Plan(tp=2, dp=8, micro_batch=2, num_microbatches=4, sequence_parallel=True, zero_stage=3, recompute="full")
PIPED = replace(SHARED, dp=4, pp=2, zero_stage=1, num_microbatches=8)
ALONE = Plan(dp=16, micro_batch=1, num_microbatches=4, zero_stage=3, recompute="full")
PROGRAMS: dict[str, tuple[Callable[..., tuple[str, ...]], str, str, Plan]] = {
    "MaxText": (maxtext.unexpressed, "maxtext", "maxtext", SHARED),
    "torchtitan": (partial(torchtitan.unexpressed, torchtitan.MAIN), "torchtitan-2024", "torchtitan", SHARED),
    "torchtitan 0.2": (partial(torchtitan.unexpressed, torchtitan.OLD), "torchtitan-2024", "torchtitan", SHARED),
    "torchtitan piped": (partial(torchtitan.unexpressed, torchtitan.MAIN), "torchtitan-2024", "torchtitan", PIPED),
    "nanotron": (
        *(nanotron.unexpressed, "nanotron-2024", "nanotron"),
        replace(PIPED, layers_per_stage=(18, 14)),
    ),
    "DeepSpeed": (
        partial(deepspeed.unexpressed, deepspeed.DEEPSPEED),
        *("llm-foundry-fsdp-2023", "deepspeed", ALONE),
    ),
    "FSDP": (partial(deepspeed.unexpressed, deepspeed.FSDP), "llm-foundry-fsdp-2023", "accelerate", ALONE),
}


@cache
def job_of(stack: str, target: str, model: str = "llama3-8b") -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=aimed(load_stack(stack), target),
        gpus=16,
        seq_len=8192,
        global_batch=64,
    )


def featured(job: Job, **changes: Any) -> Job:
    return replace(job, stack=replace(job.stack, features=replace(job.stack.features, **changes)))


Change = Callable[[Job], Job] | dict[str, Any] | Knobs
EVERYWHERE: dict[str, tuple[Change, str]] = {
    "host": ({"activation_offload": 50}, "activations on the host"),
    "state": (Knobs(offload=0.5), "a share of the optimizer on the host"),
    "moments": (lambda job: featured(job, optimizer_bytes=8), "master weights and moments of 8 bytes"),
    "partly": ({"recompute_first": 2}, "recomputation of"),
    "modules": ({"recompute": "mlp"}, "recomputation of mlp"),
}
TITAN: dict[str, tuple[Change, str]] = {
    "format": (lambda job: replace(job, dtype="fp16"), "the number format fp16"),
    "blocks": (
        lambda job: featured(replace(job, dtype="fp8"), fp8_recipe="blockwise"),
        "8-bit operands that are scaled blockwise",
    ),
    "gradients": (lambda job: featured(job, grad_bytes=2), "gradients that are reduced in bf16"),
    "attention": (lambda job: featured(job, attention="unfused"), "unfused attention"),
    "dropout": (lambda job: featured(job, dropout=True), "dropout"),
    "schedule": ({"schedule": "zero-bubble-2p"}, "the schedule zero-bubble-2p"),
    "bucket": (Knobs(bucket=1e8), "gradient buckets of another size than its own"),
    "multiprocessors": (Knobs(comm_sm_share=0.05), "a share of the multiprocessors for gradients"),
    "overlap": ({"overlap_exchange": True}, "an all-to-all that overlaps another micro-batch"),
    "prediction": (lambda job: replace(job, model=replace(job.model, mtp_layers=1)), "MTP layers"),
    "model": (lambda job: replace(job, model=replace(job.model, name="mine", hidden=4224)), "the model mine"),
}
CASES: dict[str, dict[str, tuple[Change, str]]] = {
    "MaxText": {
        "format": (lambda job: replace(job, dtype="fp16"), "the number format fp16"),
        "accumulated": (lambda job: replace(job, dtype="fp8"), "accumulated gradients of 8-bit products"),
        "gradients": (lambda job: featured(job, grad_bytes=2), "gradients that are reduced in bf16"),
        "weights": (lambda job: featured(job, param_bytes=2), "weights in bf16 beside their master copy"),
        "dropout": (lambda job: featured(job, dropout=True), "dropout"),
        "sequence": ({"sequence_parallel": False}, "tensor without sequence parallelism"),
        "stage": ({"zero_stage": 2}, "ZeRO-2"),
        "bucket": (Knobs(bucket=1e8), "gradient buckets, which a compiler forms"),
        "overlap": ({"overlap_exchange": True}, "an all-to-all that overlaps another micro-batch"),
        "biases": (
            lambda job: replace(job, model=replace(job.model, name="mine", attention_bias=True)),
            "biases of queries, keys and values",
        ),
        "group": ({"zero_stage": 1, "shard": 4}, "4 replicas that share an optimizer"),
    },
    "torchtitan": TITAN | {"stage": ({"zero_stage": 1}, "ZeRO-1 without a pipeline")},
    "torchtitan 0.2": TITAN
    | {
        "sequence": ({"sequence_parallel": False}, "tensor without sequence parallelism"),
        "replicas": ({"zero_stage": 0}, "replicas of whole weights beside tensor or pipeline parallelism"),
        "logits": (lambda job: featured(job, loss_chunks=8), "a loss that has the logits of some of the tokens"),
    },
    "torchtitan piped": TITAN
    | {
        "stage": ({"zero_stage": 2}, "ZeRO-2 under a pipeline"),
        "tied": (
            lambda job: replace(job, model=load_model("llama3.2-1b")),
            "a pipeline for an embedding and a head that share weights",
        ),
    },
    "nanotron": {
        "format": (lambda job: replace(job, dtype="fp8"), "the number format fp8"),
        "heads": (
            lambda job: replace(job, model=replace(job.model, kv_heads=1)),
            "1 key-value heads over 2 GPUs",
        ),
        "stage": ({"zero_stage": 2}, "ZeRO-2"),
        "group": ({"shard": 2}, "groups of 2 that share states"),
        "schedule": ({"schedule": "zero-bubble"}, "the schedule zero-bubble"),
        "stages": ({"layers_per_stage": (16, 16)}, "other stages than its own"),
        "attention": (lambda job: featured(job, attention="unfused"), "unfused attention"),
        "dropout": (lambda job: featured(job, dropout=True), "dropout"),
        "bucket": (Knobs(bucket=1.5e6), "gradient buckets of"),
        "multiprocessors": (Knobs(comm_sm_share=0.05), "a share of the multiprocessors for gradients"),
        "virtual": ({"vpp": 2}, "VPP 2"),
        "experts": ({"etp": 2}, "ETP 2"),
    },
    "DeepSpeed": {
        "format": (lambda job: replace(job, dtype="fp8"), "the number format fp8"),
        "tensor": ({"tp": 2}, "TP 2"),
        "context": ({"cp": 2}, "CP 2"),
        "stage": ({"zero_stage": 0}, "ZeRO-0"),
        "group": ({"shard": 8}, "groups of 8 that share weights"),
    },
    "FSDP": {
        "format": (lambda job: replace(job, dtype="fp8"), "the number format fp8"),
        "pipeline": ({"pp": 2}, "PP 2"),
        "experts": ({"ep": 2}, "EP 2"),
        "stage": ({"zero_stage": 1}, "ZeRO-1"),
        "gradients": (lambda job: featured(job, grad_bytes=4), "gradients of 4 bytes"),
    },
}
WITHOUT = {("DeepSpeed", "state")}  # its ZeRO-3 takes any share
DEVICES = {"MaxText": "", "DeepSpeed": "tpu-v5p-pod", "FSDP": "tpu-v5p-pod"}


def lacking(name: str, change: Change | None = None) -> tuple[str, ...]:
    """What a program lacks for its plan with one change."""
    of, stack, target, plan = PROGRAMS[name]
    job, knobs = job_of(stack, target), Knobs()
    if isinstance(change, dict):
        plan = replace(plan, **change)
    elif isinstance(change, Knobs):
        knobs = change
    elif change:
        job = change(job)
    return of(job, plan, knobs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_that_a_program_runs_lacks_nothing(name: str) -> None:
    assert lacking(name) == ()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        pytest.param(name, *case, id=f"{name}-{what}")
        for name, own in CASES.items()
        for what, case in (EVERYWHERE | own).items()
        if (name, what) not in WITHOUT
    ],
)
def test_one_change_is_one_reason(name: str, change: Change, words: str) -> None:
    (reason,) = lacking(name, change)
    assert words in reason


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_devices_are_named(name: str) -> None:
    other = load_cluster(DEVICES.get(name) or "tpu-v5p-pod")
    reasons = lacking(name, lambda job: replace(job, cluster=other))
    there = any(reason.startswith(f"the device {other.device.name} (") for reason in reasons)
    assert there is (name != "MaxText")  # which runs on TPUs


@pytest.mark.parametrize(
    ("changes", "knobs", "words"),
    [
        ({"zero_stage": 1}, Knobs(offload=0.5), "50% of the optimizer on the host (all or none)"),
        ({"zero_stage": 2}, Knobs(offload=0.25), "25% of the optimizer on the host (all or none)"),
        ({"zero_stage": 1}, Knobs(offload=1.0), ""),
        ({"zero_stage": 3}, Knobs(offload=0.5), ""),
        ({"zero_stage": 1}, Knobs(), ""),
    ],
)
def test_deepspeed_has_all_or_none_of_the_optimizer_on_the_host_but_under_zero_3(
    changes: dict[str, Any], knobs: Knobs, words: str
) -> None:
    of, stack, target, plan = PROGRAMS["DeepSpeed"]
    assert of(job_of(stack, target), replace(plan, **changes), knobs) == ((words,) if words else ())


@pytest.mark.parametrize(
    ("changes", "knobs", "zero"),
    [
        ({"zero_stage": 0}, Knobs(), {"stage": 0}),
        ({"zero_stage": 2}, Knobs(offload=1.0), {"offload_optimizer": {"device": "cpu", "pin_memory": True}}),
        (
            {"zero_stage": 3},
            Knobs(offload=0.25),
            {"offload_optimizer": {"device": "cpu", "pin_memory": True, "ratio": 0.25}},
        ),
        ({"zero_stage": 1}, Knobs(bucket=4e8), {"reduce_bucket_size": 200_000_000, "contiguous_gradients": True}),
    ],
)
def test_deepspeeds_config_has_the_sharding_of_the_plan(
    changes: dict[str, Any], knobs: Knobs, zero: dict[str, Any]
) -> None:
    _, stack, target, plan = PROGRAMS["DeepSpeed"]
    job = job_of(stack, target)
    config = deepspeed.engine(job, replace(plan, **changes), knobs)
    found = config["zero_optimization"]
    assert isinstance(found, dict)
    assert {name: found[name] for name in zero} == zero
    assert ("overlap_comm" in found) is (changes["zero_stage"] > 0)
    assert (config["train_batch_size"], config["train_micro_batch_size_per_gpu"]) == (64, 1)
    assert (config["bf16"], config["fp16"]) == ({"enabled": True}, {"enabled": False})
    wide = deepspeed.engine(featured(job, grad_bytes=4), plan, knobs)
    assert (config["communication_data_type"], wide["communication_data_type"]) == ("bf16", "fp32")


@pytest.mark.parametrize(
    ("plan", "replicas", "sharded", "policy"),
    [
        (SHARED, 1, 8, "always"),
        (replace(SHARED, shard=4), 2, 4, "always"),
        (replace(SHARED, cp=2, dp=4, shard=4), 2, 2, "always"),
        (replace(SHARED, zero_stage=2), 1, 8, "never"),
        (replace(SHARED, zero_stage=0), 8, 1, None),
        (replace(SHARED, shard=8), 1, 8, "always"),
    ],
)
def test_torchtitans_ranks_share_weights_in_groups(plan: Plan, replicas: int, sharded: int, policy: str | None) -> None:
    found = torchtitan.data_parallel(plan)
    assert found["data_parallel_replicate_degree"] == replicas
    assert found["data_parallel_shard_degree"] == sharded
    assert found.get("fsdp_reshard_after_forward") == policy
    assert torchtitan.local_batch(plan) == 2
    assert torchtitan.local_batch(PIPED) == 16
    job = job_of("torchtitan-2024", "torchtitan")
    assert torchtitan.overlaps_tp(job, plan) is (job.stack["tp_overlap"] > 0)
    assert not torchtitan.overlaps_tp(job, replace(plan, sequence_parallel=False))
    assert not torchtitan.overlaps_tp(job, replace(plan, tp=1))


def test_a_micro_batch_of_maxtext_is_a_whole_number_over_the_devices_that_share_it() -> None:
    """MaxText multiplies a sequence's share of each device by all devices and rounds down: 49 49ths are none."""
    job = job_of("maxtext", "maxtext")

    def told(gpus: int, plan: Plan) -> list[str]:
        return [why for why in maxtext.unexpressed(replace(job, gpus=gpus), plan) if why.startswith("a micro-batch of")]

    assert told(16, replace(SHARED, cp=2, dp=4)) == told(16, SHARED) == []
    assert told(49, Plan(tp=7, cp=7, dp=1)) == ["a micro-batch of 1 over 49 devices"]


def test_nanotron_overlaps_tensor_parallelism_where_the_stack_does() -> None:
    _, stack, target, plan = PROGRAMS["nanotron"]
    job = job_of(stack, target)
    for share, sequence, on in ((0.5, True, "true"), (0.0, True, "false"), (0.5, False, "false")):
        priced = replace(job, stack=replace(job.stack, parameters={**job.stack.parameters, "tp_overlap": share}))
        answer = Answer(status="optimal", job=priced, plan=replace(plan, sequence_parallel=sequence))
        assert f"tp_linear_async_communication: {on}" in nanotron.nanotron_yaml(answer)


def test_zero_stages_of_each_program() -> None:
    """Of those that have others than the stack which prices them."""
    assert {program.name: program.zero_stages for program in EVERY if program.zero_stages} == {
        **{"verl": (1, 2, 3), "torchtune": (0, 2, 3), "litgpt": (0, 3), "GPT-NeoX": (0, 1, 2, 3)},
        **{"nanotron": (0, 1), "picotron": (0,), "DeepSpeed": (0, 1, 2, 3)},
    }
