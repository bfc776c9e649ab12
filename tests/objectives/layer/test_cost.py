"""What one layer of each kind costs: parts add up, and grow with what they are made of."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.job.model import Tower
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.kernels.shapes import computed_shapes, shapes_of
from optimizer.objectives.layer import cost as module
from optimizer.objectives.layer.cost import BY_TERM, Cost, costs_of, weight_share
from optimizer.objectives.layer.phases import TERMS, LayerTime, Phase
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP
from tests.objectives.questions import TOKENS, job
from tests.search.jobs import small_job

PLAN = Plan(tp=2, dp=8, micro_batch=1, num_microbatches=8, sequence_parallel=True)
MODELS = ("gpt3", "mixtral-8x22b", "deepseek-v3")


def costs(model: str, *plans: Plan) -> dict[str, Cost]:
    some = Plans.of(list(plans))
    return costs_of(job(model), some, some, np.arange(len(some)))


def total(cost: Cost) -> float:
    """Forward and backward seconds of the first plan [s]."""
    return sum(float(np.ravel(part)[0]) for terms in (cost.forward, cost.backward) for part in terms.values())


def test_each_model_has_the_kinds_that_it_is_made_of() -> None:
    assert set(costs("gpt3", PLAN)) == {EMBEDDING, DENSE, HEAD}
    assert set(costs("mixtral-8x22b", PLAN)) == {EMBEDDING, DENSE, MOE, HEAD}
    assert set(costs("deepseek-v3", PLAN)) == {EMBEDDING, DENSE, MOE, MTP, HEAD}


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_negative_and_parts_are_no_more_than_the_whole(model: str) -> None:
    for cost in costs(model, PLAN, replace(PLAN, recompute="full"), replace(PLAN, recompute="selective")).values():
        terms = [part for each in (cost.forward, cost.backward, cost.recompute) for part in each.values()]
        parts = [getattr(cost, item.name) for item in fields(Cost) if item.name not in BY_TERM]
        assert all(np.all(part >= 0) for part in (*terms, *parts))
        assert np.all(cost.weight <= sum(cost.backward.values(), np.zeros(1)) * (1 + 1e-12))
        assert np.all(cost.resident_recomputed <= cost.resident)


def test_twice_the_sequences_keep_twice_the_bytes_and_take_no_less_per_sequence_than_half() -> None:
    """Activations are linear in the tokens; larger products are at least as efficient."""
    one, two = (costs("gpt3", replace(PLAN, micro_batch=size))[DENSE] for size in (1, 2))
    assert float(two.resident[0]) == pytest.approx(2 * float(one.resident[0]))
    assert total(one) < total(two) <= 2 * total(one) * (1 + 1e-9)


def test_full_recomputation_runs_the_forward_pass_again_and_keeps_the_input() -> None:
    plain, full = (costs("gpt3", replace(PLAN, recompute=mode))[DENSE] for mode in ("none", "full"))
    assert not any(np.any(part) for part in plain.recompute.values())
    for name, part in full.forward.items():
        if name in full.recompute:
            assert float(np.ravel(full.recompute[name])[0]) == pytest.approx(float(np.ravel(part)[0])), name
    model = job("gpt3").model
    factor = job("gpt3").stack["activation_factor"]
    assert float(full.resident_recomputed[0]) == pytest.approx(2 * TOKENS * model.hidden / PLAN.tp * factor)
    assert float(plain.resident[0]) == float(full.resident[0])


def test_the_embedding_keeps_its_output_and_takes_no_time() -> None:
    embedding = costs("gpt3", PLAN)[EMBEDDING]
    assert total(embedding) == 0
    assert float(embedding.resident[0]) == 2 * TOKENS * 12288 / PLAN.tp


def test_a_prediction_layer_is_a_layer_and_a_projection_of_two_widths() -> None:
    """DeepSeek-V3: the head of 129,280 rows once more costs 2 x 7,168 / 129,280 of one pass; the head runs twice."""
    found = costs("deepseek-v3", PLAN)
    share = 2 * 7168 / 129_280
    assert total(found[MTP]) == pytest.approx(total(found[MOE]) + share * total(found[HEAD]) / 2)
    assert float(found[MTP].static[0]) == float(found[MOE].static[0])


@pytest.mark.parametrize(("train", "share"), [("full", 0.5), ("lora", 0.0), ("frozen:mlp", 0.0)])
def test_half_of_a_backward_pass_is_of_weights_where_none_is_frozen(train: str, share: float) -> None:
    assert weight_share(replace(job("gpt3"), train=train)) == share


def phase(seconds: float, hidden: float, outlasting: float = 0.0) -> Phase:
    """A pass of one shape, each of whose terms takes so long: three of computation, three of messages, the launches."""
    parts = {term: np.full(1, seconds) for term in TERMS}
    return Phase(terms=parts, hidden=np.full(1, hidden), outlasting=np.full(1, outlasting))


TIME = LayerTime(
    forward=phase(1.0, 0.5),
    backward=phase(2.0, 0.25),
    selective=phase(0.25, 0.0),
    full=phase(1.5, 0.75, 0.125),
    host=np.full(1, 2.6),
    collectives=np.full(1, 4.0),
)
PAIRS = replace(small_job(), train="full", loss="dpo")  # two forward passes for each backward pass


def column(cost: Cost, name: str) -> list[float]:
    return [float(value) for value in np.broadcast_to(getattr(cost, name), 3)]


@pytest.fixture
def layer_cost(monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Of plans that recompute nothing, some and all."""
    monkeypatch.setattr(module, "layer_time", lambda *_, **__: TIME)
    plans = Plans.of([Plan(dp=8, micro_batch=2, recompute=mode) for mode in ("none", "selective", "full")])
    few, rows = plans.take(np.arange(1)), np.zeros(3, dtype=np.int64)
    shapes, local = shapes_of(PAIRS, plans), computed_shapes(PAIRS, few)
    return module._layer_cost(PAIRS, plans, shapes, local, rows, moe=False, timed=True)


