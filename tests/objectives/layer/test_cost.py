"""What one layer of each kind costs: parts add up, and grow with what they are made of."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.cost import BY_TERM, Cost, costs_of, weight_share
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP
from tests.objectives.questions import TOKENS, job

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
