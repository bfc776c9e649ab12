"""Primus' YAML for a plan on Megatron-LM: `primus-cli direct -- train pretrain --config primus.yaml`.

It hands its keys to Megatron-LM without its parser, so that every value has the type that this makes of it.
Source of the keys: keys.toml; AMD-AGI/Primus @fd1eeabb, primus/core/launcher/parser.py,
primus/backends/megatron/argument_builder.py and patches (DeepEP by its own kernels, use_turbo_deepep).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimizer.base.content import content
from optimizer.catalog.readers.yaml_nodes import yaml_file
from optimizer.frameworks.framework import ExportFiles
from optimizer.frameworks.megatron.export import COMMUNICATORS, communicators_file, plan_flags, typed
from optimizer.frameworks.megatron.export import unexpressed as unexpressed_by_megatron
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.frameworks.sbatch import MEETING, config_script
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

TABLES: Mapping[str, Any] = content("optimizer.frameworks.primus", "keys.toml")
TASK = """export NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID GPUS_PER_NODE={gpus}
    exec "$@\""""
DEEPEP = {"enable_primus_turbo": True, "use_turbo_deepep": True}


def primus_yaml(answer: Answer) -> str:
    """What PrimusParser reads; tokenizer, data, schedule and checkpoints are yours.

    Raises InputError when the answer holds no plan, or one that Primus cannot run.
    """
    job, plan = runnable(answer, "Primus", unexpressed)
    trainer = {
        "framework": "megatron",
        "config": "pre_trainer.yaml",
        "model": "language_model.yaml",
        "overrides": overrides(job, plan, answer.knobs),
    }
    values = {
        "work_group": "optimize",
        "user_name": "optimize",
        "exp_name": job.model.name,
        "workspace": "./output",
        "modules": {"pre_trainer": trainer},
    }
    exports = " ".join(f"{name}={value}" for name, value in environment(job, plan).items() if name not in MEETING)
    command = f"{exports} primus-cli direct -- train pretrain --config primus.yaml".lstrip()
    return yaml_file([f"Primus: {plan.summary()}", command, "Add tokenizer_type, tokenizer_model and data."], values)


def overrides(job: Job, plan: Plan, knobs: Knobs) -> dict[str, object]:
    """Keys of the plan and the model, over what Primus sets by itself."""
    values: dict[str, object] = dict(TABLES["usual"])
    for flag, text in plan_flags(job, plan, knobs).items():
        name = TABLES["names"].get(flag, flag[2:].replace("-", "_"))
        values |= name if isinstance(name, dict) else {name: typed(flag, text)}
    values["gradient_accumulation_fusion"] = job.stack.features.fused_accumulation
    if plan.dispatcher == "deepep" and plan.ep * plan.etp > 1:
        values |= DEEPEP
    return values


def unexpressed(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What Primus lacks to run the plan of this model as it is priced, in words; nothing where it can."""
    device = job.cluster.device
    missing = {
        f"the device {device.name} ({device.vendor})": device.vendor != "AMD",
        f"the dispatcher {plan.dispatcher}": plan.ep > 1 and plan.dispatcher not in ("alltoall", "deepep"),
        f"the number format {job.dtype}": job.dtype not in ("bf16", "fp16", "fp8"),
    }
    return (*unexpressed_by_megatron(job, plan, knobs), *lacks(missing))


def primus_sbatch(answer: Answer) -> str:
    """Slurm's script around it: Primus' own launcher on each node.

    Source: the same, runner/primus-cli-direct.sh.

    Raises InputError when the answer holds no plan, one that Primus cannot run, or one of nodes that are not full.
    """
    job, plan = runnable(answer, "Primus", unexpressed)
    script = config_script(
        "Primus",
        "primus.yaml",
        task=TASK.format(gpus=min(job.gpus, job.cluster.gpus_per_node)),
        words='"$program/primus-cli" direct -- train pretrain --config primus.yaml',
        environment=environment(job, plan),
    )
    return script.text(job, plan)


FILES = ExportFiles(
    files={COMMUNICATORS: communicators_file, "primus.yaml": primus_yaml, "primus.sbatch": primus_sbatch},
    companions=(COMMUNICATORS,),
)
