"""One setting of a plan that changes is these keys of each program, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.megatron_bridge.export import NEW, override_values
from optimizer.frameworks.nemo.export import facts
from optimizer.frameworks.primus.export import overrides, primus_yaml
from optimizer.frameworks.sbatch import MEETING
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan

PLAN = Plan(tp=2, pp=2, dp=4, num_microbatches=16, sequence_parallel=True, zero_stage=1)
Written = Callable[[Job, Plan, Knobs], Mapping[str, Any]]
PROGRAMS: dict[str, tuple[Written, str, str, str]] = {
    "bridge": (
        lambda job, plan, knobs: override_values(job, plan, knobs, NEW),
        *("megatron-bridge-2025", "megatron-bridge", "dgx-h100"),
    ),
    "nemo": (facts, "nemo-2024", "nemo", "dgx-h100"),
    "primus": (overrides, "primus-2025", "primus", "mi300x-8"),
}
MODULES = ["core_attn", "attn_proj"]
# What changes, and for Megatron-Bridge, NeMo and Primus each key with what it says then; None where it goes.
CASES: dict[str, tuple[dict[str, Any] | Knobs, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "virtual stages": (
        {"vpp": 2, "schedule": "interleaved"},
        {
            "model.virtual_pipeline_model_parallel_size": 2,
            **{"model.overlap_p2p_comm": True, "model.batch_p2p_comm": False},
        },
        {"interleaved": True, "plain": False, "--num-layers-per-virtual-pipeline-stage": 8, "vpp": 2},
        {"num_layers_per_virtual_pipeline_stage": 8},
    ),
    "whole states": (
        {"zero_stage": 0},
        {
            **{"ddp.use_distributed_optimizer": False, "ddp.overlap_param_gather": False},
            "optimizer.use_distributed_optimizer": False,
        },
        {"--use-distributed-optimizer": None, "--overlap-param-gather": None},
        {"use_distributed_optimizer": False, "overlap_param_gather": False},
    ),
    "all recomputed": (
        {"recompute": "full"},
        {
            **{"model.recompute_granularity": "full", "model.recompute_method": "uniform"},
            "model.recompute_num_layers": "1",
        },
        {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1},
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    ),
    "three recomputed": (
        {"recompute": "full", "recompute_first": 3},
        {
            **{"model.recompute_granularity": "full", "model.recompute_method": "block"},
            "model.recompute_num_layers": "3",
        },
        {"--recompute-granularity": "full", "--recompute-method": "block", "--recompute-num-layers": 3},
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3},
    ),
    "modules recomputed": (
        {"recompute": "mlp"},
        {"model.recompute_granularity": "selective", "model.recompute_modules": ["mlp"]},
        {"--recompute-granularity": "selective", "--recompute-modules": ["mlp"]},
        {"recompute_granularity": "selective", "recompute_modules": ["mlp"]},
    ),
    "attention recomputed": (
        {"recompute": "selective"},
        {"model.recompute_granularity": "selective", "model.recompute_modules": ["core_attn"]},
        {"--recompute-granularity": "selective", "--recompute-modules": ["core_attn"]},
        {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
    ),
    "contexts": (
        {"cp": 2, "dp": 2, "num_microbatches": 32},
        {"model.context_parallel_size": "2"},
        {"--context-parallel-size": 2},
        {"context_parallel_size": 2},
    ),
    "whole sequences": (
        {"sequence_parallel": False},
        {"model.sequence_parallel": False, "model.tp_comm_overlap": False},
        {"--sequence-parallel": None, "--tp-comm-overlap": None},
        {"sequence_parallel": False},
    ),
    "layers": (
        {"layers_per_stage": (15, 17)},
        {"model.num_layers_in_first_pipeline_stage": "15"},
        {"--decoder-first-pipeline-num-layers": 15},
        {"decoder_first_pipeline_num_layers": 15},
    ),
    "even layers": ({"layers_per_stage": (16, 16)}, {}, {}, {}),
    "groups": (
        {"shard": 2},
        {"ddp.num_distributed_optimizer_instances": "2"},
        {"--num-distributed-optimizer-instances": 2},
        {"num_distributed_optimizer_instances": 2},
    ),
    "one group": ({"shard": 4}, {}, {}, {}),
    "activations on the host": (
        {"activation_offload": 100},
        {
            **{"model.fine_grained_activation_offloading": True, "model.offload_modules": MODULES},
            "model.activation_offload_fraction": 1.0,
        },
        {
            **{"--fine-grained-activation-offloading": True, "--offload-modules": MODULES},
            "--activation-offload-fraction": 1,
        },
        {"fine_grained_activation_offloading": True, "offload_modules": MODULES, "activation_offload_fraction": 1},
    ),
    "micro-batches": (
        {"micro_batch": 2, "num_microbatches": 8},
        {"train.micro_batch_size": "2"},
        {"--micro-batch-size": 2},
        {"micro_batch_size": 2},
    ),
    "buckets": (
        Knobs(bucket=4e8),
        {"ddp.bucket_size": "200000000"},
        {"--ddp-bucket-size": 200_000_000},
        {"ddp_bucket_size": 100_000_000},
    ),
    "states on the host": (
        Knobs(offload=1.0),
        {
            **{"optimizer.optimizer_cpu_offload": True, "optimizer.optimizer_offload_fraction": "1.0"},
            "optimizer.use_precision_aware_optimizer": True,
        },
        {
            **{"--optimizer-cpu-offload": True, "--optimizer-offload-fraction": 1.0},
            "--use-precision-aware-optimizer": True,
        },
        {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0, "use_precision_aware_optimizer": True},
    ),
    "multiprocessors": (Knobs(comm_sm_share=0.05), {}, {}, {}),  # in a file beside them
}


@cache
def job_of(stack: str, target: str, cluster: str) -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster(cluster),
        stack=aimed(load_stack(stack), target),
        gpus=16,
        seq_len=8192,
        global_batch=64,
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_setting_is_its_keys_and_no_others(program: str, name: str) -> None:
    written, *names = PROGRAMS[program]
    job = job_of(*names)
    change, *expected = CASES[name]
    plan = PLAN if isinstance(change, Knobs) else replace(PLAN, **change)
    knobs = change if isinstance(change, Knobs) else Knobs()
    before, after = written(job, PLAN, Knobs()), written(job, plan, knobs)
    differ = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert {key: after.get(key) for key in differ} == expected[list(PROGRAMS).index(program)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_format_is_its_keys_and_no_others(program: str) -> None:
    written, *names = PROGRAMS[program]
    job = job_of(*names)
    before, after = (written(replace(job, dtype=dtype), PLAN, Knobs()) for dtype in ("bf16", "fp8"))
    differ = {key: after[key] for key in after if before.get(key) != after[key]}
    wanted = {
        "bridge": {"mixed_precision": {**before.get("mixed_precision", {}), "fp8": "hybrid", "fp8_recipe": "delayed"}},
        "nemo": {"--fp8-format": "hybrid", "fp8_recipe": "delayed"},
        "primus": {"fp8": "hybrid"},
    }
    assert differ == wanted[program]
    assert {*before} <= {*after}


def test_primus_is_told_its_environment_but_for_where_nodes_meet() -> None:
    _, stack, target, cluster = PROGRAMS["primus"]
    parts = {
        "model": load_model("llama3-8b"),
        "cluster": load_cluster(cluster),
        "stack": aimed(load_stack(stack), target),
    }
    job = Job(**parts, gpus=16, seq_len=8192, global_batch=64)
    header = primus_yaml(Answer(status="optimal", job=job, plan=PLAN)).splitlines()[1]
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1 " in header
    assert not any(name in header for name in MEETING)
