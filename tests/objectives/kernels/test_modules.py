"""What recomputing modules of a layer by name frees and costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_model
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import MODULES, RECOMPUTE, modules_of
from optimizer.objectives.kernels.activations import activation_bytes, resident_bytes
from optimizer.objectives.kernels.modules import module_flops, module_operators
from optimizer.objectives.kernels.operators import layer_operators
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.module_sets import SMALL, frontier, offered_modules, savings, searched_modes
from optimizer.objectives.layer.seconds import layer_time
from optimizer.objectives.step.explain import explain
from optimizer.objectives.step.price import price
from tests.objectives.questions import TOKENS, job

MODELS = ("gpt3", "llama3-70b", "mixtral-8x22b", "deepseek-v3", "qwen3-235b-a22b", "llama4-maverick", "falcon-40b")


def shapes(tp: int = 1, ep: int = 1, *, sequence_parallel: bool = False) -> Shapes:
    one = np.ones(1)
    return Shapes(
        tp=tp * one,
        cp=one,
        ep=ep * one,
        etp=one,
        micro_batch=one,
        sequence_parallel=np.array([sequence_parallel]),
        seq_len=TOKENS,
    )


def freed(question: Job, moe: bool, tp: int = 1) -> dict[str, float]:
    some, stack = shapes(tp, 8, sequence_parallel=tp > 1), question.stack
    table = activation_bytes(question.model, some, stack.features, moe, stack.imbalance, question.quantised)
    return {module: float(found[0]) for module, found in table.modules.items()}


def test_the_modules_of_deepseek_v3_free_what_can_be_counted() -> None:
    """Per token: two norms of 7,168; 8 experts of 2,048, whose output is weighed before their second product; 128 heads
    of 192, 192 and 128 (q, k, v); all in two bytes.
    """
    found = freed(job("deepseek-v3"), moe=True)
    assert found["core_attn"] == 0.0
    assert found["layernorm"] == TOKENS * 2 * 7168 * 2
    assert found["moe_act"] == pytest.approx(TOKENS * 8 * 2048 * 2 * 1.1)
    assert found["mla_up_proj"] == TOKENS * 128 * (192 + 192 + 128) * 2
    assert found["shared_experts"] == TOKENS * 2048 * (4 + 2)
    routed = TOKENS * 8 * 1.1 * (2048 * (4 + 2) + 2 * 7168)
    assert found["moe"] == pytest.approx(routed + found["shared_experts"] + TOKENS * 8 * 256)
    assert "mlp" not in found
    dense = freed(job("deepseek-v3"), moe=False)
    assert dense["mlp"] == TOKENS * (18432 * (4 + 2) + 2 * 7168)
    assert dense["layernorm"] == TOKENS * 7168 * 2
    assert "moe" not in dense


def test_norms_that_are_part_of_a_product_cannot_be_recomputed_alone() -> None:
    assert "layernorm" not in freed(job("llama3-70b"), moe=False)
    assert freed(job("mixtral-8x22b"), moe=True)["layernorm"] == TOKENS * 6144 * 2


def test_fp8_keeps_half_as_much_of_what_goes_into_a_product() -> None:
    half, whole = (freed(job("deepseek-v3", dtype=dtype), moe=True) for dtype in ("fp8", "bf16"))
    assert half["layernorm"] == whole["layernorm"] / 2
    assert half["moe_act"] == whole["moe_act"] / 2
    routed = TOKENS * 8 * 1.1 * (2048 * (4 + 1) + 7168) + TOKENS * 2048 * (4 + 1) + TOKENS * 8 * 256
    assert half["moe"] == pytest.approx(routed)
    assert half["mla_up_proj"] == whole["mla_up_proj"]


def test_what_experts_return_is_kept_where_it_is_weighed_afterwards() -> None:
    """Per token 8 rows of 7,168 in two bytes, with experts 1.1 times as busy as the mean.

    Megatron-Core weighs them early since 0.12, "Memory efficient token permutation" (NVIDIA/Megatron-LM @2659630721).
    """
    early = job("deepseek-v3")
    late = replace(early, stack=replace(early.stack, features=replace(early.stack.features, weighed_early=False)))
    assert freed(late, moe=True)["moe"] - freed(early, moe=True)["moe"] == pytest.approx(TOKENS * 8 * 1.1 * 7168 * 2)


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("model", MODELS)
def test_a_module_is_part_of_its_layer(model: str, tp: int) -> None:
    """All modules together free no more than the layer keeps; each costs more than nothing and less than the layer."""
    question = job(model)
    for moe in (False, True) if question.model.experts else (False,):
        some = shapes(tp, sequence_parallel=tp > 1)
        time = layer_time(question, layer_operators(question.model, some, question.stack, moe), some, moe)
        features = question.stack.features
        table = activation_bytes(question.model, some, features, moe, question.stack.imbalance)
        assert time.modules.keys() == table.modules.keys()
        apart = [module for module in time.modules if module not in ("moe_act", "shared_experts")]
        assert sum(float(table.modules[module][0]) for module in apart) < float((table.none - table.full)[0]) * (
            1 + 1e-9
        )
        assert sum(float(time.modules[module].compute[0]) for module in apart) < float(time.full.compute[0])
        assert all(float(phase.total[0]) > 0 for phase in time.modules.values())
        for part in {"moe_act", "shared_experts"} & time.modules.keys():
            assert table.modules[part] < table.modules["moe"]
            assert time.modules[part].compute < time.modules["moe"].compute


@pytest.mark.parametrize(
    "name", ["layernorm+moe_act", "layernorm+mla_up_proj+moe", "core_attn+layernorm+shared_experts"]
)
def test_a_set_adds_and_frees_what_its_modules_do(name: str) -> None:
    question, some = job("deepseek-v3"), shapes(2, 8, sequence_parallel=True)
    time = layer_time(question, layer_operators(question.model, some, question.stack, True), some, True)
    table = activation_bytes(question.model, some, question.stack.features, True, question.stack.imbalance)
    code = np.array([RECOMPUTE.index(name)])
    added, resident = time.recomputation(code), resident_bytes(table, code)
    assert added.total == pytest.approx(sum(time.modules[module].total for module in modules_of(name)))
    assert resident.recomputing == pytest.approx(sum(table.modules[module] for module in modules_of(name)))
    assert resident.each + resident.recomputing == pytest.approx(table.none)


def test_a_plan_that_recomputes_modules_is_slower_and_leaner() -> None:
    question = job("deepseek-v3")
    plan = Plan(tp=2, ep=8, dp=32, num_microbatches=8, sequence_parallel=True)
    sets = (
        "none",
        "layernorm",
        "layernorm+moe_act",
        "layernorm+moe_act+mla_up_proj",
        "layernorm+mla_up_proj+moe",
        "full",
    )
    costs = price(question, Plans.of([replace(plan, recompute=mode) for mode in sets]))
    assert np.all(np.diff(costs.step_time) > 0)
    assert np.all(np.diff(costs.memory["activations"]) < 0)
    assert np.all(np.diff(costs.hfu * costs.step_time) > -1e-12)


def test_the_mixture_is_dispatched_again() -> None:
    question, plan = job("mixtral-8x22b"), Plan(ep=8, dp=64, num_microbatches=4)
    none, act, whole = price(question, Plans.of([replace(plan, recompute=m) for m in ("none", "moe_act", "moe")])).time[
        "ep_communication"
    ]
    assert none == act
    assert whole == pytest.approx(1.5 * none, rel=0.05)


@pytest.mark.parametrize("model", MODELS)
def test_every_set_of_modules_is_beaten_by_one_that_is_searched(model: str) -> None:
    """By a set that frees as much but for SMALL in no more time, or by as many whole layers as free as much."""
    exchanges, full, keeps = savings(job(model))

    def together(name: str) -> tuple[float, float]:
        freed_and_added = [exchanges[module] for module in modules_of(name)]
        return sum(size for size, _ in freed_and_added), sum(seconds for _, seconds in freed_and_added)

    searched = [together(name) for name in frontier(exchanges, full, keeps)]
    assert all(seconds < size * full[1] / full[0] for size, seconds in searched)
    assert searched == sorted(searched)
    for name in (mode for mode in RECOMPUTE if modules_of(mode) and set(modules_of(mode)) <= exchanges.keys()):
        size, seconds = together(name)
        beaten = seconds >= size * full[1] / full[0] * (1 - 1e-9)
        rivals = [(0.0, 0.0), *searched]
        assert beaten or any(more >= size - SMALL * keeps and less <= seconds for more, less in rivals), name


def test_selective_recomputation_is_tried_where_it_frees_something() -> None:
    assert searched_modes(job("gpt3")) == ("none", "full")
    assert searched_modes(job("gpt3", attention="unfused", recompute_modules=())) == ("none", "selective", "full")
    assert searched_modes(replace(job("llama3-70b"), seq_len=32768)) == ("none", "full", "mlp")
    assert {"layernorm+moe_act", "layernorm+moe_act+mla_up_proj"} < set(searched_modes(job("deepseek-v3")))
    assert offered_modules(load_model("llama3-70b"), MODULES) == (
        "core_attn",
        "layernorm",
        "mlp",
        "moe",
        "shared_experts",
    )


def test_the_explanation_says_what_the_modules_add_and_free() -> None:
    question = job("mixtral-8x22b")
    terms = {term.name: term for term in explain(question, Plan(ep=8, dp=64, recompute="layernorm+moe_act"))}
    (freed_of,) = [text for name, text in terms["activations"].inputs.items() if name.endswith("a moe layer")]
    assert freed_of == f"{TOKENS * (6144 + 2 * 16384 * 1.1) * 2 / 1e6:.4g} MB freed"
    assert any("ms more" in text for text in terms["elementwise"].inputs.values())


@pytest.mark.parametrize("model", MODELS)
def test_a_module_runs_operators_of_its_layer_and_counts_their_work(model: str) -> None:
    """Products are the layer's own; their operations per token, over all layers, are those of module_flops."""
    question = job(model)
    every = replace(question.stack, features=replace(question.stack.features, recompute_modules=MODULES))
    counted = module_flops(question.model, 0.0)
    for moe in (False, True) if question.model.experts else (False,):
        layers = question.model.moe_layers if moe else question.model.dense_layers
        some = shapes()
        layer = layer_operators(question.model, some, every, moe)
        for module, again in module_operators(question.model, some, every, layer, moe).items():
            assert set(map(id, again.gemms)) <= set(map(id, layer.gemms)), module
            if module in ("mlp", "shared_experts") and layers:
                work = sum(float(np.ravel(product.flops)[0]) for product in again.gemms)
                assert work * layers / TOKENS == pytest.approx(counted[module]), module
