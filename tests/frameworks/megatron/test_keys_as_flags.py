"""What keys of NeMo, Megatron-Bridge, Primus, ms-swift and FlagScale change beside a small config: as Megatron's flags.

Each row: the program, the keys, the settings that are otherwise (None: gone), what is said to state settings, and what
is noted besides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.every import CONFIGS
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron import config as megatron
from optimizer.job.plan import Plan
from tests.search.jobs import small_job

Keys = Mapping[str, Any]
Row = tuple[str, Keys, Keys, Mapping[str, str], list[str]]
BASE: Keys = {
    **{"model.tensor_model_parallel_size": 2, "model.num_layers": 8, "model.hidden_size": 1024},
    **{"model.num_attention_heads": 16, "model.seq_length": 2048, "model.max_position_embeddings": 2048},
    **{"train.micro_batch_size": 1, "train.global_batch_size": 64},
}
OF_EACH: Mapping[str, Keys] = {"NeMo": {"trainer.devices": 8, "model.megatron_amp_O2": True}}
# What each takes where no key says otherwise, beside Megatron's own.
USUAL: Mapping[str, Keys] = {
    "NeMo": {"zero_stage": 0, "sequence_parallel": False, "recompute": "none", "reduce_overlap": False},
    "Megatron-Bridge": {"zero_stage": 1, "sequence_parallel": False, "reduce_overlap": True, "gather_overlap": True},
    "Primus": {"zero_stage": 1, "sequence_parallel": True, "dtype": "bf16", "reduce_overlap": False},
    "ms-swift": {"zero_stage": 1, "recompute": "selective", "dtype": "bf16", "etp": 1, "packing": False},
    "FlagScale": {"zero_stage": 0, "sequence_parallel": False, "recompute": "none"},
}
# Of a model that a name tells, Megatron's defaults say nothing.
UNTOLD: Keys = dict.fromkeys(
    ("attention_bias", "norm", "position", "mlp_bias", "tied_embeddings", "attention_out_bias", "activation")
)
SPREAD: Keys = {"num_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 2}
EXPERTS: Keys = {
    **{"model.num_moe_experts": 8, "model.moe_router_topk": 2, "model.expert_model_parallel_size": 2},
}
ROWS: list[Row] = [
    ("NeMo", {"model.megatron_amp_O2": None}, {}, {}, ["megatron_amp_O2 false, as NeMo 1 has it unless told"]),
    ("NeMo", {"trainer.precision": "bf16-mixed"}, {}, {"dtype": "--bf16"}, []),
    ("NeMo", {"trainer.precision": "16-mixed"}, {"grad_bytes": 2, "dtype": "fp16", "bucket": 80000000.0},
     {"grad_bytes": "--fp16", "dtype": "--fp16"}, []),
    ("NeMo", {"trainer.precision": "32"}, {}, {}, []),
    ("NeMo", {"model.fp8": True}, {"dtype": "fp8"}, {"dtype": "--fp8-format"}, []),
    ("NeMo", {"model.optim.name": "distributed_fused_adam"}, {"zero_stage": 1, "reduce_overlap": True},
      {"reduce_overlap": "--overlap-grad-reduce", "zero_stage": "model.optim.name"},
     []),
    ("NeMo", {"model.optim.name": "fused_adam"}, {}, {}, []),
    ("NeMo", {"model.activation": "swiglu"}, {"gated_mlp": True, "activation": "swiglu"}, {"gated_mlp": "--swiglu"},
     []),
    ("NeMo", {"model.activation": "fast-swiglu"}, {"gated_mlp": True, "activation": "swiglu"},
     {"gated_mlp": "--swiglu"}, []),
    ("NeMo", {"model.activation": "gelu"}, {}, {}, []),
    ("NeMo", {"model.tokenizer.type": "GPT2BPETokenizer"}, {"vocab": 50257}, {"vocab": "--tokenizer-type"}, []),
    ("NeMo", {"model.tokenizer.type": "meta-llama/Llama-2-7b-hf"}, {"vocab": 32000}, {"vocab": "--tokenizer-model"},
     []),
    ("NeMo", {"model.grad_sync_dtype": "bf16"}, {"grad_bytes": 2, "bucket": 80000000.0},
     {"grad_bytes": "--grad-reduce-in-bf16"}, []),
    ("NeMo", {"model.seq_length": None, "model.data.seq_length": 1024}, {"seq_len": 1024}, {}, []),
    ("NeMo", {"exp_manager.max_steps": 3}, {"tokens": 393216}, {"tokens": "exp_manager.max_steps"}, []),
    ("NeMo", {"model.bias": False}, {"mlp_bias": False, "attention_bias": False, "attention_out_bias": False},
     {"mlp_bias": "model.bias"}, []),
    ("NeMo", {"model.normalization": "rmsnorm"}, {"norm": "rms"}, {"norm": "model.normalization"}, []),
    ("NeMo", {"model.optim.grad_sync_dtype": "fp32"}, {}, {}, []),
    ("NeMo", {"model.peft.peft_scheme": "none", "model.peft.lora.x": 3}, {}, {}, []),
    ("NeMo", {"model.virtual_pipeline_model_parallel_size": 2, "model.pipeline_model_parallel_size": 2},
     {"pp": 2, "vpp": 2, "dp": 4, "num_microbatches": 16, "schedule": "interleaved", "layers_per_stage": (4, 4)},
     {"pp": "model.pipeline_model_parallel_size", "vpp": "model.virtual_pipeline_model_parallel_size"}, []),
    ("NeMo", {"model.sequence_parallel": True}, {"sequence_parallel": True},
     {"sequence_parallel": "model.sequence_parallel"}, []),
    ("NeMo", {"model.share_embeddings_and_output_weights": False}, {"tied_embeddings": False},
     {"tied_embeddings": "model.share_embeddings_and_output_weights"}, []),
    ("NeMo", {"model.overlap_p2p_comm": True}, {}, {}, []),
    ("NeMo", {"model.sink_sliding_window": 7}, {}, {}, ["sink_sliding_window 7"]),
    ("Megatron-Bridge", {"recipe": "llama3_8b_pretrain_config"}, {"model": "llama3-8b", **UNTOLD},
     {"model": "recipe"}, []),
    ("Megatron-Bridge", {"recipe": "llama3_8b_sft_config"},
     {"model": "llama3-8b", "reduce_overlap": False, "gather_overlap": False, **UNTOLD}, {"model": "recipe"},
     ["use_distributed_optimizer as in Megatron-Bridge's fine-tuning recipes"]),
    ("Megatron-Bridge", {"recipe": "llama3_8b_peft_config", "peft_scheme": "lora"},
     {"train": "lora:32", "model": "llama3-8b", "reduce_overlap": False, "gather_overlap": False, **UNTOLD},
     {"train": "peft_scheme", "model": "recipe"},
     ["adapters of rank 32, which the recipe may have otherwise",
      "use_distributed_optimizer as in Megatron-Bridge's fine-tuning recipes"]),
    ("Megatron-Bridge", {"recipe": "llama3_8b_peft_config", "peft_scheme": "lora", "peft.dim": 16},
     {"train": "lora:16", "model": "llama3-8b", "reduce_overlap": False, "gather_overlap": False, **UNTOLD},
     {"train": "peft.dim", "model": "recipe"},
     ["use_distributed_optimizer as in Megatron-Bridge's fine-tuning recipes"]),
    ("Megatron-Bridge", {"mode": "lora"}, {"train": "lora:32", "reduce_overlap": False, "gather_overlap": False},
     {"train": "mode"},
     ["adapters of rank 32, which the recipe may have otherwise",
      "use_distributed_optimizer as in Megatron-Bridge's fine-tuning recipes"]),
    ("Megatron-Bridge", {"ddp.use_distributed_optimizer": False}, {},
     {"zero_stage": "ddp.use_distributed_optimizer"},
     ["ddp.use_distributed_optimizer false is overruled by the other of ddp.use_distributed_optimizer and "
      "optimizer.use_distributed_optimizer, which recipes have on"]),
    ("Megatron-Bridge", {"ddp.use_distributed_optimizer": False, "optimizer.use_distributed_optimizer": False},
     {"zero_stage": 0}, {},
     ["overlap_grad_reduce, overlap_param_gather as in Megatron-Bridge's pretraining recipes"]),
    ("Megatron-Bridge", {"ddp.overlap_grad_reduce": False}, {"reduce_overlap": False, "gather_overlap": False}, {},
     ["use_distributed_optimizer as in Megatron-Bridge's pretraining recipes"]),
    ("Megatron-Bridge", {"ddp.overlap_grad_reduce": True}, {}, {"reduce_overlap": "ddp.overlap_grad_reduce"},
     ["overlap_param_gather, use_distributed_optimizer as in Megatron-Bridge's pretraining recipes"]),
    ("Megatron-Bridge", {"model.pipeline_model_parallel_size": 1, "model.context_parallel_size": 1}, {},
     {"cp": "model.context_parallel_size", "pp": "model.pipeline_model_parallel_size"}, []),
    ("Megatron-Bridge", {**EXPERTS}, {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 2},
     {"experts": "model.num_moe_experts", "top_k": "model.moe_router_topk", "ep": "model.expert_model_parallel_size",
      "etp": "--expert-tensor-parallel-size"},
     ["expert_tensor_parallel_size 1, overlap_grad_reduce, overlap_param_gather, use_distributed_optimizer as in "
      "Megatron-Bridge's pretraining recipes",
      "alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"]),
    ("Megatron-Bridge", {**EXPERTS, "model.expert_tensor_parallel_size": 2},
     {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 2, "etp": 2},
     {"experts": "model.num_moe_experts", "top_k": "model.moe_router_topk", "ep": "model.expert_model_parallel_size",
      "etp": "model.expert_tensor_parallel_size"},
     ["alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"]),
    ("Megatron-Bridge", {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"},
     {"fp8_recipe": "tensorwise", "dtype": "fp8"}, {"fp8_recipe": "--fp8-recipe", "dtype": "--fp8-format"},
      ["mixed_precision bf16_with_fp8_current_scaling_mixed: its first and last layers are in bf16"]),
    ("Megatron-Bridge", {"mixed_precision": "bf16_with_mxfp8_mixed"}, {"fp8_recipe": "mxfp8", "dtype": "fp8"},
     {"fp8_recipe": "--fp8-recipe", "dtype": "--fp8-format"}, []),
    ("Megatron-Bridge", {"mixed_precision": "bf16_with_fp8_subchannel_scaling_mixed"},
     {"fp8_recipe": "blockwise", "dtype": "fp8"}, {"fp8_recipe": "--fp8-recipe", "dtype": "--fp8-format"}, []),
    ("Megatron-Bridge", {"mixed_precision": "bf16_with_nvfp4_mixed"}, {"dtype": "fp4"}, {"dtype": "--fp4-format"},
     []),
    ("Megatron-Bridge", {"mixed_precision": "fp16_mixed"}, {"grad_bytes": 2, "dtype": "fp16", "bucket": 80000000.0},
     {"grad_bytes": "--fp16", "dtype": "--fp16"}, []),
    ("Megatron-Bridge", {"train.train_iters": 5}, {"tokens": 655360}, {"tokens": "train.train_iters"}, []),
    ("Megatron-Bridge", {"model.mtp_num_layers": 0}, {"mtp_layers": 0}, {"mtp_layers": "model.mtp_num_layers"}, []),
    ("Megatron-Bridge", {"model.teacher.x": 1}, {}, {},
     ["model.teacher.x: a model that learns from another is not priced"]),
    ("Megatron-Bridge", {"model.multi_latent_attention": False}, {}, {}, []),
    ("Primus", {"bf16": True}, {}, {"dtype": "bf16"},
     ["use_distributed_optimizer, sequence_parallel as Primus' own pre_trainer.yaml and language_model.yaml have "
      "it"]),
    ("Primus", {"fp16": True}, {"grad_bytes": 2, "dtype": "fp16", "bucket": 80000000.0},
     {"grad_bytes": "fp16", "dtype": "fp16"},
     ["use_distributed_optimizer, sequence_parallel as Primus' own pre_trainer.yaml and language_model.yaml have "
      "it"]),
    ("Primus", {"bf16": None, "fp16": True}, {"grad_bytes": 2, "dtype": "fp16", "bucket": 80000000.0},
     {"grad_bytes": "fp16", "dtype": "fp16"},
     ["use_distributed_optimizer, sequence_parallel as Primus' own pre_trainer.yaml and language_model.yaml have "
      "it"]),
    ("Primus", {"sequence_parallel": False}, {"sequence_parallel": False}, {},
     ["use_distributed_optimizer, bf16 as Primus' own pre_trainer.yaml and language_model.yaml have it"]),
    ("Primus", {"enable_primus_turbo": True, "use_turbo_deepep": True, **SPREAD},
     {"experts": 8, "top_k": 2, "dispatcher": "deepep", "ep": 2, "etp": 2},
     {"experts": "num_experts", "top_k": "moe_router_topk", "dispatcher": "--moe-flex-dispatcher-backend",
      "ep": "expert_model_parallel_size"}, []),
    ("Primus", {"use_turbo_deepep": True, **SPREAD},
     {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 2, "etp": 2},
     {"experts": "num_experts", "top_k": "moe_router_topk", "ep": "expert_model_parallel_size"},
     ["alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"]),
    ("Primus", {"enable_primus_turbo": True, "turbo_sync_free_moe_stage": 2, **SPREAD},
     {"experts": 8, "top_k": 2, "dispatcher": "deepep", "ep": 2, "etp": 2},
     {"experts": "num_experts", "top_k": "moe_router_topk", "dispatcher": "--moe-flex-dispatcher-backend",
      "ep": "expert_model_parallel_size"}, []),
    ("Primus", {"enable_primus_turbo": True, "turbo_sync_free_moe_stage": 3, **SPREAD},
     {"experts": 8, "top_k": 2, "dispatcher": "deepep", "ep": 2, "etp": 2},
     {"experts": "num_experts", "top_k": "moe_router_topk", "dispatcher": "--moe-flex-dispatcher-backend",
      "ep": "expert_model_parallel_size"}, []),
    ("Primus", {"enable_primus_turbo": True, "turbo_sync_free_moe_stage": 1, **SPREAD},
     {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 2, "etp": 2},
     {"experts": "num_experts", "top_k": "moe_router_topk", "ep": "expert_model_parallel_size"},
     ["alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"]),
    ("ms-swift", {"use_distributed_optimizer": False}, {"zero_stage": 0}, {}, []),
    ("ms-swift", {"recompute_granularity": "none"}, {"recompute": "none"}, {}, []),
    ("ms-swift", {"recompute_granularity": "full"}, {"recompute": "full"}, {"recompute": "recompute_granularity"},
     []),
    ("ms-swift", {"expert_tensor_parallel_size": 2}, {}, {"etp": "expert_tensor_parallel_size"}, []),
    ("ms-swift", {"packing": True}, {"packing": True}, {"packing": "packing"}, []),
    ("ms-swift", {"swift": "megatron sft", "tuner_type": "lora", "lora_rank": 8},
     {"train": "lora:8", "adapter_dropout": True},
     {"train": "tuner_type"}, ["lora_dropout 0.05, its program's default: no key says it"]),
    ("FlagScale", {"num_query_groups": 4}, {}, {}, []),
    ("FlagScale", {"num_query_groups": 4, "group_query_attention": True}, {"kv_heads": 4},
     {"kv_heads": "num_query_groups"}, []),
]  # fmt: skip


def launch_of(program: str, keys: Keys | None = None) -> Launch:
    values = {**BASE, **OF_EACH.get(program, {}), **(keys or {})}
    return megatron.read(program, (), 16, "", values).launch


def notes(launch: Launch) -> list[str]:
    return [*launch.problems, *launch.unpriced, *launch.unsearched, *launch.assumed]


@pytest.mark.parametrize("row", ROWS)
def test_keys_beside_a_small_config(row: Row) -> None:
    program, keys, said, written, noted = row
    before, after = launch_of(program), launch_of(program, keys)
    expected = {**before.settings, **said}
    assert {key: after.settings.get(key) for key in {**expected, **after.settings}} == expected
    assert {key: path for key, path in after.written.items() if before.written.get(key) != path} == written
    assert [each for each in notes(after) if each not in before.assumed] == noted
    assert not {*written.values()} & {*after.ignored}


@pytest.mark.parametrize("program", USUAL)
def test_each_program_has_its_own_defaults(program: str) -> None:
    settings = launch_of(program).settings
    sizes = {"gpus": 16, "tp": 2, "dp": 8, "layers": 8, "micro_batch": 1, "global_batch": 64, "seq_len": 2048}
    assert {name: settings[name] for name in {**sizes, **USUAL[program]}} == {**sizes, **USUAL[program]}


T, P = "training.", "parallelism."
FORMATS: list[tuple[Keys, str]] = [
    ({"parallelism.dp": 8, "tokens.sequence_length": 2048}, "nanotron YAML"),
    ({"parallelism.dp": 8}, ""),
    ({"tokens.sequence_length": 2048}, ""),
    ({"distributed.tp_size": 8, "training.seq_length": 2048}, "picotron JSON"),
    ({"distributed.tp_size": 8}, ""),
    ({"global_train_batch_size": 8}, "llm-foundry YAML"),
    ({"device_train_microbatch_size": 8}, "llm-foundry YAML"),
    ({"pipe-parallel-size": 1}, "GPT-NeoX YAML"),
    ({"model_parallel_size": 1}, "GPT-NeoX YAML"),
    ({"litgpt": "pretrain"}, "litgpt YAML"),
    ({"train.micro_batch_size": 8, "train.max_seq_length": 8}, "litgpt YAML"),
    ({"train.max_seq_length": 8}, ""),
    ({"model._component_": "torchtune.models.llama3.llama3_8b"}, "torchtune YAML"),
    ({"model._component_": "mine.models.llama3"}, ""),
    ({"optimizer._component_": "torchtune.x"}, ""),
    ({"model.flavor": "8B"}, "torchtitan TOML"),
    ({f"{T}local_batch_size": 8}, "torchtitan TOML"),
    ({f"{T}batch_size": 8, "job.x": 1}, "torchtitan TOML"),
    ({f"{T}seq_len": 8, f"{P}x": 1}, "torchtitan TOML"),
    ({f"{T}seq_len": 8}, ""),
    ({"per_device_batch_size": 8}, "MaxText YAML"),
    ({"a.base_emb_dim": 8}, "MaxText YAML"),
    ({"max_target_length": 8, "per_device_train_batch_size": 8}, "DeepSpeed JSON"),
    ({"zero_optimization.stage": 1}, "DeepSpeed JSON"),
    ({"micro_batch_size": 1}, ""),
    ({"base_model": "x"}, "DeepSpeed JSON"),
    ({"base_model": None}, ""),
    ({"actor_rollout_ref.actor.x": 1}, "verl"),
    ({"modules.pre_trainer.overrides.x": 1}, "Primus YAML"),
    ({"modules.pre_trainer.framework": "megatron"}, "Primus YAML"),
    ({"modules.pre_trainer.framework": "torchtitan", "modules.pre_trainer.overrides.x": 1}, ""),
    ({"modules.post_trainer.framework": "megatron"}, "Primus YAML"),
    ({"swift": "megatron sft"}, "ms-swift commands"),
    ({"trainer.devices": 8, "model.x": 1}, "NeMo YAML"),
    ({"trainer.x": 8, "model.micro_batch_size": 1}, "NeMo YAML"),
    ({"trainer.x": 8, "model.x": 1}, ""),
    ({"trainer.devices": 8}, ""),
    ({"system.precision.bf16": True, "model.x": 1}, "FlagScale YAML"),
    ({"system.precision.bf16": True}, ""),
    ({"system.x": True, "model.x": 1}, ""),
    ({"recipe": "llama3_8b_pretrain_config"}, "Megatron-Bridge YAML"),
    ({"recipe": "llama3_8b"}, ""),
    ({"model.tensor_model_parallel_size": 1}, "Megatron-Bridge YAML"),
    ({"tensor_model_parallel_size": 1, "per_device_train_batch_size": 1}, "DeepSpeed JSON"),
    ({"train.x": 1, "optimizer.x": 1}, "Megatron-Bridge YAML"),
    ({"model.x": 1, "train.x": 1, "ddp.x": 1}, "Megatron-Bridge YAML"),
    ({"model.x": 1, "train.x": 1}, ""),
]


@pytest.mark.parametrize(("keys", "name"), FORMATS)
def test_a_config_is_known_by_its_keys(keys: Keys, name: str) -> None:
    # verl's files have no name of their own.
    found = next((next(iter(each.files), "verl") for each in CONFIGS if each.recognised(keys)), "")
    assert found == name


RUNS = Plan(tp=2, dp=8, num_microbatches=8, zero_stage=1)
STAGED = Plan(tp=2, pp=2, dp=4, num_microbatches=16, zero_stage=1, layers_per_stage=(4, 4))
VIRTUAL = replace(STAGED, vpp=2, schedule="interleaved")
M, STATES = "model.", "use_distributed_optimizer"
FULL = {f"{M}recompute_granularity": "full"}
# Programs, what the config says besides, the plan that it runs, the other one, and keys with values before and after.
CHANGES: list[tuple[str, Keys, Plan, Plan, Mapping[str, tuple[str | None, str]]]] = [
    *(
        (program, {}, RUNS, replace(RUNS, tp=4, dp=4, num_microbatches=16),
         {f"{M}tensor_model_parallel_size": ("2", "4")})
        for program in USUAL
    ),
    *(
        (program, {}, RUNS, replace(RUNS, sequence_parallel=True), {f"{M}sequence_parallel": (None, "true")})
        for program in USUAL
        if program != "Primus"  # which has it by itself
    ),
    *(
        (program, {f"{M}sequence_parallel": True}, replace(RUNS, sequence_parallel=True), RUNS,
         {f"{M}sequence_parallel": ("true", "false")})
        for program in USUAL
    ),
    *(
        (program, FULL, replace(RUNS, recompute="full"), RUNS,
         {f"{M}recompute_granularity": ("full", "none" if program == "ms-swift" else "null")})
        for program in USUAL
    ),
    *(
        (program, {}, RUNS, replace(RUNS, recompute="full"),
         {
             f"{M}recompute_granularity": (None, "full"),
             f"{M}recompute_method": (None, "uniform"),
             f"{M}recompute_num_layers": (None, "1"),
         })
        for program in USUAL
        if program != "NeMo"
    ),
    ("NeMo", {}, RUNS, replace(RUNS, recompute="full"),
     {
         f"{M}activations_checkpoint_granularity": (None, "full"),
         f"{M}activations_checkpoint_method": (None, "uniform"),
         f"{M}activations_checkpoint_num_layers": (None, "1"),
     }),
    ("Primus", {}, RUNS, replace(RUNS, zero_stage=0), {f"{M}{STATES}": (None, "false")}),
    ("ms-swift", {}, RUNS, replace(RUNS, zero_stage=0), {f"{M}{STATES}": (None, "false")}),
    ("Megatron-Bridge", {}, RUNS, replace(RUNS, zero_stage=0),
     {
         "ddp.overlap_param_gather": (None, "false"),
         f"ddp.{STATES}": (None, "false"),
         f"optimizer.{STATES}": (None, "false"),
     }),
    ("Megatron-Bridge", {f"ddp.{STATES}": True, f"optimizer.{STATES}": False}, RUNS, replace(RUNS, zero_stage=0),
     {"ddp.overlap_param_gather": (None, "false"), f"ddp.{STATES}": ("true", "false")}),
    ("ms-swift", {}, RUNS, replace(RUNS, recompute="mlp+layernorm"),
     {f"{M}recompute_modules": (None, "mlp layernorm")}),
    ("Primus", {}, RUNS, replace(RUNS, recompute="mlp+layernorm"),
     {f"{M}recompute_granularity": (None, "selective"), f"{M}recompute_modules": (None, '["mlp", "layernorm"]')}),
    *(
        (program, {f"{M}pipeline_model_parallel_size": 2}, STAGED, VIRTUAL,
         {f"{M}virtual_pipeline_model_parallel_size": (None, "2")})
        for program in ("NeMo", "Megatron-Bridge")
    ),
    *(
        (program, {f"{M}pipeline_model_parallel_size": 2}, STAGED, VIRTUAL,
         {f"{M}num_layers_per_virtual_pipeline_stage": (None, "2")})
        for program in ("Primus", "ms-swift", "FlagScale")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("program", "keys", "before", "after", "changed"), CHANGES)
def test_keys_of_another_plan(
    program: str, keys: Keys, before: Plan, after: Plan, changed: Mapping[str, tuple[str | None, str]]
) -> None:
    values = {**BASE, **OF_EACH.get(program, {}), **keys}
    text = "".join(f"{path}: {json.dumps(value)}\n" for path, value in values.items())
    source = megatron.read(program, (ConfigFile("a.yaml", text, "yaml"),), 16)
    small = small_job(16)
    job = replace(small, model=replace(small.model, layers=8), global_batch=64, seq_len=2048)
    changes = source.changes(job, before, after, {})
    assert {change.flag: (change.before, change.after) for change in changes} == changed
