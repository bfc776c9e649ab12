"""Local shapes of the operators: products hold every weight once, and FLOPs match the closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_model, load_stack
from optimizer.job.model import Indexer, Model
from optimizer.job.stack import Features, Stack
from optimizer.objectives.kernels.operators import context_share, head_operators, indexer_gemms, layer_operators
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.step.flops import model_flops


def shapes(tp: int = 1, cp: int = 1, ep: int = 1, etp: int = 1, micro_batch: int = 1, seq_len: int = 2048) -> Shapes:
    one = np.ones(1)
    return Shapes(
        tp=tp * one,
        cp=cp * one,
        ep=ep * one,
        etp=etp * one,
        micro_batch=micro_batch * one,
        sequence_parallel=one < 0,
        seq_len=seq_len,
    )


def weights(model: Model, where: Shapes, moe: bool) -> float:
    layer = layer_operators(model, where, load_stack("megatron-core"), moe)
    return float(sum((gemm.n * gemm.k * gemm.batch)[0] for gemm in layer.gemms if gemm.weight))


@pytest.mark.parametrize("name", ["gpt3", "llama3-8b", "qwen2-72b", "deepseek-v2"])
def test_products_hold_every_matrix_of_a_dense_layer_once(name: str) -> None:
    model = load_model(name)
    matrices = model.attention_weights + model.mlp_matrices * model.hidden * model.ffn_hidden
    assert weights(model, shapes(), moe=False) == pytest.approx(matrices)


@pytest.mark.parametrize(("tp", "kv_copies"), [(1, 1), (8, 1), (16, 2)])
def test_tensor_parallelism_splits_weights_and_replicates_few_kv_heads(tp: int, kv_copies: int) -> None:
    model = load_model("llama3-70b")
    kv = 2 * model.hidden * model.kv_dim
    whole = model.attention_weights + model.mlp_params(model.ffn_hidden)
    assert weights(model, shapes(tp=tp), moe=False) * tp == pytest.approx(whole + (kv_copies - 1) * kv)


def test_expert_parallelism_splits_experts() -> None:
    model = load_model("mixtral-8x7b")
    assert model.experts is not None
    router = model.hidden * model.experts.count
    whole = model.attention_weights + router + model.experts.count * model.expert_params
    split = weights(model, shapes(ep=8), moe=True) - model.attention_weights - router
    assert weights(model, shapes(), moe=True) == pytest.approx(whole)
    assert split * 8 == pytest.approx(model.experts.count * model.expert_params)


@pytest.mark.parametrize("name", ["gpt3", "llama3-8b", "mistral-7b"])
def test_forward_flops_are_a_third_of_the_models(name: str) -> None:
    model, where = load_model(name), shapes()
    layer = layer_operators(model, where, load_stack("megatron-core"), False)
    head = head_operators(model, where, load_stack("megatron-core"))
    assert layer.attention is not None
    products = sum(float(gemm.flops[0]) for gemm in layer.gemms)
    padding = float(head.gemms[0].flops[0]) / (2 * 2048 * model.hidden * model.vocab)
    forward = model.layers * (products + float(layer.attention.flops[0])) + float(head.gemms[0].flops[0]) / padding
    # N counts biases and norms as well, which multiply nothing: up to 0.2 % of a small model.
    assert forward == pytest.approx(model_flops(model, 2048, 2048, "causal") / 3, rel=2e-3)


def test_context_share_of_windows() -> None:
    """A window of 4,096 hides nothing of 4,096 tokens, and leaves 4096 / 8192 - 4096 x 4095 / 2 / 8192^2 of 8,192."""
    model = load_model("mistral-7b")
    assert context_share(model, 4096) == pytest.approx(4097 / 8192)
    assert context_share(model, 8192) == pytest.approx(0.375, abs=1e-3)


def test_fused_experts_move_each_routed_row_twice_and_keep_only_the_shared_activation() -> None:
    # DeepSeek-V3: 2,048 tokens of 7,168 to 8 experts; a shared expert of 2,048 reads two halves and writes one.
    model = load_model("deepseek-v3")
    stack = Stack(name="mine", features=Features(fused_experts=True))
    moved = {kernel.name: kernel for kernel in layer_operators(model, shapes(), stack, moe=True).elementwise}
    rows = 2048 * 8 * 7168 * 2
    assert moved["permute"].forward_bytes[0] == pytest.approx(2 * rows)
    assert moved["permute"].backward_bytes[0] == pytest.approx(3 * rows)
    assert moved["activation"].forward_bytes[0] == pytest.approx(3 * 2 * 2048 * 2048)
    plain = {k.name: k for k in layer_operators(model, shapes(), Stack(name="mine"), moe=True).elementwise}
    assert plain["permute"].forward_bytes[0] == pytest.approx(16 * rows)
    assert plain["activation"].forward_bytes[0] == pytest.approx(9 * moved["activation"].forward_bytes[0])


@pytest.mark.parametrize(
    ("name", "stack", "elements", "kernels"),
    [
        ("gpt3", "megatron-core", {"norm_residual": 10 * 12288, "activation": 2 * 24576}, (4, 2)),
        (
            "llama3-8b",
            "megatron-core",
            {"norm_residual": 10 * 4096, "rotary": 2 * 2560, "activation": 3 * 7168},
            (4, 4, 2),
        ),
        (
            "llama3-8b",
            "transformers",
            {"norm_residual": 38 * 4096, "rotary": 10 * 2560, "activation": 5 * 7168},
            (18, 10, 2),
        ),
    ],
)
def test_kernels_between_products_move_what_they_read_and_write(
    name: str, stack: str, elements: dict[str, float], kernels: tuple[int, ...]
) -> None:
    """Elements a token on one of two ranks: a norm 2 (16 where it is not fused), an addition 3, an activation its one
    input or two and its output; the backward pass twice, once and 1.67 times as much.
    """
    found = layer_operators(load_model(name), shapes(tp=2), load_stack(stack), False).elementwise
    backward = {"norm_residual": 2.0, "rotary": 1.0, "activation": 1.67}
    assert {each.name: float(each.forward_bytes[0]) / 2 / 2048 for each in found} == elements
    assert {each.name: float(each.backward_bytes[0]) / 2 / 2048 for each in found} == pytest.approx(
        {kernel: backward[kernel] * count for kernel, count in elements.items()}
    )
    assert tuple(each.kernels for each in found) == kernels


@pytest.mark.parametrize(("name", "queries"), [("llama3-8b", 4096), ("deepseek-v3", 1536)])
def test_an_indexer_is_on_every_rank_and_leaves_out_the_masked_half(name: str, queries: int) -> None:
    """16 heads of 8 for every fourth layer, over 256 of 1,024 tokens a rank: half of what a product would be."""
    model = replace(load_model(name), indexer=Indexer(heads=16, head_dim=8, top_k=5, every=4))
    where = shapes(tp=2, cp=4, micro_batch=3, seq_len=1024)
    found = {each.name: each for each in indexer_gemms(model, where)}
    sizes = {each: [float(getattr(found[each], side)[0]) for side in "mnk"] for each in found}
    assert sizes == {
        "indexer_q": [3 * 256 / 4, 16 * 8, queries],
        "indexer_k": [3 * 256 / 4, 16 + 8, model.hidden],
        "indexer_scores": [256 * 16 / 4, 1024, 8],
    }
    scores = found["indexer_scores"]
    assert (float(scores.batch[0]), scores.low_precision, scores.rate) == (3.0, False, 2.0)


def test_one_expert_alone_is_a_product_as_any_other() -> None:
    stack = Stack(name="mine", parameters={"expert_efficiency": 0.8})
    for ep, rate in ((8, 1.0), (4, 0.8 * 2252.8 / 2288.8)):
        layer = layer_operators(load_model("mixtral-8x7b"), shapes(ep=ep), stack, moe=True)
        for product in (each for each in layer.gemms if each.name.startswith("experts_")):
            assert product.m * product.batch / stack["expert_imbalance"] == pytest.approx(4096)
            assert product.rate == pytest.approx(rate)


def test_one_rank_with_all_experts_computes_every_token_however_uneven_the_routing() -> None:
    """Rows of the experts' products: tokens x top_k together on one rank, 1.65 times the share of the busiest of 8."""
    model, stack = load_model("mixtral-8x7b"), Stack(name="mine", features=Features(routing="trained"))
    for ep, times in ((1, 1.0), (8, 1.65)):
        layer = layer_operators(model, shapes(ep=ep), stack, True)
        up = next(gemm for gemm in layer.gemms if gemm.name == "experts_up")
        assert up.m * up.batch == pytest.approx(2048 * 2 * times)


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 4, 1), (4, 4, 1), (4, 1, 4), (4, 2, 2)])
def test_experts_compute_each_routed_token_once_however_they_are_split(tp: int, ep: int, etp: int) -> None:
    """The 2,048 tokens of a group's tp ranks x 2 experts x 3 matrices of 4,096 x 14,336, 2 FLOPs each."""
    stack = Stack(name="mine", parameters={"expert_imbalance": 1.0})
    layer = layer_operators(load_model("mixtral-8x7b"), shapes(tp=tp, ep=ep, etp=etp), stack, True)
    found = sum(gemm.flops[0] for gemm in layer.gemms if gemm.name.startswith("experts_"))
    assert found * tp == pytest.approx(2048 * 2 * 3 * 4096 * 14336 * 2)


