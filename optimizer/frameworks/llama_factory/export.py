"""LLaMA-Factory's configuration for a plan: `llamafactory-cli train llama-factory.yaml`.

Source of the keys: hiyouga/LLaMA-Factory v0.9.5, src/llamafactory/hparams/model_args.py, data_args.py,
finetuning_args.py; examples/accelerate/fsdp_config.yaml for several GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.frameworks.config.frozen import COUNT, EXTRA, FREEZE, MODULES, TOWER
from optimizer.frameworks.tuning import program as tuning
from optimizer.job.method import FROZEN, VISION

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan


def llama_factory_yaml(job: Job, plan: Plan, own: tuning.TuningProgram) -> str:
    """What its HfArgumentParser reads; dataset and template are yours."""
    method, base = job.method, job.method.base
    some = method.name == FROZEN and method.frozen != (VISION,)
    values: dict[str, object] = {
        "model_name_or_path": tuning.repository(job),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": FREEZE if some else "lora" if method.adapts else "full",
        "dataset": tuning.DATASET,
        "template": "default",
        "cutoff_len": job.seq_len,
        "packing": tuning.packs(job),
        "neat_packing": tuning.packs(job),
        "flash_attn": tuning.attention(job, "fa2"),
        **tuning.trainer_values(job, plan, own),
        **own.switched(job, plan),
        "disable_gradient_checkpointing": not tuning.checkpoints(plan),
    }
    targets = "all" if tuning.every_module(job) else ",".join(tuning.modules(job))
    values |= tuning.adapters(job, "lora_rank", lora_target=targets, use_dora=method.name == "dora")
    if job.tower:
        values |= dict.fromkeys(TOWER["finetuning_type"], not method.trains(VISION))
    if some:
        layers, extra = tuning.trained_layers(job), ",".join(tuning.trained_outside(job))
        values |= {COUNT: len(layers) if job.model.layers - 1 in layers else -len(layers), MODULES: "all"}
        values |= {EXTRA: extra} if extra else {}
    if not method.adapts:
        values["pure_bf16"] = tuning.whole_weights(job) == "bfloat16"
    if base in ("nf4", "int8"):
        values |= {"quantization_method": "bnb", "quantization_bit": 4 if base == "nf4" else 8}
        values |= {"quantization_type": "nf4", "double_quantization": True} if base == "nf4" else {}
    alone = "llamafactory-cli train llama-factory.yaml"
    several = "accelerate launch --config_file accelerate.yaml src/train.py llama-factory.yaml"
    return own.yaml(plan, tuning.launched(plan, alone, several), values)


FILES = tuning.export_files("llama-factory", {"llama-factory.yaml": llama_factory_yaml}, accelerate=True)
