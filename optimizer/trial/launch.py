"""What a trial folder is run with: one script that starts a plan for a few steps, one that runs all trials in turn."""

from __future__ import annotations

import shlex
from pathlib import Path

from optimizer.answer.answer import Answer
from optimizer.base.content import rendered
from optimizer.frameworks.megatron.export import COMMUNICATORS, RELEASE, exported_plan, megatron_arguments
from optimizer.frameworks.megatron.export_model import differing
from optimizer.frameworks.megatron.sbatch import argument_rows, environment
from optimizer.job.job import Job

LOG, EXIT_CODE, LAUNCH, RUNNER, MANIFEST = "train.log", "exit-code", "launch.sh", "run.sh", "trials.json"
PREFIX = "trial-"
BY_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")  # variables that torchrun sets itself
LEARNING_RATE = "1e-5"
PATIENCE = 10.0  # times the predicted step after which a trial hangs
LONGEST_STARTUP = 1200.0  # after which a trial that prints no step is stopped [s] (assumed)


def launch_script(answer: Answer, steps: int) -> str:
    """The script that runs a plan for so many steps with Megatron-LM.

    Raises InputError when the answer holds no plan.
    """
    arguments, job, plan = megatron_arguments(answer), answer.job, exported_plan(answer)
    nodes, per_node = _nodes(job)
    rows = argument_rows(arguments)
    if job.model.experts and job.stack.imbalance <= 1.0:
        rows.append("--moe-router-force-load-balancing")
    variables = {name: value for name, value in environment(job, plan).items() if name not in BY_TORCHRUN}
    return rendered(
        "optimizer.trial",
        "templates/launch.sh",
        release=RELEASE,
        summary=plan.summary(),
        notes=differing(job.model),
        launch=LAUNCH,
        variables=variables,
        communicators=COMMUNICATORS if COMMUNICATORS in arguments else "",
        arguments=rows,
        steps=steps,
        rate=LEARNING_RATE,
        nodes=nodes,
        per_node=per_node,
    )


def trial_name(place: int) -> str:
    """What the folder of a trial is called, counted from 0.

    >>> trial_name(0)
    'trial-01'
    """
    return f"{PREFIX}{place + 1:02d}"


def run_script(job: Job, folder: Path, limit: float) -> str:
    """The script that runs all trials of a folder; each is stopped after so many seconds."""
    nodes, per_node = _nodes(job)
    return rendered(
        "optimizer.trial",
        "templates/run.sh",
        nodes=nodes,
        per_node=per_node,
        limit=round(limit),
        here=shlex.quote(str(folder.resolve())),
        prefix=PREFIX,
        exit_code=EXIT_CODE,
        log=LOG,
        launch=LAUNCH,
        manifest=MANIFEST,
        runner=RUNNER,
    )


def time_limit(slowest: float, steps: int) -> float:
    """When a trial is stopped whose step should take so many seconds [s]."""
    return LONGEST_STARTUP + PATIENCE * steps * slowest


def _nodes(job: Job) -> tuple[int, int]:
    """Nodes, and GPUs of each that are used."""
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    return -(-job.gpus // per_node), per_node
