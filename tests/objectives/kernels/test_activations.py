"""What a layer keeps for its backward pass, against what its parts must keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_model, model_names
from optimizer.job.model import Indexer
from optimizer.job.stack import Features
from optimizer.objectives.kernels.activations import (
    ActivationBytes,
    activation_bytes,
    gathered_inputs,
    mixer_bytes,
    movable_bytes,
    norm_bytes,
    resident_bytes,
)
from optimizer.objectives.kernels.shapes import Shapes
from tests.looped import looped

ONE, TOKENS = np.ones(1), 1024


def shapes(**degrees: float) -> Shapes:
    """A sequence of TOKENS on one GPU, or with these degrees and sequence parallelism."""
    arrays = {name: ONE * degrees.get(name, 1.0) for name in ("tp", "cp", "ep", "etp", "micro_batch")}
    return Shapes(**arrays, sequence_parallel=arrays["tp"] > 1, seq_len=TOKENS)


@looped(name=model_names())
def test_every_norm_of_a_layer_keeps_its_input(name: str) -> None:
    for model in (kind.model for kind in load_model(name).kinds):
        latent = model.mla.q_rank + model.mla.kv_rank if model.mla and model.has_attention else 0
        heads = model.q_dim + model.kv_dim if model.qk_norm and model.has_attention else 0
        inputs = 2.0 * (max(model.norms_per_layer, 1) * model.hidden + latent + heads)
        assert norm_bytes(model, shapes())[0] / TOKENS >= inputs


def test_norms_after_attention_and_mlp_keep_what_enters_them() -> None:
    """Two more norms of a stream of `hidden` at 2 B an element, divided by sequence parallelism."""
    model = load_model("gemma2-9b")
    fewer = replace(model, norms_per_layer=2)
    for tp in (1.0, 4.0):
        kept, less = (activation_bytes(m, shapes(tp=tp), Features(), False, 1.0).none[0] for m in (model, fewer))
        assert kept - less == 2 * 2 * TOKENS * model.hidden / tp


def test_expert_tensor_ranks_share_what_is_weighed_afterwards() -> None:
    """They scatter it before its sender weighs it, so that it is the same however wide experts are cut."""
    model = load_model("mixtral-8x7b")

    def weighed(etp: float, features: Features) -> float:
        late, early = (
            activation_bytes(model, shapes(tp=4.0, etp=etp), replace(features, weighed_early=when), True, 1.0).none[0]
            for when in (False, True)
        )
        return float(late - early)

    assert weighed(4.0, Features()) == weighed(1.0, Features()) == 2.0 * TOKENS / 4 * 2 * model.hidden
    assert weighed(4.0, Features(whole_experts=True)) == 4 * weighed(1.0, Features())


LLAMA = 2 * (4096 + 2 * 1024 + 4096)  # queries, keys, values and output of Llama 3 8B


UNFUSED = {"attention": "unfused", "dropout": True}
EAGER, FUSED = {"eager": True, "fused_norm": False}, {"eager": True}
WHOLE = 8 * 4096 + LLAMA + 6 * 14336  # of Llama 3 8B: norms, attention, and gate, up and their product


@pytest.mark.parametrize(
    ("name", "degrees", "features", "options", "none", "selective", "full", "passing"),
    [
        # Korthikanti et al., equations 1, 2 and 4: 34 h + 5 heads S, of which tensor parallelism with sequence
        # parallelism divides all.
        ("gpt3", {}, UNFUSED, {}, 34 * 12288 + 5 * 96 * 1024, 34 * 12288, 2 * 12288, 0),
        ("gpt3", {"tp": 8}, UNFUSED, {}, 34 * 1536 + 5 * 12 * 1024, 34 * 1536, 2 * 1536, 0),
        ("gpt3", {"cp": 4}, {"attention": "unfused"}, {}, 32 * 3072 + 4 * 24 * 1024, 32 * 3072, 2 * 3072, 0),
        ("gpt3", {"micro_batch": 3}, {}, {}, 96 * 12288, 96 * 12288, 6 * 12288, 0),
        # Half of what attention and MLP keep beside the layer's input; without what leaves attention.
        ("gpt3", {}, {"selective": "ops"}, {}, 32 * 12288, 2 * 12288 + 24 * 12288 / 2, 2 * 12288, 0),
        ("gpt3", {"tp": 8}, {"selective": "qkv"}, {}, 32 * 1536, 2 * 1536 + 6 * 1536, 2 * 1536, 0),
        ("llama3-8b", {}, {}, {}, WHOLE, WHOLE, 2 * 4096, 0),
        # In fp8 the product of the gated MLP, and the norms' outputs, take one byte; gate and up where they may.
        ("llama3-8b", {}, {}, {"fp8": True}, *[WHOLE - 2 * 4096 - 14336] * 2, 2 * 4096, 0),
        ("llama3-8b", {}, {"narrow_inputs": True}, {"fp8": True}, *[WHOLE - 2 * 4096 - 3 * 14336] * 2, 2 * 4096, 0),
        ("llama3-8b", {}, {}, {"wide": True}, *[WHOLE + 8 * 4096] * 2, 4 * 4096, 0),
        # Eager: norms keep their input in fp32 and what they scale, the MLP its activation's output besides.
        ("llama3-8b", {}, EAGER, {}, *[WHOLE + 8 * 4096 + 2 * 14336] * 2, 2 * 4096, 6 * 14336 + 10 * 4096),
        ("llama3-8b", {"tp": 4}, FUSED, {}, *[WHOLE / 4] * 2, 2 * 1024, (6 * 14336 + 10 * 4096) / 4),
        ("gpt3", {}, FUSED, {}, *[32 * 12288] * 2, 2 * 12288, 4 * 49152 + 10 * 12288),
    ],
)
def test_a_dense_layer_keeps_by_the_token(
    name: str,
    degrees: dict[str, float],
    features: dict[str, Any],
    options: dict[str, bool],
    none: float,
    selective: float,
    full: float,
    passing: float,
) -> None:
    kept = activation_bytes(load_model(name), shapes(**degrees), Features(**features), False, 1.0, **options)
    found = [float(part[0]) / TOKENS for part in (kept.none, kept.selective, kept.full, np.asarray(kept.passing))]
    assert found == pytest.approx([none, selective, full, passing])


@pytest.mark.parametrize(
    ("degrees", "features", "fp8", "row"),
    [
        # Two experts of a token: gate, up and their product, the row into them and the row back.
        ({}, {}, False, 2 * (6 * 14336 + (2 + 2) * 4096)),
        ({"ep": 4}, {}, False, 3 * (6 * 14336 + (2 + 2) * 4096)),
        ({}, {"weighed_early": True}, False, 2 * (6 * 14336 + 2 * 4096)),
        ({}, {}, True, 2 * (5 * 14336 + (1 + 2) * 4096)),
        ({"tp": 4, "etp": 4}, {}, False, 2 / 4 * (6 * 14336 + (2 * 4 + 2) * 4096)),
        ({"tp": 4, "etp": 4}, {"whole_experts": True}, False, 2 / 4 * (6 * 14336 + (2 * 4 + 2 * 4) * 4096)),
    ],
)
def test_experts_keep_by_the_row(degrees: dict[str, float], features: dict[str, Any], fp8: bool, row: float) -> None:
    """Mixtral 8x7B, whose busiest rank has 1.5 of the mean's tokens where experts lie on several."""
    tp = degrees.get("tp", 1.0)
    kept = activation_bytes(load_model("mixtral-8x7b"), shapes(**degrees), Features(**features), True, 1.5, fp8)
    norms, probabilities = (6 if fp8 else 8) * 4096, 8 * 8
    assert kept.none[0] / TOKENS == pytest.approx((norms + probabilities + LLAMA) / tp + row)


