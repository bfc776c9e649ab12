"""Axolotl's configuration for a plan: `axolotl train axolotl.yaml`.

Source of the keys: axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/utils/schemas: config.py, peft.py, training.py,
fsdp.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.frameworks.deepspeed.defaults import KERNELS
from optimizer.frameworks.deepspeed.export import hosted, synced
from optimizer.frameworks.tuning import program as tuning
from optimizer.job.method import FROZEN

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

# How rows of a dataset become prompts, by loss: prompt_strategies/dpo, kto, orpo and bradley_terry.
TYPES: Mapping[str, str] = {
    **{"sft": "alpaca", "dpo": "chat_template.default", "kto": "chatml.argilla", "simpo": "chat_template.default"},
    **{"orpo": "chat_template.argilla", "reward": "bradley_terry.chat_template"},
}


def axolotl_yaml(job: Job, plan: Plan, own: tuning.TuningProgram) -> str:
    """What AxolotlInputConfig reads; the dataset is yours."""
    method, base = job.method, job.method.base
    values: dict[str, object] = {
        "base_model": tuning.repository(job),
        "datasets": [{"path": tuning.DATASET, "type": TYPES[job.training_loss.name]}],
        "output_dir": tuning.OUTPUT,
        "sequence_len": job.seq_len,
        "sample_packing": tuning.packs(job),
        "pad_to_sequence_len": tuning.packs(job),
        "micro_batch_size": tuning.samples(job, plan),
        "gradient_accumulation_steps": plan.num_microbatches,
        "gradient_checkpointing": tuning.checkpoints(plan) or plan.activation_offload > 0,
        "optimizer": own.optimizer(job),
        "learning_rate": 0.0002 if method.adapts else 0.00002,
        **tuning.number_format(job, plan),
        **({"bf16": "full"} if tuning.unmixed(job, plan) else {}),
        **own.switched(job, plan),
        "attn_implementation": tuning.attention(job, "flash_attention_2"),
    }
    targets = {"lora_target_linear": True} if tuning.every_module(job) else {"lora_target_modules": tuning.modules(job)}
    dora = {"peft_use_dora": True} if method.name == "dora" else {}
    others = {
        "adapter": "qlora" if base == "nf4" else "lora",
        **targets,
        **dora,
        **dict.fromkeys(KERNELS, job.fused_adapters),
    }
    values |= tuning.adapters(job, "lora_r", **others)
    if method.name == FROZEN:
        outside = {
            "embed_tokens": ["^model.embed_tokens.weight$"],
            "lm_head": ["^lm_head.weight$", "^model.norm.weight$"],
        }
        names = [name for module in tuning.trained_outside(job) for name in outside[module]]
        values["unfrozen_parameters"] = [*names, *(f"^model.layers.{layer}." for layer in tuning.trained_layers(job))]
    if base in ("nf4", "int8"):
        values["load_in_4bit" if base == "nf4" else "load_in_8bit"] = True
    if tuning.sharded(plan):
        values |= {"fsdp_version": 2, "fsdp_config": _fsdp(job, plan), **synced(job, plan)}
    command = tuning.launched(
        plan, "axolotl train axolotl.yaml", f"axolotl train axolotl.yaml --num-processes {plan.dp}"
    )
    return own.yaml(plan, command, values)


def _fsdp(job: Job, plan: Plan) -> dict[str, object]:
    return {
        "reshard_after_forward": plan.zero_stage == 3,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        # Inputs on the host are of the Trainer's checkpoints: validation.py, check_activation_offloading_wo_gc.
        "activation_checkpointing": plan.recompute == "full" and not plan.activation_offload,
        "offload_params": hosted(job, plan),
        "state_dict_type": "SHARDED_STATE_DICT",
    }


FILES = tuning.export_files("axolotl", {"axolotl.yaml": axolotl_yaml})
