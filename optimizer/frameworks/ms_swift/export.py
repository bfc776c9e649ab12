"""ms-swift's configuration for a plan: `swift sft ms-swift.yaml`.

Source of the keys: modelscope/ms-swift v4.6.0, swift/arguments/base_args, tuner_args.py, sft_args.py; swift/cli/main.py
for the file and its ENV; swift/config/fsdp2.json for several GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.frameworks.config.frozen import TOWER
from optimizer.frameworks.deepspeed.export import hosted
from optimizer.frameworks.tuning import program as tuning
from optimizer.job.loss import SFT
from optimizer.job.method import VISION

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan


def ms_swift_yaml(job: Job, plan: Plan, own: tuning.TuningProgram) -> str:
    """What its HfArgumentParser reads, with the variables that launch it; the dataset is yours."""
    method, base = job.method, job.method.base
    values: dict[str, object] = {
        **({"ENV": {"NPROC_PER_NODE": plan.dp}} if plan.dp > 1 else {}),
        "model": tuning.repository(job),
        "use_hf": True,
        "torch_dtype": tuning.whole_weights(job),
        "attn_impl": tuning.attention(job, "flash_attn"),
        "tuner_type": "lora" if method.adapts else "full",
        "dataset": [tuning.DATASET],
        "max_length": job.seq_len,
        "packing": tuning.packs(job),
        **tuning.trainer_values(job, plan, own),
        **own.switched(job, plan),
        "gradient_checkpointing": tuning.checkpoints(plan),
    }
    targets = ["all-linear"] if tuning.every_module(job) else tuning.modules(job)
    values |= tuning.adapters(job, "lora_rank", target_modules=targets, use_dora=method.name == "dora")
    if job.tower:
        values |= dict.fromkeys(TOWER["tuner_type"], not method.trains(VISION))
    if base in ("nf4", "int8"):
        values |= {"quant_method": "bnb", "quant_bits": 4 if base == "nf4" else 8}
        values |= {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True} if base == "nf4" else {}
        values |= tuning.stored_in_floats(job, plan)
    if tuning.sharded(plan):
        words = ["full_shard" if plan.zero_stage == 3 else "shard_grad_op", "auto_wrap"]
        values |= {"fsdp": " ".join([*words, "offload"] if hosted(job, plan) else words)}
        values |= {"fsdp_config": _fsdp(plan)}
    command = "sft" if job.training_loss.name == SFT else "rlhf"
    return own.yaml(plan, f"swift {command} ms-swift.yaml", values)


def _fsdp(plan: Plan) -> dict[str, object]:
    return {
        "fsdp_version": 2,
        "reshard_after_forward": plan.zero_stage == 3,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "activation_checkpointing": plan.recompute == "full",
        "state_dict_type": "SHARDED_STATE_DICT",
    }


FILES = tuning.export_files("ms-swift", {"ms-swift.yaml": ms_swift_yaml})
