"""What unlike virtual stages cost: the price of an interleaved pipeline against the schedule run event by event."""

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline import stall as module
from optimizer.objectives.pipeline.interleaved import interleaved
from optimizer.objectives.pipeline.simulator import PassTimes, simulate
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.pipeline.stall import NEGLECTED, longest, makespans, stall
from optimizer.objectives.step.price import price, stalled
from optimizer.search.layouts.problem import layer_costs, problem_of
from optimizer.search.layouts.solve.layout import placed_layout
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from optimizer.studies.timeline import timeline_of

Passes = tuple[int, FloatArray, FloatArray]


def random_passes(seed: int) -> Passes:
    """Micro-batches, forward and backward seconds: few virtual stages unlike, or many, and the last one apart."""
    rng = np.random.default_rng(seed)
    pp, vpp = int(rng.choice([2, 3, 4, 8])), int(rng.choice([2, 3, 4]))
    microbatches = pp * int(rng.integers(1, 14))
    forward = np.full((pp, vpp), 3.0) - (rng.random((pp, vpp)) < rng.choice([0.1, 0.5]))
    forward[-1, -1] += rng.uniform(-2, 3)
    backward = forward * (rng.uniform(1.8, 2.6, (pp, vpp)) if seed % 2 else rng.uniform(1.5, 3))
    return microbatches, forward, backward


def closed_form(microbatches: int, forward: FloatArray, backward: FloatArray) -> float:
    stages = (forward + backward).sum(axis=1)
    return float(microbatches * stages.max() + (stages.sum() - stages.max()) / forward.shape[1])


@pytest.mark.parametrize("seed", range(40))
def test_a_pipeline_is_priced_as_the_simulator_runs_it(seed: int) -> None:
    passes = microbatches, forward, backward = random_passes(seed)
    times = PassTimes(forward=forward.tolist(), backward=backward.tolist())
    simulated = simulate(interleaved(*forward.shape, microbatches), times).makespan
    assert makespans([microbatches], forward, backward)[0] == pytest.approx(simulated, rel=1e-12)
    closed = closed_form(*passes)
    priced = closed + float(stall(*passes))
    assert priced <= max(simulated, closed) * (1 + 1e-9)
    assert simulated <= priced * (1 + 2 * NEGLECTED)