def test_a_layer_costs_its_passes_and_what_its_mode_recomputes(layer_cost: Cost) -> None:
    for term in TERMS:
        assert layer_cost.forward[term].tolist() == [2.0] * 3
        assert layer_cost.backward[term].tolist() == [2.0, 2.25, 2.0]
        assert layer_cost.recompute[term].tolist() == [0.0, 0.0, 1.5]
    expected = {
        "weight": [2.0] * 3,  # half of products and launches
        "cover_forward": [2 * 4.0] * 3,
        "cover_backward": [8.0, 9.0, 8.0],
        "cover_recompute": [0.0, 0.0, 6.125],
        "hidden": [2 * 0.5 + 0.25] * 3,
        "hidden_recompute": [0.0, 0.0, 0.75],
        "host": [2.6] * 3,
        "collectives": [4.0] * 3,
        "static": [0.0] * 3,
        "hosted": [0.0] * 3,
    }
    assert {name: column(layer_cost, name) for name in expected} == expected


def test_a_layer_that_no_gradient_reaches_has_a_forward_pass_alone(layer_cost: Cost) -> None:
    alone = module._forward_alone(layer_cost, np.full(3, 0.5))
    assert alone.forward == layer_cost.forward
    for terms in (alone.backward, alone.recompute):
        assert not any(np.any(part) for part in terms.values())
    kept = {"cover_forward": [8.0] * 3, "hidden": [0.5] * 3, "host": pytest.approx([1.0] * 3), "collectives": [2.0] * 3}
    for name in (item.name for item in fields(Cost) if item.name not in BY_TERM):
        assert column(alone, name) == kept.get(name, [0.0] * 3), name