def test_what_may_lie_on_the_host_is_split_as_its_kernels_are() -> None:
    """Mixtral on TP 4 with sequence parallelism and ETP 2: every rank of an expert gathers the rows of both."""
    found = movable_bytes(load_model("mixtral-8x7b"), shapes(tp=4.0, etp=2.0), True, 1.0)
    assert {name: float(part[0]) / TOKENS for name, part in found.items()} == {
        "core_attn": 2 * 6144 / 4,
        "attn_proj": 2 * 4096 / 4,
        "mlp_norm": 2 * 4096 / 4,
        "expert_fc1": 2 * 2 / 4 * 4096 * 2,
        "moe_act": 2 * 2 * 2 / 4 * 14336,
    }


@pytest.mark.parametrize(
    ("name", "width"),
    [
        # What is projected and the output before and after its norm: 18560 = 2 (8192 + 8 x 128) + 128.
        ("nemotron-3-super-120b-a12b", 18560 + 2 * 8192),
        # And, of the delta rule, what the convolution wrote, and 64 numbers of each of 32 heads.
        ("qwen3-next-80b-a3b", 12352 + 2 * 4096 + 8192 + 32 * 64),
    ],
)
def test_a_recurrence_keeps_by_the_token(name: str, width: int) -> None:
    model = next(kind.model for kind in load_model(name).kinds if kind.model.state and not kind.model.has_attention)
    for tp in (1, 4):
        assert mixer_bytes(model, shapes(tp=tp))[0] / TOKENS == 2 * width / tp


