"""The least of everything that a program treats otherwise: two ranks, one percent, one of several switches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.deepspeed import export as deepspeed
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.llama import unlike_llama
from optimizer.frameworks.maxtext import export as maxtext
from optimizer.frameworks.megatron import export as megatron
from optimizer.frameworks.megatron.export_model import differing, layer_pattern, model_flags
from optimizer.frameworks.megatron.export_model import lacking as unlike_megatron
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.megatron_bridge import export as bridge
from optimizer.frameworks.nanotron import export as nanotron
from optimizer.frameworks.nemo import export as nemo
from optimizer.frameworks.primus import export as primus
from optimizer.frameworks.software import overlapped, switched, widened
from optimizer.frameworks.torchtitan import export as torchtitan
from optimizer.frameworks.tuning.program import launched, program
from optimizer.job.job import Job
from optimizer.job.model import Experts, Model, SlidingWindow
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import Features, Stack

SHARE, BUCKET = Knobs(comm_sm_share=0.05), Knobs(bucket=1e8)
DENSE, MOE = "llama3-8b", "mixtral-8x7b"
GRADIENTS = "a share of the multiprocessors for gradients"
Row = tuple[Callable[..., tuple[str, ...]], str, Plan, Knobs, str, bool]


def job_of(stack: str, target: str = "", model: str = DENSE, cluster: str = "dgx-h100") -> Job:
    priced = load_stack(stack)
    return Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        stack=aimed(priced, target) if target else priced,
        gpus=16,
        seq_len=4096,
        global_batch=64,
    )


CORE = job_of("megatron-core")
TITAN = partial(torchtitan.unexpressed, torchtitan.MAIN, job_of("torchtitan-2024", "torchtitan"))
TITAN_MOE = partial(torchtitan.unexpressed, torchtitan.MAIN, job_of("torchtitan-2024", "torchtitan", "deepseek-v3"))
OLD = partial(torchtitan.unexpressed, torchtitan.OLD)
CHUNKED = job_of("torchtitan-2024", "torchtitan")
CHUNKED = replace(CHUNKED, stack=replace(CHUNKED.stack, features=replace(CHUNKED.stack.features, loss_chunks=2)))
QWEN = job_of("torchtitan-2024", "torchtitan", "qwen3-8b")
MAX, MAX_MOE = (partial(maxtext.unexpressed, job_of("maxtext", "maxtext", name)) for name in (DENSE, MOE))
EIGHT_BITS = partial(maxtext.unexpressed, replace(job_of("maxtext", "maxtext"), dtype="fp8"))
TUNER = partial(program("trl").unexpressed, job_of("trl", "trl"))
NANO = partial(nanotron.unexpressed, job_of("nanotron-2024", "nanotron"))
NEMO = partial(nemo.lacking_of, CORE)
PRIMUS = partial(primus.unexpressed, job_of("megatron-core", model=MOE, cluster="mi300x"))
BRIDGE = partial(bridge.lacking_of, job_of("megatron-core", model=MOE, cluster="gb200-nvl72"), release=bridge.NEW)
ENGINE, FSDP = (
    partial(deepspeed.unexpressed, name, job_of("llm-foundry-fsdp-2023", target))
    for name, target in ((deepspeed.DEEPSPEED, "deepspeed"), (deepspeed.FSDP, "accelerate"))
)
ONE, TWO = Plan(dp=1), Plan(dp=2)


@pytest.mark.parametrize(
    ("of", "plan", "knobs", "words", "lacks"),
    [
        (NEMO, ONE, SHARE, GRADIENTS, False),
        (NEMO, TWO, SHARE, GRADIENTS, True),
        (NEMO, Plan(cp=2), SHARE, GRADIENTS, True),
        (NEMO, TWO, Knobs(), GRADIENTS, False),
        (NANO, ONE, SHARE, GRADIENTS, False),
        (NANO, TWO, SHARE, GRADIENTS, True),
        (NANO, Plan(activation_offload=1), Knobs(), "activations on the host", True),
        (NANO, ONE, Knobs(offload=0.01), "a share of the optimizer on the host", True),
        (NANO, replace(TWO, shard=1), Knobs(), "groups of 1 that share states", True),
        (NANO, replace(TWO, shard=2), Knobs(), "groups of 2 that share states", False),
        (NANO, replace(ONE, zero_stage=1), Knobs(), "ZeRO-1", False),
        (TITAN, ONE, SHARE, GRADIENTS, False),
        (TITAN, TWO, SHARE, GRADIENTS, True),
        (TITAN, ONE, BUCKET, "gradient buckets of another size than its own", False),
        (TITAN, TWO, BUCKET, "gradient buckets of another size than its own", True),
        (TITAN, Plan(activation_offload=1), Knobs(), "activations on the host", True),
        (TITAN, Plan(cp=2, zero_stage=0), Knobs(), "replicas of weights over context-parallel ranks", True),
        (TITAN, ONE, Knobs(), "ZeRO-1 without a pipeline (gradients are sharded with the optimizer)", False),
        (TITAN, TWO, Knobs(), "ZeRO-1 without a pipeline (gradients are sharded with the optimizer)", True),
        (TITAN, Plan(pp=2, num_microbatches=1), Knobs(), "1 micro-batches for 2 stages", True),
        (TITAN, Plan(pp=2, num_microbatches=2), Knobs(), "2 micro-batches for 2 stages", False),
        (TITAN_MOE, Plan(dp=2, ep=2, dispatcher="x"), Knobs(), "the dispatcher x", True),
        (TITAN_MOE, Plan(dp=2, ep=1, dispatcher="x"), Knobs(), "the dispatcher x", False),
        (TITAN_MOE, Plan(dp=2, ep=4), Knobs(), "EP 4 over ranks that do not share weights", True),
        (TITAN_MOE, Plan(dp=4, ep=4), Knobs(), "EP 4 over ranks that do not share weights", False),
        (partial(OLD, QWEN), Plan(pp=2, num_microbatches=2), Knobs(), "a pipeline", True),
        (partial(OLD, QWEN), Plan(dp=2), Knobs(), "a pipeline", False),
        (partial(OLD, CHUNKED), TWO, Knobs(), "a loss that has the logits of some of the tokens in turn", True),
        (TITAN, Plan(tp=16, dp=1), Knobs(), "8 key-value heads split 16 ways", True),
        (TITAN, Plan(tp=8, dp=1), Knobs(), "8 key-value heads split 8 ways", False),
        (
            TITAN,
            Plan(cp=2, dp=8, shard=3),
            Knobs(),
            "groups of 3 that share weights with 2 context-parallel ranks",
            True,
        ),
        (
            TITAN,
            Plan(cp=2, dp=8, shard=4),
            Knobs(),
            "groups of 4 that share weights with 2 context-parallel ranks",
            False,
        ),
        (
            TITAN,
            Plan(cp=2, dp=6, shard=8),
            Knobs(),
            "groups of 8 that share weights with 2 context-parallel ranks",
            True,
        ),
        (MAX, Plan(activation_offload=1), Knobs(), "other activations on the host", True),
        (EIGHT_BITS, Plan(num_microbatches=1), Knobs(), "accumulated gradients of 8-bit products", False),
        (EIGHT_BITS, Plan(num_microbatches=2), Knobs(), "accumulated gradients of 8-bit products", True),
        (TUNER, ONE, Knobs(offload=0.01), "a share of the optimizer on the host", True),
        (TUNER, ONE, Knobs(), "a share of the optimizer on the host", False),
        (TUNER, Plan(dp=2, shard=1), Knobs(), "groups of 1 that share weights", True),
        (TUNER, Plan(dp=2, shard=2), Knobs(), "groups of 2 that share weights", False),
        (MAX, ONE, BUCKET, "gradient buckets, which a compiler forms", False),
        (MAX, TWO, BUCKET, "gradient buckets, which a compiler forms", True),
        (MAX, TWO, Knobs(offload=0.5), "gradient buckets, which a compiler forms", False),
        (MAX, Plan(pp=2), Knobs(), "a pipeline of one pass forward, one backward", True),
        (MAX_MOE, Plan(dp=2, ep=2, dispatcher="deepep"), Knobs(), "the dispatcher deepep", True),
        (MAX_MOE, Plan(dp=2, dispatcher="deepep"), Knobs(), "the dispatcher deepep", False),
        (
            MAX_MOE,
            Plan(dp=4, ep=2, zero_stage=1),
            Knobs(),
            "weights that context- or expert-parallel devices do not share",
            True,
        ),
        (
            MAX_MOE,
            Plan(dp=4, ep=2, zero_stage=3),
            Knobs(),
            "weights that context- or expert-parallel devices do not share",
            False,
        ),
        (
            MAX_MOE,
            Plan(dp=4, zero_stage=1),
            Knobs(),
            "weights that context- or expert-parallel devices do not share",
            False,
        ),
        (MAX_MOE, Plan(dp=4, ep=4), Knobs(), "EP 4 over more than the 4 replicas", False),
        (MAX_MOE, Plan(dp=4, ep=8), Knobs(), "EP 8 over more than the 4 replicas", True),
        (MAX, Plan(dp=8, zero_stage=3, shard=4), Knobs(), "groups of 4 that share weights", False),
        (MAX, Plan(dp=8, zero_stage=3, shard=3), Knobs(), "groups of 3 that share weights", True),
        (MAX_MOE, Plan(dp=8, ep=4, zero_stage=3, shard=2), Knobs(), "groups of 2 that share weights", True),
        (MAX, Plan(dp=8, zero_stage=1, shard=8), Knobs(), "8 replicas that share an optimizer", False),
        (MAX, Plan(dp=8, zero_stage=1, shard=7), Knobs(), "7 replicas that share an optimizer", True),
        (PRIMUS, Plan(dp=2, ep=2, dispatcher="hybridep"), Knobs(), "the dispatcher hybridep", True),
        (PRIMUS, Plan(dp=2, dispatcher="hybridep"), Knobs(), "the dispatcher hybridep", False),
        (BRIDGE, Plan(dp=2, ep=2, dispatcher="deepep"), Knobs(), "DeepEP on gb200", True),
        (BRIDGE, Plan(dp=2, dispatcher="deepep"), Knobs(), "DeepEP on gb200", False),
        (ENGINE, Plan(dp=2, shard=1), Knobs(), "groups of 1 that share weights", True),
        (ENGINE, Plan(dp=2, shard=2), Knobs(), "groups of 2 that share weights", False),
        (ENGINE, Plan(activation_offload=1), Knobs(), "activations on the host", True),
        (FSDP, ONE, Knobs(offload=0.01), "a share of the optimizer on the host", True),
    ],
)
def test_what_is_lacking_begins_with_the_least(
    of: Callable[..., tuple[str, ...]], plan: Plan, knobs: Knobs, words: str, lacks: bool
) -> None:
    assert (words in of(plan, knobs=knobs)) is lacks


LLAMA = load_model(DENSE)


def changed(**changes: Any) -> Model:
    return replace(LLAMA, **changes)


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        (LLAMA, ()),
        (changed(activation="gelu"), ("the activation gelu",)),
        (changed(gated_mlp=False), ("the activation swiglu",)),
        (changed(position="learned"), ("learned positions",)),
        (changed(rope_share=0.5), ("rope positions",)),
        (changed(norm="layer"), ("the norm layer",)),
        (changed(norms_per_layer=4), ("the norm rms",)),
        (changed(qk_norm=True), ("norms of queries and keys",)),
        (changed(qk_norm_full=True), ("norms of queries and keys",)),
        (changed(mlp_bias=True), ("biases besides those of queries, keys and values",)),
        (changed(attention_out_bias=True), ("biases besides those of queries, keys and values",)),
        (changed(head_bias=True), ("biases besides those of queries, keys and values",)),
        (changed(parallel_block=True), ("another block",)),
        (changed(embedding_norm=True), ("another block",)),
        (changed(attention_gate="head"), ("another block",)),
        (changed(attention_sinks=True), ("sinks, an indexer or MTP layers",)),
        (changed(mtp_layers=1), ("sinks, an indexer or MTP layers",)),
        (changed(v_head_dim=1), ("sinks, an indexer or MTP layers",)),
        (changed(attention_bias=True), ()),
        (changed(experts=Experts(count=2, top_k=1, ffn_hidden=8)), ("experts",)),
        (changed(window=SlidingWindow(size=8)), ("a sliding window",)),
    ],
)
def test_each_thing_alone_is_unlike_llama(model: Model, reasons: tuple[str, ...]) -> None:
    assert unlike_llama(model) == reasons


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        (LLAMA, ()),
        (changed(extra_positions=1), ("1 rows of positions beyond the sequence",)),
        (changed(norms_per_layer=4), ("4 norms per layer",)),
        (changed(qk_norm_full=True), ("norms over all heads of the queries and keys",)),
        (changed(embedding_norm=True), ("a norm behind the embedding",)),
        (changed(head_bias=True), ("a bias of the output head",)),
        (changed(attention_gate="head"), ("a gate on the attention's output",)),
        (changed(v_head_dim=1), ("values of another width than keys",)),
        (changed(attention_bias=True), ()),
        (changed(attention_out_bias=True), ("biases of some linear layers only",)),
        (changed(mlp_bias=True, attention_out_bias=True, attention_bias=True), ()),
        (changed(mlp_bias=True, attention_out_bias=True), ("biases of some linear layers only",)),
        (changed(experts=Experts(count=2, top_k=1, ffn_hidden=8, latent=1)), ("experts on a latent width",)),
        (
            changed(experts=Experts(count=2, top_k=1, ffn_hidden=8, router_bias=True)),
            ("biases of the router alone, or of all but the router",),
        ),
        (changed(experts=Experts(count=2, top_k=1, ffn_hidden=8, router_bias=True, router="sigmoid")), ()),
    ],
)
def test_each_thing_alone_is_unlike_megatron(model: Model, reasons: tuple[str, ...]) -> None:
    assert unlike_megatron(model) == reasons


def test_flags_of_a_model_are_those_that_it_needs() -> None:
    usual = model_flags(LLAMA, 4096)
    assert usual["--max-position-embeddings"] == str(LLAMA.max_seq_len)
    assert model_flags(LLAMA, 10**6)["--max-position-embeddings"] == str(10**6)
    assert (usual["--num-query-groups"], "--kv-channels" in usual) == ("8", False)
    same = model_flags(changed(kv_heads=LLAMA.heads))
    assert {"--group-query-attention", "--num-query-groups"}.isdisjoint(same)
    assert model_flags(changed(head_dim=64))["--kv-channels"] == "64"
    window = model_flags(changed(window=SlidingWindow(size=1023, global_every=4)))
    assert (window["--window-size"], window["--window-attn-skip-freq"]) == ("1023,0", "4")
    assert "--window-attn-skip-freq" not in model_flags(changed(window=SlidingWindow(size=1023)))
    biased = model_flags(changed(attention_bias=True))
    assert ("--add-qkv-bias" in biased, "--disable-bias-linear" in biased) == (True, True)
    assert "--add-qkv-bias" not in model_flags(changed(attention_bias=True, mlp_bias=True))
    assert ("--mtp-num-layers" in usual, model_flags(changed(mtp_layers=1))["--mtp-num-layers"]) == (False, "1")
    assert differing(changed(norm="layer", norm_bias=True)) == differing(LLAMA) == ()


@pytest.mark.parametrize(
    ("experts", "flags"),
    [
        ({}, {"--moe-router-topk": "2"}),
        ({"top_k": 1}, {"--moe-router-pre-softmax": None}),
        (
            {"router": "sigmoid", "router_bias": True},
            {"--moe-router-score-function": "sigmoid", "--moe-router-enable-expert-bias": None},
        ),
        ({"groups": 2, "group_limit": 1}, {"--moe-router-num-groups": "2", "--moe-router-group-topk": "1"}),
        ({"shared_ffn_hidden": 16}, {"--moe-shared-expert-intermediate-size": "16"}),
        ({"first_dense_layers": 1}, {"--moe-layer-freq": "([0]*1+[1]*31)"}),
        ({"every": 2}, {"--moe-layer-freq": "([0,1]*16)"}),
        ({"every": 3, "first_dense_layers": 1}, {"--moe-layer-freq": "([0]*1+[0,0,1]*10+[0]*1)"}),
    ],
)
def test_flags_of_experts(experts: dict[str, Any], flags: dict[str, str | None]) -> None:
    made = Experts(**{"count": 8, "top_k": 2, "ffn_hidden": 8, **experts})
    found = model_flags(changed(experts=made))
    special = {name for name in found if name.startswith("--moe-")}
    always = {"--moe-router-topk", "--moe-ffn-hidden-size", "--moe-grouped-gemm"}
    assert special - always == flags.keys() - always
    assert {name: found[name] for name in flags} == flags
    assert layer_pattern(4, replace(made, first_dense_layers=0, every=1)) == "([1]*4)"


@pytest.mark.parametrize(
    ("plan", "connections"),
    [
        (Plan(dp=2), None),
        (Plan(tp=2), "1"),
        (Plan(cp=2), "1"),
        (Plan(tp=2, zero_stage=1), "1"),
        (Plan(tp=2, zero_stage=2), None),
        (Plan(tp=2, overlap_exchange=True), "32"),
    ],
)
def test_connections_of_a_device_are_as_many_as_the_plan_asks_for(plan: Plan, connections: str | None) -> None:
    found = environment(CORE, plan)
    assert found.get("CUDA_DEVICE_MAX_CONNECTIONS") == connections
    assert "NVTE_CPU_OFFLOAD_V1" not in found
    assert environment(CORE, replace(plan, activation_offload=1))["NVTE_CPU_OFFLOAD_V1"] == "1"


@pytest.mark.parametrize(
    ("plan", "knobs", "flags"),
    [
        (Plan(dp=1), Knobs(), {"--overlap-grad-reduce": False, "--use-distributed-optimizer": True}),
        (Plan(dp=2), Knobs(), {"--overlap-grad-reduce": True, "--overlap-param-gather": True}),
        (Plan(cp=2, zero_stage=0), Knobs(), {"--overlap-grad-reduce": True, "--overlap-param-gather": False}),
        (Plan(dp=2, zero_stage=1), Knobs(), {"--use-megatron-fsdp": False}),
        (Plan(dp=2, zero_stage=2), Knobs(), {"--use-megatron-fsdp": True}),
        (Plan(dp=4, shard=4), Knobs(), {"--num-distributed-optimizer-instances": False}),
        (Plan(dp=4, shard=2), Knobs(), {"--num-distributed-optimizer-instances": "2"}),
        (Plan(dp=4, shard=1), Knobs(), {"--num-distributed-optimizer-instances": "4"}),
        (Plan(dp=4, shard=2, zero_stage=0), Knobs(), {"--num-distributed-optimizer-instances": False}),
        (Plan(dp=2), Knobs(offload=0.01), {"--optimizer-cpu-offload": True, "--optimizer-offload-fraction": "0.01"}),
        (Plan(dp=2), Knobs(), {"--optimizer-cpu-offload": False, "--use-precision-aware-optimizer": False}),
        (Plan(dp=2), Knobs(bucket=4e6), {"--ddp-bucket-size": "1000000"}),
    ],
)
def test_flags_of_data_parallelism(plan: Plan, knobs: Knobs, flags: dict[str, bool | str]) -> None:
    found = megatron.sharding_flags(CORE, plan, knobs)
    for name, value in flags.items():
        assert (name in found) is bool(value)
        assert not isinstance(value, str) or found[name] == value


def test_tokens_travel_by_flex_where_experts_are_spread() -> None:
    question = job_of("megatron-core", model=MOE)
    flex = {
        "--moe-token-dispatcher-type": "flex",
        "--moe-flex-dispatcher-backend": "deepep",
        "--moe-router-dtype": "fp32",
    }
    for plan, said in (
        (Plan(ep=2, dispatcher="deepep"), flex),
        (Plan(etp=2, tp=2, dispatcher="deepep"), flex),
        (Plan(dispatcher="deepep"), {"--moe-token-dispatcher-type": "alltoall"}),
        (Plan(ep=2), {"--moe-token-dispatcher-type": "alltoall"}),
    ):
        assert megatron.dispatcher_flags(question, plan) == said
        own = primus.overrides(job_of("megatron-core", model=MOE, cluster="mi300x"), plan, Knobs())
        assert (own.items() >= primus.DEEPEP.items()) is (said is flex)
    assert megatron.dispatcher_flags(CORE, Plan(dispatcher="deepep")) == {}


@pytest.mark.parametrize(("vpp", "stated"), [(1, None), (2, 2)])
def test_virtual_stages_are_stated_where_there_are_some(vpp: int, stated: int | None) -> None:
    plan = Plan(pp=2, vpp=vpp, dp=8, num_microbatches=8, schedule="interleaved" if vpp > 1 else "1f1b")
    found = bridge.override_values(CORE, plan, Knobs())
    assert found["model.virtual_pipeline_model_parallel_size"] == (stated or "null")
    assert nemo.facts(CORE, plan, Knobs()).get("vpp") == stated


FEATURES = Features(zero_stages=(0, 1), recompute=("none",), settable=("bucket",))
STACK = Stack(name="own", features=FEATURES)


@pytest.mark.parametrize(
    ("settings", "features"),
    [
        ({}, {}),
        ({"attention": "unfused"}, {"attention": "unfused"}),
        ({"attention": "flash"}, {}),
        ({"compiled": True}, {}),
        ({"compiled": False}, {"fused_norm": False, "compiled_loss": False}),
        ({"compiled_loss": True}, {"compiled_loss": True}),
        ({"grad_bytes": 2, "optimizer_bytes": 4}, {"grad_bytes": 2, "optimizer_bytes": 4}),
    ],
)
def test_a_launch_switches_what_it_names(settings: dict[str, Any], features: dict[str, Any]) -> None:
    assert switched(STACK, settings).features == replace(FEATURES, **features)


@pytest.mark.parametrize(
    ("settings", "overlap"),
    [
        ({}, 1.0),
        ({"tp_overlap": True}, 1.0),
        ({"tp_overlap": False}, 0.4),
        ({"tp_overlap": False, "train": "lora:8:q+v"}, 0.0),  # no gradients of frozen weights to hide it under
    ],
)
def test_overlaps_that_are_off_hide_what_megatron_hides_by_itself(settings: dict[str, Any], overlap: float) -> None:
    stack = replace(STACK, parameters={**STACK.parameters, "tp_overlap": 1.0, "p2p_overlap": 1.0, "dp_overlap": 1.0})
    assert switched(stack, settings)["tp_overlap"] == overlap
    assert switched(stack, {"p2p_overlap": False})["p2p_overlap"] == 0.0
    assert switched(stack, {"p2p_overlap": True})["p2p_overlap"] == 1.0
    assert switched(stack, {"reduce_overlap": True}, 0)["dp_overlap"] == 1.0
    assert switched(stack, {"gather_overlap": True})["dp_overlap"] == 1.0  # says nothing of gradients
    less = replace(stack, parameters={**stack.parameters, "tp_overlap": 0.25})
    assert switched(less, {"tp_overlap": False})["tp_overlap"] == 0.25


def test_half_of_the_bytes_hide_where_gradients_are_as_wide_as_weights() -> None:
    assert overlapped({"reduce_overlap": True}, 1, 2) == 0.5
    assert overlapped({"reduce_overlap": True, "gather_overlap": True}, 3, 4) == 1.0


@pytest.mark.parametrize(
    ("settings", "offered", "features"),
    [
        ({}, (), {}),
        ({"zero_stage": 3}, (), {"zero_stages": (0, 1, 3)}),
        ({"zero_stage": 3}, (0,), {"zero_stages": (0, 3), "piped_zero_stages": (0,)}),
        ({"zero_stage": 3, "pp": 2}, (0, 2), {"zero_stages": (0, 2), "piped_zero_stages": (0, 3)}),
        ({"recompute": "full"}, (), {"recompute": ("none", "full")}),
        ({"activation_offload": 1}, (), {"activation_offload": True}),
        ({"activation_offload": 0}, (), {}),
        (
            {"activation_offload": 1, "recompute": "full"},
            (),
            {"recompute": ("none", "full"), "hosted_checkpoints": True},
        ),
        ({"offload": 0.5}, (), {"settable": (*FEATURES.settable, "offload")}),
        ({"offload": 0.0}, (), {}),
        ({"overlap_exchange": True}, (), {"offers_overlap": True}),
        ({"layers_per_stage": (1, 2)}, (), {"uneven_stages": True}),
        ({"schedule": "zero-bubble"}, (), {"schedules": (*FEATURES.schedules, "zero-bubble")}),
        ({"sequence_parallel": True}, (), {"sequence_parallel": True}),
    ],
)
def test_a_launch_is_offered_what_it_uses(
    settings: dict[str, Any], offered: tuple[int, ...], features: dict[str, Any]
) -> None:
    usual, found = widened(STACK, {}).features, widened(STACK, settings, offered).features
    assert found == replace(usual, **features)


def test_torchtitan_overlaps_two_tensor_ranks() -> None:
    job = job_of("torchtitan-2024", "torchtitan")
    on = replace(job, stack=replace(job.stack, parameters={**job.stack.parameters, "tp_overlap": 0.5}))
    for tp, split, overlaps in ((1, True, False), (2, True, True), (2, False, False)):
        assert torchtitan.overlaps_tp(on, Plan(tp=tp, sequence_parallel=split)) is overlaps


@pytest.mark.parametrize(("own", "kept"), [("flash", "flash"), ("flash-3", "flash-3"), ("unfused", "flash")])
def test_a_launch_with_flash_attention_keeps_the_version_of_the_stack(own: str, kept: str) -> None:
    stack = replace(STACK, features=replace(FEATURES, attention=own))
    assert switched(stack, {"attention": "flash"}).features.attention == kept
    assert switched(stack, {"attention": "unfused"}).features.attention == "unfused"


def test_a_launch_says_what_was_seen_once() -> None:
    launch = Launch(program="x")
    launch.ignore("a")
    launch.ignore("a")
    assert launch.ignored == ["a"]


@pytest.mark.parametrize(("dp", "command"), [(1, "python"), (2, "accelerate")])
def test_one_process_needs_no_launcher(dp: int, command: str) -> None:
    assert launched(Plan(dp=dp), "python", "accelerate") == command
