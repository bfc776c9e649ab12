"""A task of SkyPilot runs the plan: nodes, GPUs, arguments and what is left to whoever launches it."""

import json
import shlex
from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.frameworks.megatron.export import megatron_arguments
from optimizer.frameworks.megatron.skypilot import ACCELERATORS, skypilot_task


def test_a_task_has_the_nodes_and_the_arguments_of_the_plan(gpt3_answer: Answer) -> None:
    text = skypilot_task(gpt3_answer)
    task = YAML(typ="safe", pure=True).load(text)
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (128, "H100:8")
    assert {name for name, value in task["envs"].items() if value is None} == {"CHECKPOINTS", "TRAINING"}
    settings, _, run = task["run"].partition("\nSETTINGS\n")
    assert json.loads(settings.partition("\n")[2])
    words = shlex.split(run)
    assert words[:4] == ["exec", "torchrun", "--nnodes=128", "--nproc-per-node=8"]
    arguments = [part for part in megatron_arguments(gpt3_answer) if not part.endswith(".json")]
    assert [word for word in words if word in arguments] == arguments
    assert words[-1] == "$TRAINING"


def test_what_skypilot_cannot_give_is_refused(gpt3_answer: Answer) -> None:
    job = gpt3_answer.job
    with pytest.raises(InputError, match="12 GPUs are no whole nodes of 8"):
        skypilot_task(replace(gpt3_answer, job=replace(job, gpus=12)))
    cluster = replace(job.cluster, device=replace(job.cluster.device, name="own"))
    with pytest.raises(InputError, match="SkyPilot has no name for own"):
        skypilot_task(replace(gpt3_answer, job=replace(job, cluster=cluster)))


def test_names_of_models_stay_inside_of_their_field(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, model=replace(gpt3_answer.job.model, name="x\nrun: rm -rf /\n"))
    assert YAML(typ="safe", pure=True).load(skypilot_task(replace(gpt3_answer, job=job)))["name"] == "x-run-rm-rf"


def test_every_device_that_has_a_name_there_is_a_preset() -> None:
    from optimizer.catalog import device_names

    assert set(ACCELERATORS) <= set(device_names())
