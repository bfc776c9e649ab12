"""The update of verl's actor, alone of all that a launch of it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InputError, InvalidFile
from optimizer.cli import cli
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches

SHARED = """set -x
python3 -m verl.trainer.main_ppo %s \\
    data.train_batch_size=64 data.max_prompt_length=1024 data.max_response_length=3072 \\
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=8 actor_rollout_ref.rollout.n=4 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2 %s
"""
TP = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"
ON_MEGATRON = (
    "--config-path=config --config-name=ppo_megatron_trainer.yaml",
    f"{TP}=4 actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 ",
)


def fsdp(more: str = "") -> str:
    return SHARED % ("algorithm.adv_estimator=grpo", more)


def megatron(more: str = "") -> str:
    return SHARED % (ON_MEGATRON[0], ON_MEGATRON[1] + more)


def asked(text: str, section: str = "actor") -> LaunchAsRead:
    source = read_launch([File("run.sh", text.encode(), section=section)])
    return launch_as_read(source.launch, Controls(device="h100"), "run.sh")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (fsdp(), {"gpus": 16, "seq_len": 4096, "global_batch": 128, "micro_batch": 2, "zero_stage": 3, "dp": 16}),
        (fsdp(), {"recompute": "full", "fsdp": True}),
        (fsdp("actor_rollout_ref.model.enable_gradient_checkpointing=False"), {"recompute": "none"}),
        (fsdp("actor_rollout_ref.actor.fsdp_config.reshard_after_forward=False"), {"zero_stage": 2}),
        (fsdp("actor_rollout_ref.actor.fsdp_config.fsdp_size=8"), {"shard": 8}),
        (fsdp("actor_rollout_ref.model.lora_rank=64"), {"train": "lora:64"}),
        (fsdp("actor_rollout_ref.model.lora_rank=0"), {"train": None}),
        (fsdp("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"), {"cp": 2, "dp": 8}),
        (
            fsdp("actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192"),
            {"micro_batch": 2},
        ),
        (fsdp("actor_rollout_ref.actor.use_dynamic_bsz=True"), {"micro_batch": 4}),
        (
            megatron(
                "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.megatron.context_parallel_size=2"
            ),
            {"micro_batch": 8, "cp": 2},
        ),
        (
            megatron(),
            {"gpus": 16, "tp": 4, "pp": 2, "dp": 2, "micro_batch": 2, "global_batch": 128, "sequence_parallel": True},
        ),
        (megatron(), {"zero_stage": 1, "recompute": "none", "reduce_overlap": False, "seq_len": 4096}),
        (
            megatron("+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full"),
            {"recompute": "full"},
        ),
    ],
)
def test_what_an_update_is(text: str, said: Mapping[str, Any]) -> None:
    found = asked(text)
    stated = {**found.settings, "fsdp": found.launch.settings.get("fsdp")}
    assert {name: stated.get(name) for name in said} == said
    assert (found.job.model.name, found.launch.unpriced) == ("qwen3-8b", [])


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("actor_rollout_ref.actor.fsdp_config.param_offload=True", "param_offload"),
        ("actor_rollout_ref.actor.fsdp_config.model_dtype=bf16", "model_dtype bf16"),
        ("actor_rollout_ref.model.enable_activation_offload=True", "enable_activation_offload"),
    ],
)
def test_what_an_update_may_cost_besides_is_said(more: str, named: str) -> None:
    assert [named in each for each in asked(fsdp(more)).launch.unpriced] == [True]


def test_the_actor_lies_as_its_reference_does() -> None:
    assert "tp" not in asked(megatron()).launch.fixed
    assert "tp" in asked(megatron("actor_rollout_ref.ref.megatron.tensor_model_parallel_size=4")).launch.fixed


def test_its_keys_are_written() -> None:
    source = read_launch([File("run.sh", megatron().encode(), section="actor")])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(found.job, found.plan, replace(found.plan, tp=2, dp=4, recompute="full"), {})
    inner = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_"
    assert {change.flag: change.after for change in changes} == {
        TP: "2",
        f"{inner}granularity": "full",
        f"{inner}method": "uniform",
        f"{inner}num_layers": "1",
    }


def test_a_default_is_switched_off_by_a_word() -> None:
    source = read_launch([File("run.sh", megatron().encode(), section="actor")])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(found.job, found.plan, replace(found.plan, sequence_parallel=False), {})
    key = "actor_rollout_ref.actor.megatron.sequence_parallel"
    assert [(change.flag, change.after) for change in changes] == [(key, "false")]


def test_the_config_that_hydra_finds_says_what_it_runs_on() -> None:
    text = SHARED % (ON_MEGATRON[0].removesuffix(".yaml"), "")
    source = read_launch([File("run.sh", text.encode(), section="actor")])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    assert (found.job.stack.name, found.plan.tp, found.plan.zero_stage) == ("megatron-core", 1, 1)
    changes = source.changes(found.job, found.plan, replace(found.plan, tp=2, dp=8), {})
    whole = TP.replace("tensor_model_parallel_size", "sequence_parallel")  # on where no key says otherwise
    assert [(change.flag, change.after) for change in changes] == [(TP, "2"), (whole, "false")]
    deep = replace(found.plan, pp=2, vpp=3, dp=8, layers_per_stage=(18, 18))
    keys = {change.flag.rpartition(".")[2] for change in source.changes(found.job, found.plan, deep, {})}
    assert keys == {"pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"}


def test_a_section_is_asked_for_where_there_is_one() -> None:
    with pytest.raises(InvalidFile, match="reinforcement learning is not priced; --section actor prices"):
        asked(fsdp(), "")
    with pytest.raises(InputError, match="only launches of verl have sections"):
        read_launch([File("sft.yaml", launches.TRAINER.encode(), section="actor")], 8)


def test_a_patch_changes_keys_of_the_actor_alone(tmp_path: Path) -> None:
    (path := tmp_path / "run.sh").write_text(fsdp())
    patch = CliRunner().invoke(cli, ["improve", str(path), "--section", "actor", "--diff"], prog_name="optimize")
    added = [line for line in patch.output.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert (patch.exit_code, bool(added)) == (0, True)
    assert "actor_rollout_ref.model.enable_gradient_checkpointing=false" in patch.output


@pytest.mark.parametrize(
    ("more", "assumed"),
    [
        ("", False),
        ("actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192", False),
        ("nothing", True),
    ],
)
def test_micro_batches_of_one_are_assumed_where_nothing_tells_them(more: str, assumed: bool) -> None:
    text = fsdp(more)
    if more:
        text = text.replace("    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\\n", "").replace(
            "nothing", ""
        )
    launch = read_launch([File("run.sh", text.encode(), section="actor")]).launch
    assert ("micro-batches of 1" in launch.assumed) is assumed
