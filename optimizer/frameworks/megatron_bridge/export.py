"""Overrides of an NVIDIA Megatron-Bridge (NeMo 2) recipe for a plan, one `key=value` per line, for each release.

The recipe's own communication overlap is taken away, since it would set buckets and overlaps over these; its mixed
precision is replaced for the same reason.

Source of the keys: NVIDIA-NeMo/Megatron-Bridge v0.3.1, v0.6.0 and 067f987df, src/megatron/bridge/training/config.py,
comm_overlap.py (setup), mixed_precision.py (setup); presets/launchers/megatron-bridge.csv lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from optimizer.frameworks.megatron.export import (
    COMMUNICATORS,
    MOMENTS,
    SHARDING,
    communicators,
    dispatcher_flags,
    distributed,
    recipe_flags,
    recompute_flags,
    unexpressed_plan,
)
from optimizer.frameworks.megatron.layout import first_and_last, is_even, plan_layout, stage_layers
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.job.plan import Knobs
from optimizer.objectives.kernels.activations import offloaded_modules

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.model import Model
    from optimizer.job.plan import Plan

OLD, NEW, MAIN = "0.3.1", "0.6.0", "main"
BRIDGE_RELEASES = (OLD, NEW, MAIN)
# Families whose recipes on the main branch hold the transformer in a config of its own.
NESTED = ("llama1-", "llama2-", "llama3")
OUTER = ("seq_length",)
OVERLAP = ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
PRECISION = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"


def bridge_overrides(answer: Answer, release: str) -> str:
    """Overrides for `scripts/training/run_recipe.py`, to be put after a recipe of the same model.

    Raises InputError when the answer holds no plan, or one that the release cannot run.
    """
    job, plan = runnable(
        answer, f"Megatron-Bridge {release}", lambda job, plan, knobs: lacking_of(job, plan, release, knobs)
    )
    values = override_values(job, plan, answer.knobs, release)
    variables = environment(job, plan).items()
    exports = " ".join(f"{name}={value}" for name, value in variables if not name.startswith("MASTER"))
    lines = [
        f"# Megatron-Bridge {release}: {plan.summary()}",
        f"# On every rank, in the folder of this file: {f'export {exports}; ' if exports else ''}"
        f"mapfile -t plan < <(grep -v '^#' megatron-bridge-{release}.overrides)",
        '# python3 MEGATRON_BRIDGE/scripts/training/run_recipe.py --mode pretrain --recipe RECIPE "${plan[@]}"',
    ]
    return "\n".join([*lines, *(f"{key}={hydra(value)}" for key, value in values.items())]) + "\n"


def lacking_of(job: Job, plan: Plan, release: str, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What a release lacks to run the plan as it is priced, in words; nothing where it can.

    Source: NVIDIA-NeMo/Megatron-Bridge @067f987df, training/flex_dispatcher_backend.py: DeepEP on Ampere, Hopper, B200
    and B300 alone.
    """
    features, device = job.stack.features, job.cluster.device.name
    partly = release == OLD and plan.activation_offload not in (0, 100)
    missing = {
        f"{plan.activation_offload}% of activations on the host (all or none)": partly,
        f"DeepEP on {device}": plan.dispatcher == "deepep" and plan.ep > 1 and device.startswith("gb"),
        f"{features.attention} attention": not features.attention.startswith("flash"),
    }
    return (*unexpressed_plan(job, plan, knobs), *lacks(missing))


def override_values(job: Job, plan: Plan, knobs: Knobs, release: str = NEW) -> dict[str, object]:
    """Keys of the recipe's configuration and their values under the plan, as a release calls them."""
    overlap, replicas = job.stack["dp_overlap"] > 0 and plan.dp * plan.cp > 1, plan.dp * plan.cp
    grouped = plan.zero_stage >= 1 and 0 < plan.shard < replicas
    blocks = bool(communicators(job, knobs))
    model: dict[str, object] = {
        "tensor_model_parallel_size": plan.tp,
        "pipeline_model_parallel_size": plan.pp,
        **_pipeline(plan, job.model),
        "account_for_embedding_in_pipeline_split": False,
        "account_for_loss_in_pipeline_split": False,
        "context_parallel_size": plan.cp,
        "expert_model_parallel_size": plan.ep,
        "expert_tensor_parallel_size": plan.etp,
        "sequence_parallel": plan.sequence_parallel and plan.tp > 1,
        "tp_comm_overlap": plan.sequence_parallel and plan.tp > 1 and job.stack["tp_overlap"] > 0,
        "overlap_p2p_comm": plan.vpp > 1,
        "batch_p2p_comm": plan.vpp == 1,
        "seq_length": job.seq_len,
        "attention_dropout": 0.1 if job.stack.features.dropout else 0.0,
        "hidden_dropout": 0.1 if job.stack.features.dropout else 0.0,
        **_recompute(plan),
        **_dispatcher(job, plan),
        # An exchange beside another micro-batch; recipes let shared experts overlap it, which excludes this.
        **(dict.fromkeys(OVERLAP, plan.overlap_exchange) if job.model.experts else {}),
        **({"moe_shared_expert_overlap": False} if job.model.experts and plan.overlap_exchange else {}),
        **_offload(job, plan, release),
    }
    nested = release == MAIN and job.model.name.startswith(NESTED)
    return {
        **{f"model.{'transformer.' * (nested and key not in OUTER)}{key}": value for key, value in model.items()},
        "dataset.sequence_length" if release == OLD else "dataset.seq_length": job.seq_len,
        "train.micro_batch_size": plan.micro_batch,
        "train.global_batch_size": job.global_batch,
        "comm_overlap": None,
        "mixed_precision": _precision(job, plan),
        "ddp.use_distributed_optimizer": distributed(plan, knobs),
        "ddp.num_distributed_optimizer_instances": replicas // plan.shard if grouped else 1,
        "ddp.use_megatron_fsdp": plan.zero_stage >= 2,
        "ddp.data_parallel_sharding_strategy": SHARDING.get(plan.zero_stage, "no_shard"),
        "ddp.overlap_grad_reduce": overlap,
        "ddp.overlap_param_gather": overlap and plan.zero_stage >= 1,
        "ddp.bucket_size": round(knobs.bucket / job.stack.features.grad_bytes),
        **({"dist.nccl_communicator_config_path": COMMUNICATORS} if blocks else {}),
        **({"checkpoint.ckpt_format": "fsdp_dtensor"} if plan.zero_stage >= 2 else {}),
        **({"ddp.delay_wgrad_compute": True} if plan.overlap_exchange else {}),
        "optimizer.use_distributed_optimizer": distributed(plan, knobs),
        "optimizer.optimizer_cpu_offload": knobs.offload > 0,
        **(
            {"optimizer.optimizer_offload_fraction": knobs.offload, "optimizer.use_precision_aware_optimizer": True}
            if knobs.offload > 0
            else {}
        ),
        **_moments(job),
    }


