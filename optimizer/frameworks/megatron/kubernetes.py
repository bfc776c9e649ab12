"""A PyTorchJob of Kubeflow's training operator that launches a plan with Megatron-LM, one pod a node.

Source of the fields and of what the operator sets in each pod (MASTER_ADDR, MASTER_PORT, RANK as the pod's place):
kubeflow/trainer v1.9, manifests/base/crds/kubeflow.org_pytorchjobs.yaml, pkg/controller.v1/pytorch/envvar.go. The label
by which Kueue queues it: kubernetes-sigs/kueue, pkg/controller/constants/constants.go (QueueLabel).
"""

from __future__ import annotations

import re
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
from optimizer.frameworks.megatron.sbatch import environment, run_arguments
from optimizer.frameworks.sbatch import MEETING

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer

GPUS = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
SETTINGS = "/etc/megatron"


def pytorchjob(answer: Answer) -> str:
    """The job and the settings that its pods mount, as YAML.

    Raises InputError when the answer holds no plan, one that Megatron-LM cannot run, or one of nodes that are not full.
    """
    from optimizer.catalog.readers.yaml_nodes import yaml_text

    job, plan = answer.job, exported_plan(answer)
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    if job.gpus % per_node:
        raise InputError(f"a PyTorchJob's pods are alike: {job.gpus} GPUs are no whole nodes of {per_node}")
    name, nodes = dns_name(job.model.name), job.gpus // per_node
    text = communicators(job, answer.knobs)
    pod = _pod(answer, name, per_node, nodes)
    # The operator takes one master and the other pods as workers.
    replicas = {"Master": 1, **({"Worker": nodes - 1} if nodes > 1 else {})}
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-settings"},
            "data": {COMMUNICATORS: text},
        },
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "${QUEUE}"}},
            "spec": {
                "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 10},
                "pytorchReplicaSpecs": {
                    kind: {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}
                    for kind, count in replicas.items()
                },
            },
        },
    ]
    head = template("optimizer.frameworks.megatron", "pytorchjob.txt").format(release=RELEASE, summary=plan.summary())
    return head + yaml_text(documents[not text :])


def dns_name(name: str) -> str:
    r"""A name that Kubernetes takes for an object, whatever a model is called.

    >>> dns_name("Llama3.1-70B"), dns_name("x\n---\nkind: Secret")
    ('llama3-1-70b', 'x-kind-secret')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "model"


def _pod(answer: Answer, name: str, per_node: int, nodes: int) -> dict[str, Any]:
    job, plan = answer.job, exported_plan(answer)
    arguments = [f"{SETTINGS}/{part}" if part == COMMUNICATORS else part for part in megatron_arguments(answer)]
    run = (
        f"exec torchrun --nnodes={nodes} --nproc-per-node={per_node} --node-rank=$RANK"
        " --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /opt/megatron-lm/pretrain_gpt.py"
        f" --save /checkpoints --load /checkpoints {run_arguments(answer)} {shlex.join(arguments)} ${{TRAINING}}"
    )
    variables = {key: value for key, value in environment(job, plan).items() if key not in MEETING}
    mounts = {"checkpoints": "/checkpoints", "memory": "/dev/shm", "settings": SETTINGS}
    text = communicators(job, answer.knobs)
    volumes: list[dict[str, Any]] = [
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "${CHECKPOINTS}"}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "settings", "configMap": {"name": f"{name}-settings"}},
    ]
    mounted = [volume for volume in volumes if text or volume["name"] != "settings"]
    return {
        "containers": [
            {
                "name": "pytorch",
                "image": "${IMAGE}",
                "command": ["bash", "-c", run],
                "env": [{"name": key, "value": value} for key, value in variables.items()],
                "resources": {"limits": {GPUS[job.cluster.device.vendor]: per_node}},
                "volumeMounts": [{"name": volume["name"], "mountPath": mounts[volume["name"]]} for volume in mounted],
            }
        ],
        "volumes": mounted,
    }
