"""Adapters and frozen products, by hand and by law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.method import PARTS
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels.adapters import (
    ROUTER,
    SCORES,
    adapter_passes,
    copied_bytes,
    idle_bytes,
    launched_products,
    matrices,
    part_of,
    scaled_bytes,
    trained_layer,
)
from optimizer.objectives.kernels.operators import Gemm, Layer, layer_operators
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.cost import activations_of
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.layer.sharded import sharded_messages
from optimizer.objectives.layer.trained import local_elements
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE
from optimizer.objectives.step.price import price

JOB = Job(
    model=load_model("llama3-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("megatron-core"),
    gpus=1,
    seq_len=2048,
    global_batch=4,
)


def seconds(train: str, optimizer: str = "", **plan: int) -> float:
    return float(price(replace(JOB, train=train, optimizer=optimizer), Plans.of([Plan(**plan)])).step_time[0])


def memory(train: str, optimizer: str = "", base: str = "") -> dict[str, float]:
    costs = price(replace(JOB, train=train, optimizer=optimizer, base=base), Plans.of([Plan()]))
    return {name: float(costs.memory[name][0]) for name in ("weights", "gradients", "optimizer")}


def test_adapters_of_llama_count_as_their_publisher_counts() -> None:
    """PEFT on all linear layers of Llama 3 8B at rank 8: 20,971,520 parameters; on queries and values 3,407,872."""
    for train, count in (("lora:8", 20_971_520), ("lora:8:q_proj,v_proj", 3_407_872)):
        found = local_elements(replace(JOB, train=train), Plans.of([Plan()]))
        assert JOB.model.layers * float(found[DENSE].trained_shared[0]) == count
        assert not np.any(found[EMBEDDING].trained_shared)
        assert not np.any(found[HEAD].trained_shared)


def test_experts_have_adapters_of_their_own() -> None:
    job = replace(JOB, model=load_model("mixtral-8x7b"), train="lora:8:mlp")
    found = local_elements(job, Plans.of([Plan(), Plan(ep=2, dp=2)]))[MOE]
    hidden, wide = job.model.hidden, job.model.experts.ffn_hidden
    assert found.trained_experts.tolist() == [8 * 8 * (3 * hidden + 3 * wide), 4 * 8 * (3 * hidden + 3 * wide)]
    assert not np.any(found.trained_shared)


@pytest.mark.parametrize(
    ("train", "held", "trained"),
    [
        ("full", (1.0, 1.0), (1.0, 1.0)),
        ("qlora:8:mlp", (0.258, 0.258), (0.0, 0.0)),
        ("frozen:experts", (1.0, 1.0), (1.0, 0.0)),
        ("frozen:attention", (1.0, 1.0), (0.0, 1.0)),
        ("frozen:experts,layers.0-7", (1.0, 1.0), (0.75, 0.0)),
        ("frozen:attention,layers.0-7", (1.0, 1.0), (0.0, 0.75)),
    ],
)
def test_what_a_layer_of_a_mixture_holds_and_trains(
    train: str, held: tuple[float, float], trained: tuple[float, float]
) -> None:
    """Shares of the matrices of attention and of experts; nf4 takes 0.258 of two bytes, no router is quantised, and
    norms are trained with their layer.
    """
    model = load_model("mixtral-8x7b")
    found = local_elements(replace(JOB, model=model, train=train), Plans.of([Plan(), Plan(ep=2, dp=2)]))[MOE]
    attention, experts, router, norms = 4096 * (2 * 4096 + 2 * 1024), 8 * 3 * 4096 * 14336, 8 * 4096, 2 * 4096
    small = 8 * 8 * 3 * (4096 + 14336) if train.startswith("qlora") else 0
    assert found.shared.tolist() == pytest.approx([held[0] * attention + router + norms] * 2)
    assert found.experts.tolist() == pytest.approx([held[1] * experts + small, (held[1] * experts + small) / 2])
    layers = 0.0 if small else 0.75 if "layers" in train else 1.0
    rest = layers * norms + (0.0 if "experts" in train else layers * router)
    assert found.trained_shared.tolist() == pytest.approx([trained[0] * attention + rest] * 2)
    assert found.trained_experts.tolist() == pytest.approx(
        [trained[1] * experts + small, (trained[1] * experts + small) / 2]
    )


def test_tensor_parallelism_splits_the_outer_side_of_an_adapter() -> None:
    found = local_elements(replace(JOB, train="lora:8:o"), Plans.of([Plan(), Plan(tp=2)]))[DENSE]
    assert found.trained_shared.tolist() == [8 * (4096 + 4096), 8 * (2048 + 4096)]


def test_what_is_frozen_has_no_gradient_and_no_state() -> None:
    full, adapted, quantised = memory("full"), memory("lora:8"), memory("qlora:8")
    assert adapted["gradients"] == 4 * 20_971_520
    assert adapted["optimizer"] == 12 * 20_971_520
    assert adapted["weights"] == pytest.approx(full["weights"] + 2 * 20_971_520)
    linear = JOB.model.layers * 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336)
    assert quantised["weights"] == pytest.approx(adapted["weights"] - (2 - 0.516) * linear)
    assert memory("lora:8", base="fp8")["weights"] == pytest.approx(adapted["weights"] - linear)
    some = memory("frozen:embedding,mlp")
    less = 128256 * 4096 + 32 * 3 * 4096 * 14336
    assert some["gradients"] / 4 == pytest.approx(full["gradients"] / 4 - less, rel=1e-9)


def test_optimizers_keep_their_moments() -> None:
    params = memory("full")["gradients"] / 4
    states = {name: memory("full", name)["optimizer"] / params for name in ("sgd", "lion", "adamw-8bit", "ademamix")}
    assert states == pytest.approx({"sgd": 4, "lion": 8, "adamw-8bit": 6.032, "ademamix": 16})
    assert memory("full", "paged-adamw-8bit")["optimizer"] == pytest.approx(4 * params)


def test_time_follows_what_is_trained() -> None:
    """Frozen weights save gradients; rank and DoRA cost; dequantising costs once a micro-batch, whatever its tokens."""
    assert seconds("lora:8") < 0.8 * seconds("full")
    assert seconds("lora:8") < seconds("lora:64") < seconds("dora:64")
    small, large = (seconds("qlora", micro_batch=n) - seconds("lora", micro_batch=n) for n in (1, 4))
    assert small == pytest.approx(large, rel=0.2)
    assert seconds("full", "sgd") < seconds("full") < seconds("full", "ademamix") < seconds("full", "muon")


def test_every_product_of_a_layer_is_of_a_part_and_holds_matrices() -> None:
    for name in ("gpt3", "llama3-8b", "deepseek-v3"):
        job = replace(JOB, model=load_model(name))
        shapes = shapes_of(job, Plans.of([Plan()]))
        for kind in job.model.kinds:
            layer = layer_operators(kind.model, shapes, job.stack, kind.moe)
            for product in layer.gemms:
                assert part_of(product.name) in PARTS
                assert matrices(kind.model, product.name) or product.name in (ROUTER, SCORES), product.name


def test_gathering_frozen_weights_takes_their_stored_bytes() -> None:
    job = replace(JOB, gpus=8, train="qlora", global_batch=8, cluster=load_cluster("dgx-h100"))
    plan = Plans.of([Plan(dp=8, zero_stage=3)])
    thin, wide = (layer_costs_of(replace(job, base=base), plans=plan) for base in ("nf4", "int8"))
    sent = []
    for costs in (thin, wide):
        messages = sharded_messages(job, plan, costs.by_kind[DENSE].elements)
        sent.append(sum(float(message.size[0] * message.times[0]) for message in messages))
    linear = 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336)
    assert sent[1] - sent[0] == pytest.approx(2 * (1 - 0.516) * linear)


def test_gradients_travel_in_a_width_of_their_own() -> None:
    """Accelerate's FSDP reduces them in bf16 and holds them in fp32."""
    plan, sent = Plans.of([Plan(dp=8, zero_stage=3)]), []
    for width in (0, 2):
        stack = replace(JOB.stack, features=replace(JOB.stack.features, grad_bytes=4, wire_bytes=width))
        job = replace(JOB, gpus=8, global_batch=8, stack=stack)
        elements = layer_costs_of(job, plans=plan).by_kind[DENSE].elements
        sent.append(
            [float(each.size[0]) for each in sharded_messages(job, plan, elements) if each.purpose == "gradients"]
        )
    assert sent[0] == [2 * size for size in sent[1]]