@pytest.mark.parametrize(("microbatches", "runs"), [(20, [20]), (24, [24]), (28, [24, 20]), (400, [24, 20])])
def test_after_six_rounds_each_takes_as_long_as_the_last(
    microbatches: int, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four stages: what makespans say of 24 and 20 micro-batches goes on by their difference."""
    asked: list[list[int]] = []

    def counted(counts: list[int], forward: FloatArray, backward: FloatArray) -> FloatArray:
        asked.append(counts)
        return np.array([[1000.0 + 30.0 * count] for count in counts])

    monkeypatch.setattr(module, "makespans", counted)
    forward = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [1.0, 1.0]])
    found = float(stall(microbatches, forward, 2 * forward))
    assert asked == [runs]
    takes = 1000.0 + 30.0 * microbatches
    assert found == pytest.approx(max(0.0, takes / (1 + NEGLECTED) - closed_form(microbatches, forward, 2 * forward)))


@pytest.mark.parametrize("seed", range(20))
def test_no_pipeline_takes_longer_than_one_of_its_longest_virtual_stages(seed: int) -> None:
    microbatches, forward, backward = random_passes(seed)
    pp, vpp = forward.shape
    bound = (microbatches + (pp - 1) / vpp) * float(longest(forward + backward))
    assert float(makespans([microbatches], forward, backward)[0]) <= bound * (1 + 1e-6)


def deepseek(**limits: object) -> Job:
    return Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core-2025"),
        gpus=2048,
        seq_len=4096,
        global_batch=15360,
        limits=Limits(**limits),
    )


@pytest.mark.parametrize(
    "layers",
    [
        # Two layers everywhere, the prediction layer and the head alone on the last virtual stage of all.
        (*[2] * 15, 1, *[2] * 15, 0),
        # What is heavy in the first half of the virtual stages is light in the second.
        (*[3] * 8, *[1] * 8, *[1] * 8, *[3] * 6, 3, 0),
        (*[2] * 30, 1, 0),
    ],
)
def test_a_placed_plan_is_priced_as_its_schedule_runs(layers: tuple[int, ...]) -> None:
    placed = Plan(
        ep=16, cp=2, pp=16, vpp=2, dp=64, num_microbatches=64, schedule="interleaved", layers_per_stage=layers
    )
    study = timeline_of(deepseek(), placed)
    assert -1.5 * NEGLECTED < study.error < 0.01
    assert study.layout.stalled == 0 or study.error < 0


def test_price_and_layout_agree_on_what_a_stall_costs() -> None:
    job = deepseek()
    uneven = Plan(
        ep=16,
        cp=2,
        pp=16,
        vpp=2,
        dp=64,
        num_microbatches=64,
        schedule="interleaved",
        recompute="full",
        layers_per_stage=(*[3] * 8, *[1] * 8, *[1] * 8, *[3] * 7, 0),
        recompute_first=1,
    )
    layout = placed_layout(problem_of(job, uneven, layer_costs(job, uneven)), uneven.placement)
    plans = Plans.of([uneven])
    costs = price(job, plans)
    assert stalled(layer_costs_of(job, plans), stages_of(job.model, plans)) == pytest.approx(layout.stalled, rel=1e-9)
    assert layout.stalled > 0.1 * layout.slowest * 64
    waits = costs.time["bubble"][0] - (sum(layout.stage_seconds) - layout.slowest) / 2
    assert waits == pytest.approx(layout.stalled, rel=1e-9)


def of_model(name: str, gpus: int, seq_len: int, global_batch: int, **limits: object) -> Job:
    return replace(deepseek(**limits), model=load_model(name), gpus=gpus, seq_len=seq_len, global_batch=global_batch)


@pytest.mark.parametrize(
    ("job", "too_long"),
    [
        (deepseek(fixed={"pp": 16, "vpp": 2, "ep": 16, "tp": 1}), 2 * NEGLECTED),
        # Of eight micro-batches the bubble is an eighth, and counts the mean virtual stage where the last are light.
        (of_model("glm-4.5-air", 256, 4096, 512, fixed={"tp": 1, "cp": 1}), 4 * NEGLECTED),
        (of_model("glm-4.5-air", 256, 4096, 1024, fixed={"tp": 1, "cp": 1}), 2 * NEGLECTED),
        (of_model("llama3.1-405b", 768, 8192, 192), 2 * NEGLECTED),
        (of_model("qwen3-235b-a22b", 256, 8192, 512, fixed={"tp": 2, "cp": 1, "ep": 16}), 2 * NEGLECTED),
    ],
    ids=lambda value: f"{value.model.name}-{value.global_batch}" if isinstance(value, Job) else "",
)
def test_an_answer_is_priced_as_its_schedule_runs(job: Job, too_long: float) -> None:
    """It takes no longer than it was priced, but for what is neglected, and not much less."""
    best = best_plan(job)
    assert best is not None
    assert best.plan.vpp > 1
    assert -2 * NEGLECTED < timeline_of(best.job, best.plan, best.knobs).error < too_long


def test_the_default_plan_of_deepseek_is_proven_and_does_not_stall() -> None:
    # Sixteen micro-batches: of eight the bubble is an eighth, and counts the mean stage where the last are light.
    job = replace(deepseek(fixed={"ep": 64, "pp": 8, "tp": 2}), seq_len=8192, global_batch=512)
    answer = plan(job, top=1, trials=0, priced_risk=False)
    assert answer.status == "optimal"
    assert answer.plan is not None
    assert answer.plan.vpp > 1
    assert abs(timeline_of(job, answer.plan, answer.knobs).error) < NEGLECTED
