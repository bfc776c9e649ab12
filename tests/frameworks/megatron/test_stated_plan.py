"""The plan that Megatron's flags state, by hand: each setting at its borders, and each contradiction by its words."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.frameworks.megatron.stated_plan import StatedPlan, plan_settings

USUAL = "--num-layers 8 --micro-batch-size 2 --global-batch-size 32 --seq-length 512"
STATED = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "etp": 1, "dp": 8, "micro_batch": 2, "num_microbatches": 2}
SETTINGS = {
    **STATED,
    **{"global_batch": 32, "seq_len": 512, "sequence_parallel": False, "zero_stage": 0, "shard": 0},
    **{"recompute": "none", "recompute_first": 0, "activation_offload": 0, "overlap_exchange": False},
    **{"schedule": "1f1b", "layers_per_stage": (8,), "mtp_ahead": 0, "dtype": "bf16"},
}
PP, LAYOUT, LIST = "--pipeline-model-parallel-size", "--pipeline-model-parallel-layout", "--num-layer-list"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
PER, VIRTUAL = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
TWO = {"pp": 2, "dp": 4, "num_microbatches": 4, "layers_per_stage": (4, 4)}
FOUR = {"pp": 4, "dp": 2, "num_microbatches": 8, "layers_per_stage": (2, 2, 2, 2)}
INTERLEAVED = {"vpp": 2, "schedule": "interleaved"}
TP, SPLIT = "--tensor-model-parallel-size 2", {"tp": 2, "dp": 4, "num_microbatches": 4}
INSTANCES, SELECTIVE = "--num-distributed-optimizer-instances", "--recompute-activations"
FULL, MODULES = "--recompute-granularity full", "--recompute-modules"
SHARDS = "--use-megatron-fsdp --data-parallel-sharding-strategy"
SHARE = "--activation-offload-fraction"
OFFLOADS, BLOCK = "--fine-grained-activation-offloading", "--recompute-method block --recompute-num-layers 3"


def stated(text: str) -> tuple[dict[str, Any], list[str]]:
    plan = StatedPlan()
    flags: dict[str, list[str]] = {}
    for word in f"{USUAL} {text}".split():
        if word.startswith("--"):
            flags[flag := word] = []
        else:
            flags[flag].append(word)
    for flag, values in flags.items():
        plan.take(flag, values)
    return plan_settings(plan, 8), plan.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", {}),
        (f"{TP} --sequence-parallel", SPLIT | {"sequence_parallel": True}),
        ("--sequence-parallel", {}),
        (f"--context-parallel-size 2 {INSTANCES} 2", {"cp": 2, "dp": 4, "num_microbatches": 4, "shard": 4}),
        (f"{INSTANCES} 1", {}),
        (f"{INSTANCES} 8", {"shard": 1}),
        ("--global-batch-size 16", {"global_batch": 16, "num_microbatches": 1}),
        (f"--expert-model-parallel-size 2 {TP}", SPLIT | {"ep": 2}),
        (f"--num-experts 4 {TP}", SPLIT | {"etp": 2}),
        (f"--num-experts 4 {TP} --expert-tensor-parallel-size 1", SPLIT),
        ("--fp16", {"dtype": "fp16"}),
        ("--bf16 --fp8-format hybrid", {"dtype": "fp8"}),
        ("--overlap-moe-expert-parallel-comm", {"overlap_exchange": True}),
        # Stages.
        (f"{PP} 2", TWO),
        (f"{PP} 8", {"pp": 8, "dp": 1, "num_microbatches": 16, "layers_per_stage": (1,) * 8}),
        (f"{PP} 2 {VIRTUAL} 2", TWO | INTERLEAVED),
        (f"{PP} 2 {PER} 2", TWO | INTERLEAVED),
        (f"{PP} 2 {PER} 4", TWO),
        (f"{PP} 2 {LIST} 3,5", TWO | {"layers_per_stage": (3, 5)}),
        (f"{PP} 2 {LIST} 3,5 {VIRTUAL} 2", TWO | INTERLEAVED | {"layers_per_stage": (3, 5)}),
        (f"{PP} 2 {FIRST} 3 {LAST} 5", TWO | {"layers_per_stage": (3, 5)}),
        (f"{PP} 2 {FIRST} 3", TWO | {"layers_per_stage": (3, 5)}),
        (f"{PP} 2 {LAST} 3", TWO | {"layers_per_stage": (5, 3)}),
        (f"{PP} 4 {FIRST} 1 {LAST} 3", FOUR | {"layers_per_stage": (1, 2, 2, 3)}),
        (f"{PP} 4 {LAST} 2", FOUR),
        (f"{PP} 2 {LAYOUT} Ettt|tttttL", TWO | {"layers_per_stage": (3, 5)}),
        (f"{PP} 2 {LAYOUT} Et*4|t*4L", TWO),
        (f"{PP} 2 {LAYOUT} E(tt|)*3ttL", TWO | INTERLEAVED),
        (f"{PP} 2 {LAYOUT} Et|ttt|tt|ttmL", TWO | INTERLEAVED | {"layers_per_stage": (1, 3, 2, 2)}),
        (f"{PP} 2 {LAYOUT} Ett|tt|ttm|ttL", TWO | INTERLEAVED | {"mtp_ahead": 1}),
        # Sharding.
        ("--use-distributed-optimizer", {"zero_stage": 1}),
        ("--use-megatron-fsdp", {}),
        ("--use-megatron-fsdp --use-distributed-optimizer", {}),
        *(
            (f"{SHARDS} {name}", {"zero_stage": stage})
            for name, stage in (("no_shard", 0), ("optim", 1), ("optim_grads", 2), ("optim_grads_params", 3))
        ),
        ("--use-torch-fsdp2", {"zero_stage": 3}),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", {"zero_stage": 2}),
        # Recomputation and what lies on the host.
        (f"{SELECTIVE}", {"recompute": "selective"}),
        ("--recompute-granularity selective", {"recompute": "selective"}),
        (f"{FULL} {BLOCK}", {"recompute": "full", "recompute_first": 3}),
        (f"--recompute-granularity selective {BLOCK}", {"recompute": "selective"}),
        (f"{FULL} --recompute-method uniform --recompute-num-layers 3", {"recompute": "full"}),
        (f"{FULL} --recompute-method block", {"recompute": "full"}),
        (f"{FULL} {MODULES} mlp", {"recompute": "full"}),
        (f"--recompute-granularity selective {MODULES} mlp core_attn", {"recompute": "core_attn+mlp"}),
        (f"{SELECTIVE} {MODULES} core_attn", {"recompute": "selective"}),
        (f"--fp8-format e4m3 {SELECTIVE} {MODULES} mlp", {"dtype": "fp8", "recompute": "mlp"}),
        (f"{SELECTIVE} {MODULES} layernorm", {"recompute": "layernorm"}),
        (OFFLOADS, {"activation_offload": 100}),
        (f"{SHARE} 0.25", {}),
        *(
            (f"{OFFLOADS} {SHARE} {share}", {"activation_offload": hosted})
            for share, hosted in (("0", 0), ("0.25", 25), ("1", 100))
        ),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 1", {}),
    ],
)
def test_flags_state_a_plan(text: str, said: dict[str, Any]) -> None:
    assert stated(text) == (SETTINGS | said, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{PP} 3 --num-layers 9", "tp x cp x pp = 1 x 1 x 3 does not divide 8 GPUs"),
        (
            f"{TP} --context-parallel-size 2 {PP} 4 --global-batch-size 2",
            "tp x cp x pp = 2 x 2 x 4 does not divide 8 GPUs",
        ),
        ("--global-batch-size 24", "--global-batch-size 24 is not a multiple of dp x --micro-batch-size = 8 x 2"),
        (f"{INSTANCES} 3", f"{INSTANCES} 3 does not divide 8 replicas"),
        ("--bf16 --fp16", "--bf16 contradicts --fp16"),
        (f"{PP} 4 --num-layers 6", f"--num-layers 6 is not a multiple of {PP} 4"),
        (f"{PP} 2 {PER} 2 {VIRTUAL} 2", f"{PER} contradicts {VIRTUAL}"),
        (f"{PP} 2 {PER} 8", f"{PER} 8 does not divide the 4 layers of a stage"),
        (f"{PP} 2 {PER} 3", f"{PER} 3 does not divide the 4 layers of a stage"),
        (f"{PP} 2 {LIST} 3,4", f"{LIST} 3,4 is no split of 8 layers over 2 stages"),
        (f"{PP} 2 {LIST} 3,3,2", f"{LIST} 3,3,2 is no split of 8 layers over 2 stages"),
        (f"{PP} 2 {FIRST} 3 {LAST} 4", "8 layers cannot be split over 2 stages with 3 on the first and 4 on the last"),
        (f"{FIRST} 4 {LAST} 4", "8 layers cannot be split over 1 stages with 4 on the first and 4 on the last"),
        (f"{PP} 4 {FIRST} 3", "8 layers cannot be split over 4 stages with 3 on the first"),
        (f"{PP} 4 {LAST} 11", "8 layers cannot be split over 4 stages with 11 on the last"),
        (
            f"{PP} 2 {LAYOUT} Ettt|ttttL",
            f"{LAYOUT} has 7 layers on 2 virtual stages; expected 8 layers on a multiple of 2",
        ),
        (
            f"{PP} 2 {LAYOUT} Ettt|tttt|tL",
            f"{LAYOUT} has 8 layers on 3 virtual stages; expected 8 layers on a multiple of 2",
        ),
        (
            f"{SHARDS} all",
            "--data-parallel-sharding-strategy must be one of no_shard, optim, optim_grads, optim_grads_params, "
            "but got 'all'",
        ),
        ("--recompute-granularity all", "--recompute-granularity must be selective or full, but got 'all'"),
        (f"{SELECTIVE} {FULL}", f"{SELECTIVE} (selective) contradicts {FULL}"),
        (
            f"--fp8-format e4m3 {SELECTIVE} {MODULES} layernorm",
            f"{MODULES} layernorm needs another --fp8-recipe than delayed",
        ),
        *(
            (f"{OFFLOADS} {SHARE} {share}", f"{SHARE} must be a number from 0 to 1, but got '{share}'")
            for share in ("1.01", "-0.1", "nan", "all")
        ),
        (
            "--optimizer-cpu-offload --optimizer-offload-fraction 2",
            "--optimizer-offload-fraction must be a number from 0 to 1, but got '2'",
        ),
    ],
)
def test_flags_that_state_no_plan(text: str, problem: str) -> None:
    settings, problems = stated(text)
    assert problems == [problem]
    assert [settings[name] for name in ("activation_offload", "zero_stage", "vpp")] == [0, 0, 1 + (VIRTUAL in text)]


@pytest.mark.parametrize(("value", "taken"), [("1", True), ("1_0", True), ("0", False), ("-1", False), ("x", False)])
def test_a_count_of_a_flag(value: str, taken: bool) -> None:
    plan = StatedPlan()
    plan.take("--num-layers", [value])
    plan.take("--num-layers", [value])
    assert (plan.problems == []) is taken
    plan = StatedPlan(numbers={"layers": 2})
    plan.take("--num-layers", ["3"])
    assert plan.problems == ["--num-layers is given twice, as 2 and as 3"]
    assert plan_settings(StatedPlan(numbers={"layers": 2}), 8) == {}
