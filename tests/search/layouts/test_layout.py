"""Layouts: CP-SAT against brute force, published layouts, and the functions that price a step."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from optimizer.base.errors import Infeasible, InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Placement, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.pipeline.schedules import schedule_order
from optimizer.objectives.pipeline.simulator import simulate
from optimizer.objectives.pipeline.stages import Runs, layer_sequence
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.layouts.costs import pass_times
from optimizer.search.layouts.problem import (
    LayoutProblem,
    cuts_searched,
    layer_costs,
    layout_problem,
    recomputing_searched,
)
from optimizer.search.layouts.solve.layout import (
    Layout,
    assess,
    best_assignment,
    even_layout,
    placed_layout,
)
from optimizer.search.plan.planner import plan
from tests.search.jobs import DENSE, MIXED, MIXTURE, small_job
from tests.search.layouts.problems import costs
from tests.thorough import cases

DEEPSEEK = Plan(tp=1, pp=16, ep=64, dp=128, num_microbatches=120)


def job_of(model: str, gpus: int, seq_len: int, global_batch: int, hbm: float = 0.0) -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=seq_len,
        global_batch=global_batch,
        limits=Limits(hbm=hbm),
    )


def random_problem(rng: np.random.Generator, freed: float = 0.0) -> LayoutProblem:
    """A small problem; `freed` of the head's bytes are free before anything is recomputed [B]."""
    pp = int(rng.integers(1, 4))

    def layer() -> dict[str, float]:
        forward, kept = float(rng.integers(1, 5)), float(rng.integers(2, 6))
        chosen = float(rng.integers(0, 2))
        return {
            "forward": forward,
            "backward": 2 * forward,
            "recompute": forward * chosen,
            "static": float(rng.integers(1, 4)),
            "in_flight": kept,
            "recomputed": 1.0 if chosen else kept,
            "recomputing": 2.0 * chosen,
            "chosen": chosen,
        }

    kinds = {
        "embedding": {"static": 3.0, "in_flight": 0.5},
        "dense": layer(),
        "moe": layer(),
        "mtp": {**layer(), "chosen": 0.0},
        "head": {"forward": 1.0, "backward": 2.0, "static": 3.0, "freed": freed},
    }
    runs: list[tuple[str, int]] = [("dense", int(rng.integers(1, 4))), ("moe", int(rng.integers(1, 4)))]
    if rng.integers(0, 3) == 0:
        # Alternating kinds, as in models with a mixture in every second layer.
        runs = [("dense", 1), ("moe", 1)] * int(rng.integers(2, 4))
    mtp = [("mtp", 1)] if rng.integers(0, 2) else []
    return LayoutProblem(
        **costs(kinds, fixed=1.0),
        sequence=(("embedding", 1), *runs, *mtp, ("head", 1)),
        pp=pp,
        microbatches=int(rng.integers(1, 9)),
        in_flight=tuple(float(pp - stage) for stage in range(pp)),
        # No layout fills the memory exactly: the program rounds bytes up.
        usable=float(rng.integers(20, 90)) + 0.25,
        seconds=0.5,
    )


def every_layout(problem: LayoutProblem) -> Iterator[Layout]:
    """All cuts of the layers into non-empty stages, with every number of recomputed layers, that fit."""
    layers = [kind for kind, count in problem.sequence for _ in range(count)]
    inner = len(layers) - 1
    for cuts in combinations(range(1, inner + 1), problem.pp - 1):
        edges = (0, *cuts, len(layers))
        stages = [layers[a:b] for a, b in pairwise(edges)]
        runs = [tuple((kind, stage.count(kind)) for kind in dict.fromkeys(stage)) for stage in stages]
        choices = [
            [
                dict(zip(("dense", "moe"), numbers, strict=True))
                for numbers in product(
                    *(
                        range(stage.count(kind) + 1) if problem.memory.layers[kind].chosen else (0,)
                        for kind in ("dense", "moe")
                    )
                )
            ]
            for stage in stages
        ]
        if problem.memory.layers["dense"].chosen and problem.memory.layers["moe"].chosen:
            # A plan counts the layers that a stage recomputes, those of mixtures first.
            choices = [
                [c for c in options if not c["dense"] or c["moe"] == stage.count("moe")]
                for stage, options in zip(stages, choices, strict=True)
            ]
        for recomputed in product(*choices):
            layout = assess(problem, runs, recomputed)
            if max(layout.memory) <= problem.usable:
                yield layout


