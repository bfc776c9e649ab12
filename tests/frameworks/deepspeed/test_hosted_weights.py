"""Weights on the host, as DeepSpeed, Accelerate, the Trainer and torchtune say it; and Liger's kernels, which pay."""

from __future__ import annotations

import json

import pytest

from optimizer.frameworks.deepspeed.config import write
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price

TRAINER = """model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
gradient_checkpointing: true
max_length: 2048
bf16: true
"""
ZERO = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}


def launch_of(text: str, gpus: int = 2) -> Launch:
    return read_launch([File("config.yaml", text.encode())], gpus, "llama3.1-8b").launch


def asked(text: str, gpus: int = 2) -> LaunchAsRead:
    return launch_as_read(launch_of(text, gpus=gpus), Controls(device="rtx-4090", gpus=gpus), "config.yaml")


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("fsdp: full_shard auto_wrap offload\n", 64),
        ("fsdp: full_shard auto_wrap offload\nbf16: false\n", 32),
        ("fsdp_config: {fsdp_reshard_after_forward: true, fsdp_offload_params: true}\n", 64),
        ("deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, offload_param_device: cpu}\n", 64),
        ("zero_optimization: " + json.dumps(ZERO) + "\n", 64),
    ],
)
def test_they_are_read(text: str, memory: int) -> None:
    """States are in fp32 in DeepSpeed, and in FSDP where formats are mixed."""
    text = (TRAINER.replace("bf16: true\n", "") if "bf16" in text else TRAINER) + text
    launch = launch_of(text)
    assert launch.settings["hosted_weights"] is True
    assert not launch.unsearched
    whole = (
        "gradients are whole on each GPU until the last micro-batch, as Accelerate's FSDP has them, beside weights on"
    )
    assert (f"{whole} the host" in launch.unpriced) == ("fsdp" in text)
    question = asked(text)
    assert question.job.stack.features.hosted_weights
    assert any(sentence.startswith(f"{memory} GB of host memory for each GPU") for sentence in question.launch.assumed)


@pytest.mark.parametrize("held", ["offload_optimizer", "offload_param"])
def test_what_lies_on_drives_is_as_far_as_they_are(held: str) -> None:
    """Ten times slower than the host's memory, and no room of the host is asked for."""
    host, drives = (
        asked(TRAINER + "zero_optimization: " + json.dumps(ZERO | {held: {"device": device}}) + "\n")
        for device in ("cpu", "nvme")
    )
    assert drives.job.cluster.host_bandwidth == 1.6e9 < host.job.cluster.host_bandwidth
    assert drives.job.cluster.host_memory == 0.0 < host.job.cluster.host_memory
    (said,) = [sentence for sentence in drives.launch.assumed if "drives of 1.6 GB/s a GPU" in sentence]
    assert f"{held}.device nvme" in said
    slow, fast = (float(price(each.job, Plans.of([each.plan]), each.knobs).step_time[0]) for each in (drives, host))
    assert slow > 2 * fast


@pytest.mark.parametrize("states", [{"device": "none"}, {"device": "cpu", "ratio": 0.5}])
def test_half_of_it_is_told(states: dict[str, object]) -> None:
    """DeepSpeed's weights on the host with states on the device are not priced, and that is said."""
    launch = launch_of(TRAINER + "zero_optimization: " + json.dumps(ZERO | {"offload_optimizer": states}) + "\n")
    assert "hosted_weights" not in launch.settings
    assert any("offload_param" in sentence for sentence in launch.unsearched)


def test_another_stage_takes_them_back() -> None:
    question = asked(TRAINER + "fsdp: full_shard offload\n")
    values = {"fsdp": "full_shard offload"}
    turned = write(values, question.job, question.plan, question.plan, {"hosted_weights": False})
    assert turned == {"fsdp": "full_shard"}
    config = {"zero_optimization.stage": 3, "zero_optimization.offload_param.device": "cpu"}
    assert write(config, question.job, question.plan, question.plan, {}) == {}


def test_a_larger_micro_batch_that_is_sure_to_fit_is_offered() -> None:
    """The fastest micro-batch fits with 83 %; the largest that is sure gains too, and a patch can have it."""
    pure = TRAINER.replace("bf16: true", "bf16: false")
    edits = improve(asked(pure + "fsdp: full_shard offload\nuse_liger_kernel: false\n")).edits
    sure = [edit.after.plan.micro_batch for edit in edits if edit.names == {"micro_batch"} and edit.sure]
    assert sure
    assert min(sure) > 1


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("use_peft: true\n", "use_liger_kernel"),
        ("stage: sft\nfinetuning_type: lora\n", "enable_liger_kernel"),
    ],
)
def test_liger_is_an_edit(more: str, key: str) -> None:
    question = asked(TRAINER + more, gpus=1)
    edit = next(edit for edit in improve(question).edits if "liger" in edit.names)
    assert edit.gain > 0.02
    assert edit.after.job.stack.features.loss_chunks == 0
    values = {"use_peft": True} if key.startswith("use") else {"finetuning_type": "lora"}
    assert write(values, question.job, question.plan, question.plan, {"liger": "on"}) == {key: True}


def test_paged_states_in_fp32_have_a_name() -> None:
    assert launch_of(TRAINER + "optim: paged_adamw_32bit\n").settings["optimizer"] == "paged-adamw"
