"""A torchtitan training configuration (TOML) for a plan.

Source of the keys: pytorch/torchtitan, torchtitan/config/job_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.errors import InputError
from optimizer.exports.layout import layers_per_virtual_stage

if TYPE_CHECKING:
    from optimizer.answer import Answer
    from optimizer.job import Job
    from optimizer.plan import Plan

RELEASE = "v0.2.2"
SCHEDULES: Mapping[str, str] = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero-bubble": "ZBVZeroBubble"}


def torchtitan_toml(answer: Answer) -> str:
    """The parts of a torchtitan configuration that the plan decides; model, data and optimizer are yours to add.

    Raises InputError when the answer holds no plan, or one that torchtitan cannot run.
    """
    if answer.plan is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    if missing := unexpressed(answer.job, answer.plan):
        raise InputError(f"torchtitan {RELEASE} cannot run this plan: it lacks {'; '.join(missing)}")
    lines = [f"# torchtitan {RELEASE}"]
    for table, values in tables(answer.job, answer.plan).items():
        lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines).strip() + "\n"


def tables(job: Job, plan: Plan) -> dict[str, dict[str, object]]:
    """Tables of the configuration by name."""
    # Under pipelining torchtitan cuts a rank's local batch into the micro-batches of one schedule.
    selective = plan.recompute == "selective"
    local_batch = plan.micro_batch * (plan.num_microbatches if plan.pp > 1 else 1)
    return {
        "training": {"local_batch_size": local_batch, "global_batch_size": job.global_batch, "seq_len": job.seq_len},
        "parallelism": {**_data_parallel(plan), **_model_parallel(job, plan)},
        "activation_checkpoint": {"mode": plan.recompute, **({"selective_ac_option": "op"} if selective else {})},
    }


def unexpressed(job: Job, plan: Plan) -> tuple[str, ...]:
    """What torchtitan lacks to run the plan as it is priced, in words; nothing where it can."""
    selective = plan.recompute == "selective" and job.stack.features.selective == "ops"
    missing = {
        "ZeRO-1 (gradients are sharded with the optimizer)": plan.zero_stage == 1,
        f"the schedule {plan.schedule}": plan.schedule not in SCHEDULES,
        f"recomputation of {plan.recompute} as priced": not (plan.recompute in ("none", "full") or selective),
        "recomputation of some layers": plan.recompute == "full"
        and bool(plan.recompute_layers or plan.recompute_first),
        "activations on the host": plan.activation_offload > 0,
        "an exchange beside another micro-batch": plan.overlap_exchange,
        "prediction layers": job.model.mtp_layers > 0,
    }
    return tuple(what for what, holds in missing.items() if holds)


def parts(plan: Plan, layers: int) -> list[list[str]]:
    """Modules on every virtual stage, in the order of the forward pass.

    >>> from optimizer.plan import Plan
    >>> parts(Plan(pp=2), 3)
    [['tok_embeddings', 'layers.0', 'layers.1'], ['layers.2', 'norm', 'output']]
    """
    counts, found, start = layers_per_virtual_stage(plan, layers), [], 0
    for count in counts:
        found.append([f"layers.{number}" for number in range(start, start + count)])
        start += count
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "output"]
    return found


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
            "module_fqns_per_model_part": parts(plan, job.model.layers),
        }
    if job.model.experts:
        values |= {"expert_parallel_degree": plan.ep, "expert_tensor_parallel_degree": plan.etp}
    return values


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
