"""What a DeepSpeed config beside flags of Megatron-DeepSpeed says: sets, contradicts, leaves unpriced or free."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.read import read_launch
from optimizer.job.plan import Plan

FLAGS = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 8 --bf16 --vocab-size 32000 --deepspeed"
)
NAMED, ZERO, FIRST = "--deepspeed_config ds.json", "zero_optimization", {"zero_optimization": {"stage": 1}}
SIZES = {"train_batch_size": 128, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 128}
OTHERS = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
AGAINST = [
    "--micro-batch-size 1 against train_micro_batch_size_per_gpu 2 in ds.json",
    "--global-batch-size 128 against train_batch_size 64 in ds.json",
    "gradient_accumulation_steps 4 in ds.json against 128 of its script",
    "fp16.enabled fp16 in ds.json against bf16 of its script",
]
FREE = {"steps_per_print": 9, "own": 3}


def launch_of(flags: str, engine: dict[str, Any] | None) -> Launch:
    files = [File("run.sh", f"deepspeed --num_gpus 8 pretrain_gpt.py {FLAGS} {flags}\n".encode())]
    return read_launch([*files, *([] if engine is None else [File("ds.json", json.dumps(engine).encode())])]).launch


@pytest.mark.parametrize(
    ("flags", "engine", "said", "fixed", "unpriced", "ignored"),
    [
        ("", None, {}, (), [], []),
        (NAMED, None, {}, ("micro_batch",), ["the ZeRO stage of ds.json, which was not read"], []),
        (f"--zero-stage 1 {NAMED}", None, {"zero_stage": 1}, ("micro_batch",), [], []),
        (NAMED, {ZERO: {"stage": 2}}, {"zero_stage": 2}, (), [], []),
        ("", {ZERO: {"stage": 2}}, {"zero_stage": 2}, (), [], []),
        (
            f"--zero-stage 3 {NAMED}",
            FIRST,
            {"zero_stage": 3},
            (),
            ["--zero-stage 3 against zero_optimization.stage 1 in ds.json"],
            [],
        ),
        (f"--zero-stage 1 {NAMED}", FIRST, {"zero_stage": 1}, (), [], []),
        (NAMED, {ZERO: {"stage": 1, "offload_optimizer": {"device": "cpu"}}}, {"offload": 1.0}, (), [], []),
        (NAMED, FIRST | SIZES, {}, ("micro_batch", "num_microbatches"), [], []),
        (NAMED, FIRST | OTHERS | {"fp16": {"enabled": True}}, {}, ("micro_batch", "num_microbatches"), AGAINST, []),
        (NAMED, FIRST | FREE, {}, (), [], [*FREE]),
        (
            NAMED,
            {ZERO: {"stage": 1, "reduce_scatter": False, "elastic_checkpoint": True}},
            {},
            (),
            ["zero_optimization.reduce_scatter false"],
            ["zero_optimization.elastic_checkpoint"],
        ),
        (NAMED, FIRST | {"own_quantize": 0}, {}, (), [], []),  # which would count, but is off
    ],
)
def test_a_deepspeed_config_beside_flags(
    flags: str,
    engine: dict[str, Any] | None,
    said: dict[str, Any],
    fixed: tuple[str, ...],
    unpriced: list[str],
    ignored: list[str],
) -> None:
    launch = launch_of(flags, engine)
    assert said.items() <= launch.settings.items()
    assert (launch.fixed, launch.unpriced, launch.ignored) == (("offload", "zero_stage", *fixed), unpriced, ignored)
    told = "ds.json, which was not read, has the script's ZeRO stage and micro-batch" in launch.assumed
    assert told == (engine is None and "--zero-stage" in flags)


def test_a_bucket_of_a_config_is_the_same_whatever_the_plan() -> None:
    launch = launch_of(NAMED, {ZERO: {"stage": 1, "reduce_bucket_size": 4e8}})
    assert (launch.settings["bucket"], launch.following(Plan())) == (8e8, {})
