"""Pieces of the price by hand: operations of modules, what is moved to the host, pipelines of few micro-batches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_model
from optimizer.job.model import Indexer
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.kernels.activations import ActivationBytes, mixer_bytes, resident_bytes
from optimizer.objectives.kernels.modules import module_flops
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.dispatchers import KINDS, NARROW
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.one_f_one_b import ahead, makespan
from optimizer.objectives.pipeline.stages import even_stages
from optimizer.objectives.step.flops import model_flops, recomputed_flops
from optimizer.objectives.step.memory_terms import _update_and_freed
from tests.search.jobs import MIXTURE, small_job


def simulated(m: int, forward: list[float], backward: list[float]) -> float:
    """The last end of 1F1B where every pass starts as soon as its stage and what it waits for allow."""
    pp = len(forward)
    orders = []
    for stage in range(pp):
        warm = min(pp - 1 - stage, m - 1)
        order = [("f", number) for number in range(warm)]
        for number in range(m - warm):
            order += [("f", warm + number), ("b", number)]
        orders.append([*order, *(("b", number) for number in range(m - warm, m))])

    @cache
    def end(stage: int, kind: str, number: int) -> float:
        place = orders[stage].index((kind, number))
        start = end(stage, *orders[stage][place - 1]) if place else 0.0
        if kind == "f" and stage:
            start = max(start, end(stage - 1, "f", number))
        if kind == "b":
            start = max(start, end(stage + 1, "b", number) if stage + 1 < pp else end(stage, "f", number))
        return start + (forward if kind == "f" else backward)[stage]

    return max(end(stage, *orders[stage][-1]) for stage in range(pp))


def test_a_pipeline_takes_as_long_as_its_passes_wait_for_each_other() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        pp, m = int(random.integers(1, 6)), int(random.integers(1, 8))
        forward, backward = random.integers(1, 9, (2, pp)).astype(float)
        found = float(makespan(m, forward, backward))
        assert found == pytest.approx(simulated(m, forward.tolist(), backward.tolist()))
    assert ahead(3, 1).tolist() == [0, 0, 0]


def test_operations_of_recomputed_modules_of_a_mixture() -> None:
    """Two for each parameter of a product that a token uses."""
    model = load_model("mixtral-8x7b")
    assert model.experts
    experts = replace(model.experts, shared_ffn_hidden=1000, latent=0)
    layers, hidden = model.layers, model.hidden
    found = module_flops(replace(model, experts=experts), 7.0)
    shared = 2 * layers * 3 * hidden * 1000
    routed = 2 * layers * 3 * experts.top_k * experts.ffn_hidden * hidden
    assert (found["core_attn"], found["shared_experts"], found["mlp"]) == (7.0, shared, 0.0)
    assert found["moe"] == routed + shared + 2 * layers * hidden * experts.count
    narrow = module_flops(replace(model, experts=replace(experts, latent=512)), 7.0)
    assert narrow["moe"] == routed * 512 / hidden + shared + 2 * layers * hidden * (experts.count + 2 * 512)
    dense = load_model("gpt3")
    assert module_flops(dense, 1.0) == {"core_attn": 1.0, "mlp": 2.0 * 96 * 2 * 12288 * 4 * 12288}


def test_full_recomputation_adds_a_third_of_the_layers() -> None:
    """A forward pass for each forward and backward one, but for the head."""
    job = small_job(8)
    plans = Plans.of([Plan(dp=8, num_microbatches=6, recompute=mode) for mode in ("none", "full")])
    none, full = recomputed_flops(job, plans, even_stages(job.model, plans))
    head = 6.0 * job.model.vocab * job.model.hidden * job.tokens
    assert none == 0.0
    assert full == pytest.approx((model_flops(job.model, job.seq_len, job.tokens) - head) / 3)


def test_what_is_moved_to_the_host_comes_back_beside_what_is_there() -> None:
    some = np.ones(2)
    table = ActivationBytes(
        none=9 * some, selective=6 * some, full=2 * some, passing=0.5 * some, movable={"mlp": 4 * some}
    )
    mode = np.array([0, 0])
    before = resident_bytes(table, mode)
    half = resident_bytes(table, mode, on_host=np.array([0.0, 50.0]))
    assert (half.each[0], half.recomputing[0]) == (before.each[0], before.recomputing[0])
    assert half.each[1] == before.each[1] - 2.0
    full = resident_bytes(table, np.full(2, RECOMPUTE.index("full")))
    assert full.recomputing.tolist() == [9.5, 9.5]


def test_an_indexer_keeps_its_heads_and_what_it_chose() -> None:
    one = np.ones(1)
    shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=10)
    model = load_model("llama3-8b")
    for every in (1, 4):
        own = replace(model, indexer=Indexer(heads=16, head_dim=8, top_k=5, every=every))
        more = float((mixer_bytes(own, shapes) - mixer_bytes(model, shapes))[0])
        assert more == 10 * (2 * 17 * 8 + 4 * 5) / every


def test_temporaries_of_an_update_are_those_of_experts_and_of_all_else() -> None:
    job = replace(small_job(8), model=MIXTURE)
    costs: Any = layer_costs_of(job, Plans.of([Plan(dp=8, ep=2, num_microbatches=6)]))
    one, none = np.ones(1), np.zeros(1)
    pairs = ((one, one), (one, none), (none, one))
    both, shared, experts = (float(_update_and_freed(costs, pair)[0][0]) for pair in pairs)
    assert both == pytest.approx(shared + experts)
    assert min(shared, experts) > 0


def test_a_narrow_element_has_a_scale_for_128() -> None:
    assert NARROW == (128 + 4) / 128
    assert {name: (kind.scale_up, kind.wide, kind.network, kind.sms, kind.proxied) for name, kind in KINDS.items()} == {
        "alltoall": (1.0, 1.0, 1.0, 16, 0.0),
        "deepep": (0.78, 0.35, 1.0, 24, 4e-4),
        "hybridep": (0.6, 0.6, 0.84, 16, 4e-4),
    }
