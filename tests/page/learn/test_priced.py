"""Designs and published runs beside the rules of the acts, reckoned by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_model
from optimizer.job.plan import Plan
from optimizer.page.learn import priced as module
from optimizer.page.learn.priced import (
    CONTEXTS,
    LARGE,
    SMALL,
    Compared,
    PricedDesign,
    compared_numbers,
    designed,
    error,
    job_of,
    nearest,
    title,
)
from optimizer.studies.textbook import Constants, DataParallel, LabDesign


def run(**changes: Any) -> Compared:
    plan = Plan(tp=8, pp=4, dp=32, num_microbatches=8)
    row: Any = SimpleNamespace(id="A")
    known = Compared(run=row, job=job_of(LARGE), plan=plan, seconds=1.0, measured=0.4, priced=0.5)
    return replace(known, **changes)


@pytest.mark.parametrize(("over", "fits"), [(0.0, True), (1.0, False), (-1.0, True)])
def test_a_design_that_fills_the_memory_fits(over: float, fits: bool) -> None:
    job = job_of(LARGE)
    made: Any = SimpleNamespace(reserved=job.usable_memory + over)
    assert PricedDesign(job=job, plan=Plan(), estimate=made).fits is fits
    assert run(needs=80e9 + over).fits is fits
    lacking = PricedDesign(job=job, plan=Plan(), reasons=("this", "that"))
    assert not lacking.fits
    with pytest.raises(InputError, match="this; that"):
        assert lacking.priced


@pytest.mark.parametrize(("tp", "dp"), [(1, 256), (2, 128), (8, 32), (512, 1)])
def test_a_design_has_a_sample_a_micro_batch_in_every_replica(tp: int, dp: int) -> None:
    """1,024 GPUs / (TP x 4) replicas, one at the least, of 6 micro-batches each."""
    found = designed(LabDesign(tp=tp, pp=4, microbatches=6))
    assert (found.plan.tp, found.plan.pp, found.plan.dp, found.plan.num_microbatches) == (tp, 4, dp, 6)
    assert (found.job.gpus, found.job.global_batch, found.plan.micro_batch) == (1024, 6 * dp, 1)
    assert found.plan.sequence_parallel is (tp > 1)
    assert bool(found.reasons) is (tp == 512)


def test_a_context_has_the_numbers_of_its_title() -> None:
    """7B on 64 H100 and 175B on 1,024."""
    assert title(SMALL) == "A. Data parallel: 7B on 64 H100"
    assert title(LARGE) == "B. 3-D parallel: 175B on 1,024 H100"
    assert [(job.model.name, job.gpus) for job in map(job_of, CONTEXTS)] == [("gpt3-6.7b", 64), ("gpt3", 1024)]


def test_the_nearest_model_is_so_by_ratio() -> None:
    small, large = (load_model(name).params / 1e9 for name in ("gpt3-1.3b", "gpt3-2.7b"))
    middle = sqrt(small * large)
    assert (nearest(0.999 * middle), nearest(1.001 * middle)) == ("gpt3-1.3b", "gpt3-2.7b")


def test_an_error_is_the_mean_distance_over_what_was_measured() -> None:
    """0.5 and 0.3 of 0.4, 0.1 of 0.2: 25, 25 and 50 %."""
    runs = [run(), run(priced=0.3), run(measured=0.2, priced=0.1)]
    assert error(runs, "priced") == pytest.approx((0.25 + 0.25 + 0.5) / 3)


def test_a_replicas_share_and_the_memory_of_act_2() -> None:
    """(4 - 1) / (4 x 8) of the time idle; 118.69 GB by the rule, as the act has it."""
    known = run()
    assert known.share == job_of(LARGE).global_batch / 32
    ruled = module._by_rules(known)
    design = LabDesign(tp=8, pp=4, microbatches=8)
    assert ruled.textbook == pytest.approx(design.mfu)
    assert ruled.needs == pytest.approx(design.memory)
    assert not ruled.fits


def test_runs_are_drawn_in_percent_up_to_five_above_the_highest() -> None:
    numbers = compared_numbers([run(textbook=0.6), run(measured=0.3, priced=0.2, textbook=0.1, needs=90e9)])
    assert (numbers.series["diagonal"].x, numbers.series["diagonal"].y) == ([0, 65.0], [0, 65.0])
    assert numbers.series["priced"].x == pytest.approx([40.0, 30.0])
    assert numbers.series["priced"].y == pytest.approx([50.0, 20.0])
    assert numbers.series["textbook"].y == pytest.approx([60.0, 10.0])
    assert (numbers.values["count"], numbers.values["refused"]) == (2, 1)
    assert [row["verdict"] for row in numbers.rows] == ["", ", too much"]


def test_the_formula_of_act_1_has_the_constants_of_a_runs_own_hardware() -> None:
    """Sequences for each GPU, the node's links and the network's, the peak of the format."""
    job = replace(job_of(LARGE), gpus=64, global_batch=96)
    node, network = job.cluster.tiers[0], job.cluster.tiers[-1]
    constants = Constants(
        name="own",
        peak=job.peak_flops,
        nvlink=node.bandwidth,
        infiniband=network.bandwidth,
        tokens_per_sequence=job.seq_len,
        node=node.size,
    )
    assert module._alone(job) == DataParallel(gpus=64, batch=1.5, constants=constants).mfu
    flat = replace(job, cluster=replace(job.cluster, tiers=(node,)))
    alone = DataParallel(gpus=64, batch=1.5, constants=replace(constants, infiniband=node.bandwidth))
    assert module._alone(flat) == alone.mfu
