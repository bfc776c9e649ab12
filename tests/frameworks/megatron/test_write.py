"""Flags that a script would need for another plan, one change at a time, of each program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.megatron.flag_names import MEGATRON, MEGATRON_DEEPSPEED
from optimizer.frameworks.megatron.write import INTERLEAVED, flag_changes
from optimizer.job.plan import Plan
from tests.search.jobs import DENSE as DENSE_MODEL
from tests.search.jobs import MIXTURE, small_job

TP, PP, CP, EP = (f"--{name}-parallel-size" for name in ("tensor-model", "pipeline-model", "context", "expert-model"))
ETP, DS_EP, ULYSSES = "--expert-tensor-parallel-size", "--moe-expert-parallel-size", "--ds-sequence-parallel-size"
VIRTUAL, SPLIT = "--num-layers-per-virtual-pipeline-stage", "--pipeline-model-parallel-layout"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
DISTRIBUTED, GATHER, REDUCE = "--use-distributed-optimizer", "--overlap-param-gather", "--overlap-grad-reduce"
FSDP, STRATEGY, GROUPS = (
    *("--use-megatron-fsdp", "--data-parallel-sharding-strategy"),
    "--num-distributed-optimizer-instances",
)
FORMAT, OWN, BATCH = "--ckpt-format", "fsdp_dtensor", "--global-batch-size"
DISPATCHER, BACKEND, ROUTER = "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend", "--moe-router-dtype"
GRANULARITY, METHOD, COUNT, MODULES = (
    f"--recompute-{name}" for name in ("granularity", "method", "num-layers", "modules")
)
ACTIVATIONS, CHECKPOINT = "--recompute-activations", "--checkpoint-activations"
DS_CHECKPOINT = "--deepspeed-activation-checkpointing"
BUBBLE, PENDING = "--enable-zero-bubble", "--zero-bubble-max-pending-backward"
HOST, SHARE, AWARE = "--optimizer-cpu-offload", "--optimizer-offload-fraction", "--use-precision-aware-optimizer"
OVERLAP, DELAY = "--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"
KEPT, WHICH, KEPT_SHARE = (
    *("--fine-grained-activation-offloading", "--offload-modules"),
    "--activation-offload-fraction",
)

Words = dict[str, str]
Case = tuple[Words, dict[str, Any], dict[str, Any], dict[str, str | None]]

# What a script has, the plan that it runs, the one that it should run, and the flags that change: None where they go.
DENSE: tuple[Case, ...] = (
    ({TP: "2"}, {"tp": 2}, {"tp": 4}, {TP: "4"}),
    ({}, {"tp": 2}, {"tp": 1}, {}),  # one is the default
    ({TP: "2"}, {"tp": 2}, {"tp": 1}, {TP: "1"}),
    ({}, {"cp": 1}, {"cp": 2}, {CP: "2"}),
    ({ULYSSES: "2"}, {"cp": 2}, {"cp": 4}, {ULYSSES: "4"}),
    ({}, {"sequence_parallel": False}, {"sequence_parallel": True}, {"--sequence-parallel": ""}),
    ({"--sequence-parallel": ""}, {"sequence_parallel": True}, {}, {"--sequence-parallel": None}),
    ({PP: "2"}, {"pp": 2}, {"pp": 3}, {PP: "3"}),
    ({PP: "2", VIRTUAL: "3"}, {"pp": 2, "vpp": 2}, {"pp": 2, "vpp": 3}, {VIRTUAL: "2"}),
    ({PP: "2", VIRTUAL: "3"}, {"pp": 2, "vpp": 2}, {"pp": 2}, {VIRTUAL: None}),
    ({PP: "2", VIRTUAL: "3", INTERLEAVED: ""}, {"pp": 2, "vpp": 2}, {"pp": 2}, {VIRTUAL: None, INTERLEAVED: None}),
    ({PP: "2", VIRTUAL: "3", INTERLEAVED: ""}, {"pp": 2, "vpp": 2}, {"pp": 2, "vpp": 3}, {VIRTUAL: "2"}),
    ({PP: "2", VIRTUAL: "3"}, {"pp": 2, "vpp": 2}, {}, {PP: "1", VIRTUAL: None}),
    ({PP: "3"}, {"pp": 3}, {"pp": 3, "layers_per_stage": (5, 4, 3)}, {FIRST: "5", LAST: "3"}),
    ({PP: "2", FIRST: "5", LAST: "7"}, {"pp": 2, "layers_per_stage": (5, 7)}, {"pp": 2}, {FIRST: None, LAST: None}),
    ({DISTRIBUTED: "", GATHER: ""}, {"zero_stage": 1}, {"zero_stage": 0}, {DISTRIBUTED: None, GATHER: None}),
    ({}, {"zero_stage": 0}, {"zero_stage": 1}, {DISTRIBUTED: ""}),
    ({DISTRIBUTED: ""}, {"zero_stage": 1}, {"zero_stage": 2}, {FSDP: "", STRATEGY: "optim_grads", FORMAT: OWN}),
    ({DISTRIBUTED: ""}, {"zero_stage": 1}, {"zero_stage": 3}, {FSDP: "", STRATEGY: "optim_grads_params", FORMAT: OWN}),
    (
        {FSDP: "", STRATEGY: "optim_grads", FORMAT: OWN},
        {"zero_stage": 2},
        {"zero_stage": 0},
        {FSDP: None, STRATEGY: None, FORMAT: "torch_dist"},
    ),
    (
        {"--use-torch-fsdp2": "", FORMAT: "torch_dist"},
        {"zero_stage": 3},
        {"zero_stage": 1},
        {"--use-torch-fsdp2": None, DISTRIBUTED: ""},
    ),
    (
        {FSDP: "", STRATEGY: "optim_grads"},
        {"zero_stage": 2},
        {"zero_stage": 1},
        {DISTRIBUTED: "", FSDP: None, STRATEGY: None},
    ),
    ({}, {"dp": 4, "cp": 2}, {"dp": 4, "cp": 2, "shard": 2}, {GROUPS: "4"}),
    ({GROUPS: "4"}, {"dp": 4, "shard": 1}, {"dp": 4}, {GROUPS: None}),
    ({}, {}, {"recompute": "selective"}, {GRANULARITY: "selective", MODULES: "core_attn"}),
    ({}, {}, {"recompute": "full"}, {GRANULARITY: "full", METHOD: "uniform", COUNT: "1"}),
    ({ACTIVATIONS: ""}, {"recompute": "selective"}, {}, {ACTIVATIONS: None}),
    ({ACTIVATIONS: ""}, {"recompute": "full"}, {"recompute": "selective"}, {}),
    (
        {ACTIVATIONS: ""},
        {"recompute": "selective"},
        {"recompute": "full", "recompute_first": 4},
        {ACTIVATIONS: None, GRANULARITY: "full", METHOD: "block", COUNT: "4"},
    ),
    (
        {COUNT: "4"},
        {"recompute": "full", "recompute_first": 4},
        {"recompute": "full", "recompute_first": 5},
        {GRANULARITY: "full", METHOD: "block", COUNT: "5"},
    ),
    ({}, {"pp": 3}, {"pp": 3, "schedule": "zero-bubble"}, {BUBBLE: "", PENDING: "3"}),
    ({}, {"pp": 3}, {"pp": 3, "schedule": "zero-bubble-2p"}, {BUBBLE: "", PENDING: "6"}),
    ({BUBBLE: "", PENDING: "3"}, {"pp": 3, "schedule": "zero-bubble"}, {"pp": 3}, {BUBBLE: None, PENDING: None}),
    ({"--micro-batch-size": "1", BATCH: "48"}, {}, {"micro_batch": 2}, {"--micro-batch-size": "2"}),
    ({TP: "2"}, {"tp": 2, "dp": 4}, {"tp": 1, "dp": 8}, {TP: "1", BATCH: "48"}),  # one micro-batch a replica, unsaid
    (
        {},
        {},
        {"activation_offload": 50},
        {KEPT: "", WHICH: "core_attn attn_proj", KEPT_SHARE: "0.5"},
    ),
    ({}, {}, {}, {}),
)
MIXED: tuple[Case, ...] = (
    ({EP: "2"}, {"ep": 2}, {"ep": 4}, {EP: "4"}),
    ({}, {"ep": 2}, {"ep": 2, "dispatcher": "deepep"}, {DISPATCHER: "flex", BACKEND: "deepep", ROUTER: "fp32"}),
    (
        {DISPATCHER: "flex", BACKEND: "deepep"},
        {"ep": 2, "dispatcher": "deepep"},
        {"ep": 2},
        {DISPATCHER: "alltoall", BACKEND: None},
    ),
    ({EP: "2"}, {"ep": 2, "dispatcher": "deepep"}, {"ep": 1}, {EP: "1"}),
    ({}, {"tp": 2, "etp": 2}, {"tp": 2}, {ETP: "1"}),
    ({}, {"tp": 2}, {"tp": 2, "etp": 2}, {}),  # what it is where nothing says so
    ({ETP: "1"}, {"tp": 2}, {"tp": 2, "etp": 2}, {ETP: "2"}),
    ({ETP: "2"}, {"tp": 4, "etp": 2}, {"tp": 4, "etp": 2}, {}),
    ({}, {"ep": 2}, {"ep": 2, "overlap_exchange": True}, {OVERLAP: "", DELAY: ""}),
    ({OVERLAP: ""}, {"ep": 2, "overlap_exchange": True}, {"ep": 2}, {OVERLAP: None}),
)
DEEPSPEED: tuple[Case, ...] = (
    ({DS_EP: "2"}, {"ep": 2}, {"ep": 4}, {DS_EP: "4"}),
    ({}, {"ep": 2}, {"ep": 2, "dispatcher": "deepep"}, {DISPATCHER: "flex", BACKEND: "deepep"}),
    ({"--zero-stage": "1"}, {"zero_stage": 1}, {"zero_stage": 3}, {"--zero-stage": "3"}),
    ({PP: "2"}, {"pp": 2}, {"pp": 3}, {PP: "3"}),
    ({}, {}, {"recompute": "full"}, {CHECKPOINT: "", DS_CHECKPOINT: ""}),
    ({CHECKPOINT: ""}, {"recompute": "full"}, {}, {CHECKPOINT: None}),
)
SOFTWARE: tuple[tuple[Words, dict[str, Any], dict[str, str | None]], ...] = (
    ({}, {"reduce_overlap": True, "gather_overlap": True}, {REDUCE: "", GATHER: ""}),
    ({REDUCE: "", GATHER: ""}, {"reduce_overlap": False}, {REDUCE: None}),
    ({}, {"cuda_graphs": True}, {"--cuda-graph-impl": "local"}),
    ({}, {"cuda_graphs": False}, {"--cuda-graph-impl": "none"}),
    ({"--global-batch-size": "8"}, {"global_batch": 16}, {"--global-batch-size": "16"}),
    ({}, {"offload": 0.5}, {HOST: "", SHARE: "0.5", AWARE: ""}),
    ({HOST: "", SHARE: "0.5"}, {"offload": 0.0}, {HOST: None, SHARE: None}),
    ({}, {"bucket": 8e8}, {"--ddp-bucket-size": "200000000"}),  # in gradients of four bytes
)


def script(words: Words) -> list[Flag]:
    return [
        Flag(name=name, written=name, values=tuple(text.split()), word=(), words=()) for name, text in words.items()
    ]


def changed(program: str, case: Case, model: str = "", **turned: Any) -> dict[str, str | None]:
    words, before, after, _ = case
    job = small_job(model=MIXTURE) if model else small_job()
    found = flag_changes(script(words), program, job, Plan(**before), Plan(**after), turned)
    assert all(change.before == words.get(change.flag) for change in found)
    return {change.flag: change.after for change in found}


@pytest.mark.parametrize("case", DENSE, ids=str)
def test_flags_of_a_dense_plan(case: Case) -> None:
    assert changed(MEGATRON, case) == case[-1]


@pytest.mark.parametrize("case", MIXED, ids=str)
def test_flags_of_experts(case: Case) -> None:
    assert changed(MEGATRON, case, "mixture") == case[-1]


@pytest.mark.parametrize("case", DEEPSPEED, ids=str)
def test_flags_of_megatron_deepspeed(case: Case) -> None:
    assert changed(MEGATRON_DEEPSPEED, case, "mixture") == case[-1]


@pytest.mark.parametrize(("words", "turned", "flags"), SOFTWARE)
def test_flags_of_settings(words: Words, turned: dict[str, Any], flags: dict[str, str | None]) -> None:
    assert changed(MEGATRON, (words, {}, {}, {}), **turned) == flags


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ({PP: "1", BATCH: "48"}, {PP: "2", FIRST: "7"}),
        ({PP: "1", BATCH: "48", SPLIT: "Et*13mL"}, {PP: "2", SPLIT: "Et*7|t*6mL"}),
    ],
)
def test_mtp_layers_ask_for_a_layout_where_the_script_has_one(words: Words, flags: dict[str, str | None]) -> None:
    job = small_job(model=replace(DENSE_MODEL, layers=13, mtp_layers=1))
    found = flag_changes(script(words), MEGATRON, job, Plan(dp=2), Plan(pp=2), {})
    assert {change.flag: change.after for change in found} == flags


def test_a_new_flag_is_spelled_as_the_others() -> None:
    flag = Flag(name=TP, written=TP.replace("-", "_").replace("__", "--"), values=("2",), word=(), words=())
    (first, second) = flag_changes([flag], MEGATRON, small_job(), Plan(tp=2), Plan(tp=4, cp=2), {})
    assert (first.flag, second.flag) == ("--tensor_model_parallel_size", "--context_parallel_size")


@pytest.mark.parametrize(
    ("words", "after", "layout"),
    [
        ({}, {"pp": 2}, None),  # Megatron puts them on the last stage
        ({}, {"pp": 2, "vpp": 2, "layers_per_stage": (4, 3, 3, 2)}, "Et*4|t*3|t*3|t*2mL"),
        ({}, {"pp": 2, "mtp_ahead": 1}, "Et*6m|t*6L"),
        ({PP: "2", SPLIT: "Et*6|t*6mL"}, {"pp": 3}, "Et*4|t*4|t*4mL"),
    ],
)
def test_a_layout_names_the_layers_of_mtp(words: Words, after: dict[str, Any], layout: str | None) -> None:
    job = small_job(model=replace(small_job().model, mtp_layers=1))
    found = flag_changes(script(words), MEGATRON, job, Plan(pp=2 if words else 1), Plan(**after), {})
    assert {change.flag: change.after for change in found}.get(SPLIT) == layout
