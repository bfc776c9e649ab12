"""What models, recurrences, stacks and targets count, in numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.fields import FIELDS, PLACEHOLDERS
from optimizer.job.hardware import Link
from optimizer.job.job import Job
from optimizer.job.lengths import LONGEST, Lengths, lengths_of, longest, quantile_text, quantiles_of
from optimizer.job.loss import LogitBytes, losses
from optimizer.job.model import Experts, LayerKind, SlidingWindow, Tower, repeated
from optimizer.job.plan import Plan
from optimizer.job.recurrence import KINDS, Recurrence
from optimizer.job.stack import PARAMETERS, Features, Fixed, Parameter, Stack
from optimizer.job.target import Launcher, lifted, narrowed, on_device, unbuilt
from optimizer.job.variables import UNLIMITED, VARIABLES


@pytest.mark.parametrize(
    ("kind", "projected", "between", "channels", "vectors", "state", "chunk"),
    [
        # 4 heads of 8 with 16 rows, 3 groups, rank 3: 32 wide inside, keys 48 wide.
        ("mamba", 2 * 32, 32 * (2 * 3 + 2 * 16), 32, 32 * 5 + 2 * 32 + 32 * 16, 7 * 32 * 16 + 8 * 32, None),
        ("mamba2", 64 + 96 + 4, 0, 32 + 96, 128 * 5 + 32 + 3 * 4, 7 * 32 * 16 + 8 * 128, 608),
        ("gated-delta", 64 + 96 + 8, 0, 128, 128 * 4 + 2 * 4 + 8, 8 * 32 * 16 + 8 * 128, 608 + 420),
        ("kimi-delta", 96 + 96 + 4 + 2 * (3 - 32), 192, 128, 128 * 4 + 32 + 4 + 8, 8 * 32 * 16 + 8 * 128, 608 + 420),
        ("lightning", 64 + 96, 0, 0, 32, 4 * 32 * 16, 608),
        ("short-convolution", 96, 0, 32, 32 * 4, 8 * 32, None),
    ],
)
def test_a_recurrence_by_hand(
    kind: str, projected: int, between: int, channels: int, vectors: int, state: float, chunk: float | None
) -> None:
    """Of chunks of 2 tokens: 2 x 2 (16 + 8) + 4 x 16 x 8 a head; the delta rule adds 4 (32 + 8) + 4 + 2 x 16 x 8."""
    mixer = Recurrence(kind=kind, heads=4, head_dim=8, state_dim=16, groups=3, rank=3, chunk=2)
    assert (mixer.inner, mixer.keys, mixer.projected) == (32, 48, projected)
    assert (mixer.inner_weights, mixer.channels, mixer.vectors) == (between, channels, vectors)
    assert mixer.weights(10) == 10 * (projected + 32) + between
    assert (mixer.state_flops, mixer.chunk_flops) == (state, state if chunk is None else 4 * chunk)
    assert replace(mixer, kind="kimi-delta", rank=0).projected == 96 + 96 + 4
    assert (set(KINDS) >= {kind}, Recurrence(kind=kind, heads=1, head_dim=1).chunk) == (True, 64)


def test_a_layer_with_experts_by_hand() -> None:
    model = load_model("mixtral-8x7b")
    assert model.experts is not None
    plain = replace(model.experts, shared_gate=False, router_bias=False, latent=0, shared_ffn_hidden=0)

    def shared(**changes: Any) -> int:
        return replace(model, experts=replace(plain, **changes)).moe_shared_params

    base = shared()
    assert base == model.mixer_weights + model.mixer_vectors + model.norm_vectors + model.hidden * plain.count
    assert shared(shared_gate=True) - base == model.hidden
    assert shared(router_bias=True) - base == plain.count
    assert shared(latent=64) - base == 2 * model.hidden * 64
    assert shared(shared_ffn_hidden=100) - base == model.mlp_params(100)
    assert model.params - model.active_params == model.layers * (plain.count - plain.top_k) * model.expert_params
    assert replace(model, experts=None).moe_shared_params == replace(model, experts=None).expert_params == 0


def test_what_tensor_parallelism_must_divide() -> None:
    """The heads of attention, those of a state or, where it has one, its width; and groups of more than one."""
    model = replace(load_model("llama3-8b"), mixers="ar")

    def split(**state: Any) -> int:
        return replace(model, recurrence=Recurrence(head_dim=8, kind="mamba2", **state)).split_heads

    assert load_model("llama3-8b").split_heads == 32
    assert (split(heads=24), split(heads=24, groups=4), split(heads=2), split(heads=1)) == (8, 4, 2, 8)


def test_windows_embeddings_and_heads_by_hand() -> None:
    model = load_model("llama3-8b")
    assert model.mean_context_fraction == 1.0
    for every, share in ((0, 0.0), (4, 0.25)):
        assert replace(model, window=SlidingWindow(size=1024, global_every=every)).mean_context_fraction == share
    learned = replace(model, position="learned", extra_positions=2)
    assert learned.embedding_params - model.embedding_params == (model.max_seq_len + 2) * model.hidden
    assert replace(model, embedding_norm=True).embedding_params - model.embedding_params == model.norm_params
    assert replace(model, head_bias=True).head_params - model.head_params == model.vocab
    assert replace(model, tied_embeddings=True).head_params == 0
    ahead = replace(model, mtp_layers=2)
    assert ahead.mtp_params == 2 * (model.layer_params + 2 * model.hidden**2 + 3 * model.norm_params)
    assert (repeated("ab", 5), repeated("ab", 4), repeated("", 3), repeated("a", 0)) == ("ababa", "abab", "", "")
    assert isinstance(model.kinds[0], LayerKind)
    assert Experts(count=8, top_k=2, ffn_hidden=64).every == 1


@pytest.mark.parametrize(
    ("name", "least", "most", "neutral"),
    [
        *((name, 1, UNLIMITED, 1) for name in ("tp", "cp", "pp", "dp", "micro_batch", "num_microbatches", "vpp")),
        *((name, 1, UNLIMITED, 1) for name in ("ep", "etp")),
        *(("sequence_parallel", 0, 1, 0), ("zero_stage", 0, 3, 1), ("shard", 0, UNLIMITED, 0)),
        *(("overlap_exchange", 0, 1, 0), ("activation_offload", 0, 100, 0)),
    ],
)
def test_variables_have_these_ends(name: str, least: int, most: int, neutral: int) -> None:
    found = VARIABLES[name]
    assert (found.least, found.most, found.neutral) == (least, most, neutral)


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {"model": load_model("llama3-8b"), "cluster": load_cluster("dgx-h100"), "gpus": 8}
    values |= {"stack": load_stack("megatron-core"), "seq_len": 2048, "global_batch": 64}
    return Job(**values | changes)


def with_features(asked: Job, **features: Any) -> Job:
    return replace(asked, stack=replace(asked.stack, features=replace(asked.stack.features, **features)))


def test_bytes_of_an_element_by_what_is_trained() -> None:
    """Adapters in fp32: gradients of 4 B, two bytes of master beyond half precision, and two wide moments."""
    usual = job()
    assert (usual.master_bytes, usual.grad_bytes, usual.state_bytes) == (4, 4, 12)
    wide = with_features(job(stack=load_stack("hf-2026"), train="lora"), wide_adapters=True)
    assert (wide.master_bytes, wide.grad_bytes, wide.state_bytes) == (2, 4, 10)
    summed = with_features(usual, sum_bytes=4)
    assert (summed.sum_bytes, replace(summed, dtype="fp16").sum_bytes, usual.sum_bytes) == (4, 0, 0)


def test_passes_of_a_teacher_are_as_much_longer_as_it_has_more_parameters() -> None:
    usual = job(stack=load_stack("hf-2026"))
    params = usual.model.params
    taught = replace(usual, loss=f"distillation:{2 * params}")
    assert (taught.forward_passes, taught.reference_params) == (pytest.approx(3.0), pytest.approx(2 * params))
    preferred = replace(usual, loss="dpo")
    assert (preferred.forward_passes, preferred.reference_params) == (2.0, params)
    assert replace(preferred, train="lora").reference_params == 0.0
    assert (usual.forward_passes, usual.reference_params) == (1.0, 0.0)


def test_rows_of_experts_and_peaks_by_format() -> None:
    wide, narrow = job(), job(dtype="fp8")
    assert (wide.quantised, wide.row_multiple, wide.wide_dtype) == (False, 1.0, "bf16")
    assert (narrow.quantised, narrow.row_multiple, narrow.wide_dtype) == (True, 16.0, "bf16")
    assert replace(narrow, cluster=load_cluster("dgx-b200")).row_multiple == 32.0
    assert narrow.peak_flops == 2 * wide.peak_flops
    assert replace(wide, dtype="fp16").wide_dtype == "fp16"


def test_layers_that_are_alike_keep_their_model() -> None:
    dense = job()
    ((alike, share),) = dense.layers_alike(moe=False)
    assert (alike is dense, share) == (True, 1.0)
    state = Recurrence(kind="mamba2", heads=8, head_dim=8)
    mixed = job(model=replace(load_model("llama3-8b"), mixers="ar", recurrence=state))
    assert [share for _, share in mixed.layers_alike(moe=False)] == [0.5, 0.5]
    assert {found.model.has_attention for found, _ in mixed.layers_alike(moe=False)} == {True, False}


def test_what_a_stack_offers_and_how_many_parameters_it_fits() -> None:
    name, other, *_ = PARAMETERS
    fixed = {name: Fixed(value=1.0, why=""), other: Fixed(value=1.0, why="")}
    stack = Stack(name="mine", parameters={name: 2.0}, fixed=fixed)
    assert stack.counts == (1, 1, len(PARAMETERS) - 2)
    assert (stack[name], stack[other]) == (2.0, 1.0)

    def usual(**features: Any) -> str:
        return Stack(name="its", features=Features(**features)).usual_dispatcher

    assert (usual(), usual(dispatcher="deduplicated")) == ("alltoall", "deepep")
    assert usual(dispatchers=("hybridep",), dispatcher="deduplicated") == "hybridep"
    assert usual(dispatchers=("hybridep", "alltoall")) == "hybridep"
    for features, forced, imbalance in (
        ({}, False, 1.1),
        ({"balanced_experts": True}, True, 1.0),
        ({"balanced_experts": True, "routing": "fresh"}, False, 4.0),
        ({"routing": "forced"}, True, 1.0),
    ):
        found = Stack(name="its", features=Features(**features))
        assert (found.routing_forced, found.imbalance) == (forced, imbalance)
    assert (Stack(name="its").expert_overlap, usual() == "alltoall") == (Stack(name="its")["ep_overlap"], True)
    assert Stack(name="its", features=Features(overlap_exchange=False)).expert_overlap == 0.0


CAN: dict[str, Any] = {
    "schedules": ("1f1b", "interleaved"),
    "zero_stages": (0, 1, 2),
    "recompute_by": "stage",
    "dispatchers": ("alltoall",),
}


def test_a_target_narrows_what_both_can() -> None:
    stack = load_stack("megatron-core")
    wide = replace(stack, features=replace(stack.features, zero_stages=(0, 1, 2)))
    plain = narrowed(wide, "it", Launcher(**CAN)).features
    assert plain.piped_zero_stages == tuple(stage for stage in wide.zero_stages(piped=True) if stage in (0, 1, 2))
    piped = narrowed(wide, "it", Launcher(**CAN, piped_zero_stages=(0,))).features
    assert piped.piped_zero_stages == (0,)
    for name in ("whole_experts", "context_shares", "reduces_once"):  # a restriction of either
        for own, its in ((False, False), (True, False), (False, True), (True, True)):
            mine = replace(stack, features=replace(stack.features, **{name: own}))
            assert getattr(narrowed(mine, "it", Launcher(**CAN, **{name: its})).features, name) is (own or its)
    for own, its in ((True, True), (True, False), (False, True)):  # what both must have
        mine = replace(stack, features=replace(stack.features, offers_overlap=own, tied_stages=own))
        found = narrowed(mine, "it", Launcher(**CAN, overlap=its, tied_stages=its)).features
        assert (found.offers_overlap, found.tied_stages) == (own and its, own and its)
    with pytest.raises(InputError, match="none of the zero_stages"):
        narrowed(stack, "it", Launcher(**CAN | {"zero_stages": (9,)}))


def test_what_would_have_to_be_built_is_told() -> None:
    own = load_stack("megatron-core")
    less: dict[str, Any] = {"uneven_stages": False, "recompute_by": "all layers", "schedules": ("1f1b",)}
    bare = replace(own, features=replace(own.features, **less))
    any_ = lifted(bare)
    alike, unlike = Plan(pp=2, recompute_layers=(4, 4)), Plan(pp=2, recompute_layers=(4, 3))
    for plan, said in (
        (alike, ()),
        (unlike, ("recomputation of another number of layers on each stage",)),
        (Plan(pp=2, layers_per_stage=(16, 16)), ()),
        (Plan(pp=2, layers_per_stage=(17, 15)), ("stages of unlike length",)),
        (Plan(schedule="zero-bubble"), ("the schedule zero-bubble",)),
    ):
        assert unbuilt(any_, plan) == tuple(f"would have to be built: {what}" for what in said)
    assert unbuilt(lifted(replace(own, features=any_.features)), unlike) == ()


def test_a_device_may_lack_dispatchers_and_a_launcher_replicas() -> None:
    own = load_stack("megatron-core")
    stack = replace(own, features=replace(own.features, zero_stages=(0, 1, 3)))
    lacks = Launcher(**CAN, lacking={"mi300x": ("deepep", "hybridep")}, replicates=False)
    for gpus, stages in ((1, (0,)), (2, (1, 3)), (8, (1, 3))):
        found = on_device(stack, lacks, "mi300x", gpus).features
        assert (found.zero_stages, found.dispatchers) == (stages, ("alltoall",))
    assert on_device(stack, Launcher(**CAN), "mi300x", 8).features.zero_stages == (0, 1, 3)


def test_lengths_have_ends() -> None:
    assert quantiles_of("p0:1,p100:4000") == [(0.0, 1.0), (1.0, 4000.0)]
    assert quantiles_of(f"{LONGEST // 1024}k")[0][1] == LONGEST
    for wrong in ("p0:0.5,p100:4000", "p0:1,p101:2", "p50:2,p50:3", "p50:3,p60:2", "p50:3", "0.5", "10:41", "10x"):
        with pytest.raises(InputError, match="--lengths"):
            quantiles_of(wrong)
    assert len(quantiles_of("10:40")) == 2
    assert quantile_text([5] * 5000 + [9]).endswith("p99.9:5,p100:9")
    assert (quantile_text([5]), quantile_text([5, 5])) == ("5", "5")
    assert lengths_of("4000", "off", 2048).sizes.tolist() == [2048.0]
    packed = lengths_of("p0:100,p100:300", "on", 2048)
    assert isinstance(packed, Lengths)
    assert (packed.packed, len(packed.sizes), longest("p0:100,p100:300")) == (True, 1000, 300)
    assert packed.sizes[0] == pytest.approx(100, rel=1e-3)


def test_parameters_of_a_stack_have_these_bounds_and_defaults() -> None:
    assert {name: (each.low, each.high, each.default) for name, each in PARAMETERS.items()} == {
        **{"gemm_efficiency": (0.5, 1.0, 0.9), "attention_efficiency": (0.1, 0.9, 0.55)},
        **{"score_passes": (2.0, 20.0, 5.0), "hbm_efficiency": (0.3, 0.95, 0.8)},
        **{"elementwise_passes": (0.3, 5.0, 1.0), "dequantise_passes": (1.0, 20.0, 4.0)},
        **{"launch": (5e-07, 0.0002, 4e-06), "pipelined_collective": (0.0, 0.001, 0.0)},
        **{"microbatch_overhead": (0.0, 0.02, 0.0005), "network_efficiency": (0.1, 1.0, 0.9)},
        **{"scale_up_efficiency": (0.1, 1.0, 0.9), "collective_skew": (1e-06, 0.0003, 5e-06)},
        **{"tp_overlap": (0.0, 1.0, 0.0), "cp_overlap": (0.0, 1.0, 0.7)},
        **{"ep_overlap": (0.0, 1.0, 0.0), "pair_overlap": (0.0, 1.0, 0.7)},
        **{"dp_overlap": (0.0, 1.0, 0.7), "p2p_overlap": (0.0, 1.0, 0.5)},
        **{"optimizer_passes": (0.5, 10.0, 1.5), "step_overhead": (0.0, 2.0, 0.03)},
        **{"straggler": (0.0, 0.05, 0.003), "expert_imbalance": (1.0, 8.0, 1.1)},
        **{"expert_efficiency": (0.4, 1.0, 0.75), "expert_host": (0.0005, 0.02, 0.006)},
        **{"context_memory": (500000000.0, 16000000000.0, 2000000000.0), "fragmentation": (0.0, 0.4, 0.05)},
        **{"workspace": (0.0, 3000000000.0, 300000000.0), "logit_memory": (2.0, 24.0, 8.0)},
        **{"activation_factor": (0.5, 2.5, 1.0)},
    }


def test_a_length_without_a_spread_is_all_of_them() -> None:
    assert quantiles_of("900") == quantiles_of("900:0") == [(0.0, 900.0), (1.0, 900.0)]
    assert quantiles_of("1") == [(0.0, 1.0), (1.0, 1.0)]


def test_biases_and_norms_of_attention_by_hand() -> None:
    """32 query heads and 8 of keys and values, of 128 each."""
    model = replace(load_model("llama3-8b"), attention_bias=False, qk_norm=False)
    assert model.attention_vectors == 0
    for changes, vectors in (
        ({"attention_bias": True}, (32 + 8 + 8) * 128),
        ({"attention_out_bias": True}, model.hidden),
        ({"attention_sinks": True}, 32),
        ({"qk_norm": True}, 2 * 128),
        ({"qk_norm": True, "qk_norm_full": True}, (32 + 8) * 128),
    ):
        assert replace(model, **changes).attention_vectors == vectors


def test_the_software_keeps_its_own_states_where_adamw_is_named() -> None:
    usual = job(stack=load_stack("hf-2026"))
    assert replace(usual, optimizer="adamw").state_bytes == usual.state_bytes == usual.stack.features.optimizer_bytes


def test_any_launcher_may_cut_unevenly_and_recompute_by_stage() -> None:
    own = load_stack("megatron-core")
    less = replace(
        own, features=replace(own.features, uneven_stages=False, recompute_by="all layers", tied_stages=False)
    )
    features = lifted(less).features
    assert (features.uneven_stages, features.recompute_by, features.tied_stages) == (True, "stage", True)
    assert {"uneven_stages", "recompute_by"} <= set(features.lifted)
    assert "uneven_stages" not in lifted(own).features.lifted or not own.features.uneven_stages


def test_a_field_says_what_it_means_in_a_file_and_in_help() -> None:
    for each in FIELDS.values():
        assert each.meaning
        if each.listed:
            assert each.meaning == each.listed
        else:
            assert each.meaning.lower() == each.help.rstrip(".").lower()
            assert each.meaning[0] == each.help[0].lower()
        if each.placeholder:
            assert each.metavar == each.placeholder
        elif not each.choices:
            assert each.metavar == PLACEHOLDERS.get(each.kind)


@pytest.mark.parametrize("low", [0.0, 1.0, 0.2])
def test_a_parameter_moves_between_its_bounds(low: float) -> None:
    """Linearly, or in its logarithm where they are far apart."""
    known = Parameter(default=1.0, low=low, high=2.0, unit="1", meaning="made up")
    assert known.logarithmic is (low == 0.2)
    for place in (0.0, 0.25, 1.0):
        value = known.at(place)
        assert known.place(value) == pytest.approx(place)
        assert value == pytest.approx(low * (2 / low) ** place if known.logarithmic else low + place * (2 - low))


@pytest.mark.parametrize(
    ("first", "every", "pattern"),
    [(0, 1, "eeee"), (1, 1, "deee"), (0, 2, "dedede"), (1, 2, "ddede"), (2, 3, "dddde"), (3, 1, "ddd")],
)
def test_which_layers_have_experts(first: int, every: int, pattern: str) -> None:
    experts = Experts(count=8, top_k=2, ffn_hidden=64, first_dense_layers=first, every=every)
    model = replace(load_model("llama3-8b"), layers=len(pattern), experts=experts)
    assert "".join("e" if there else "d" for there in model.moe_pattern) == pattern
    assert (model.moe_layers, model.dense_layers) == (pattern.count("e"), pattern.count("d"))


def test_a_tower_attends_to_all_patches_of_an_image() -> None:
    tower = Tower(layers=2, hidden=8, heads=2, ffn_hidden=16, image_tokens=64, patches=4)
    model = tower.language_like
    assert (model.max_seq_len, model.heads, model.kv_heads, model.head_dim) == (256, 2, 2, 4)
    assert replace(tower, image_tokens=0).language_like.max_seq_len == 1
    # 4 x 64 of attention, 2 x 128 of the MLP; biases of it 16 + 8, of attention 32, two norms of 16
    assert tower.params == 2 * (4 * 64 + 2 * 128 + 16 + 8 + 32 + 32)
    assert replace(tower, gated_mlp=True).params - tower.params == 2 * (128 + 16)


def test_heads_are_split_where_a_state_has_groups_of_two() -> None:
    model = replace(load_model("llama3-8b"), mixers="ar")
    two = replace(model, recurrence=Recurrence(head_dim=8, kind="mamba2", heads=24, groups=2))
    assert two.split_heads == 2


def test_a_link_that_is_faster_is_so_for_neighbours_too() -> None:
    link = Link(name="its", bandwidth=50e9, latency=2e-6, half_message=6e5, p2p_bandwidth=25e9)
    twice = link.scaled(100e9)
    assert (twice.bandwidth, twice.half_message, twice.p2p_bandwidth) == (100e9, 1.2e6, 50e9)
    assert (twice.latency, twice.pair_bandwidth, replace(link, p2p_bandwidth=0.0).pair_bandwidth) == (2e-6, 50e9, 50e9)


@pytest.mark.parametrize(
    ("train", "base", "narrow", "wide"),
    [
        ("lora", "", True, True),
        ("qlora", "", True, False),
        ("qlora", "", False, True),
        ("lora", "fp8", True, True),
        ("full", "", True, False),
    ],
)
def test_adapters_are_wide_unless_their_base_has_few_bits(train: str, base: str, narrow: bool, wide: bool) -> None:
    asked = with_features(job(stack=load_stack("hf-2026")), wide_adapters=True, narrow_qlora=narrow)
    assert replace(asked, train=train, base=base).wide_adapters is wide


@pytest.mark.parametrize(
    ("by", "fixed", "every"),
    [
        ("stage", {}, False),
        ("stage", {"recompute": "full"}, True),
        ("stage", {"recompute": "full", "recompute_layers": "1,1"}, False),
        ("stage", {"recompute": "none"}, False),
        ("all layers", {}, True),
    ],
)
def test_full_recomputation_spares_no_layer_where_it_was_asked_for(by: str, fixed: Any, every: bool) -> None:
    assert with_features(job().with_limits(fixed=fixed), recompute_by=by).recomputes_all is every


def test_losses_that_need_all_logits_have_their_bytes() -> None:
    assert isinstance(losses()["dpo"].logits, LogitBytes)
    assert losses()["sft"].logits is None
    assert (losses()["dpo"].together, losses()["kto"].least) == (2, 2)