def _moments(job: Job) -> dict[str, object]:
    """Number format of Adam's moments where it is not fp32."""
    if job.stack.features.optimizer_bytes not in MOMENTS:
        return {}
    kind = {"_target_": "torch.bfloat16", "_call_": False}
    return {
        "optimizer.use_precision_aware_optimizer": True,
        "optimizer.exp_avg_dtype": kind,
        "optimizer.exp_avg_sq_dtype": kind,
    }


def _precision(job: Job, plan: Plan) -> dict[str, object]:
    """Number format of weights, matrix products and gradients."""
    wide = "float16" if job.dtype == "fp16" else "bfloat16"
    kind = {"_target_": f"torch.{wide}", "_call_": False}
    values: dict[str, object] = {"_target_": PRECISION, "fp16" if job.dtype == "fp16" else "bf16": True}
    values |= {"params_dtype": kind, "pipeline_dtype": kind, "autocast_dtype": kind}
    values["grad_reduce_in_fp32"] = job.stack.features.grad_bytes == 4
    if "fp8" in job.dtype:
        recipe = recipe_flags(job, plan).get("--fp8-recipe") or "delayed"
        values |= {"fp8": "hybrid", "fp8_recipe": recipe}
    if "fp4" in job.dtype:
        values |= {"fp4": "e2m1", "fp4_recipe": "nvfp4"}
    return values


def _pipeline(plan: Plan, model: Model) -> dict[str, object]:
    values: dict[str, object] = {
        "virtual_pipeline_model_parallel_size": None,
        "num_layers_in_first_pipeline_stage": None,
        "num_layers_in_last_pipeline_stage": None,
        "pipeline_model_parallel_layout": None,
    }
    if plan.pp == 1:
        return values
    ends = first_and_last(stage_layers(plan, model.layers))
    if model.mtp_layers or ends is None or (plan.vpp > 1 and not is_even(plan, model.layers)):
        values["pipeline_model_parallel_layout"] = plan_layout(plan, model)
    elif plan.vpp == 1:
        values["num_layers_in_first_pipeline_stage"], values["num_layers_in_last_pipeline_stage"] = ends
    if plan.vpp > 1:
        values["virtual_pipeline_model_parallel_size"] = plan.vpp
    return values


def _recompute(plan: Plan) -> dict[str, object]:
    flags = recompute_flags(plan)
    count, modules = flags.get("--recompute-num-layers"), (flags.get("--recompute-modules") or "").split()
    return {
        "recompute_granularity": flags.get("--recompute-granularity"),
        "recompute_method": flags.get("--recompute-method"),
        "recompute_num_layers": int(count) if count else None,
        "recompute_modules": modules or None,
    }


def _dispatcher(job: Job, plan: Plan) -> dict[str, object]:
    if job.model.experts is None:
        return {}
    flags = dispatcher_flags(job, plan)
    keys: dict[str, object] = {
        "moe_token_dispatcher_type": flags["--moe-token-dispatcher-type"],
        "moe_grouped_gemm": True,
        "moe_router_force_load_balancing": "--moe-router-force-load-balancing" in flags,
    }
    if "--moe-flex-dispatcher-backend" in flags:
        keys |= {
            "moe_flex_dispatcher_backend": flags["--moe-flex-dispatcher-backend"],
            "moe_router_dtype": flags["--moe-router-dtype"],
        }
    return keys


def _offload(job: Job, plan: Plan, release: str) -> dict[str, object]:
    if not plan.activation_offload:
        return {"fine_grained_activation_offloading": False}
    share = {} if release == OLD else {"activation_offload_fraction": plan.activation_offload / 100}
    return {
        "fine_grained_activation_offloading": True,
        "offload_modules": list(offloaded_modules(job.model, plan.recompute)),
        **share,
    }


def hydra(value: object) -> str:
    """A value in the grammar of Hydra's overrides, which YAML reads too.

    >>> hydra({"bf16": True, "recipe": None}), hydra(["mlp", "moe"]), hydra("Et*2|t*2L")
    ('{bf16: true, recipe: null}', '[mlp, moe]', '"Et*2|t*2L"')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {hydra(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(hydra, value))}]"
    return f'"{value}"' if isinstance(value, str) and "|" in value else str(value)


FILES = {f"megatron-bridge-{name}.overrides": partial(bridge_overrides, release=name) for name in BRIDGE_RELEASES}
