"""All that the files of each program say for one plan, by hand: every key, and those that change with the method."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from optimizer.frameworks.deepspeed.defaults import KERNELS
from optimizer.frameworks.export_folder import exported
from optimizer.job.plan import Plan
from tests.frameworks.tuning.test_exports import YAMLS, with_plan

# LoRA of all modules on eight GPUs that share weights, all layers recomputed; two samples of 2,048 tokens at once.
PLAN = Plan(dp=8, micro_batch=2, num_microbatches=8, zero_stage=3, recompute="full")
FSDP = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_reshard_after_forward": True,
    "fsdp_activation_checkpointing": True,
    "fsdp_offload_params": False,
}
ACCELERATE: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "main_training_function": "main",
    "mixed_precision": "bf16",
    "num_machines": 1,
    "num_processes": 8,
    "rdzv_backend": "static",
}
SYNCED = {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "trl": {
        "model_name_or_path": "meta-llama/Llama-3.1-8B",
        "dtype": "bfloat16",
        "attn_implementation": "flash_attention_2",
        "dataset_name": "YOUR_DATASET",
        "max_length": 2048,
        "packing": False,
        "output_dir": "output",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "bf16": True,
        "optim": "adamw_torch",
        **SYNCED,
        "gradient_checkpointing": False,
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "use_peft": True,
        "lora_target_modules": "all-linear",
        "use_dora": False,
    },
    "axolotl": {
        "base_model": "meta-llama/Llama-3.1-8B",
        "datasets": [{"path": "YOUR_DATASET", "type": "alpaca"}],
        "output_dir": "output",
        "sequence_len": 2048,
        "sample_packing": False,
        "pad_to_sequence_len": False,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "gradient_checkpointing": False,
        "optimizer": "adamw_torch",
        "learning_rate": 0.0002,
        "bf16": True,
        "attn_implementation": "flash_attention_2",
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "adapter": "lora",
        "lora_target_linear": True,
        **dict.fromkeys(KERNELS, True),
        **SYNCED,
        "fsdp_version": 2,
        "fsdp_config": {
            "reshard_after_forward": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "activation_checkpointing": True,
            "offload_params": False,
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    },
    "llama-factory": {
        "model_name_or_path": "meta-llama/Llama-3.1-8B",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "dataset": "YOUR_DATASET",
        "template": "default",
        "cutoff_len": 2048,
        "packing": False,
        "neat_packing": False,
        "flash_attn": "fa2",
        "output_dir": "output",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "bf16": True,
        "optim": "adamw_torch",
        **SYNCED,
        "disable_gradient_checkpointing": True,
        "lora_rank": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "lora_target": "all",
        "use_dora": False,
    },
    "ms-swift": {
        "ENV": {"NPROC_PER_NODE": 8},
        "model": "meta-llama/Llama-3.1-8B",
        "use_hf": True,
        "torch_dtype": "bfloat16",
        "attn_impl": "flash_attn",
        "tuner_type": "lora",
        "dataset": ["YOUR_DATASET"],
        "max_length": 2048,
        "packing": False,
        "output_dir": "output",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "bf16": True,
        "optim": "adamw_torch",
        **SYNCED,
        "gradient_checkpointing": False,
        "lora_rank": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "target_modules": ["all-linear"],
        "use_dora": False,
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {
            "fsdp_version": 2,
            "reshard_after_forward": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "activation_checkpointing": True,
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    },
}
# By program and --train: keys with another value, or None where they go.
CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "trl",
        "dora:8:attention",
        {
            "lora_r": 8,
            "lora_alpha": 16,
            "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
            "use_dora": True,
        },
    ),
    (
        "trl",
        "qlora:32",
        {
            "lora_r": 32,
            "lora_alpha": 64,
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "use_bnb_nested_quant": True,
            "bnb_4bit_quant_storage": "bfloat16",
        },
    ),
    (
        "trl",
        "full",
        {
            "bf16": False,
            "lora_r": None,
            "lora_alpha": None,
            "lora_dropout": None,
            "use_peft": None,
            "lora_target_modules": None,
            "use_dora": None,
        },
    ),
    (
        "axolotl",
        "dora:8:attention",
        {
            "lora_r": 8,
            "lora_alpha": 16,
            "lora_target_linear": None,
            "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
            "peft_use_dora": True,
            **dict.fromkeys(KERNELS, False),
        },
    ),
    ("axolotl", "qlora:32", {"lora_r": 32, "lora_alpha": 64, "adapter": "qlora", "load_in_4bit": True}),
    (
        "axolotl",
        "full",
        {
            "learning_rate": 2e-05,
            "bf16": "full",
            "lora_r": None,
            "lora_alpha": None,
            "lora_dropout": None,
            "adapter": None,
            "lora_target_linear": None,
            **dict.fromkeys(KERNELS),
        },
    ),
    (
        "llama-factory",
        "dora:8:attention",
        {"lora_rank": 8, "lora_alpha": 16, "lora_target": "q_proj,k_proj,v_proj,o_proj", "use_dora": True},
    ),
    (
        "llama-factory",
        "qlora:32",
        {
            "lora_rank": 32,
            "lora_alpha": 64,
            "quantization_method": "bnb",
            "quantization_bit": 4,
            "quantization_type": "nf4",
            "double_quantization": True,
        },
    ),
    (
        "llama-factory",
        "full",
        {
            "finetuning_type": "full",
            "bf16": False,
            "lora_rank": None,
            "lora_alpha": None,
            "lora_dropout": None,
            "lora_target": None,
            "use_dora": None,
            "pure_bf16": True,
        },
    ),
    (
        "ms-swift",
        "dora:8:attention",
        {
            "lora_rank": 8,
            "lora_alpha": 16,
            "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
            "use_dora": True,
        },
    ),
    (
        "ms-swift",
        "qlora:32",
        {
            "lora_rank": 32,
            "lora_alpha": 64,
            "quant_method": "bnb",
            "quant_bits": 4,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_quant_storage": "bfloat16",
        },
    ),
    (
        "ms-swift",
        "full",
        {
            "tuner_type": "full",
            "bf16": False,
            "lora_rank": None,
            "lora_alpha": None,
            "lora_dropout": None,
            "target_modules": None,
            "use_dora": None,
        },
    ),
]


def documents(target: str, train: str, plan: Plan = PLAN) -> dict[str, dict[str, Any]]:
    texts = exported(with_plan(target, 8, plan, train)).texts
    return {name: YAML(typ="safe").load(text) for name, text in texts.items()}


@pytest.mark.parametrize("target", DOCUMENTS)
def test_a_file_has_these_keys(target: str) -> None:
    found = documents(target, "lora")
    assert found.pop(YAMLS[target]) == DOCUMENTS[target]
    assert found in ({}, {"accelerate.yaml": {**ACCELERATE, "fsdp_config": FSDP}})
    assert bool(found) is (target in ("trl", "llama-factory"))


@pytest.mark.parametrize(("target", "train", "changes"), CHANGES)
def test_another_method_changes_these_keys(target: str, train: str, changes: dict[str, Any]) -> None:
    wanted = {key: value for key, value in {**DOCUMENTS[target], **changes}.items() if value is not None}
    found = documents(target, train)
    assert found[YAMLS[target]] == wanted
    mixed = found.get("accelerate.yaml", ACCELERATE)["mixed_precision"]
    assert mixed == ("no" if train == "full" and "accelerate.yaml" in found else "bf16")


@pytest.mark.parametrize("target", DOCUMENTS)
def test_replicas_that_share_nothing_have_no_fsdp(target: str) -> None:
    found = documents(target, "lora", Plan(dp=8, micro_batch=2, num_microbatches=8, zero_stage=0))
    gone = ("fsdp", "fsdp_config", "fsdp_version", *SYNCED)
    assert found[YAMLS[target]] == {key: value for key, value in DOCUMENTS[target].items() if key not in gone}
    if "accelerate.yaml" in found:
        assert found["accelerate.yaml"] == {**ACCELERATE, "distributed_type": "MULTI_GPU"}
