from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed, argument_names
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.files import read_files
from optimizer.frameworks.launch_as_read import plan_of
from optimizer.frameworks.megatron_bridge.export import BRIDGE_RELEASES, MAIN, NEW, OLD, bridge_overrides, lacking_of
from optimizer.frameworks.read import read_launch
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan
from tests.clients.accepted import risked
from tests.invariants.jobs import random_job
from tests.thorough import cases

ANSWERS, LEAST = 8, 5  # of a seed, and how many of them each release has to express
STACKS = ("megatron-bridge-2025", "megatron-te-2026-no-overlap", "nemo-2024", "megatron-core")


def values(answer: Answer, release: str = NEW) -> dict[str, str]:
    lines = bridge_overrides(answer, release).splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_gpt3_on_1024_gpus(gpt3_answer: Answer) -> None:
    overrides = values(gpt3_answer)
    assert overrides["model.tensor_model_parallel_size"] == "8"
    assert overrides["model.virtual_pipeline_model_parallel_size"] == "6"
    assert overrides["model.pipeline_model_parallel_layout"] == "null"
    assert overrides["model.sequence_parallel"] == "true"
    assert overrides["model.recompute_granularity"] == "selective"
    assert overrides["train.global_batch_size"] == "1536"
    assert overrides["ddp.use_megatron_fsdp"] == "false"
    assert overrides["comm_overlap"] == "null"
    assert "grad_reduce_in_fp32: true" in overrides["mixed_precision"]


def test_releases_differ(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, model=load_model("llama3-70b"))
    llama = replace(gpt3_answer, job=job)
    assert values(gpt3_answer, OLD)["dataset.sequence_length"] == "2048"
    assert values(gpt3_answer, NEW)["dataset.seq_length"] == "2048"
    assert values(gpt3_answer, MAIN)["model.tensor_model_parallel_size"] == "8"
    assert values(llama, NEW)["model.tensor_model_parallel_size"] == "8"
    assert values(llama, MAIN)["model.transformer.tensor_model_parallel_size"] == "8"
    assert values(llama, MAIN)["model.seq_length"] == "2048"


def test_activations_on_the_host_are_a_share_of_modules(gpt3_answer: Answer) -> None:
    half = replace(gpt3_answer, plan=Plan(dp=1024, activation_offload=50))
    overrides = values(half)
    assert overrides["model.fine_grained_activation_offloading"] == "true"
    assert overrides["model.offload_modules"] == "[core_attn, attn_proj]"
    assert overrides["model.activation_offload_fraction"] == "0.5"
    with pytest.raises(InputError, match="50% of activations on the host"):
        values(half, OLD)
    assert "model.activation_offload_fraction" not in values(
        replace(half, plan=Plan(dp=1024, activation_offload=100)), OLD
    )


def test_modules_to_recompute_are_a_list(gpt3_answer: Answer) -> None:
    overrides = values(replace(gpt3_answer, plan=Plan(dp=1024, recompute="layernorm+mlp")))
    assert overrides["model.recompute_modules"] == "[layernorm, mlp]"
    assert overrides["model.recompute_granularity"] == "selective"


def test_an_uneven_middle_becomes_a_quoted_layout(gpt3_answer: Answer) -> None:
    answer = replace(gpt3_answer, plan=Plan(pp=4, dp=256, layers_per_stage=(24, 23, 25, 24)))
    assert values(answer)["model.pipeline_model_parallel_layout"] == '"Et*24|t*23|t*25|t*24L"'


