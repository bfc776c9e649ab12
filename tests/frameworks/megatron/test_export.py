import json
from dataclasses import replace

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog import load_cluster, load_model, load_stack, model_names
from optimizer.catalog.targets import MEGATRON_LM, argument_names
from optimizer.frameworks.megatron.export import (
    OVERLAP,
    RELEASE,
    arguments,
    communicators,
    dispatcher_flags,
    fused_flags,
    megatron_arguments,
    offload_flags,
    parallel_flags,
    plan_flags,
    precision_flags,
    recipe_flags,
    recompute_flags,
    sharding_flags,
    unexpressed,
)
from optimizer.frameworks.megatron.export_model import differing, lacking, model_flags
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.variables import DISPATCHERS
from tests.frameworks.launches import read_arguments
from tests.looped import looped


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


def test_megatron_recomputes_as_many_layers_on_every_virtual_stage(gpt3_job: Job) -> None:
    assert recompute_flags(Plan(pp=4, vpp=2, recompute="full", recompute_first=4)) == {
        "--recompute-granularity": "full",
        "--recompute-method": "block",
        "--recompute-num-layers": "4",
    }
    assert recompute_flags(Plan(recompute="full"))["--recompute-method"] == "uniform"
    one_stage = Plan(pp=4, vpp=2, recompute="full", recompute_layers=(7, 4, 0, 0))
    assert unexpressed(gpt3_job, one_stage) == ("recomputation of other layers on each stage",)


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
    assert environment(job, Plan(activation_offload=50))["NVTE_CPU_OFFLOAD_V1"] == "1"
    assert offload_flags(job, Plan()) == {}


def test_an_exchange_beside_another_micro_batch_has_its_flags_and_connections(gpt3_job: Job) -> None:
    job = replace(gpt3_job, model=load_model("mixtral-8x22b"), global_batch=2048)
    plan = Plan(tp=2, ep=8, dp=512, num_microbatches=4, overlap_exchange=True)
    flags = plan_flags(job, plan, Knobs())
    assert set(OVERLAP) <= set(flags)
    assert environment(job, plan)["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert read_arguments(arguments(flags), gpus=1024)[0].overlap_exchange
    off = replace(plan, overlap_exchange=False)
    flags = plan_flags(job, off, Knobs())
    assert set(OVERLAP).isdisjoint(flags)
    assert environment(job, off)["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert not read_arguments(arguments(flags), gpus=1024)[0].overlap_exchange


def test_zero_bubble_schedules_and_dualpipe_are_refused(gpt3_answer: Answer) -> None:
    assert gpt3_answer.plan is not None
    for schedule in ("zero-bubble-2p", "dualpipe"):
        plan = replace(gpt3_answer.plan, vpp=1, schedule=schedule)
        with pytest.raises(InputError, match=f"it lacks the schedule {schedule}"):
            megatron_arguments(replace(gpt3_answer, plan=plan))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("gemma2-9b", "the activation geglu"),
        ("falcon-40b", "parallel blocks"),
        ("bloom-176b", "alibi positions"),
        ("opt-6.7b", "the activation relu"),
        ("olmo2-7b", "norms over all heads"),
    ],
)
def test_a_model_that_megatron_lacks_is_refused_with_the_reason(gpt3_answer: Answer, model: str, reason: str) -> None:
    job = replace(gpt3_answer.job, model=load_model(model))
    with pytest.raises(InputError, match=f"core_v0.19.0 cannot run {model} so: it lacks .*{reason}"):
        megatron_arguments(replace(gpt3_answer, job=job))


