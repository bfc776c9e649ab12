"""A Slurm batch script that launches a plan with Megatron-LM, one task for each GPU."""

from __future__ import annotations

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
from optimizer.frameworks.sbatch import MEETING, BatchScript

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

AT_STAKE = 1800.0  # seconds of work between checkpoints; assumed
USAGE = f"""usage: sbatch [options of sbatch] THIS_FILE MEGATRON CHECKPOINTS [arguments of pretrain_gpt.py]
  MEGATRON     folder of Megatron-LM {RELEASE}
  CHECKPOINTS  folder that every node sees; a run goes on from the last checkpoint there
  arguments    data and training, such as --data-path ... --tokenizer-type ... --train-iters ... --lr ..."""
TASK = """export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    exec python3 -u "$@\""""


def sbatch_script(answer: Answer) -> str:
    """The whole script; data and learning rate are passed on its command line.

    Raises InputError when the answer holds no plan, or one that Megatron-LM cannot run.
    """
    arguments = megatron_arguments(answer)
    job, plan = answer.job, exported_plan(answer)
    given = template("optimizer.frameworks.megatron", "sbatch.txt").format(
        communicators_file=COMMUNICATORS,
        communicators=communicators(job, answer.knobs),
        arguments="\n".join(f"    {row}" for row in argument_rows(arguments)),
        run=run_arguments(answer),
    )
    script = BatchScript(
        title=f"Megatron-LM {RELEASE}",
        unready="(($# < 2))",
        usage=USAGE,
        places='mkdir -p "$2"\nmegatron=$(realpath "$1") checkpoints=$(realpath "$2")\nshift 2',
        mounts="$megatron:$megatron,$checkpoints:$checkpoints",
        environment=environment(job, plan),
        task=TASK,
        words='"$megatron/pretrain_gpt.py" "${arguments[@]}" "${run[@]}"',
        each_gpu=True,
        notes="".join(f"\n# {note}" for note in differing(job.model)),
        given=given,
    )
    return script.text(job, plan)


def run_arguments(answer: Answer) -> str:
    """What the run writes and when: a checkpoint about every half an hour, throughput, and one more before it ends.

    >>> from optimizer.answer.answer import Answer
    >>> run_arguments(Answer(status="infeasible", job=None))
    '--save-interval 500 --exit-signal-handler --log-interval 10 --log-throughput'
    """
    steps = AT_STAKE / answer.estimate.step_time if answer.estimate else 500.0
    interval = int(float(f"{max(1.0, steps):.1g}"))
    return f"--save-interval {interval} --exit-signal-handler --log-interval 10 --log-throughput"


def environment(job: Job, plan: Plan) -> dict[str, str]:
    """Environment variables that the plan asks for, and where the ranks find each other.

    Source: Megatron-LM, megatron/training/arguments.py, validate_args (connections under TP or CP on devices up to
    Hopper, and not with FSDP; Transformer Engine's offloading), megatron/core/transformer/moe/README.md (several
    connections for an all-to-all that is overlapped); vendors.toml.
    """
    values = {**MEETING, **content("optimizer.frameworks.megatron", "vendors.toml").get(job.cluster.device.vendor, {})}
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
