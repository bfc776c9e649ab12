"""Keys that a config would need for another plan, one change at a time, of each framework whose writer decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from optimizer.frameworks.deepspeed.config import write as deepspeed
from optimizer.frameworks.gpt_neox.config import write as gpt_neox
from optimizer.frameworks.llm_foundry.config import write as llm_foundry
from optimizer.frameworks.maxtext.config import write as maxtext
from optimizer.frameworks.nanotron.config import write as nanotron
from optimizer.frameworks.torchtitan.config import write as torchtitan
from optimizer.job.plan import Plan
from tests.search.jobs import small_job

Keys = Mapping[str, Any]
Case = tuple[Keys, dict[str, Any], dict[str, Any], Keys]

MICRO, STEPS, STAGE = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization.stage"
CHECKPOINT, OFFLOADING = "gradient_checkpointing", "activation_offloading"
SHARDS = "parallelism_config.parallelism_config_dp_shard_size"  # its files repeat the name of their section
MESH = {SHARDS: 8}
FACTORY = {"stage": "sft", "finetuning_type": "full"}

# What a config says, the plan that it runs, the one that it should run, and the keys that change.
DEEPSPEED: tuple[Case, ...] = (
    ({}, {}, {"micro_batch": 2}, {MICRO: 2}),
    ({"micro_batch_size": 1}, {}, {"micro_batch": 2}, {"micro_batch_size": 2}),
    ({MICRO: "auto", "micro_batch_size": 1}, {}, {"micro_batch": 2}, {"micro_batch_size": 2}),
    ({MICRO: 1, "micro_batch_size": 1}, {}, {"micro_batch": 2}, {MICRO: 2, "micro_batch_size": 2}),
    ({}, {}, {"num_microbatches": 2}, {STEPS: 2}),
    ({"train_batch_size": 48}, {}, {"num_microbatches": 2}, {}),  # follows from the others
    ({"train_batch_size": 48, STEPS: 1}, {}, {"num_microbatches": 2}, {STEPS: 2}),
    ({STAGE: 1}, {}, {"zero_stage": 3}, {STAGE: 3}),
    ({STAGE: 3, "fsdp": "full_shard"}, {"zero_stage": 3}, {"zero_stage": 2}, {STAGE: 2}),
    ({CHECKPOINT: True}, {"recompute": "full"}, {}, {CHECKPOINT: False}),
    ({}, {}, {"recompute": "full"}, {CHECKPOINT: True}),
    (
        {"fsdp_config.activation_checkpointing": False},
        {},
        {"recompute": "full"},
        {"fsdp_config.activation_checkpointing": True},
    ),
    (FACTORY, {"recompute": "full"}, {}, {"disable_gradient_checkpointing": True}),
    (FACTORY, {}, {"recompute": "full"}, {"disable_gradient_checkpointing": False}),
    (
        {**FACTORY, CHECKPOINT: True},
        {"recompute": "full"},
        {},
        {CHECKPOINT: False, "disable_gradient_checkpointing": True},
    ),
    ({OFFLOADING: False}, {}, {"activation_offload": 100}, {OFFLOADING: True}),
    ({"base_model": "a", OFFLOADING: False}, {}, {"activation_offload": 100}, {OFFLOADING: "hidden_states"}),
    (
        {OFFLOADING: True, "use_unsloth_gc": True},
        {"activation_offload": 100},
        {},
        {OFFLOADING: False, "use_unsloth_gc": False},
    ),
    ({OFFLOADING: False, "use_unsloth_gc": False}, {}, {"activation_offload": 100}, {OFFLOADING: True}),
    (
        MESH,
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "tp": 2, "zero_stage": 3},
        {
            "parallelism_config.dp_replicate_size": 1,
            SHARDS: 4,
            "parallelism_config.tp_size": 2,
            "parallelism_config.cp_size": 1,
        },
    ),
    (
        MESH,
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "cp": 2, "shard": 4, "zero_stage": 3},
        {
            "parallelism_config.dp_replicate_size": 2,
            SHARDS: 2,
            "parallelism_config.tp_size": 1,
            "parallelism_config.cp_size": 2,
        },
    ),
    (MESH, {"dp": 8, "zero_stage": 3}, {"dp": 8, "zero_stage": 3, "micro_batch": 2}, {MICRO: 2}),
    (
        {**MESH, STAGE: 3},
        {"dp": 8, "zero_stage": 3},
        {"dp": 8, "zero_stage": 0},
        {
            STAGE: 0,
            "parallelism_config.dp_replicate_size": 8,
            SHARDS: 1,
            "parallelism_config.tp_size": 1,
            "parallelism_config.cp_size": 1,
        },
    ),
)
TURNED: tuple[tuple[dict[str, Any], Keys], ...] = (
    ({"reduce_overlap": True}, {"zero_optimization.overlap_comm": True}),
    ({"gather_overlap": True}, {"zero_optimization.overlap_comm": True}),
    ({"reduce_overlap": False, "gather_overlap": True}, {"zero_optimization.overlap_comm": False}),
    ({"bucket": 4e8}, {"zero_optimization.reduce_bucket_size": 200_000_000}),  # elements of two bytes
    ({"offload": 1.0}, {"zero_optimization.offload_optimizer.device": "cpu"}),
    ({"offload": 0.0}, {"zero_optimization.offload_optimizer.device": "none"}),
    ({}, {}),
)

LOCAL, GLOBAL, TOKENS = (
    f"training.{name}" for name in ("local_batch_size", "global_batch_size", "num_tokens_per_microbatch_per_dp_rank")
)
DEGREES = {name: f"parallelism.{name}_parallel_degree" for name in ("tensor", "pipeline", "context")}
SHARD, COPIES = (f"parallelism.data_parallel_{name}_degree" for name in ("shard", "replicate"))
RESHARD, SCHEDULE = "parallelism.fsdp_reshard_after_forward", "parallelism.pipeline_parallel_schedule"
SLICE = "parallelism.pipeline_parallel_microbatch_size"
# 48 sequences of 4,096 tokens; of 8 replicas with one sequence each the batch of a step is stated.
TITAN: tuple[Case, ...] = (
    ({}, {"dp": 8, "zero_stage": 3}, {"dp": 8, "zero_stage": 3}, {LOCAL: 1, GLOBAL: 48}),
    ({}, {"dp": 8, "zero_stage": 3}, {"dp": 8, "micro_batch": 6, "zero_stage": 3}, {LOCAL: 6}),
    (
        {"training.batch_size": 1},
        {"dp": 8, "zero_stage": 3},
        {"dp": 8, "micro_batch": 6, "zero_stage": 3},
        {"training.batch_size": 6},
    ),
    (
        {},
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "tp": 2, "micro_batch": 12, "zero_stage": 3},
        {LOCAL: 12, DEGREES["tensor"]: 2},
    ),
    (
        {},
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "pp": 2, "micro_batch": 2, "num_microbatches": 6, "zero_stage": 1},
        {LOCAL: 12, SLICE: 2, DEGREES["pipeline"]: 2},
    ),
    (
        {},
        {"dp": 4, "pp": 2, "zero_stage": 1},
        {"dp": 4, "pp": 2, "micro_batch": 2, "num_microbatches": 6, "zero_stage": 3},
        {LOCAL: 12, SLICE: 2, RESHARD: "always"},
    ),
    (
        {},
        {"dp": 4, "pp": 2, "zero_stage": 1},
        {"dp": 4, "pp": 2, "vpp": 2, "num_microbatches": 12, "zero_stage": 1},
        {LOCAL: 12, SLICE: 1, SCHEDULE: "Interleaved1F1B"},
    ),
    (
        {},
        {"dp": 4, "pp": 2, "vpp": 2, "zero_stage": 1},
        {"dp": 4, "pp": 2, "num_microbatches": 12, "zero_stage": 1},
        {LOCAL: 12, SLICE: 1, SCHEDULE: "1F1B"},
    ),
    (
        {"training.seq_len": 4096},
        {"dp": 8, "zero_stage": 3},
        {"dp": 8, "micro_batch": 6, "zero_stage": 2},
        {LOCAL: 6, RESHARD: "never"},
    ),
    (
        {},
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "cp": 2, "micro_batch": 12, "zero_stage": 0},
        {LOCAL: 12, DEGREES["context"]: 2, SHARD: 1, COPIES: 8},
    ),
    (
        {},
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "cp": 2, "shard": 4, "micro_batch": 12, "zero_stage": 3},
        {LOCAL: 12, DEGREES["context"]: 2, SHARD: 2, COPIES: 2},
    ),
    (
        {SHARD: 4, COPIES: 2},
        {"dp": 8, "shard": 4, "zero_stage": 3},
        {"dp": 4, "tp": 2, "shard": 4, "micro_batch": 12, "zero_stage": 3},
        {LOCAL: 12, DEGREES["tensor"]: 2, SHARD: 4, COPIES: 1},
    ),
    (
        {},
        {"dp": 8, "zero_stage": 0},
        {"dp": 8, "micro_batch": 6, "zero_stage": 3},
        {LOCAL: 6, SHARD: 8},
    ),
    (
        {"parallelism.enable_sequence_parallel": False},
        {"dp": 4, "tp": 2, "zero_stage": 3},
        {"dp": 4, "tp": 2, "micro_batch": 12, "sequence_parallel": True, "zero_stage": 3},
        {LOCAL: 12, "parallelism.enable_sequence_parallel": True},
    ),
    (
        {},
        {"dp": 8, "zero_stage": 3},
        {"dp": 8, "micro_batch": 6, "recompute": "full", "zero_stage": 3},
        {LOCAL: 6, "activation_checkpoint.mode": "full"},
    ),
    (
        {"training.max_context_length": 4096},
        {"dp": 8, "zero_stage": 3},
        {"dp": 8, "micro_batch": 3, "zero_stage": 3},
        {TOKENS: 3 * 4096, "training.num_tokens_per_train_step": 48 * 4096},
    ),
    (
        {"training.max_context_length": 4096},
        {"dp": 4, "pp": 2, "zero_stage": 1},
        {"dp": 4, "pp": 2, "micro_batch": 2, "num_microbatches": 6, "zero_stage": 1},
        {TOKENS: 2 * 4096, "parallelism.num_pp_microbatches": 6},
    ),
)
BATCH, POLICY = "per_device_batch_size", "remat_policy"
MAXTEXT: tuple[Case, ...] = (
    ({}, {}, {"micro_batch": 2}, {BATCH: 2}),
    ({}, {}, {"num_microbatches": 3}, {STEPS: 3}),
    ({}, {}, {"zero_stage": 3}, {"shard_optimizer_over_data": False}),
    ({}, {"zero_stage": 3}, {"zero_stage": 1}, {"shard_optimizer_over_data": True}),
    ({}, {}, {"recompute": "full"}, {POLICY: "full"}),
    (
        {"ici_fsdp_parallelism": 8},
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "tp": 2, "zero_stage": 3},
        {"ici_fsdp_parallelism": 4, "ici_tensor_parallelism": 2, BATCH: 0.5},
    ),
    ({}, {"pp": 2}, {"pp": 2, "num_microbatches": 4, "micro_batch": 2}, {"num_pipeline_microbatches": 4}),
    ({STEPS: 2}, {"pp": 2}, {"pp": 2, "num_microbatches": 4}, {"num_pipeline_microbatches": 2}),
    ({STEPS: 3}, {"pp": 2}, {"pp": 2, "num_microbatches": 4, "recompute": "full"}, {POLICY: "full"}),
)
NANOTRON: tuple[Case, ...] = (
    ({}, {"tp": 2}, {"tp": 2, "sequence_parallel": True}, {"parallelism.tp_mode": "REDUCE_SCATTER"}),
    (
        {"parallelism.tp_linear_async_communication": True},
        {"tp": 2, "sequence_parallel": True},
        {"tp": 2},
        {"parallelism.tp_mode": "ALL_REDUCE", "parallelism.tp_linear_async_communication": False},
    ),
    ({}, {"tp": 2, "sequence_parallel": True}, {"tp": 1, "dp": 2}, {"parallelism.tp": 1, "parallelism.dp": 2}),
    (
        {"model.model_config.moe_num_experts": 8, "parallelism.dp": 4},
        {"dp": 8, "ep": 2},
        {"dp": 8, "ep": 4},
        {"parallelism.expert_parallel_size": 4, "parallelism.dp": 2},
    ),
    ({}, {}, {"recompute": "full"}, {"parallelism.recompute_layer": True}),
)
FOUNDRY: tuple[Case, ...] = (
    ({}, {}, {"micro_batch": 2}, {"device_train_microbatch_size": 2}),
    ({"device_train_microbatch_size": "auto"}, {}, {}, {"device_train_microbatch_size": 1}),
    ({}, {"zero_stage": 2}, {"zero_stage": 3}, {"fsdp_config.sharding_strategy": "FULL_SHARD"}),
    ({}, {"zero_stage": 3}, {"zero_stage": 2}, {"fsdp_config.sharding_strategy": "SHARD_GRAD_OP"}),
    ({}, {"zero_stage": 3}, {"zero_stage": 0}, {"fsdp_config.sharding_strategy": "NO_SHARD"}),
    (
        {},
        {"dp": 16, "zero_stage": 3},
        {"dp": 16, "zero_stage": 3, "shard": 8},
        {"fsdp_config.sharding_strategy": "HYBRID_SHARD"},
    ),
    ({}, {}, {"recompute": "full"}, {"fsdp_config.activation_checkpointing": True}),
    ({}, {"activation_offload": 100}, {}, {"fsdp_config.activation_cpu_offload": False}),
)
NEOX: tuple[Case, ...] = (
    ({"pipe-parallel-size": 1}, {}, {"pp": 2}, {"pipe-parallel-size": 2}),
    ({}, {}, {"tp": 2, "zero_stage": 3}, {"model_parallel_size": 2, STAGE: 3}),
    ({}, {"recompute": "full"}, {}, {"checkpoint_activations": False}),
    ({}, {}, {"sequence_parallel": True}, {"sequence_parallel": True}),
)
WRITERS = {
    deepspeed: DEEPSPEED,
    torchtitan: TITAN,
    maxtext: MAXTEXT,
    nanotron: NANOTRON,
    llm_foundry: FOUNDRY,
    gpt_neox: NEOX,
}


@pytest.mark.parametrize(("write", "case"), [(write, case) for write, cases in WRITERS.items() for case in cases])
def test_keys_of_another_plan(write: Any, case: Case) -> None:
    values, before, after, keys = case
    assert write(values, small_job(), Plan(**before), Plan(**after), {}) == keys


@pytest.mark.parametrize(("turned", "keys"), TURNED)
def test_keys_of_settings_of_deepspeed(turned: dict[str, Any], keys: Keys) -> None:
    assert deepspeed({}, small_job(), Plan(), Plan(), turned) == keys