@looped(model=[name for name in model_names() if not lacking(load_model(name))], dtype=["bf16", "fp16", "fp8", "fp4"])
def test_every_argument_is_one_of_the_release(gpt3_job: Job, model: str, dtype: str) -> None:
    job = replace(gpt3_job, model=load_model(model))
    job = replace(job, cluster=load_cluster("gb200-nvl72" if dtype == "fp4" else "dgx-h100"), dtype=dtype)
    for plan in (
        Plan(tp=4, pp=4, vpp=2, ep=2, cp=2, dp=8, sequence_parallel=True, recompute="full", recompute_first=1),
        Plan(pp=4, dp=4, zero_stage=3, shard=2, recompute="layernorm", layers_per_stage=(9, 9, 9, 3)),
        Plan(dp=8, ep=4, activation_offload=30, recompute="selective"),
    ):
        flags = plan_flags(job, plan, Knobs(offload=0.5))
        assert set(flags) <= argument_names("megatron-lm", RELEASE)
        new = {"--activation-offload-fraction", *fused_flags(job, plan)}
        assert set(flags) - new <= argument_names("megatron-lm", MEGATRON_LM[0])


def test_what_is_trained_is_what_is_priced(gpt3_job: Job) -> None:
    flags = plan_flags(gpt3_job, Plan(tp=8, pp=8, dp=16), Knobs())
    assert (flags["--attention-dropout"], flags["--hidden-dropout"]) == ("0.0", "0.0")
    assert flags["--attention-backend"] == "fused"
    assert "--accumulate-allreduce-grads-in-fp32" in flags
    old = replace(gpt3_job, stack=load_stack("megatron-2021"))
    flags = plan_flags(old, Plan(tp=8, pp=8, dp=16), Knobs())
    assert (flags["--attention-dropout"], flags["--attention-backend"]) == ("0.1", "unfused")
    assert "--grad-reduce-in-bf16" in flags
    sharded = sharding_flags(gpt3_job, Plan(dp=16, zero_stage=3), Knobs())
    assert sharded["--ckpt-format"] == "fsdp_dtensor"


def test_numerics_are_those_of_the_model() -> None:
    glm, llama = model_flags(load_model("glm-4.5")), model_flags(load_model("llama3-8b"), 16384)
    assert (glm["--rotary-base"], glm["--rotary-percent"], glm["--norm-epsilon"]) == ("1000000", "0.5", "1e-05")
    assert "--qk-layernorm" in glm
    assert glm["--moe-router-score-function"] == "sigmoid"
    assert llama["--max-position-embeddings"] == "16384"  # never fewer positions than the sequence has
    assert "--moe-router-pre-softmax" in model_flags(load_model("deepseek-v2"))
    assert model_flags(load_model("gpt-oss-20b"))["--softmax-type"] == "learnable"
    assert differing(load_model("dbrx")) != ()


def test_only_data_parallel_communicators_are_bounded(gpt3_job: Job) -> None:
    groups = json.loads(communicators(gpt3_job, Knobs(comm_sm_share=33 / 132)))
    assert {options["max_ctas"] for options in groups.values()} == {33}
    assert not groups.keys() & {"tp", "cp", "ep", "pp"}


def test_kernels_of_their_own_need_the_flex_dispatcher(gpt3_job: Job) -> None:
    job = replace(gpt3_job, model=load_model("mixtral-8x22b"), global_batch=2048)
    for dispatcher in DISPATCHERS:
        plan = Plan(ep=8, dp=1024, dispatcher=dispatcher, num_microbatches=2)
        flags = plan_flags(job, plan, Knobs())
        backend = None if dispatcher == "alltoall" else dispatcher
        assert flags["--moe-token-dispatcher-type"] == ("flex" if backend else "alltoall")
        assert flags.get("--moe-flex-dispatcher-backend") == backend
        assert read_arguments(arguments(flags), gpus=1024)[0].dispatcher == dispatcher

    assert dispatcher_flags(job, Plan(ep=1, dispatcher="deepep")) == {"--moe-token-dispatcher-type": "alltoall"}
    assert dispatcher_flags(gpt3_job, Plan()) == {}


