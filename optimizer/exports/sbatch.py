"""A Slurm batch script that launches a plan with Megatron-LM."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from optimizer.exports.megatron import launch_notes, megatron_arguments

if TYPE_CHECKING:
    from optimizer.answer import Answer
    from optimizer.job import Job
    from optimizer.plan import Knobs, Plan

TEMPLATE = """\
#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus_per_node}
#SBATCH --exclusive
# {summary}{notes}
# sbatch THIS_FILE /path/to/Megatron-LM --data-path ... --train-iters ... --lr ...
set -euo pipefail
megatron=$1
shift

{environment}

arguments=(
{arguments}
)

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes {nodes} --nproc-per-node {gpus_per_node} \\
    --rdzv-backend c10d --rdzv-endpoint "$head:29500" --rdzv-id "$SLURM_JOB_ID" \\
    "$megatron/pretrain_gpt.py" "${{arguments[@]}}" "$@"
"""


def sbatch_script(answer: Answer) -> str:
    """The whole script; data, learning rate and checkpoints are passed on its command line.

    Raises InputError when the answer holds no plan.
    """
    rows = _rows(megatron_arguments(answer))
    job = answer.job
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    return TEMPLATE.format(
        name=job.model.name,
        nodes=-(-job.gpus // per_node),
        gpus_per_node=per_node,
        summary=answer.plan.summary() if answer.plan else "",
        notes="".join(f"\n# {note}" for note in (launch_notes(answer.plan) if answer.plan else ())),
        environment="\n".join(
            f"export {name}={value}" for name, value in environment(job, answer.plan, answer.knobs).items()
        ),
        arguments="\n".join(f"    {row}" for row in rows),
    )


def environment(job: Job, plan: Plan | None, knobs: Knobs) -> dict[str, str]:
    """Environment variables that the plan and its knobs ask for.

    NCCL_MAX_CTAS bounds the thread blocks of a communicator, each of which occupies one multiprocessor.

    Source: NCCL user guide, environment variables; Megatron-LM, megatron/training/arguments.py (connections under TP,
    Transformer Engine's offloading).
    """
    values = {}
    if plan is not None and (plan.tp > 1 or plan.cp > 1):
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if plan is not None and plan.activation_offload:
        values["NVTE_CPU_OFFLOAD_V1"] = "1"
    if job.cluster.device.sms > 1 and knobs.comm_sm_share > 0:
        values["NCCL_MAX_CTAS"] = str(max(1, round(knobs.comm_sm_share * job.cluster.device.sms)))
    return values


def _rows(arguments: list[str]) -> list[str]:
    """One row per flag, with its value."""
    rows: list[str] = []
    for part in arguments:
        if part.startswith("--"):
            rows.append(part)
        else:
            rows[-1] += f" {shlex.quote(part)}"
    return rows
