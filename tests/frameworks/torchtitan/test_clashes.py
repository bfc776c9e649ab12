"""Values that a release of torchtitan refuses together are in no patch, and what is found without them is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.frameworks.torchtitan.config import clash
from optimizer.improve.writable import improve_files

TOML = """[model]
name = "{name}"
flavor = "{flavor}"
[training]
local_batch_size = 4
global_batch_size = 64
seq_len = 4096
"""
PYTHON = """from torchtitan.trainer import Trainer


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=4, global_batch_size=64, seq_len=4096),
        parallelism=ParallelismConfig(),
        activation_checkpoint={policy},
    )
"""
DEGREES = "parallelism.{}_parallel_degree"


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"pipeline": 2, "local": 4}, False),
        ({"pipeline": 2, "local": 1}, True),
        ({"pipeline": 2, "local": 4, "name": "qwen3"}, True),
        ({"context": 2, "name": "deepseek_v3"}, True),
        ({"context": 2}, False),
        ({"data_replicate": 4, "data_shard": 1, "tensor": 2}, True),
        ({"data_replicate": 8, "data_shard": 1}, False),
        ({"tensor": 8, "expert": 2}, True),
        ({"tensor": 4, "expert": 2}, False),
    ],
)
def test_what_releases_with_toml_refuse(values: dict[str, Any], refused: bool) -> None:
    keys = {"name": "model.name", "local": "training.local_batch_size"}
    keys |= {f"data_{way}": f"parallelism.data_parallel_{way}_degree" for way in ("replicate", "shard")}
    stated = {keys.get(name) or DEGREES.format(name): value for name, value in values.items()}
    assert bool(clash(stated, 8)) == refused


def test_heads_of_keys_are_split_whole() -> None:
    assert clash({DEGREES.format("tensor"): 8}, 8, kv_heads=4, python=True)
    assert not clash({DEGREES.format("tensor"): 4}, 8, kv_heads=4, python=True)


def test_a_pipeline_that_qwen3_lacks_is_in_no_edit() -> None:
    text = TOML.format(name="qwen3", flavor="32B").replace("local_batch_size = 4", "local_batch_size = 1")
    source = read_launch([File("t.toml", text.encode())], 64)
    question = launch_as_read(source.launch, Controls(gpus=64, cluster="dgx-a100-40"), "t.toml")
    assert "no pipeline" in source.lacking(source.changes(question.job, question.plan, _piped(question.plan), {}))
    improvement = improve_files(question, source)
    best = improvement.best
    assert best is None or best.after.plan.pp == 1


@pytest.mark.parametrize(("policy", "newer"), [("SelectiveAC.Config()", ""), ("Own()", "disable_cuda_graphs is newer")])
def test_a_pipeline_is_captured_in_no_graph(policy: str, newer: str) -> None:
    source = read_launch([File("own.py", PYTHON.format(policy=policy).encode())], 16)
    question = launch_as_read(source.launch, Controls(gpus=16, cluster="dgx-h100"), "own.py")
    changes = source.changes(question.job, question.plan, _piped(question.plan), {})
    assert newer in source.lacking(changes)
    assert bool(newer) == bool(source.lacking(changes))
    text = next(source.edited(changes))["own.py"].decode()
    assert "config.training.disable_cuda_graphs = True" in text
    assert "expert_tensor" not in text


def _piped(plan: Any) -> Any:
    return replace(plan, pp=2, dp=plan.dp // 2, micro_batch=1, num_microbatches=8, zero_stage=1)