def of(train: str, stack: str = "hf-2026", **changes: Any) -> Job:
    return replace(JOB, train=train, stack=load_stack(stack), **changes)


def product(name: str, m: float, n: float, k: float, batch: float = 1.0) -> Gemm:
    return Gemm(name=name, m=np.full(1, m), n=np.full(1, n), k=np.full(1, k), batch=np.full(1, batch))


@pytest.mark.parametrize(
    ("train", "attention", "mlp"),
    [
        ("lora:8:q", 0.0, 4096 + 14336),
        ("lora:8:o", 4096, 4096 + 14336),
        ("lora:8:down", 4096, 4096),
        ("lora:8:up", 4096, 14336),
        ("lora:8:v+gate+down", 0.0, 0.0),
        ("frozen:mlp", 0.0, 4096 + 14336),
        ("frozen:attention", 4096, 0.0),
        ("full", 0.0, 0.0),
    ],
)
def test_an_input_that_no_gradient_needs_is_not_kept(train: str, attention: float, mlp: float) -> None:
    """In two bytes a token: of a norm's output a quarter with sequence parallelism on TP 4, of the MLP's always."""
    job = of(train, gpus=4)
    for plan, streams in ((Plan(tp=4, sequence_parallel=True), 4), (Plan(tp=4), 1)):
        found = idle_bytes(job, job.model, shapes_of(job, Plans.of([plan])), moe=False)
        wide = mlp >= 14336
        assert float(found["attention"][0]) / 2048 == 2 * attention / streams
        assert float(found["mlp"][0]) / 2048 == 2 * ((mlp - 14336 * wide) / streams + 14336 * wide / 4)


