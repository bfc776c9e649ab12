"""Unsloth's program for a plan: a small script around FastLanguageModel and TRL's SFTTrainer.

Source of the arguments: unslothai/unsloth 2026.10.9, unsloth/models/loader.py (from_pretrained), llama.py
(get_peft_model); huggingface/trl, trl/trainer/sft_config.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.content import template
from optimizer.frameworks.tuning import program as tuning

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

ADAPTED = "model = FastLanguageModel.get_peft_model(\n    model,\n{arguments}\n)\n"


def unsloth_script(job: Job, plan: Plan, own: tuning.TuningProgram) -> str:
    """`python unsloth_sft.py`; the dataset is yours."""
    method, base = job.method, job.method.base
    loading: dict[str, object] = {
        "model_name": tuning.repository(job),
        "max_seq_length": job.seq_len,
        "load_in_4bit": base == "nf4",
        "load_in_8bit": base == "int8",
        "load_in_16bit": method.adapts and base == "bf16",
        "full_finetuning": not method.adapts,
        "use_gradient_checkpointing": tuning.checkpoints(plan),
        **own.switched(job, plan),
    }
    adapting: dict[str, object] = {
        "r": method.rank,
        "target_modules": tuning.modules(job),
        "lora_alpha": 2 * method.rank,
        "lora_dropout": 0.0,
        "use_gradient_checkpointing": loading["use_gradient_checkpointing"],
    }
    training = tuning.trainer_values(job, plan, own) | {"max_length": job.seq_len, "packing": tuning.packs(job)}
    training["gradient_checkpointing"] = tuning.checkpoints(plan)
    return template("optimizer.frameworks.unsloth", "script.txt").format(
        title=f"{own.title}: {plan.summary()}",
        loading=_arguments(loading),
        adapted=ADAPTED.format(arguments=_arguments(adapting)) if method.adapts else "",
        dataset=tuning.DATASET,
        training=_arguments(training),
    )


def _arguments(values: dict[str, object]) -> str:
    return "\n".join(f"    {name}={value!r}," for name, value in values.items()).replace("'", '"')


FILES = tuning.export_files("unsloth", {"unsloth_sft.py": unsloth_script})
