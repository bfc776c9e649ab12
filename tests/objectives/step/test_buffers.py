"""What lies on a device besides states and activations: gathered units, unsharded gradients, copies of a tensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.memory_terms import gathered_bytes, largest_matrix, unsharded_bytes, updated_bytes

# Of Llama 3 8B: its embedding; a layer with its norms; the largest of the layer's matrices.
EMBEDDING, NORMS, MATRIX = 128256 * 4096, 2 * 4096, 4096 * 14336
LAYER = 4096 * (4096 + 2 * 1024 + 4096) + 3 * MATRIX


def job(model: str = "llama3-8b", gathers_layers: bool = True, **changes: Any) -> Job:
    stack = load_stack("hf-2026")
    stack = replace(stack, features=replace(stack.features, gathers_layers=gathers_layers))
    usual: dict[str, Any] = {"gpus": 8, "seq_len": 2048, "global_batch": 64, "cluster": load_cluster("dgx-h100")}
    return Job(**{**usual, **changes}, model=load_model(model), stack=stack)


def one(part: Any, question: Job, **plan: Any) -> float:
    return float(part(layer_costs_of(question, Plans.of([Plan(**plan)])))[0])


@pytest.mark.parametrize(
    ("gathers_layers", "tp", "stage", "units"),
    [
        # Units of two bytes that are gathered, and the one whose gradient is whole.
        (True, 1, 1, (0, 0)),
        (True, 1, 2, (0, EMBEDDING)),
        (True, 1, 3, (LAYER + NORMS + EMBEDDING, EMBEDDING)),
        (True, 2, 3, (LAYER / 2 + NORMS + EMBEDDING / 2, EMBEDDING / 2)),
        (False, 1, 2, (0, EMBEDDING)),
        (False, 1, 3, (MATRIX + EMBEDDING, EMBEDDING)),
        (False, 2, 3, ((MATRIX + EMBEDDING) / 2, EMBEDDING / 2)),
    ],
)
def test_zero_3_gathers_two_units_and_zero_2_a_gradient(
    gathers_layers: bool, tp: int, stage: int, units: tuple[float, float]
) -> None:
    question = job(gathers_layers=gathers_layers)
    gathered, trained = units
    gradient = question.grad_bytes if gathers_layers else 2
    found = one(unsharded_bytes, question, tp=tp, dp=8 // tp, zero_stage=stage)
    assert found == pytest.approx(2 * gathered + gradient * trained, rel=1e-9)


@pytest.mark.parametrize(("sequence_parallel", "tokens"), [(True, 3 * 2048 / 2), (False, 0)])
def test_sequence_parallelism_gathers_the_tokens_of_a_product(sequence_parallel: bool, tokens: float) -> None:
    plan = {"tp": 2, "cp": 2, "dp": 2, "micro_batch": 3, "sequence_parallel": sequence_parallel}
    assert one(gathered_bytes, job(), **plan) == 2 * tokens * 4096


@pytest.mark.parametrize(
    ("model", "plan", "largest"),
    [
        ("llama3-8b", {}, MATRIX),
        ("llama3-8b", {"tp": 4, "dp": 2}, MATRIX / 4),
        ("mixtral-8x7b", {"dp": 8}, 8 * MATRIX),
        ("mixtral-8x7b", {"dp": 8, "ep": 4}, 2 * MATRIX),
        ("mixtral-8x7b", {"tp": 4, "dp": 2, "ep": 2, "etp": 4}, MATRIX),
        ("gpt3", {}, 12288 * 49152),
    ],
)
def test_the_largest_matrix_is_that_of_the_mlp_or_of_all_experts(
    model: str, plan: dict[str, int], largest: float
) -> None:
    assert one(largest_matrix, job(model), **plan) == largest


@pytest.mark.parametrize(
    ("model", "plan", "elements"),
    [
        ("llama3-8b", {"dp": 8, "zero_stage": 0}, EMBEDDING),
        ("llama3-8b", {"dp": 8, "zero_stage": 1}, EMBEDDING / 8),
        ("llama3-8b", {"tp": 2, "dp": 4, "zero_stage": 1}, EMBEDDING / 2 / 4),
        # Mixtral's experts of a rank are fewer than its embedding, which all ranks share.
        ("mixtral-8x7b", {"dp": 8, "ep": 8, "zero_stage": 1}, 32000 * 4096 / 8),
    ],
)
def test_an_optimizer_that_updates_tensors_one_by_one_copies_the_largest(
    model: str, plan: dict[str, int], elements: float
) -> None:
    """Adafactor takes 16 bytes of an element; AdamW none."""
    assert one(updated_bytes, job(model, optimizer="adafactor"), **plan) == pytest.approx(16 * elements, rel=1e-4)
    assert one(updated_bytes, job(model), **plan) == 0.0