def test_a_flex_dispatcher_must_be_one_that_is_known() -> None:
    words = "--tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 8 --seq-length 8 --num-layers 2 "
    words += "--num-experts 8 --expert-model-parallel-size 8 --moe-token-dispatcher-type flex"
    assert read_arguments(words, gpus=8)[0].dispatcher == "deepep"
    with pytest.raises(InvalidFile, match="--moe-flex-dispatcher-backend must be deepep or hybridep, but got 'pigeon'"):
        read_arguments(f"{words} --moe-flex-dispatcher-backend pigeon", gpus=8)


def test_routing_that_is_limited_to_groups_is_launched_so() -> None:
    flags = model_flags(load_model("deepseek-v3"))
    assert (flags["--moe-router-num-groups"], flags["--moe-router-group-topk"]) == ("8", "4")
    assert "--moe-router-num-groups" not in model_flags(load_model("kimi-k2"))


def test_formats_and_the_clamped_activation(gpt3_job: Job) -> None:
    assert model_flags(load_model("gpt-oss-20b"))["--activation-func-clamp-value"] == "7.0"
    assert "--swiglu" not in model_flags(load_model("gpt-oss-20b"))
    assert "--fp4-format" not in precision_flags(gpt3_job)


def test_moments_of_two_bytes_are_written_and_read_back(gpt3_job: Job, gpt3_plan: Plan) -> None:
    features = replace(gpt3_job.stack.features, optimizer_bytes=8)
    job = replace(gpt3_job, stack=replace(gpt3_job.stack, features=features))
    flags = sharding_flags(job, gpt3_plan, Knobs())
    assert (flags["--exp-avg-dtype"], flags["--exp-avg-sq-dtype"]) == ("bf16", "bf16")
    assert "--use-precision-aware-optimizer" in flags
    assert "--exp-avg-dtype" not in sharding_flags(gpt3_job, gpt3_plan, Knobs())
    odd = replace(job, stack=replace(job.stack, features=replace(features, optimizer_bytes=7)))
    assert "master weights and moments of 7 bytes" in unexpressed(odd, gpt3_plan)
    assert not any("moments" in what for what in unexpressed(job, gpt3_plan))


def test_experts_are_fused_with_their_gate_where_the_device_has_the_kernel(gpt3_job: Job) -> None:
    """MXFP8 on Blackwell: by flags, and read back; nothing on Hopper, in bf16, or where a launch does not say so."""
    stack, gb200 = load_stack("megatron-core"), load_cluster("gb200-nvl72")
    job = replace(gpt3_job, model=load_model("qwen3-30b-a3b"), stack=stack, cluster=gb200, dtype="fp8", gpus=8)
    plan = Plan(ep=8, dp=8, dispatcher="hybridep", num_microbatches=16)
    flags = plan_flags(job, plan, Knobs())
    assert flags["--fp8-recipe"] == "mxfp8"
    assert fused_flags(job, plan) == {
        "--use-transformer-engine-op-fuser": None,
        "--moe-mlp-glu-interleave-size": "32",
        "--moe-permute-fusion-into-hybridep": None,
    }
    assert "--moe-permute-fusion-into-hybridep" not in fused_flags(job, replace(plan, dispatcher="deepep"))
    assert environment(job, plan)["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] == "1"
    assert set(fused_flags(job, plan)) <= argument_names("megatron-lm", RELEASE)
    hopper, dense = replace(job, cluster=load_cluster("dgx-h100")), replace(job, model=gpt3_job.model)
    for other in (hopper, dense, replace(job, dtype="bf16")):
        assert fused_flags(other, plan) == {}
        assert "NVTE_CUTEDSL_FUSED_GROUPED_MLP" not in environment(other, plan)
    assert any("gate in one kernel" in each for each in unexpressed(job, replace(plan, ep=4, etp=2)))
    assert read_arguments(arguments(flags), 8)[1]["fused_experts"]
    unsaid = {name: value for name, value in flags.items() if name not in fused_flags(job, plan)}
    assert not read_arguments(arguments(unsaid), 8)[1]["fused_experts"]