@pytest.mark.parametrize(("again", "logits"), [(False, 0.0), (True, 1.0)])
def test_the_head_passes_once_more_without_gradients(
    again: bool, logits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven terms of 1 s twice, and of 2 s; products of 1 s again where logits are not kept."""
    monkeypatch.setattr(module, "head_time", lambda *_: TIME)
    job = replace(PAIRS, stack=replace(PAIRS.stack, features=Features(recomputed_logits=again)))
    plans, rows = Plans.of([Plan(dp=8, micro_batch=2)]), np.zeros(1, dtype=np.int64)
    shapes = shapes_of(job, plans)
    head = module._head_cost(job, shapes, computed_shapes(job, plans), rows, timed=True)
    assert (head.forward[HEAD].tolist(), head.backward[HEAD].tolist()) == ([14.0], [14.0 + logits])
    assert (head.weight.tolist(), head.cover_forward.tolist()) == ([2.0], [8.0])
    assert head.cover_backward.tolist() == [8.0 + logits]
    assert head.static.tolist() == module.logit_bytes(job, shapes).tolist()
    once = module._head_cost(replace(job, loss=""), shapes, computed_shapes(job, plans), rows, timed=True)
    assert once.forward[HEAD].tolist() == [7.0]
    untimed = module._head_cost(job, shapes, computed_shapes(job, plans), rows, timed=False)
    assert (untimed.forward[HEAD].tolist(), untimed.static.tolist()) == ([0.0], head.static.tolist())
    for times, static in ((0.5, 0.0), (1.0, 1.0), (2.0, 2.0)):
        found = module._plus(module._free(1), head, times)
        assert found.forward[HEAD].tolist() == [14.0 * times]
        assert found.cover_backward.tolist() == [(8.0 + logits) * times]
        assert found.static.tolist() == [static * head.static[0]]


@pytest.mark.parametrize(
    ("features", "tp", "each"),
    [
        ({}, 1, 8.0),
        ({}, 4, 8.0 / 4),
        ({"gathered_logits": True}, 4, 8.0),
        ({"compiled_loss": True}, 1, 4.0),
        ({"loss_chunks": 8}, 1, 1.0),
        ({"loss_chunks": 0}, 1, 8.0 / (50_000 / 1536)),
    ],
)
def test_a_loss_holds_logits_of_the_padded_vocabulary(features: dict[str, Any], tp: int, each: float) -> None:
    """50,000 words are padded to 391 x 128, or to 98 x 512."""
    job = small_job(features=Features(**features))
    shapes = shapes_of(job, Plans.of([Plan(tp=tp, dp=8 // tp)]))
    found = module.logit_bytes(job, shapes)
    assert found.tolist() == pytest.approx([4096 * (391 * 128 if tp == 1 else 98 * 512) * each])


def test_traffic_with_the_host_hides_under_what_its_link_has_free() -> None:
    """8 s of traffic; 2 s of 3 s of computation and 1 s of launches are free forward, and 6.5 s of 8 backward."""
    job = small_job()
    moved = np.full(1, 8.0 * job.cluster.host_bandwidth)
    own = float(moved[0]) / job.cluster.device.memory_bandwidth
    assert module.host_seconds(job, moved, np.array([3.0])).tolist() == pytest.approx([5.0 + own])
    assert module.host_seconds(job, moved, np.array([9.0])).tolist() == pytest.approx([own])
    added, near = phase(0.25, 0.125), np.array([False])
    found = module.host_passes(job, TIME, added, moved, near)
    windows = 4.0 - 0.5, 8.0 - 0.25 + 1.0 - 0.125
    assert [float(each[0]) for each in found] == pytest.approx([8.0 - windows[0] + own, own])
    assert windows[1] > 8.0
    close = module.host_passes(job, TIME, added, moved, ~near)  # an all-to-all of 1 s leaves the link free
    assert float(close[0][0]) == pytest.approx(8.0 - windows[0] - 1.0 + own)
    overlapped = replace(TIME, overlapped=({"gemm": np.full(1, -2.0)}, {"gemm": np.full(1, -5.0)}))
    both = module.host_passes(job, overlapped, added, moved, near)
    assert [float(each[0]) for each in both] == pytest.approx(
        [8.0 - windows[0] + 2.0 + own, 8.0 - windows[1] + 5.0 + own]
    )


@pytest.mark.parametrize(("whole_layers", "attention"), [(0, 2 * 4.0), (1, 2 * 1.0), (4, 2 * 4.0)])
@pytest.mark.parametrize(("train", "trained"), [("full", 1.0), ("frozen:vision", 0.0)])
def test_a_vision_tower_passes_over_every_image(
    whole_layers: int, attention: float, train: str, trained: float, layer_cost: Cost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four layers, whose scores no mask halves where they attend to the whole image."""
    asked: list[Job] = []

    def of_layer(job: Job, *_: object, **__: object) -> Cost:
        asked.append(job)
        return replace(layer_cost, resident=np.full(3, 8.0), resident_recomputed=np.full(3, 3.0))

    monkeypatch.setattr(module, "_layer_cost", of_layer)
    seeing = Tower(layers=4, hidden=64, heads=4, ffn_hidden=128, image_tokens=16, whole_layers=whole_layers)
    stack = replace(PAIRS.stack, features=Features(eager=True))
    job = replace(PAIRS, train=train, model=replace(PAIRS.model, tower=seeing), stack=stack)
    plans = Plans.of([Plan(dp=8, micro_batch=2, recompute=mode) for mode in ("none", "selective", "full")])
    rows = np.zeros(3, dtype=np.int64)
    found = module._with_tower(module._free(3), job, plans, plans.take(np.arange(1)), rows, timed=True)
    assert (asked[0].seq_len, asked[0].model.layers, asked[0].loss) == (16 * 4, 4, "")
    assert found.forward["gemm"].tolist() == [2 * 4 * 2.0] * 3
    assert found.forward["attention"].tolist() == [2 * attention * 2.0] * 3
    assert found.backward["gemm"].tolist() == [trained * 4 * each for each in (2.0, 2.25, 2.0 + 1.5)]
    assert found.backward["attention"].tolist() == [trained * attention * each for each in (2.0, 2.25, 3.5)]
    assert found.resident.tolist() == [trained * 4 * each for each in (8.0, 8.0, 3.0)]
    blind = replace(job, model=replace(job.model, tower=replace(seeing, image_tokens=0)))
    free = module._free(3)
    assert module._with_tower(free, blind, plans, plans, rows, timed=True) is free