def test_what_mixes_nothing_keeps_nothing() -> None:
    """The MLPs of Nemotron-H are layers of their own."""
    mlps = [kind.model for kind in load_model("nemotron-h-56b").kinds]
    mlps = [model for model in mlps if not model.state and not model.has_attention]
    assert mlps
    assert [float(mixer_bytes(model, shapes())[0]) for model in mlps] == [0.0] * len(mlps)


def test_gated_attention_and_an_indexer_keep_by_the_token() -> None:
    """The gate and what it scales; 64 queries and a key of 128, and 2048 choices of 4 bytes on every rank."""
    plain = load_model("llama3-8b")
    gated = replace(plain, attention_gate="elements")
    assert gated.gate_dim == 4096
    for tp in (1, 4):
        assert mixer_bytes(gated, shapes(tp=tp))[0] / TOKENS == (LLAMA + 2 * (4096 + 4096)) / tp
        for every in (1, 4):
            own = Indexer(heads=64, head_dim=128, top_k=2048, every=every)
            more = mixer_bytes(replace(plain, indexer=own), shapes(tp=tp)) - mixer_bytes(plain, shapes(tp=tp))
            assert more[0] / TOKENS == (2 * 65 * 128 + 4 * 2048) / every


def test_gathered_inputs_are_those_of_attention_and_dense_mlp() -> None:
    """Three quarters of the tokens' rows come from the others of TP 4, in one byte of fp8 or two."""
    for name, moe, blocks in (("llama3-8b", False, 2), ("mixtral-8x7b", True, 1)):
        for size in (1.0, 2.0):
            found = gathered_inputs(load_model(name), shapes(tp=4.0), moe, size, np.array([0]))
            assert found[0] / TOKENS == blocks * size * 4096 * 3 / 4


def test_what_is_on_the_host_leaves_two_layers_of_buffers() -> None:
    """Of 9 B 6 without scores and 2 of the input; half, and all, of what moves: 1 B of modules, or the input."""
    kept = {"none": 9.0, "selective": 6.0, "full": 2.0, "passing": 3.0}

    def found(share: int, movable: float = 1.0, **options: bool) -> list[tuple[float, float]]:
        table = ActivationBytes(
            **{name: value * np.ones(3) for name, value in kept.items()}, movable={"attn_proj": movable * np.ones(3)}
        )
        resident = resident_bytes(table, np.arange(3), np.full(3, share), **options)
        return list(zip(resident.each.tolist(), resident.recomputing.tolist(), strict=True))

    assert found(0) == [(9, 0), (6, 3), (2, 12)]
    assert found(50)[:2] == [(8.5, 1), (5.5, 4)]
    assert found(50, 0.0, inputs_on_host=True) == [(9, 0), (6, 3), (1, 14)]
    assert found(100, 0.0, inputs_on_host=True) == [(9, 0), (6, 3), (0, 16)]
    assert found(0, selective_on_host=True) == [(9, 0), (0, 15), (2, 12)]