def test_experts_gradients_and_formats(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, model=load_model("mixtral-8x22b"), stack=load_stack("megatron-bridge-2025"))
    moe = Plan(tp=2, ep=8, dp=512, dispatcher="deepep", sequence_parallel=True, shard=64, recompute="moe_act")
    found = values(replace(gpt3_answer, job=replace(job, dtype="fp8"), plan=moe, knobs=Knobs(offload=0.25)))
    assert found["model.moe_token_dispatcher_type"] == "flex"
    assert found["model.moe_flex_dispatcher_backend"] == "deepep"
    assert "grad_reduce_in_fp32: false" in found["mixed_precision"]
    assert "fp8: hybrid, fp8_recipe: tensorwise" in found["mixed_precision"]
    assert found["ddp.num_distributed_optimizer_instances"] == "8"
    assert found["optimizer.optimizer_offload_fraction"] == "0.25"
    assert not any("op_fuser" in key for key in found)
    fused = replace(job, stack=load_stack("megatron-bridge"), cluster=load_cluster("gb200-nvl72"), dtype="fp8")
    found = values(replace(gpt3_answer, job=fused, plan=replace(moe, dispatcher="hybridep")))
    assert "fp8_recipe: mxfp8" in found["mixed_precision"]
    assert found["model.use_transformer_engine_op_fuser"] == found["model.moe_permute_fusion_into_hybridep"] == "true"
    assert found["model.moe_mlp_glu_interleave_size"] == "32"
    unfused = replace(job, stack=load_stack("megatron-2021"))
    with pytest.raises(InputError, match="attention"):
        values(replace(gpt3_answer, job=unfused))


def test_an_exchange_beside_another_micro_batch_is_asked_for(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, model=load_model("mixtral-8x22b"))
    for on in (True, False):
        found = values(replace(gpt3_answer, job=job, plan=Plan(ep=8, dp=1024, overlap_exchange=on)))
        keys = ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
        assert {found[f"model.{key}"] for key in keys} == {str(on).lower()}
        assert ("model.moe_shared_expert_overlap" in found, "ddp.delay_wgrad_compute" in found) == (on, on)
    assert not any("overlap_moe" in key for key in values(gpt3_answer))


@pytest.mark.parametrize("release", BRIDGE_RELEASES)
@pytest.mark.parametrize("seed", range(cases(3, sample=2)))
def test_overrides_are_keys_of_the_release_and_read_back_cost_the_same(seed: int, release: str, tmp_path: Path) -> None:
    name, read = f"megatron-bridge-{release}.overrides", 0
    for answer in answers(seed):
        found = exported(answer)
        if name in found.refused:
            assert "it lacks" in found.refused[name]
            continue
        read += 1
        write_exports(answer, tmp_path / str(read))
        compare(answer, tmp_path / str(read) / name, release)
    assert read >= LEAST


@cache
def answers(seed: int) -> tuple[Answer, ...]:
    """The same answers for every release."""
    random, found = Random(seed), list[Answer]()
    while len(found) < ANSWERS:
        answer = plan(
            drawn(random), top=0, trials=random.choice((0, 8)), priced_risk=False, explained=False, read_twice=False
        )
        found += [risked(answer)] if answer.plan else []
    return tuple(found)


def drawn(random: Random) -> Job:
    job = replace(random_job(random), stack=aimed(load_stack(random.choice(STACKS)), "megatron-bridge"))
    if job.cluster.device.vendor not in ("NVIDIA", "AMD"):
        return drawn(random)
    limits: dict[str, object] = random.choice(({}, {}, {"hbm": 24e9}, {"fixed": {"recompute": "full"}}))
    return job.with_limits(**limits)


def compare(answer: Answer, path: Path, release: str) -> None:
    """Every key is one of the release; the plan and knobs in them cost what was priced."""
    job, problems = answer.job, list[str]()
    assert answer.plan is not None
    keys = {line.partition("=")[0] for line in path.read_text().splitlines() if not line.startswith("#")}
    assert keys <= argument_names("megatron-bridge", release)
    launch = read_launch(read_files([str(path)]), gpus=job.gpus, model=job.model.name).launch
    found = plan_of(launch, dict(launch.settings), job.gpus, None, problems)
    said = launch.settings
    assert not problems
    assert (said["dtype"], said["seq_len"], said["global_batch"]) == (job.dtype, job.seq_len, job.global_batch)
    assert said.get("grad_bytes", 4) == job.stack.features.grad_bytes or job.dtype == "fp16"
    blocks = said.get("blocks", 0)
    share = blocks / job.cluster.device.sms if blocks else answer.knobs.comm_sm_share
    knobs = Knobs(bucket=said["bucket"], offload=said.get("offload", 0.0), comm_sm_share=share)
    before, after = price(job, Plans.of([answer.plan]), answer.knobs), price(job, Plans.of([found]), knobs)
    assert float(after.step_time[0]) == float(before.step_time[0])
    assert float(after.reserved[0]) == float(before.reserved[0])