def test_wide_adapters_keep_a_copy_of_their_inputs_each() -> None:
    job = of("lora:8:q+v+down")
    shapes = shapes_of(job, Plans.of([Plan()]))
    small = [product("qkv", 10, 6144, 4096), product("mlp_down", 10, 4096, 14336, batch=3.0), product("gate", 5, 1, 1)]
    assert copied_bytes(job, job.model, shapes, small)[0] == 2 * (2 * 10 * 4096 + 10 * 14336 * 3 + 5)


def test_the_scales_of_dora_keep_both_outputs_and_pass_through_the_largest_matrix() -> None:
    """2 x 2 m n of each; in fp32 3 m n + 2 n k of the largest: queries of 4,096 here, of keys 1,024."""
    job = of("dora:8:q+k")
    found = scaled_bytes(job, job.model, [product("qkv", 10, 6144, 4096, batch=3.0)])
    size = 4 if job.wide_adapters else 2
    assert [float(each[0]) for each in found] == [
        2 * 2 * 10 * 3 * (4096 + 1024),
        size * 3 * 4096 * (3 * 10 + 2 * 4096),
    ]


@pytest.mark.parametrize("batch", [1.0, 4.0])
@pytest.mark.parametrize(
    ("train", "stack", "forward", "backward", "kernels"),
    [
        # Passes of the inputs, of the outputs, of the weight and of the square of the inputs' width.
        ("lora:8:q+v", "megatron-core", (0, 5, 0, 0), (3, 2, 0, 0), 5),
        ("dora:8:q+v", "megatron-core", (0, 5 + 4, 3, 0), (3, 2 + 4, 0, 0), 12),
        ("lora:8:q+v", "hf-2026", (2 * 6, 5, 0, 0), (2 * (6 + 3), 2, 0, 0), 2 * (2 + 4)),
        ("dora:8:q+v", "hf-2026", (2 * 6, 5 + 16, 19, 2 * 5), (2 * (6 + 3), 2 + 16, 0, 0), 2 * (2 + 4 + 12 + 4)),
    ],
)
def test_what_runs_around_adapters_by_hand(
    train: str, stack: str, forward: tuple[int, ...], backward: tuple[int, ...], kernels: int, batch: float
) -> None:
    job = of(train, stack)
    m, n, k, wide = 100.0, 6144.0, 4096.0, 5120.0  # queries and values have 5,120 of the 6,144 outputs
    passes = adapter_passes(
        job, product("qkv", m, n, k, batch), [product("qkv_a", m, 8, k), product("qkv_b", m, wide, 8)]
    )
    sizes = [batch * size for size in (m * k, m * wide, n * k, k * k)]
    assert passes.forward_bytes[0] == 2 * sum(times * size for times, size in zip(forward, sizes, strict=True))
    assert passes.backward_bytes[0] == 2 * sum(times * size for times, size in zip(backward, sizes, strict=True))
    assert passes.kernels == kernels