def test_permutations_follow_the_dispatcher() -> None:
    """All-to-all sorts twice on each side, kernels of a dispatcher once: 8 and 4 passes over rows taken by index."""
    model, where = load_model("deepseek-v3"), shapes()
    rows = 2048 * 8 * 7168 * 2
    for number, passes in ((0, 8), (1, 4), (2, 4)):
        chosen = replace(where, dispatcher=np.full(len(where.tp), number))
        moved = {k.name: k for k in layer_operators(model, chosen, Stack(name="mine"), moe=True).elementwise}
        assert moved["permute"].forward_bytes[0] == pytest.approx(2 * passes * rows)


def test_rows_of_experts_are_filled_up() -> None:
    """2,048 tokens of 8 ranks to 8 of 256 experts: 512 rows each, 563.2 of the busiest; 31 / 2 more in blocks of 32."""
    model = load_model("deepseek-v3")
    for multiple, rows in ((1.0, 563.2), (32.0, 578.7)):
        layer = layer_operators(model, shapes(ep=8), Stack(name="mine"), True, multiple)
        product = next(gemm for gemm in layer.gemms if gemm.name == "experts_up")
        assert product.m[0] == pytest.approx(rows)


def test_rotating_as_complex_numbers_is_three_kernels_each_of_queries_and_keys() -> None:
    """Read 2 B and write 4, read 4 and write 4, read 4 and write 2, where a fused kernel reads 2 and writes 2."""
    model = load_model("llama3-8b")
    stacks = [Stack(name="mine", features=Features(complex_rotary=one)) for one in (False, True)]
    fused, apart = (
        next(k for k in layer_operators(model, shapes(), stack, moe=False).elementwise if k.name == "rotary")
        for stack in stacks
    )
    turned = 2048 * (model.q_dim + model.kv_dim)
    assert [k.forward_bytes[0] / turned for k in (fused, apart)] == [4.0, 20.0]
    assert apart.kernels == 6


@pytest.mark.parametrize("tp", [1, 4])
def test_a_recurrence_moves_its_channels_twice_and_what_its_norm_gates_three_times(tp: int) -> None:
    """Of Nemotron 3 Super 10,240 channels and an inner width of 8,192; attention and MLPs have none of it."""
    kinds = [kind.model for kind in load_model("nemotron-3-super-120b-a12b").kinds]
    states = [
        [
            each
            for each in layer_operators(model, shapes(tp), Stack(name="x"), False).elementwise
            if each.name == "state"
        ]
        for model in kinds
    ]
    assert [len(each) for each in states] == [int(model.state is not None) for model in kinds]
    (found,) = [each for some in states for each in some]
    moved = 2 * (2 * 10_240 + 3 * 8_192) * 2048 / tp
    assert (found.forward_bytes.tolist(), found.backward_bytes.tolist(), found.kernels) == ([moved], [2 * moved], 4)
