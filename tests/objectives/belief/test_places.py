"""Where predictions lie: how hard they are, what software they are of, and what they share."""

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.known import TIME
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.belief.places import FAR, Places, place

JOB = Job(
    model=load_model("llama3-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("megatron-core"),
    gpus=64,
    seq_len=8192,
    global_batch=512,
)
PLAN = Plan(tp=2, dp=32, num_microbatches=16)


@pytest.mark.parametrize(
    ("mfu", "doublings"), [(0.4, 0.0), (0.2, 1.0), (0.05, 3.0), (0.6, 0.0), (0.0, np.log2(400)), (1e-9, np.log2(400))]
)
def test_time_is_as_hard_as_its_mfu_is_below_two_fifths(mfu: float, doublings: float) -> None:
    """log2(0.4 / MFU), of 0.1 % at the least; none above."""
    assert place(JOB, PLAN, mfu).hardness == pytest.approx(doublings)
    around = Places.around(JOB, Plans.of([PLAN, PLAN]), np.array([mfu, 0.4]))
    assert around.hardness.tolist() == pytest.approx([doublings, 0.0])


@pytest.mark.parametrize(
    ("selective", "attention", "hardness"),
    [("core", "flash2", (0, 0, 1, 2)), ("core", "unfused", (0, 1, 1, 2)), ("modules", "flash2", (0, 1, 1, 2))],
)
def test_memory_is_as_hard_as_much_is_recomputed(selective: str, attention: str, hardness: tuple[int, ...]) -> None:
    stack = replace(JOB.stack, features=replace(JOB.stack.features, selective=selective, attention=attention))
    job = replace(JOB, stack=stack)
    plans = [replace(PLAN, recompute=name) for name in ("none", "selective", "layernorm", "full")]
    assert tuple(place(job, plan, 0.4, quantity="memory").hardness for plan in plans) == hardness
    around = Places.around(job, Plans.of(plans), np.full(4, 0.1), quantity="memory")
    assert tuple(around.hardness.tolist()) == hardness
    assert place(job, None, 0.4, quantity="memory").hardness == 0.0


def test_a_place_says_software_hardware_model_and_size() -> None:
    """8.03e9 parameters, 2^32.9; 4,096 wide; 64 GPUs; 8,192 tokens."""
    found = place(JOB, PLAN, 0.4)
    assert (found.quantity, found.software, found.root, found.generation) == (
        *(TIME, "megatron-core", "megatron", "NVIDIA fp8"),
    )
    assert (found.device, found.kind, found.format) == ("h100", "dense", "bf16")
    assert found.model == "32x4096x0x32.9"
    assert found.size == pytest.approx((12.0, 32.903, 6.0, 13.0), abs=1e-3)
    assert place(replace(JOB, dtype="fp16"), PLAN, 0.4).format == "bf16"
    assert place(replace(JOB, train="lora"), PLAN, 0.4).kind == "dense lora"
    mixture = replace(JOB, model=load_model("mixtral-8x7b"))
    assert place(mixture, PLAN, 0.4).kind.startswith("MoE ")
    assert place(mixture, PLAN, 0.4).model.split("x")[:3] == ["32", "4096", "8"]


def test_any_plan_is_like_none() -> None:
    plan = place(JOB, None, 0.4).plan
    assert set(plan) == {FAR}
    assert place(JOB, PLAN, 0.4).plan[:2] == (1.0, 0.0)  # doublings of TP and CP
