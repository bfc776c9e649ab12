import tomllib
from dataclasses import replace

import pytest

from optimizer.answer import Answer
from optimizer.errors import InputError
from optimizer.exports.torchtitan import torchtitan_toml
from optimizer.plan import Plan


@pytest.fixture
def titan_answer(gpt3_answer: Answer) -> Answer:
    """The plan of GPT-3 as torchtitan can run it."""
    assert gpt3_answer.plan is not None
    plan = replace(gpt3_answer.plan, zero_stage=2, recompute="full")
    return replace(gpt3_answer, plan=plan)


def test_a_pipelined_plan(titan_answer: Answer) -> None:
    config = tomllib.loads(torchtitan_toml(titan_answer))
    parallelism = config["parallelism"]
    assert parallelism["tensor_parallel_degree"] == 8
    assert parallelism["pipeline_parallel_degree"] == 8
    assert parallelism["pipeline_parallel_schedule"] == "Interleaved1F1B"
    stages = parallelism["module_fqns_per_model_part"]
    assert len(stages) == 48
    assert stages[0] == ["tok_embeddings", "layers.0", "layers.1"]
    assert stages[-1] == ["layers.94", "layers.95", "norm", "output"]
    assert parallelism["data_parallel_shard_degree"] == 16
    # One rank of 16 runs 96 micro-batches of one sequence.
    assert config["training"] == {"local_batch_size": 96, "global_batch_size": 1536, "seq_len": 2048}
    assert config["activation_checkpoint"]["mode"] == "full"


def test_fully_sharded_inside_groups(gpt3_answer: Answer) -> None:
    answer = replace(gpt3_answer, plan=Plan(dp=1024, zero_stage=3, shard=8, micro_batch=1))
    parallelism = tomllib.loads(torchtitan_toml(answer))["parallelism"]
    assert (parallelism["data_parallel_replicate_degree"], parallelism["data_parallel_shard_degree"]) == (128, 8)
    assert parallelism["fsdp_reshard_after_forward"] == "always"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"zero_stage": 1}, "ZeRO-1"),
        ({"recompute": "selective"}, "recomputation of selective as priced"),
        ({"recompute_first": 1}, "recomputation of some layers"),
        ({"recompute": "none", "activation_offload": 30}, "activations on the host"),
    ],
)
def test_what_it_would_do_otherwise_is_refused(titan_answer: Answer, changes: dict[str, int], reason: str) -> None:
    assert titan_answer.plan is not None
    with pytest.raises(InputError, match=reason):
        torchtitan_toml(replace(titan_answer, plan=replace(titan_answer.plan, **changes)))
