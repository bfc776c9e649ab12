"""A task of SkyPilot that launches a plan with Megatron-LM, one process a GPU on nodes of any of its clouds.

Source of the fields, of how GPUs are called and of what is set on each node (SKYPILOT_NODE_IPS, SKYPILOT_NODE_RANK):
skypilot-org/skypilot 0.14, docs/source/reference/yaml-spec.rst, docs/source/running-jobs/distributed-jobs.rst;
skypilot-org/skypilot-catalog, catalogs/v8.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from optimizer.base.content import template
from optimizer.base.errors import InputError
from optimizer.frameworks.megatron.export import (
    COMMUNICATORS,
    RELEASE,
    communicators,
    exported_plan,
    megatron_arguments,
)
from optimizer.frameworks.megatron.kubernetes import dns_name
from optimizer.frameworks.megatron.sbatch import environment, run_arguments
from optimizer.frameworks.sbatch import MEETING

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer

# What SkyPilot calls devices, by the names of presets.
ACCELERATORS = {
    **{name: name.upper() for name in ("h100", "h200", "b200", "b300", "gb200", "gb300", "l40s", "l4", "t4", "mi300x")},
    **{"a100-40": "A100", "a100-80": "A100-80GB", "v100-16": "V100", "v100-32": "V100-32GB", "a10g": "A10G"},
    **{"gh200": "GH200", "rtx-4090": "RTX4090", "rtx-5090": "RTX5090", "rtx-3090": "RTX3090", "rtx-a6000": "RTXA6000"},
}


def skypilot_task(answer: Answer) -> str:
    """The task, as YAML; data, learning rate and the bucket of checkpoints are given when it is launched.

    Raises InputError when the answer holds no plan, one that Megatron-LM cannot run, one of nodes that are not full, or
    one of devices that SkyPilot has no name for.
    """
    from optimizer.catalog.readers.yaml_nodes import yaml_text

    job, plan = answer.job, exported_plan(answer)
    device, per_node = job.cluster.device.name, min(job.gpus, job.cluster.gpus_per_node)
    if device not in ACCELERATORS:
        raise InputError(f"SkyPilot has no name for {device}")
    if job.gpus % per_node:
        raise InputError(f"SkyPilot's nodes are alike: {job.gpus} GPUs are no whole nodes of {per_node}")
    nodes, settings = job.gpus // per_node, communicators(job, answer.knobs)
    place = f"/tmp/{COMMUNICATORS}"
    arguments = [place if part == COMMUNICATORS else part for part in megatron_arguments(answer)]
    written = f"cat >{place} <<'SETTINGS'\n{settings.rstrip()}\nSETTINGS\n" if settings else ""
    run = (
        f"{written}exec torchrun --nnodes={nodes} --nproc-per-node={per_node} --node-rank=$SKYPILOT_NODE_RANK"
        ' --master-addr=$(echo "$SKYPILOT_NODE_IPS" | head -n 1) --master-port=29500 $MEGATRON/pretrain_gpt.py'
        f" --save /checkpoints --load /checkpoints {run_arguments(answer)} {shlex.join(arguments)} $TRAINING\n"
    )
    variables = {key: value for key, value in environment(job, plan).items() if key not in MEETING}
    task: dict[str, Any] = {
        "name": dns_name(job.model.name),
        "num_nodes": nodes,
        "resources": {"accelerators": f"{ACCELERATORS[device]}:{per_node}", "network_tier": "best"},
        "envs": {"MEGATRON": "/opt/megatron-lm", "CHECKPOINTS": None, "TRAINING": None, **variables},
        "file_mounts": {"/checkpoints": {"source": "${CHECKPOINTS}", "mode": "MOUNT"}},
        "run": run,
    }
    head = template("optimizer.frameworks.megatron", "skypilot.txt").format(release=RELEASE, summary=plan.summary())
    return head + yaml_text([task])
