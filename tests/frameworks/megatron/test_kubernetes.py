from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.frameworks.megatron.kubernetes import pytorchjob


def documents(text: str) -> Iterator[Any]:
    """The objects of a file as Kubernetes has them, which reads YAML 1.1."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)  # type: ignore[assignment]
    yield from yaml.load_all(text)


def test_one_pod_a_node_with_its_gpus_and_the_plan(gpt3_answer: Answer) -> None:
    settings, job = documents(pytorchjob(gpt3_answer))
    specs = job["spec"]["pytorchReplicaSpecs"]
    assert (specs["Master"]["replicas"], specs["Worker"]["replicas"]) == (1, 127)
    pod = specs["Worker"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    run = container["command"][2]
    assert "--nnodes=128 --nproc-per-node=8" in run
    assert "--tensor-model-parallel-size 8" in run
    assert "--nccl-communicator-config-path /etc/megatron/megatron-nccl.json" in run
    assert list(settings["data"]) == ["megatron-nccl.json"]
    assert {"name": "CUDA_DEVICE_MAX_CONNECTIONS", "value": "1"} in container["env"]
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "${QUEUE}"}


def test_nodes_that_are_not_full_are_refused(gpt3_answer: Answer) -> None:
    with pytest.raises(InputError, match="12 GPUs are no whole nodes of 8"):
        pytorchjob(replace(gpt3_answer, job=replace(gpt3_answer.job, gpus=12)))
    single = pytorchjob(replace(gpt3_answer, job=replace(gpt3_answer.job, gpus=4)))
    assert "Worker" not in list(documents(single))[-1]["spec"]["pytorchReplicaSpecs"]


@pytest.mark.parametrize("name", ["x\n---\nkind: Secret", "$(touch OUCH)", 'a"b: {', "${IMAGE}", "\\"])
def test_no_name_of_a_model_is_another_object_or_a_command(gpt3_answer: Answer, name: str) -> None:
    job = replace(gpt3_answer.job, model=replace(gpt3_answer.job.model, name=name))
    found = list(documents(pytorchjob(replace(gpt3_answer, job=job))))
    plain = list(documents(pytorchjob(gpt3_answer)))
    assert [document["kind"] for document in found] == ["ConfigMap", "PyTorchJob"]
    (mine,), (own,) = (
        each[1]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] for each in (found, plain)
    )
    assert mine["command"] == own["command"]
    assert "OUCH" not in pytorchjob(replace(gpt3_answer, job=job))
