"""What unlike virtual stages cost: the price of an interleaved pipeline against the schedule run event by event."""

import numpy as np
import pytest

from optimizer.job import Job, Limits
from optimizer.objectives.layer.bill import bill_of
from optimizer.objectives.pipeline.interleaved import interleaved
from optimizer.objectives.pipeline.simulator import PassTimes, simulate
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.pipeline.stall import NEGLECTED, stall
from optimizer.objectives.step.price import price
from optimizer.objectives.step.stalled import stalled
from optimizer.plan import Plan, Plans
from optimizer.presets import load_cluster, load_model, load_stack
from optimizer.search.layouts.layout import placed_layout
from optimizer.search.layouts.problem import layer_costs, problem_of
from optimizer.search.plan.best import best_plan
from optimizer.studies.timeline import timeline_of


@pytest.mark.parametrize("seed", range(40))
def test_a_stall_is_what_the_simulator_takes_beyond_the_closed_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pp, vpp = int(rng.choice([2, 3, 4, 8])), int(rng.choice([2, 3, 4]))
    microbatches = pp * int(rng.integers(1, 14))
    forward = rng.integers(1, 4, (pp, vpp)).astype(float)
    forward[-1, -1] += rng.uniform(0, 3)
    backward = forward * rng.uniform(1.5, 3)
    times = PassTimes(forward=forward.tolist(), backward=backward.tolist())
    makespan = simulate(interleaved(pp, vpp, microbatches), times).makespan
    stages = (forward + backward).sum(axis=1)
    closed = microbatches * stages.max() + (stages.sum() - stages.max()) / vpp
    waits = stall(microbatches, forward, backward)
    assert waits >= 0
    if makespan > closed * (1 + NEGLECTED):
        assert closed + waits == pytest.approx(makespan, rel=1e-9)
    else:
        assert waits == 0


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
    assert study.error > -NEGLECTED
    assert study.layout.stalled == 0 or study.error == pytest.approx(0, abs=1e-9)


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
    assert stalled(bill_of(job, plans), stages_of(job.model, plans)) == pytest.approx(layout.stalled, rel=1e-9)
    assert layout.stalled > 0.1 * layout.slowest * 64
    waits = costs.time["bubble"][0] - (sum(layout.stage_seconds) - layout.slowest) / 2
    assert waits == pytest.approx(layout.stalled, rel=1e-9)


def test_an_answer_is_priced_as_its_schedule_runs() -> None:
    best = best_plan(deepseek(fixed={"pp": 16, "vpp": 2, "ep": 16, "tp": 1}))
    assert best is not None
    assert best.plan.vpp == 2
    assert timeline_of(best.job, best.plan, best.knobs).error > -NEGLECTED
