"""A Slurm batch script that launches a plan with Megatron-LM, one task for each GPU."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from optimizer.base.content import content, template
from optimizer.frameworks.megatron.export import (
    COMMUNICATORS,
    RELEASE,
    communicators,
    exported_plan,
    fuses_experts,
    megatron_arguments,
)
from optimizer.frameworks.megatron.export_model import differing

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

CPUS_PER_GPU = 8
LIMIT = "04:00:00"
WARNING = 600  # seconds before the time limit in which a checkpoint is written
AT_STAKE = 1800.0  # seconds of work between checkpoints; assumed


def sbatch_script(answer: Answer) -> str:
    """The whole script; data and learning rate are passed on its command line.

    Raises InputError when the answer holds no plan, or one that Megatron-LM cannot run.
    """
    arguments = megatron_arguments(answer)
    job, plan = answer.job, exported_plan(answer)
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    rows, variables = argument_rows(arguments), environment(job, plan)
    return template("optimizer.frameworks.megatron", "sbatch.txt").format(
        name=one_word(job.model.name),
        nodes=-(-job.gpus // per_node),
        gpus=job.gpus,
        gpus_per_node=per_node,
        cpus=CPUS_PER_GPU,
        limit=LIMIT,
        warning=WARNING,
        release=RELEASE,
        summary=plan.summary(),
        notes="".join(f"\n# {note}" for note in differing(job.model)),
        environment="\n".join(f"{name}={value}" for name, value in variables.items())
        + f"\nexport {' '.join(variables)}",
        communicators_file=COMMUNICATORS,
        communicators=communicators(job, answer.knobs),
        arguments="\n".join(f"    {row}" for row in rows),
        run=run_arguments(answer),
    )


def run_arguments(answer: Answer) -> str:
    """What the run writes and when: a checkpoint about every half an hour, throughput, and one more before it ends.

    >>> from optimizer.answer.answer import Answer
    >>> run_arguments(Answer(status="infeasible", job=None))
    '--save-interval 500 --exit-signal-handler --log-interval 10 --log-throughput'
    """
    steps = AT_STAKE / answer.estimate.step_time if answer.estimate else 500.0
    interval = int(float(f"{max(1.0, steps):.1g}"))
    return f"--save-interval {interval} --exit-signal-handler --log-interval 10 --log-throughput"


def one_word(name: str) -> str:
    r"""A name in which no sign means anything to a shell or to Slurm.

    >>> one_word("gpt3; rm -rf /\n")
    'gpt3-rm-rf'
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-") or "model"


def environment(job: Job, plan: Plan) -> dict[str, str]:
    """Environment variables that the plan asks for, and where the ranks find each other.

    Source: Megatron-LM, megatron/training/arguments.py, validate_args (connections under TP or CP on devices up to
    Hopper, and not with FSDP; Transformer Engine's offloading), megatron/core/transformer/moe/README.md (several
    connections for an all-to-all that is overlapped); vendors.toml.
    """
    values = {"MASTER_ADDR": '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "MASTER_PORT": "29500"}
    values |= content("optimizer.frameworks.megatron", "vendors.toml").get(job.cluster.device.vendor, {})
    if plan.overlap_exchange:
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    elif (plan.tp > 1 or plan.cp > 1) and plan.zero_stage < 2:
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if plan.activation_offload:
        values["NVTE_CPU_OFFLOAD_V1"] = "1"
    if fuses_experts(job):
        values["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = "1"
    return values


def argument_rows(arguments: list[str]) -> list[str]:
    """One row per flag, with its value; the communicators are described in a file of the script's."""
    rows: list[str] = []
    for part in arguments:
        if part.startswith("--"):
            rows.append(part)
        else:
            rows[-1] += ' "$communicators"' if part == COMMUNICATORS else f" {shlex.quote(part)}"
    return rows
