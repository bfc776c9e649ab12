"""All that torchtune's command and Unsloth's program say for one plan, word by word, and what methods change."""

from __future__ import annotations

import re
from typing import Any

import pytest

from optimizer.frameworks.export_folder import exported
from optimizer.job.plan import Plan
from tests.frameworks.tuning.test_exports import with_plan

SHARED = Plan(dp=8, micro_batch=2, num_microbatches=8, zero_stage=3, recompute="full")
ALONE = Plan(dp=1, micro_batch=2, num_microbatches=8, zero_stage=0)
USUAL = {
    **{"batch_size": "2", "gradient_accumulation_steps": "8", "tokenizer.max_seq_len": "2048"},
    **{"dataset.packed": "False", "dtype": "bf16", "optimizer": "torch.optim.AdamW", "optimizer.fused": "True"},
}
SHARDED = {"enable_activation_checkpointing": "True", "fsdp_reshard_after_forward": "True"}
LORA = {
    "model.lora_attn_modules": "[q_proj,k_proj,v_proj,output_proj]",
    **{"model.apply_lora_to_mlp": "True", "model.lora_rank": "16", "model.lora_alpha": "32", "model.use_dora": "False"},
}
EIGHT = {"model.lora_rank": "8", "model.lora_alpha": "16"}
WHOLE = {"optimizer_in_bwd": "False"}


@pytest.mark.parametrize(
    ("train", "plan", "start", "values"),
    [
        ("lora", SHARED, "--nproc_per_node 8 lora_finetune_distributed --config llama3_1/8B_lora", LORA | SHARDED),
        (
            *("lora", ALONE, "lora_finetune_single_device --config llama3_1/8B_lora_single_device"),
            LORA | {"enable_activation_checkpointing": "False"},
        ),
        ("full", SHARED, "--nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full", WHOLE | SHARDED),
        (
            *("full", Plan(dp=2, micro_batch=2, num_microbatches=8, zero_stage=2)),
            "--nproc_per_node 2 full_finetune_distributed --config llama3_1/8B_full",
            {**WHOLE, "enable_activation_checkpointing": "False", "fsdp_reshard_after_forward": "False"},
        ),
        (
            *("full", ALONE, "full_finetune_single_device --config llama3_1/8B_full_single_device"),
            {**WHOLE, "enable_activation_checkpointing": "False"},
        ),
        (
            *("dora:8:q+v+gate+up+down", SHARED),
            "--nproc_per_node 8 lora_finetune_distributed --config llama3_1/8B_lora",
            {**SHARDED, **LORA, **EIGHT, "model.lora_attn_modules": "[q_proj,v_proj]", "model.use_dora": "True"},
        ),
        (
            *("qlora:8:q+o", SHARED, "--nproc_per_node 8 lora_finetune_distributed --config llama3_1/8B_lora"),
            {
                **{**SHARDED, **LORA, **EIGHT, "model.lora_attn_modules": "[q_proj,output_proj]"},
                **{"model.apply_lora_to_mlp": "False", "model.quantize_base": "True"},
            },
        ),
    ],
)
def test_torchtunes_command(train: str, plan: Plan, start: str, values: dict[str, str]) -> None:
    (text,) = exported(with_plan("torchtune", plan.dp, plan, train)).texts.values()
    comment, first, *lines = text.replace(" \\\n", "\n").splitlines()
    assert comment == f"# torchtune 0.6.1: {plan.summary()}"
    assert first == f"tune run {start}"
    assert dict(line.strip().split("=", 1) for line in lines) == USUAL | values


def test_torchtune_adapts_all_matrices_of_the_mlp_or_none() -> None:
    (why,) = exported(with_plan("torchtune", 8, SHARED, "lora:8:q+gate")).refused.values()
    assert "on all matrices of the MLP or on none, but --train says lora:8:q+gate" in why


LOADING: dict[str, Any] = {
    **{"model_name": "meta-llama/Llama-3.1-8B", "max_seq_length": 2048, "load_in_4bit": False, "load_in_8bit": False},
    **{"load_in_16bit": True, "full_finetuning": False, "use_gradient_checkpointing": False},
}
ADAPTING: dict[str, Any] = {
    "r": 16,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    **{"lora_alpha": 32, "lora_dropout": 0.0, "use_gradient_checkpointing": False},
}
TRAINING: dict[str, Any] = {
    **{"output_dir": "output", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "bf16": True},
    **{"optim": "adamw_torch_fused", "max_length": 2048, "packing": False, "gradient_checkpointing": False},
}


def arguments(call: str, text: str) -> dict[str, Any]:
    """The keywords of a call in a program."""
    match = re.search(rf"{call}\((.*?)\n\)", text, re.DOTALL)
    return dict(eval(f"dict({match[1].replace('model,', '', 1)})")) if match else {}


@pytest.mark.parametrize(
    ("train", "loading", "adapting"),
    [
        ("lora", {}, {}),
        ("lora:8:q+v", {}, {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}),
        ("qlora:8:q+v", {"load_in_4bit": True, "load_in_16bit": False},
         {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}),
        ("full", {"load_in_16bit": False, "full_finetuning": True}, None),
    ],
)  # fmt: skip
def test_unsloths_program(train: str, loading: dict[str, Any], adapting: dict[str, Any] | None) -> None:
    (text,) = exported(with_plan("unsloth", 1, ALONE, train)).texts.values()
    assert text.startswith("# Unsloth ")
    assert arguments("from_pretrained", text) == LOADING | loading
    assert arguments("get_peft_model", text) == ({} if adapting is None else ADAPTING | adapting)
    assert arguments("SFTConfig", text) == TRAINING
