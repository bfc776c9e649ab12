"""Overrides of an NVIDIA Megatron-Bridge (NeMo 2) recipe for a plan, one `key=value` per line.

Source of the keys: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/recipes/gpt/gpt3_175b.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.errors import InputError
from optimizer.exports.layout import first_and_last, is_even, plan_layout, stage_layers
from optimizer.exports.megatron import SHARDING, dispatcher_flags, recompute_flags, unexpressed_plan
from optimizer.objectives.kernels.activations import offloaded_modules

if TYPE_CHECKING:
    from optimizer.answer import Answer
    from optimizer.job import Job
    from optimizer.model import Model
    from optimizer.plan import Knobs, Plan


def nemo_overrides(answer: Answer) -> list[str]:
    """Overrides for `scripts/training/run_recipe.py`, to be put after a recipe of the same model.

    Raises InputError when the answer holds no plan.
    """
    if answer.plan is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    if missing := unexpressed_plan(answer.job, answer.plan):
        raise InputError(f"Megatron-Bridge cannot run this plan: it lacks {'; '.join(missing)}")
    values = override_values(answer.job, answer.plan, answer.knobs)
    return [f"{key}={_hydra(value)}" for key, value in values.items()]


def override_values(job: Job, plan: Plan, knobs: Knobs) -> dict[str, object]:
    """Keys of the recipe's configuration and their values under the plan."""
    overlap = job.stack["dp_overlap"] > 0 and plan.dp * plan.cp > 1
    return {
        "model.tensor_model_parallel_size": plan.tp,
        "model.pipeline_model_parallel_size": plan.pp,
        **_pipeline(plan, job.model),
        "model.context_parallel_size": plan.cp,
        "model.expert_model_parallel_size": plan.ep,
        "model.expert_tensor_parallel_size": plan.etp,
        "model.sequence_parallel": plan.sequence_parallel and plan.tp > 1,
        "model.seq_length": job.seq_len,
        "dataset.seq_length": job.seq_len,
        "train.micro_batch_size": plan.micro_batch,
        "train.global_batch_size": job.global_batch,
        **_recompute(plan),
        **_dispatcher(job, plan),
        **_overlap(job, plan),
        **_offload(job, plan),
        "ddp.use_distributed_optimizer": plan.zero_stage >= 1,
        "ddp.use_megatron_fsdp": plan.zero_stage >= 2,
        "ddp.data_parallel_sharding_strategy": SHARDING.get(plan.zero_stage, "no_shard"),
        "ddp.overlap_grad_reduce": overlap,
        "ddp.overlap_param_gather": overlap and plan.zero_stage >= 1,
        "ddp.bucket_size": round(knobs.bucket / job.stack.features.grad_bytes),
    }


def _pipeline(plan: Plan, model: Model) -> dict[str, object]:
    values: dict[str, object] = {
        "model.virtual_pipeline_model_parallel_size": None,
        "model.num_layers_in_first_pipeline_stage": None,
        "model.num_layers_in_last_pipeline_stage": None,
        "model.pipeline_model_parallel_layout": None,
    }
    if plan.pp == 1:
        return values
    ends = first_and_last(stage_layers(plan, model.layers))
    if model.mtp_layers or ends is None or (plan.vpp > 1 and not is_even(plan, model.layers)):
        values["model.pipeline_model_parallel_layout"] = plan_layout(plan, model)
    elif plan.vpp == 1:
        values["model.num_layers_in_first_pipeline_stage"], values["model.num_layers_in_last_pipeline_stage"] = ends
    if plan.vpp > 1:
        values["model.virtual_pipeline_model_parallel_size"] = plan.vpp
    return values


def _recompute(plan: Plan) -> dict[str, object]:
    flags = recompute_flags(plan)
    count, modules = flags.get("--recompute-num-layers"), (flags.get("--recompute-modules") or "").split()
    return {
        "model.recompute_granularity": flags.get("--recompute-granularity"),
        "model.recompute_method": flags.get("--recompute-method"),
        "model.recompute_num_layers": int(count) if count else None,
        "model.recompute_modules": f"[{','.join(modules)}]" if modules else None,
    }


def _dispatcher(job: Job, plan: Plan) -> dict[str, object]:
    if job.model.experts is None:
        return {}
    flags = dispatcher_flags(job, plan)
    return {
        "model.moe_token_dispatcher_type": flags["--moe-token-dispatcher-type"],
        "model.moe_flex_dispatcher_backend": flags.get("--moe-flex-dispatcher-backend"),
    }


def _overlap(job: Job, plan: Plan) -> dict[str, object]:
    """An exchange beside another micro-batch; NeMo's recipes let shared experts overlap it, which excludes this.

    Source: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/comm_overlap.py.
    """
    if job.model.experts is None:
        return {}
    on = plan.overlap_exchange
    shared = {"model.moe_shared_expert_overlap": False} if on else {}
    return {
        "comm_overlap.overlap_moe_expert_parallel_comm": on,
        "comm_overlap.delay_wgrad_compute": on,
        **shared,
    }


def _offload(job: Job, plan: Plan) -> dict[str, object]:
    if not plan.activation_offload:
        return {}
    return {
        "model.fine_grained_activation_offloading": True,
        "model.offload_modules": f"[{','.join(offloaded_modules(job.model, plan.recompute))}]",
        "model.activation_offload_fraction": plan.activation_offload / 100,
    }


def _hydra(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) and "|" in value else str(value)
