from dataclasses import replace

import pytest

from optimizer.answer import Answer
from optimizer.errors import InputError, InvalidFile
from optimizer.exports.megatron import (
    arguments,
    launch_notes,
    megatron_arguments,
    model_flags,
    offload_flags,
    parallel_flags,
    plan_flags,
    precision_flags,
    recipe_flags,
    recompute_flags,
    sharding_flags,
    zero_bubble_flags,
)
from optimizer.exports.sbatch import environment
from optimizer.job import Job
from optimizer.plan import Knobs, Plan
from optimizer.presets import load_model
from optimizer.readers.megatron_args import read_megatron_arguments
from optimizer.variables import DISPATCHERS


def value(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_gpt3_on_1024_gpus(gpt3_answer: Answer) -> None:
    arguments = megatron_arguments(gpt3_answer)
    assert value(arguments, "--tensor-model-parallel-size") == "8"
    assert value(arguments, "--pipeline-model-parallel-size") == "8"
    assert value(arguments, "--num-layers-per-virtual-pipeline-stage") == "2"  # 96 / (8 x 6)
    assert value(arguments, "--micro-batch-size") == "1"
    assert value(arguments, "--global-batch-size") == "1536"
    assert value(arguments, "--num-layers") == "96"
    assert value(arguments, "--hidden-size") == "12288"
    assert value(arguments, "--recompute-granularity") == "selective"
    assert {"--sequence-parallel", "--use-distributed-optimizer", "--bf16"} <= set(arguments)
    assert "--context-parallel-size" not in arguments
    assert "--num-experts" not in arguments


def test_405b_has_grouped_queries_swiglu_and_shorter_ends(gpt3_job: Job) -> None:
    job = replace(gpt3_job, model=load_model("llama3.1-405b"))
    flags = {**parallel_flags(job, Plan(tp=8, pp=16, sequence_parallel=True)), **model_flags(job.model)}
    # 126 layers on 16 stages: 7 on the first and last, 8 on each other one.
    assert flags["--decoder-first-pipeline-num-layers"] == "7"
    assert flags["--decoder-last-pipeline-num-layers"] == "7"
    assert flags["--num-query-groups"] == "8"
    assert flags["--normalization"] == "RMSNorm"
    assert {"--swiglu", "--untie-embeddings-and-output-weights", "--disable-bias-linear"} <= set(flags)


def test_deepseek_v3_has_latent_attention_experts_and_a_layout(gpt3_job: Job) -> None:
    job = replace(gpt3_job, model=load_model("deepseek-v3"))
    flags = {**parallel_flags(job, Plan(tp=1, pp=16, ep=64)), **model_flags(job.model)}
    assert flags["--expert-model-parallel-size"] == "64"
    assert flags["--num-experts"] == "256"
    assert flags["--moe-router-topk"] == "8"
    assert flags["--moe-layer-freq"] == "([0]*3+[1]*58)"
    assert flags["--kv-lora-rank"] == "512"
    assert flags["--qk-head-dim"] == "128"
    assert flags["--v-head-dim"] == "128"


@pytest.mark.parametrize(
    ("stage", "expected", "absent"),
    [
        (0, set(), {"--use-distributed-optimizer", "--overlap-param-gather"}),
        (1, {"--use-distributed-optimizer"}, {"--use-megatron-fsdp"}),
        (3, {"--use-distributed-optimizer", "--use-megatron-fsdp"}, set()),
    ],
)
def test_sharding(gpt3_job: Job, stage: int, expected: set[str], absent: set[str]) -> None:
    flags = sharding_flags(gpt3_job, Plan(dp=16, zero_stage=stage), Knobs())
    assert expected <= set(flags)
    assert not absent & set(flags)


def test_bucket_is_counted_in_parameters_and_offload_in_shares(gpt3_job: Job) -> None:
    flags = sharding_flags(gpt3_job, Plan(dp=16), Knobs(bucket=160e6, offload=0.25))
    assert flags["--ddp-bucket-size"] == str(round(160e6 / gpt3_job.stack.features.grad_bytes))
    assert flags["--optimizer-offload-fraction"] == "0.25"


def test_without_a_plan_there_is_nothing_to_export(infeasible_answer: Answer) -> None:
    with pytest.raises(InputError, match="infeasible"):
        megatron_arguments(infeasible_answer)


def test_megatron_recomputes_as_many_layers_on_every_stage(gpt3_job: Job) -> None:
    """One number for all virtual stages: the most that any needs, and a note where that is more than the plan says."""
    plan = Plan(pp=4, vpp=2, recompute="full", layers_per_stage=(24,) * 4, recompute_layers=(7, 4, 0, 0))
    assert recompute_flags(plan) == {
        "--recompute-granularity": "full",
        "--recompute-method": "block",
        "--recompute-num-layers": "4",
    }
    (note,) = launch_notes(plan)
    assert "every stage, 8; the plan recomputes 7 4 0 0" in note
    assert launch_notes(replace(plan, recompute_layers=(8,) * 4)) == ()
    assert recompute_flags(replace(plan, recompute_layers=(0,) * 4)) == {}


def test_modules_to_recompute_are_listed_and_delayed_scaling_is_avoided(gpt3_job: Job) -> None:
    plan = Plan(recompute="layernorm+moe_act")
    assert recompute_flags(plan)["--recompute-modules"] == "layernorm moe_act"
    assert arguments(recompute_flags(plan))[-3:] == ["--recompute-modules", "layernorm", "moe_act"]
    assert recipe_flags(replace(gpt3_job, dtype="fp8"), plan) == {"--fp8-recipe": "tensorwise"}
    assert recipe_flags(replace(gpt3_job, dtype="fp8"), Plan(recompute="mlp")) == {}
    assert recipe_flags(gpt3_job, plan) == {}


def test_activations_on_the_host_name_their_modules(gpt3_job: Job) -> None:
    job = replace(gpt3_job, model=load_model("mixtral-8x22b"))
    flags = offload_flags(job, Plan(recompute="layernorm", activation_offload=50))
    assert flags["--offload-modules"] == "core_attn attn_proj mlp_norm expert_fc1 moe_act"
    assert flags["--activation-offload-fraction"] == "0.5"
    assert environment(job, Plan(activation_offload=50), Knobs())["NVTE_CPU_OFFLOAD_V1"] == "1"
    assert offload_flags(job, Plan()) == {}


def test_zero_bubble_schedules_name_their_fork() -> None:
    plan = Plan(pp=8, schedule="zero-bubble-2p")
    assert zero_bubble_flags(plan) == {"--enable-zero-bubble": None, "--zero-bubble-max-pending-backward": "16"}
    assert "sail-sg" in launch_notes(plan)[0]
    assert zero_bubble_flags(Plan(pp=8)) == {}


def test_kernels_of_their_own_need_the_flex_dispatcher(gpt3_job: Job) -> None:
    job = replace(gpt3_job, model=load_model("mixtral-8x22b"), global_batch=2048)
    for dispatcher in DISPATCHERS:
        plan = Plan(ep=8, dp=1024, dispatcher=dispatcher, num_microbatches=2)
        flags = plan_flags(job, plan, Knobs())
        backend = None if dispatcher == "alltoall" else dispatcher
        assert flags["--moe-token-dispatcher-type"] == ("flex" if backend else "alltoall")
        assert flags.get("--moe-flex-dispatcher-backend") == backend
        assert read_megatron_arguments(" ".join(arguments(flags)), gpus=1024)[0].dispatcher == dispatcher


def test_a_flex_dispatcher_must_be_one_that_is_known() -> None:
    words = "--tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 8 --seq-length 8 --num-layers 2 "
    words += "--num-experts 8 --expert-model-parallel-size 8 --moe-token-dispatcher-type flex"
    assert read_megatron_arguments(words, gpus=8)[0].dispatcher == "deepep"
    with pytest.raises(InvalidFile, match="--moe-flex-dispatcher-backend must be deepep or hybridep, but got 'pigeon'"):
        read_megatron_arguments(f"{words} --moe-flex-dispatcher-backend pigeon", gpus=8)


def test_routing_that_is_limited_to_groups_is_launched_so() -> None:
    flags = model_flags(load_model("deepseek-v3"))
    assert (flags["--moe-router-num-groups"], flags["--moe-router-group-topk"]) == ("8", "4")
    assert "--moe-router-num-groups" not in model_flags(load_model("kimi-k2"))


def test_formats_and_the_clamped_activation(gpt3_job: Job) -> None:
    assert model_flags(load_model("gpt-oss-20b"))["--activation-func-clamp-value"] == "7.0"
    assert "--swiglu" not in model_flags(load_model("gpt-oss-20b"))
    assert "--fp4-format" not in precision_flags(gpt3_job)