@pytest.mark.parametrize(
    ("train", "base", "passes", "kernels"),
    [
        ("qlora:8:q", "nf4", 1.0, (2 + 8) * 3),
        ("qlora:8:q", "int4", 1.4, (2 + 8) * 3),
        ("qlora:8:q", "int8", 1.4, (2 + 8) * 3),
        ("lora:8:q", "", None, 0),
    ],
)
def test_dequantising_reads_what_is_stored_and_writes_16_bits(
    train: str, base: str, passes: float | None, kernels: int
) -> None:
    job = of(train, base=base)
    layer = Layer(
        gemms=(product("qkv", 100, 6144, 4096, 3.0), product(ROUTER, 100, 8, 4096)), attention=None, elementwise=()
    )
    trained = trained_layer(job, layer)
    found = [each for each in trained.elementwise if each.name == "dequantise"]
    assert [gemm.name for gemm in trained.gemms] == ["qkv_a", "qkv_b", "qkv", ROUTER]
    assert [gemm.weight for gemm in trained.gemms] == [True, True, False, False]
    assert len(found) == (passes is not None)
    for each in found:
        share = passes * job.stack["dequantise_passes"] / job.stack["elementwise_passes"]
        moved = share * (job.method.base_bytes + 2) * 6144 * 4096 * 3
        assert float(each.forward_bytes[0]) == float(each.backward_bytes[0]) == pytest.approx(moved)
        assert each.kernels == kernels


def test_eager_code_launches_every_matrix_and_every_adapter() -> None:
    names = ("qkv", "qkv_a", "qkv_b", "mlp_up", "mlp_up_a", "mlp_up_b", "attention_out", ROUTER)
    layer = Layer(gemms=tuple(product(name, 1, 1, 1) for name in names), attention=None, elementwise=())
    # Queries, keys and values; adapters of two of them; gate and up, an adapter of one; a matrix; the router.
    assert launched_products(of("lora:8:q+v+up"), layer) == 3 + 2 + 2 + 2 + 1 + 1 + 1 + 1
    assert launched_products(of("lora:8:q+v+up", "megatron-core"), layer) == len(names)


def test_dropout_of_adapters_costs_passes_and_masks() -> None:
    """A read, a write and a mask of 1 B of every adapter's inputs each way, in fp32 where adapters are; on a device
    without a last cache, which would spare HBM a part of it.
    """
    cluster = load_cluster("dgx-h100")
    job = Job(
        model=load_model("llama3-8b"),
        cluster=replace(cluster, device=replace(cluster.device, l2_cache=0.0)),
        stack=load_stack("hf-2026"),
        gpus=1,
        seq_len=2048,
        global_batch=4,
        train="lora:16:q",
    )
    dropped = replace(job, stack=replace(job.stack, features=replace(job.stack.features, adapter_dropout=True)))
    one = Plans.of([Plan(micro_batch=1, num_microbatches=4)])
    plain, slower = (price(each, one) for each in (job, dropped))
    inputs = 2048 * job.model.hidden * job.model.layers
    passes = 2 * (4.0 + 4.0 + 1.0) * inputs * 4 / job.cluster.device.memory_bandwidth
    rate = job.stack["hbm_efficiency"] / job.stack["elementwise_passes"]
    assert float((slower.step_time - plain.step_time)[0]) == pytest.approx(passes / rate)
    kept = float((slower.memory["activations"] - plain.memory["activations"])[0])
    assert kept == pytest.approx(inputs * job.stack["activation_factor"], rel=0.01)


def test_fused_adapters_cast_no_inputs_and_compute_the_activation_again() -> None:
    """What one function of autograd has: no copies, and gate and up alone of four widths."""
    stack, one = load_stack("axolotl"), Plans.of([Plan()])
    job = replace(of("lora:8:all"), stack=stack)
    apart = replace(job, stack=replace(stack, features=replace(stack.features, fused_adapters=False)))
    down = product("mlp_down", 10, 4096, 14336)
    moved = [
        adapter_passes(each, down, [product("a", 10, 8, 14336), product("b", 10, 4096, 8)]) for each in (job, apart)
    ]
    assert [each.kernels for each in moved] == [5, 6]
    assert (moved[1].forward_bytes - moved[0].forward_bytes) == 2 * 6 * 10 * 14336
    shapes = shapes_of(job, one)
    kept = [float(activations_of(each, job.model, shapes, False).none[0]) for each in (apart, job)]
    copies = 2 * (5 * 4096 + 4096 + 14336)  # of q, k, v, gate and up, of o and of down
    assert kept[0] - kept[1] == float(shapes.tokens[0]) * (copies + 2 * 2 * 14336)
