"""What sweeps say of plans among each other: by hand, whatever the speed of the hardware, and with its proof."""

from dataclasses import replace

import numpy as np
import pytest

from maintain.sweeps import swept
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.belief import swept_errors
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.known import TIME, RunError
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.likeness import ErrorLikeness
from optimizer.objectives.belief.order import order_factor, sweep_of
from optimizer.objectives.belief.places import Places, plan_columns
from optimizer.objectives.expected import parts_factor, plan_factor
from optimizer.search.lattice.enumerate import lattice
from optimizer.trial.belief import Belief
from optimizer.trial.candidates import Candidates
from tests.search.brute_force import compare

ALIKE = ErrorLikeness(parts={"software": 0.1, "plan": 0.3}, noise=0.01, size=2.0, plan=2.0, slope=0.0)
SIZE = (11.0, 30.0, 3.0, 12.0)
ONE, TWO, EIGHT = Plan(tp=1, dp=8), Plan(tp=2, dp=4), Plan(tp=8, dp=1)
JOB = Job(
    model=replace(load_model("llama3.2-1b"), layers=4),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("nanotron-2024"),
    gpus=8,
    seq_len=4096,
    global_batch=16,
    prefer="expected",
)


def row(plan: Plan, error: float) -> RunError:
    return RunError(
        quantity="time",
        root="a",
        software="a",
        generation="X bf16",
        device="x",
        kind="dense",
        model="m",
        format="bf16",
        site="s",
        size=SIZE,
        plan=tuple(plan_columns(Plans.of([plan]))[0].tolist()),
        hardness=0.0,
        error=error,
    )


def every_plan(job: Job) -> Plans:
    return Plans.joined(list(lattice(job, structural(job))))


def test_a_plan_that_took_longer_is_believed_to_take_longer() -> None:
    """Most of an error is of the plan itself, part of it of plans nearby, and what all share orders nothing."""
    sweep = swept([row(ONE, 0.05), row(EIGHT, 0.25)], ALIKE)
    one, two, eight = sweep.at(np.array(SIZE), plan_columns(Plans.of([ONE, TWO, EIGHT])))
    assert one < two < eight
    assert eight - one == pytest.approx(0.2, rel=0.1)
    alike = swept([row(ONE, 0.2), row(EIGHT, 0.2)], ALIKE)
    assert np.ptp(alike.at(np.array(SIZE), plan_columns(Plans.of([ONE, EIGHT])))) == pytest.approx(0.0, abs=1e-9)


def test_what_is_far_away_tells_little() -> None:
    sweep = swept([row(ONE, -0.2), row(EIGHT, 0.2)], ALIKE)
    plans = plan_columns(Plans.of([ONE, EIGHT]))
    near, far = (sweep.at(np.array(SIZE) + shift, plans) for shift in (0.0, 6.0))
    assert np.ptp(far) < 0.05 * np.ptp(near)


def test_software_without_a_sweep_is_taken_as_it_is_priced() -> None:
    job = replace(JOB, stack=load_stack("megatron-core"))
    assert set(order_factor(job, every_plan(job))) == {1.0}


@pytest.mark.parametrize(
    ("software", "device"),
    [
        ("aa-scaling", "a100-80"),
        ("megatron-deepspeed", "a100-80"),
        ("megatron-deepspeed-unfused", "a100-80"),
        ("nanotron", "h100"),
    ],
)
def test_every_sweep_orders_and_none_by_more_than_half(software: str, device: str) -> None:
    """Plans of the sweep itself, at the size of its first run."""
    rows = swept_errors(software, device)
    assert len(rows) >= 50
    sweep = sweep_of(software, device)
    assert sweep is not None
    order = sweep.at(np.array(rows[0].size), sweep.plan)
    assert 0.02 < np.ptp(order) < 0.5
    assert abs(np.mean(order)) < 0.1


def test_faster_hardware_orders_nothing() -> None:
    """The order of plans hangs on the device's name, so that a better one makes every plan better."""
    plans, device = every_plan(JOB), JOB.cluster.device
    peaks = {name: 2.0 * peak for name, peak in device.peak_flops.items()}
    faster = replace(device, peak_flops=peaks, memory=2.0 * device.memory)
    better = replace(JOB, cluster=replace(JOB.cluster, device=faster))
    assert np.array_equal(order_factor(better, plans), order_factor(JOB, plans))
    assert np.array_equal(plan_factor(JOB, plans), parts_factor(JOB, plans) * order_factor(JOB, plans))
    assert np.ptp(order_factor(JOB, plans)) > 0.01


def test_the_optimum_under_a_sweep_is_that_of_brute_force() -> None:
    assert compare(JOB)
    assert compare(replace(JOB, gpus=4, global_batch=8))


def test_errors_repeat_where_the_layer_of_a_rank_is_the_same() -> None:
    """Of four replicas of the same layers a run of four stages tells more than of others that are no further away."""
    measured = Plan(tp=2, pp=4, dp=1, micro_batch=2, num_microbatches=4)
    same = Plan(tp=2, pp=1, dp=4, micro_batch=2, num_microbatches=1)
    other = Plan(tp=8, pp=4, dp=1, micro_batch=8, num_microbatches=1)
    apart = plan_columns(Plans.of([measured, same, other]))
    assert np.sum((apart[1] - apart[0]) ** 2) == pytest.approx(np.sum((apart[2] - apart[0]) ** 2))
    places = Places.of([row(plan, 0.0) for plan in (measured, same, other)])
    itself, near, far = likeness(TIME).covariance(places, places)[0]
    assert itself > near > far
    with_layers, without = likeness(TIME), replace(likeness(TIME), parts={**likeness(TIME).parts, "layer": 0.0})
    gained = with_layers.covariance(places, places)[0] - without.covariance(places, places)[0]
    assert gained[1] == pytest.approx(gained[0])  # all of the layer's part, whatever the stages and replicas
    assert gained[2] < 0.2 * gained[0]


def test_trials_begin_in_the_order_of_sweeps() -> None:
    plans = tuple(Plan(tp=tp, dp=8 // tp, micro_batch=2) for tp in (1, 2, 4, 8))
    begun = Candidates(job=JOB, plans=plans, knobs=(Knobs(),) * len(plans))
    priced = Belief.predicted(JOB, Plans.of(plans), begun.costs.step_time, begun.costs.reserved / JOB.usable_memory)
    assert begun.belief().seconds.mean - priced.seconds.mean == pytest.approx(
        np.log(order_factor(JOB, Plans.of(plans))), abs=0.02
    )
    assert np.ptp(begun.belief().seconds.mean - priced.seconds.mean) > 0.02
