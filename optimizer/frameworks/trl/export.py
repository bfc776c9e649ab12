"""TRL's configuration of supervised fine-tuning for a plan: `trl sft --config trl.yaml`.

Source of the keys: huggingface/trl v1.16.0, trl/scripts/sft.py, trl/trainer/model_config.py, sft_config.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.frameworks.tuning import program as tuning
from optimizer.job.loss import REWARD, SFT

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan


def trl_yaml(job: Job, plan: Plan, own: tuning.TuningProgram) -> str:
    """What TrlParser reads; the dataset is yours."""
    method, base = job.method, job.method.base
    values: dict[str, object] = {
        "model_name_or_path": tuning.repository(job),
        "dtype": tuning.whole_weights(job),
        "attn_implementation": tuning.attention(job, "flash_attention_2"),
        "dataset_name": tuning.DATASET,
        "max_length": job.seq_len,
        "packing": tuning.packs(job),
        **tuning.trainer_values(job, plan, own),
        **own.switched(job, plan),
        "gradient_checkpointing": tuning.checkpoints(plan),
    }
    targets = "all-linear" if tuning.every_module(job) else tuning.modules(job)
    dora = method.name == "dora"
    values |= tuning.adapters(job, "lora_r", use_peft=True, lora_target_modules=targets, use_dora=dora)
    if method.in_nf4:
        values |= {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": base == "nf4"}
        values |= tuning.stored_in_floats(job, plan)
    elif base == "int8":
        values["load_in_8bit"] = True
    loss = job.training_loss.name
    if loss != SFT:
        del values["packing"]
    if loss == REWARD and method.adapts:
        values["lora_task_type"] = "SEQ_CLS"
    several = f"accelerate launch --config_file accelerate.yaml -m trl.scripts.{loss} --config trl.yaml"
    command = tuning.launched(plan, f"trl {loss} --config trl.yaml", several)
    return own.yaml(plan, command, values)


FILES = tuning.export_files("trl", {"trl.yaml": trl_yaml}, accelerate=True)
