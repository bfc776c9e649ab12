"""torchtune's command for a plan: a recipe, a configuration that it ships, and what the plan has otherwise.

Source of the keys: pytorch/torchtune v0.6.1, recipes/configs and recipes/*_finetune_*.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.catalog.targets import argument_names
from optimizer.frameworks.deepspeed.export import hosted
from optimizer.frameworks.tuning import program as tuning
from optimizer.job.method import ATTENTION, MLP

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

RELEASE = "v0.6.1"
NAMES = {"o": "output_proj"}  # of matrices, where they are not as Hugging Face's


def torchtune_command(job: Job, plan: Plan, own: tuning.TuningProgram) -> str:
    """`tune run` with overrides; checkpoints, tokenizer and dataset are those of the configuration.

    Raises InputError for a configuration that it does not ship, and for adapters on some matrices of the MLP alone.
    """
    method, known = job.method, argument_names("torchtune", RELEASE)
    kind = "lora" if method.adapts else "full"
    where = "single_device" if plan.dp == 1 else "distributed"
    config = f"{own.models[job.model.name]}_{kind}" + ("_single_device" if plan.dp == 1 else "")
    if config not in known:
        raise InputError(f"{own.title} ships no configuration {config} to start from")
    values: dict[str, object] = {
        "batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.num_microbatches,
        "tokenizer.max_seq_len": job.seq_len,
        "dataset.packed": tuning.packs(job),
        "dtype": "bf16",
        "optimizer": own.optimizer(job),
        **({} if method.adapts else {"optimizer_in_bwd": job.update_rule.in_backward}),
        **own.switched(job, plan),
        "enable_activation_checkpointing": plan.recompute == "full",
    }
    if plan.dp > 1:
        values["fsdp_reshard_after_forward"] = plan.zero_stage == 3
        values |= {"fsdp_cpu_offload": True} if hosted(job, plan) else {}
    if method.adapts:
        values |= _adapters(job)
    processes = f" --nproc_per_node {plan.dp}" if plan.dp > 1 else ""
    lines = [f"tune run{processes} {kind}_finetune_{where} --config {config}"]
    fused = own.optimizer(job) == own.optimizers["adamw"]  # as it is priced, and as most configurations have it
    if fused:
        values["optimizer.fused"] = True
    unfused = f"{config} optimizer.fused" in known and not fused
    lines += ["  ~optimizer.fused"] * unfused + [f"  {name}={value}" for name, value in values.items()]
    return f"# {own.title}: {plan.summary()}\n" + " \\\n".join(lines) + "\n"


def _adapters(job: Job) -> dict[str, object]:
    """Overrides of a model with adapters."""
    method = job.method
    inside = [name for name in MLP if name in method.targets]
    if 0 < len(inside) < len(MLP):
        raise InputError(f"torchtune has adapters on all matrices of the MLP or on none, but --train says {job.train}")
    names = ",".join(NAMES.get(name, f"{name}_proj") for name in ATTENTION if name in method.targets)
    more = {"model.quantize_base": True} if method.base == "nf4" else {}
    return {
        "model.lora_attn_modules": f"[{names}]",
        "model.apply_lora_to_mlp": bool(inside),
        "model.lora_rank": method.rank,
        "model.lora_alpha": 2 * method.rank,
        "model.use_dora": method.name == "dora",
        **more,
    }


FILES = tuning.export_files("torchtune", {"torchtune.sh": torchtune_command})