def tuned(train: str, model: str = "llama3-8b", base: str = "", lengths: str = "180:70") -> Answer:
    job = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=aimed(load_stack("megatron-bridge"), "megatron-bridge"),
        gpus=8,
        seq_len=4096,
        global_batch=32,
        train=train,
        base=base,
        lengths=lengths,
        packing="on" if lengths else "",
    )
    return plan(job, top=0, trials=0, priced_risk=False, explained=False, read_twice=False)


@pytest.mark.parametrize(
    ("train", "model", "modules"),
    [
        ("lora:16:q,k,v", "llama3-8b", "[linear_qkv]"),
        ("lora:8", "qwen3-30b-a3b", "[linear_qkv, linear_proj, linear_fc1, linear_fc2]"),
        ("lora:32:gate,up,down", "llama3-8b", "[linear_fc1, linear_fc2]"),
        ("full", "llama3-8b", ""),
    ],
)
def test_what_is_tuned_is_read_back_and_costs_the_same(train: str, model: str, modules: str, tmp_path: Path) -> None:
    answer = tuned(train, model)
    assert answer.plan is not None
    text = bridge_overrides(answer, NEW)
    assert values(answer).get("peft.target_modules", "") == modules
    assert f"--mode {'lora' if modules else 'sft'} --recipe" in text
    assert ("peft.share_expert_adapters=false" in text) == (model == "qwen3-30b-a3b")
    path = tmp_path / "megatron-bridge-0.6.0.overrides"
    path.write_text(text)
    launch = read_launch(read_files([str(path)]), gpus=8, model=model).launch
    said = replace(answer.job, train=launch.settings.get("train", "full"))
    assert launch.settings["packing"] is True
    assert said.method == answer.job.method
    found, problems = plan_of(launch, dict(launch.settings), 8, None, list[str]()), list[str]()
    assert not problems
    before, after = (price(job, Plans.of([each])) for job, each in ((answer.job, answer.plan), (said, found)))
    assert float(after.step_time[0]) == float(before.step_time[0])


@pytest.mark.parametrize(
    ("answer", "release", "lacks"),
    [
        (("lora:8:q,v",), NEW, "adapters of some matrices of a module that holds several"),
        (("lora:8", "deepseek-v2-lite"), NEW, "adapters of latent attention or a recurrence"),
        (("lora:8", "llama3-8b", "fp8"), NEW, "weights in fp8 under adapters"),
        (("lora:8", "qwen3-30b-a3b", "", ""), OLD, "an adapter for each expert"),
        (("lora:8",), OLD, "packed documents as an override"),
    ],
)
def test_adapters_that_a_release_has_no_words_for_are_refused(
    answer: tuple[str, ...], release: str, lacks: str
) -> None:
    with pytest.raises(InputError, match=lacks):
        bridge_overrides(tuned(*answer), release)


def test_the_oldest_release_is_told_of_adapters_by_an_option() -> None:
    assert "--mode finetune --peft_scheme lora --recipe" in bridge_overrides(tuned("lora:8", lengths=""), OLD)


def test_deepep_is_refused_where_bridge_refuses_it() -> None:
    plan = Plan(dp=64, ep=64, num_microbatches=16, dispatcher="deepep")
    for name, lacks in (("dgx-h100", False), ("dgx-b200", False), ("gb200-nvl72", True)):
        job = Job(
            model=load_model("deepseek-v2-lite"),
            cluster=load_cluster(name),
            stack=load_stack("megatron-core"),
            gpus=64,
            seq_len=4096,
            global_batch=1024,
        )
        assert any("DeepEP on gb200" in what for what in lacking_of(job, plan, "main")) == lacks
        assert not any("DeepEP" in what for what in lacking_of(job, replace(plan, dispatcher="hybridep"), "main"))
