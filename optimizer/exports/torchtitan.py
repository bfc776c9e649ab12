"""A torchtitan training configuration (TOML) for a plan.

Source of the keys: pytorch/torchtitan, torchtitan/config/job_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.errors import InputError
from optimizer.exports.layout import is_even, layers_per_virtual_stage, stage_layers
from optimizer.recomputation import modules_of

if TYPE_CHECKING:
    from optimizer.answer import Answer
    from optimizer.job import Job
    from optimizer.plan import Plan

SCHEDULES: Mapping[str, str] = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero-bubble": "ZBVZeroBubble"}


def torchtitan_toml(answer: Answer) -> str:
    """The parts of a torchtitan configuration that the plan decides; model, data and optimizer are yours to add.

    Raises InputError when the answer holds no plan.
    """
    if answer.plan is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    lines = [f"# {note}" for note in differences(answer.job, answer.plan)]
    for table, values in tables(answer.job, answer.plan).items():
        lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines).strip() + "\n"


def tables(job: Job, plan: Plan) -> dict[str, dict[str, object]]:
    """Tables of the configuration by name."""
    # Under pipelining torchtitan cuts a rank's local batch into the micro-batches of one schedule.
    local_batch = plan.micro_batch * (plan.num_microbatches if plan.pp > 1 else 1)
    return {
        "training": {"local_batch_size": local_batch, "global_batch_size": job.global_batch, "seq_len": job.seq_len},
        "parallelism": {**_data_parallel(plan), **_model_parallel(job, plan)},
        "activation_checkpoint": {"mode": "selective" if modules_of(plan.recompute) else plan.recompute},
    }


def differences(job: Job, plan: Plan) -> list[str]:
    """What torchtitan does otherwise than the plan assumes."""
    notes = []
    if plan.zero_stage == 1:
        notes.append("ZeRO-1 is not offered: gradients are sharded too (fsdp_reshard_after_forward = never).")
    if plan.recompute == "selective" or modules_of(plan.recompute):
        notes.append("Selective recomputation follows torchtitan's own list of operators.")
    if plan.activation_offload:
        notes.append("Activations stay on the device: torchtitan does not keep a share of them on the host.")
    if plan.pp > 1 and plan.layers_per_stage and not is_even(plan, job.model.layers):
        layers = ", ".join(map(str, stage_layers(plan, job.model.layers)))
        notes.append(f"Uneven stages of {layers} layers: give them in parallelism.module_fqns_per_model_part.")
    return notes


def _data_parallel(plan: Plan) -> dict[str, object]:
    replicas = plan.dp
    if plan.zero_stage == 0:
        return {"data_parallel_replicate_degree": replicas, "data_parallel_shard_degree": 1}
    shard = plan.shard // plan.cp if 0 < plan.shard < replicas * plan.cp else replicas
    return {
        "data_parallel_replicate_degree": replicas // max(1, shard),
        "data_parallel_shard_degree": max(1, shard),
        "fsdp_reshard_after_forward": "always" if plan.zero_stage == 3 else "never",
    }


def _model_parallel(job: Job, plan: Plan) -> dict[str, object]:
    values: dict[str, object] = {
        "tensor_parallel_degree": plan.tp,
        "context_parallel_degree": plan.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if plan.pp > 1:
        values |= {
            "pipeline_parallel_schedule": SCHEDULES[plan.schedule],
            "pipeline_parallel_microbatch_size": plan.micro_batch,
        }
    if plan.pp > 1 and is_even(plan, job.model.layers):
        values |= {
            "pipeline_parallel_layers_per_stage": layers_per_virtual_stage(plan, job.model.layers)[0],
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 0,
        }
    if job.model.experts:
        values |= {"expert_parallel_degree": plan.ep, "expert_tensor_parallel_degree": plan.etp}
    return values


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
