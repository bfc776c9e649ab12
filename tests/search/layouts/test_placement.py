"""A plan that places its layers costs what its layout says, and what the even split costs where they are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.frameworks.megatron.layout import plan_layout
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Plan, Plans, balanced
from optimizer.job.stack import Features, Stack
from optimizer.objectives.step.price import price
from optimizer.search.layouts.problem import layout_problem
from optimizer.search.layouts.solve.layout import assess, best_assignment, placed_layout
from tests.thorough import cases, sampled

BESIDE = ("overhead", "stragglers")  # what is the same for every layout, and what grows with the rest
DEEPSEEK = Plan(tp=1, pp=16, ep=64, dp=128, num_microbatches=120)
LLAMA = Plan(tp=8, pp=16, dp=128, num_microbatches=16, sequence_parallel=True)
CASES = [
    ("deepseek-v3", DEEPSEEK),
    ("deepseek-v3", replace(DEEPSEEK, recompute="full")),
    ("deepseek-v3", replace(DEEPSEEK, recompute="selective")),
    ("deepseek-v3", replace(DEEPSEEK, recompute="layernorm+mla_up_proj+mlp+moe")),
    ("deepseek-v3", replace(DEEPSEEK, recompute="layernorm+moe_act+shared_experts", zero_stage=3)),
    ("deepseek-v3", replace(DEEPSEEK, vpp=2, num_microbatches=112, schedule="interleaved")),
    ("deepseek-v3", replace(DEEPSEEK, schedule="zero-bubble")),
    ("llama3.1-405b", LLAMA),
    ("deepseek-v3", replace(DEEPSEEK, recompute="layernorm+moe_act", activation_offload=50)),
    ("llama3.1-405b", replace(LLAMA, recompute="mlp")),
    ("llama3.1-405b", replace(LLAMA, activation_offload=50)),
    ("llama3.1-405b", replace(LLAMA, recompute="full")),
    ("llama3.1-405b", replace(LLAMA, recompute="full", zero_stage=3)),
    ("llama3.1-405b", replace(LLAMA, vpp=8, schedule="interleaved")),
    ("llama3.1-405b", replace(LLAMA, schedule="zero-bubble-2p", num_microbatches=32)),
]
ALTERNATING = Plan(tp=8, pp=8, ep=16, dp=32, num_microbatches=480, sequence_parallel=True, recompute="full")


def job_of(model: str, hbm: float, recompute_by: str = "virtual stage") -> Job:
    stack = load_stack("megatron-core")
    llama = model == "llama3.1-405b"
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=replace(stack, features=replace(stack.features, recompute_by=recompute_by)),
        gpus=16384 if llama else 2048,
        seq_len=8192 if llama else 4096,
        global_batch=2048 if llama else 15360,
        limits=Limits(hbm=hbm),
    )


def laid_seconds(job: Job, plan: Plan) -> tuple[float, float]:
    """Time of the pipeline and of what happens once per step [s], and the peak of memory [B]."""
    costs = price(job, Plans.of([plan]))
    return sum(float(costs.time[term][0]) for term in costs.time if term not in BESIDE), float(costs.reserved[0])


@pytest.mark.parametrize(("model", "plan"), sampled(CASES, 2))
def test_the_step_of_a_best_layout_is_that_of_its_program(model: str, plan: Plan) -> None:
    job = job_of(model, 160e9 if plan.recompute == "full" else 400e9)
    layout = best_assignment(layout_problem(job, plan))
    seconds, reserved = laid_seconds(job, layout.of(plan))
    assert layout.proven
    assert layout.objective == pytest.approx(seconds, rel=1e-9)
    assert max(layout.memory) == pytest.approx(reserved, rel=1e-9)


@pytest.mark.parametrize("by", ["stage", "virtual stage"])
@pytest.mark.parametrize("seed", range(cases(48, sample=16)))
def test_the_step_of_any_layout_is_what_its_stages_add_up_to(seed: int, by: str) -> None:
    random = np.random.default_rng(seed)
    model, plan = [*CASES, ("llama4-maverick", ALTERNATING)][seed % (len(CASES) + 1)]
    job, virtual_stages = job_of(model, 80e9, by), plan.pp * plan.vpp
    cuts = np.sort(random.integers(0, job.model.layers + 1, virtual_stages - 1))
    layers = tuple(int(n) for n in np.diff([0, *cuts, job.model.layers]))
    held = np.array(layers).reshape(plan.vpp, plan.pp).sum(axis=0)
    full, alike = plan.recompute == "full", by == "virtual stage"
    recomputed = tuple(int(random.integers(0, n + 1)) for n in held) if full and not alike else ()
    first = int(random.integers(0, max(layers))) if full and alike else 0
    ahead = int(random.integers(0, 3)) if job.model.mtp_layers else 0
    placed = replace(plan, layers_per_stage=layers, recompute_layers=recomputed, recompute_first=first, mtp_ahead=ahead)
    problem = layout_problem(job, placed)
    layout = placed_layout(problem, placed.placement)
    seconds, reserved = laid_seconds(job, placed)
    assert layout.objective == pytest.approx(seconds, rel=1e-9)
    assert max(layout.memory) == pytest.approx(reserved, rel=1e-9)
    if not (full and alike):
        assert layout.recomputed_per_stage == (recomputed or (0,) * plan.pp)
    again = placed_layout(problem, layout.of(plan).placement)
    assert again == layout
    assert assess(problem, again.kinds, [dict(runs) for runs in again.recomputed], first=again.first) == layout


@pytest.mark.parametrize("recompute", ["none", "selective", "mlp"])
def test_an_even_split_written_out_costs_what_it_costs_unsaid(gpt3_job: Job, recompute: str) -> None:
    unsaid = Plan(tp=8, pp=8, dp=16, num_microbatches=96, recompute=recompute)
    said = replace(unsaid, layers_per_stage=balanced(96, 8))
    alone, written = price(gpt3_job, Plans.of([unsaid])), price(gpt3_job, Plans.of([said]))
    assert float(written.step_time[0]) == pytest.approx(float(alone.step_time[0]), rel=1e-12)
    assert float(written.reserved[0]) == pytest.approx(float(alone.reserved[0]), rel=1e-12)


def test_recomputing_every_layer_costs_what_full_recomputation_does(gpt3_job: Job) -> None:
    """But for what hides under it: layers that say whether they are recomputed hide nothing under recomputing."""
    full = Plan(tp=8, pp=8, dp=16, num_microbatches=96, recompute="full")
    costs = price(gpt3_job, Plans.of([full, replace(full, recompute_layers=(12,) * 8)]))
    assert float(costs.time["gemm"][1]) == float(costs.time["gemm"][0])
    assert float(costs.reserved[1]) == float(costs.reserved[0])
    assert float(costs.hfu[1] / costs.mfu[1]) == pytest.approx(float(costs.hfu[0] / costs.mfu[0]))


def test_prediction_layers_are_priced_where_they_lie() -> None:
    """A layer and its projection on their stage, their logits and a second pass of the head with the head."""
    job = job_of("deepseek-v3", 400e9)
    without = replace(job, model=replace(job.model, mtp_layers=0))
    plan = replace(DEEPSEEK, layers_per_stage=(4,) * 15 + (1,))
    here, ahead, none = (
        price(which, Plans.of([replace(plan, mtp_ahead=far)])) for which, far in ((job, 0), (job, 1), (without, 0))
    )
    assert float(here.step_time[0]) > float(none.step_time[0])
    # With the head the last stage holds as much as the others; one stage ahead the prediction layer is one too many.
    assert float(ahead.step_time[0]) > 1.1 * float(here.step_time[0])


def test_a_stack_that_cuts_evenly_still_chooses_what_to_recompute() -> None:
    job = replace(job_of("llama3.1-405b", 0.0), stack=Stack(name="even", features=Features(uneven_stages=False)))
    plan = Plan(tp=8, pp=14, dp=146, num_microbatches=14, sequence_parallel=True, recompute="full")
    layout = best_assignment(layout_problem(job, plan))
    assert layout.layers_per_stage == (9,) * 14
    assert 0 < sum(layout.recomputed_per_stage) < 126


def test_deepseek_s_published_layout_is_as_fast_as_the_best() -> None:
    """In two virtual stages, 61 layers, prediction layer, embedding and loss fill 32 virtual stages: Et*3|(tt|)*29m|L.

    Its slowest stage is that of the best layout; what stages do once per step makes 0.01 % between them.
    """
    job = job_of("deepseek-v3", 400e9)
    plan = replace(DEEPSEEK, vpp=2, num_microbatches=112, schedule="interleaved")
    published = replace(plan, layers_per_stage=(3, *(2,) * 29, 0, 0), mtp_ahead=1)
    assert plan_layout(published, job.model) == "Et*3|" + "t*2|" * 29 + "m|L"
    problem = layout_problem(job, plan)
    theirs, best = placed_layout(problem, published.placement), best_assignment(problem)
    assert theirs.slowest == pytest.approx(best.slowest)
    assert best.objective <= theirs.objective < best.objective * 1.0005