@pytest.mark.parametrize("freed", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("seed", range(cases(60, sample=15)))
def test_the_best_layout_is_that_of_exhaustion(seed: int, freed: float) -> None:
    problem = random_problem(np.random.default_rng(seed), freed)
    best = min((layout.objective for layout in every_layout(problem)), default=None)
    if best is None:
        with pytest.raises(Infeasible, match="no layout fits"):
            best_assignment(problem)
        return
    found = best_assignment(problem)
    assert found.proven
    assert found.objective == pytest.approx(best, rel=1e-5)
    assert max(found.memory) <= problem.usable


def test_126_layers_on_16_stages_relieve_the_ends() -> None:
    job = job_of("llama3.1-405b", 16384, 8192, 2048, hbm=200e9)
    found = best_assignment(layout_problem(job, Plan(tp=8, pp=16, dp=128, num_microbatches=16, sequence_parallel=True)))
    assert found.proven
    assert sum(found.layers_per_stage) == 126
    assert max(found.layers_per_stage) == 8
    assert found.layers_per_stage[-1] < 8


def test_94_layers_on_12_stages_relieve_the_last_one_where_the_head_costs_more_than_a_layer() -> None:
    job = job_of("qwen3-235b-a22b", 384, 4096, 1536)
    job = replace(job, model=replace(job.model, vocab=2 * job.model.vocab))
    plan = Plan(tp=4, pp=12, ep=8, dp=8, num_microbatches=192, sequence_parallel=True)
    kinds = layer_costs(job, plan).kinds
    assert kinds["head"].seconds > kinds["moe"].seconds
    found, even = best_assignment(layout_problem(job, plan)), even_layout(layout_problem(job, plan))
    # Two layers are missing, and both go from the last stage.
    assert found.layers_per_stage == (8,) * 11 + (6,)
    assert even.layers_per_stage == (7,) + (8,) * 10 + (7,)
    assert found.objective < even.objective


def test_94_layers_on_12_stages_are_as_fast_balanced_where_the_head_costs_less() -> None:
    job = job_of("qwen3-235b-a22b", 384, 4096, 1536)
    job = replace(job, model=replace(job.model, vocab=job.model.vocab // 2))
    plan = Plan(tp=4, pp=12, ep=8, dp=8, num_microbatches=192, sequence_parallel=True)
    kinds = layer_costs(job, plan).kinds
    assert kinds["head"].seconds < kinds["moe"].seconds
    found, even = best_assignment(layout_problem(job, plan)), even_layout(layout_problem(job, plan))
    assert found.proven
    assert found.objective == even.objective


def test_61_layers_on_16_stages_start_with_the_dense_ones() -> None:
    problem = layout_problem(job_of("deepseek-v3", 2048, 4096, 15360, hbm=400e9), DEEPSEEK)
    found = best_assignment(problem)
    assert found.proven
    assert found.kinds[0][:2] == (("embedding", 1), ("dense", 3))
    assert found.kinds[-1][-2:] == (("mtp", 1), ("head", 1))
    assert sum(found.layers_per_stage) == 61
    # Prediction layer and head leave room for one layer on the last stage. 60 fill the others with four each, of which
    # the dense ones leave room for one more on the first, just below the slowest: then those of four run ahead while
    # they wait for the last ones. With two more on the first it takes longer.
    assert found.layers_per_stage[0] == 5
    assert found.layers_per_stage[-1] == 1
    assert max(found.layers_per_stage[1:-1]) == 4
    two_more = placed_layout(problem, Placement(layers=(6, *(4,) * 13, 2, 1)))
    assert found.objective < two_more.objective
    assert max(two_more.memory) <= problem.usable
    assert found.objective < placed_layout(problem, Placement(layers=(*(4,) * 15, 1))).objective
    assert found.stage_seconds[0] < found.slowest > found.stage_seconds[-1]


def test_layers_whose_time_once_per_step_is_rounded_up_are_feasible() -> None:
    """All layers on one stage: each rounds up by nearly half a tick of 1e-7 of a micro-batch."""
    job = small_job(8, model=replace(DENSE, layers=48))
    problem = layout_problem(job, Plan(dp=8))
    one_pass = sum(n * problem.kinds[kind].seconds for kind, n in problem.sequence) + problem.seconds
    kinds = {
        kind: replace(layer, per_step=100.51e-7 * one_pass, reduced=0.0, gathered=0.0)
        for kind, layer in problem.kinds.items()
    }
    found = best_assignment(replace(problem, kinds=kinds))
    assert found.layers_per_stage == (48,)
    assert found.proven


def test_interleaved_virtual_stages_are_alike() -> None:
    plan = replace(DEEPSEEK, vpp=2, num_microbatches=112, schedule="interleaved")
    job = replace(job_of("deepseek-v3", 2048, 4096, 15360, hbm=400e9), stack=load_stack("megatron-core-2024"))
    found = best_assignment(layout_problem(job, plan))
    assert len(found.kinds) == 32
    assert sum(found.layers_per_virtual_stage) == 61
    assert max(found.layers_per_virtual_stage) == 3
    assert found.layers_per_virtual_stage[-1] == 0
    order = schedule_order("interleaved", 16, 2, 112)
    makespan = simulate(order, pass_times(layer_costs(job, plan), found.kinds, found.recomputed, pp=16)).makespan
    assert found.objective == pytest.approx(makespan, rel=0.02)


def test_recomputation_is_chosen_stage_by_stage() -> None:
    """Where the software can; Megatron-LM recomputes equally many layers on every stage, which costs more."""
    alike = job_of("llama3.1-405b", 16384, 8192, 2048).with_limits(hbm=80e9, oom_risk=0.5)
    free = replace(alike.stack, features=replace(alike.stack.features, recompute_by="stage"))
    job = replace(alike, stack=free)
    plan = Plan(tp=8, pp=16, dp=128, num_microbatches=16, sequence_parallel=True, recompute="full")
    found = best_assignment(layout_problem(job, plan))
    other = best_assignment(layout_problem(alike, plan))
    assert set(other.recomputed_per_stage) <= {other.first, min(other.layers_per_stage)}
    assert 0 < other.first < min(found.layers_per_stage)
    assert found.objective < other.objective
    assert max(other.memory) <= safe_memory(job)
    assert found.proven
    assert 0 < sum(found.recomputed_per_stage) < 16
    assert max(found.memory) <= safe_memory(job)
    # Early stages keep more micro-batches, so that it is they that recompute.
    assert sum(found.recomputed_per_stage[:4]) >= sum(found.recomputed_per_stage[4:])
    assert found.objective < even_layout(layout_problem(job, plan)).objective / 1.2


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("vpp", [1, 6])
def test_an_even_layout_costs_what_the_step_says(gpt3_job: Job, recompute: str, vpp: int) -> None:
    plan = Plan(
        tp=8,
        pp=8,
        vpp=vpp,
        dp=16,
        num_microbatches=96,
        sequence_parallel=True,
        recompute=recompute,
        schedule="interleaved" if vpp > 1 else "1f1b",
    )
    priced = price(gpt3_job, Plans.of([plan]))
    layout = even_layout(layout_problem(gpt3_job, plan))
    seconds = sum(float(priced.time[term][0]) for term in priced.time if term not in ("overhead", "stragglers"))
    assert layout.objective == pytest.approx(seconds, rel=1e-9)
    assert max(layout.memory) == pytest.approx(float(priced.reserved[0]), rel=1e-9)


def test_the_software_may_only_cut_evenly(gpt3_job: Job) -> None:
    problem = layout_problem(gpt3_job, Plan(tp=8, pp=8, dp=16, num_microbatches=96))
    assert best_assignment(replace(problem, even=True)).layers_per_stage == (12,) * 8
    with pytest.raises(InputError, match="96 layers are not a multiple of pp x vpp = 5 x 1"):
        replace(problem, pp=5, in_flight=(5.0,) * 5, even=True)


def test_what_cannot_be_laid_out_is_said(gpt3_job: Job) -> None:
    problem = layout_problem(gpt3_job, Plan(tp=8, pp=8, dp=16, num_microbatches=96))
    with pytest.raises(InputError, match="in_flight needs one value for each of 8 stages, but got 1"):
        replace(problem, in_flight=(1.0,))
    with pytest.raises(Infeasible, match=r"8 stages of 5.0 GB, of which an average stage needs at least"):
        best_assignment(replace(problem, usable=5e9))


def test_the_sequence_follows_the_model() -> None:
    wanted: Runs = (("embedding", 1), ("dense", 96), ("head", 1))
    assert layer_sequence(load_model("gpt3")) == wanted
    assert layer_sequence(load_model("mixtral-8x7b"))[1] == ("moe", 32)


@pytest.mark.parametrize(
    ("model", "features", "limits", "words"),
    [
        ("llama4-maverick", Features(), Limits(), "The layouts of interleaved plans are nearly even"),
        ("llama3.1-405b", Features(), Limits(), "or one more in a row, and fewer at the ends"),
        (
            "deepseek-v3",
            Features(uneven_stages=False),
            Limits(),
            "what is recomputed and where the prediction layers lie",
        ),
        ("llama4-maverick", Features(), Limits(max_vpp=1), ""),
        ("llama4-maverick", Features(), Limits(fixed={"vpp": 1}), ""),
        ("llama4-maverick", Features(schedules=("1f1b",)), Limits(), ""),
    ],
)
def test_what_is_not_searched_is_said(model: str, features: Features, limits: Limits, words: str) -> None:
    stack = replace(load_stack("megatron-core"), features=features)
    job = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=stack,
        gpus=512,
        seq_len=4096,
        global_batch=512,
        limits=limits,
    )
    said = " ".join((cuts_searched(job), recomputing_searched(job))).strip()
    assert words in said
    assert bool(said) == bool(words)


def test_the_certificate_states_its_space() -> None:
    model = replace(MIXTURE, experts=replace(MIXED, every=2))
    found = plan(small_job(8, model=model, bubble=1.0), trials=0, top=1)
    assert found.certificate is not None
    assert found.certificate.proven
    assert sum("interleaved plans are nearly even" in line for line in found.certificate.left_out) == 1
    assert len(found.certificate.left_out) <= 5
    nothing = plan(small_job(8, model=model, bubble=1.0, hbm=2.3e9), trials=0, top=1)
    assert nothing.status == "infeasible"
    assert nothing.certificate is not None
    assert "interleaved plans are nearly even" in nothing.certificate.left_out[0]
    assert "of full training with fp32 Adam by test" in nothing.certificate.method
