"""What runs say of errors: by hand, by law, and against rows that are far from the others."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.belief import RUNS, published_errors
from optimizer.catalog.files import presets_folder
from optimizer.job.job import Job
from optimizer.job.known import MEMORY, QUANTITIES, TIME, RunError
from optimizer.job.plan import Plan
from optimizer.objectives.belief.belief import alikeness, likeness, published
from optimizer.objectives.belief.likeness import ErrorLikeness, nearness
from optimizer.objectives.belief.places import SHARED, Places
from optimizer.objectives.belief.posterior import Posterior

ROW = RunError(
    quantity="time",
    root="a",
    software="a",
    generation="X bf16",
    device="x",
    kind="dense",
    model="m",
    format="bf16",
    site="s",
    size=(12.0, 33.0, 6.0, 11.0),
    plan=(0.0,) * 12,
    hardness=0.0,
    error=0.1,
)
ALIKE = ErrorLikeness(
    parts={"software": 0.3, "plan": 0.1}, noise=0.05, size=2.0, plan=2.0, slope=0.5, scales={"loose": 2.0}
)


def test_a_run_is_itself_and_less_the_more_doublings_apart_and_nothing_with_other_switches() -> None:
    doubled = replace(ROW, plan=(1.0, *ROW.plan[1:]))
    larger = replace(doubled, size=(12.0, 33.0, 7.0, 11.0))
    others = [replace(ROW, switches="graphs"), replace(ROW, model="n"), replace(ROW, site="t")]
    found = nearness(Places.of([ROW]), Places.of([ROW, doubled, larger, *others]))[0]
    assert found == pytest.approx([1.0, np.exp(-1.0), np.exp(-2.0), 0.0, 0.0, 0.0])


def after(rows: list[RunError], about: RunError, alike: ErrorLikeness = ALIKE) -> tuple[float, float]:
    errors, spreads = (np.array([getattr(row, name) for row in rows]) for name in ("error", "spread"))
    mean, spread = Posterior.given(alike, Places.of(rows), errors, spreads).at(Places.of([about]))
    return float(mean[0]), float(spread[0])


def test_one_run_by_hand() -> None:
    """Variance 0.1 and noise 0.0025: the mean is 0.1 x 0.1 / 0.1025, the variance 0.1 - 0.01 / 0.1025 + 0.0025."""
    mean, spread = after([replace(ROW, spread=0.05)], ROW)
    assert mean == pytest.approx(0.01 / 0.1025)
    assert spread**2 == pytest.approx(0.1 - 0.01 / 0.1025 + 0.0025)


def test_nothing_known_is_as_wide_as_the_parts() -> None:
    assert after([], ROW) == pytest.approx((0.0, (0.1 + 0.0025) ** 0.5))
    assert after([ROW], replace(ROW, software="b", root="b")) == pytest.approx((0.0, (0.1 + 0.0025) ** 0.5))


def test_parts_are_shared_and_fade() -> None:
    """Another device shares the software's 0.09 of 0.1 alone, as does a plan many doublings away."""
    places = Places.of([ROW, replace(ROW, device="y"), replace(ROW, plan=(30.0,) * 12), replace(ROW, root="loose")])
    found = ALIKE.covariance(places, places)
    assert found[0] == pytest.approx([0.1, 0.09, 0.09, 0.2])
    assert np.diag(found) == pytest.approx(ALIKE.variance(places))
    assert found[3, 3] == pytest.approx(0.4)


def test_a_hard_step_errs_more() -> None:
    places = Places.of([ROW, replace(ROW, hardness=2.0)])
    assert ALIKE.growth(places) == pytest.approx([1.0, 2.0])


def test_a_row_far_from_the_others_counts_little() -> None:
    rows = [replace(ROW, plan=(0.01 * number,) * 12) for number in range(6)]
    wild = [*rows[:-1], replace(rows[-1], error=1.5)]
    assert after(wild, ROW)[0] == pytest.approx(after(rows, ROW)[0], abs=0.03)
    assert after([replace(row, spread=0.05) for row in wild], ROW)[0] > 0.25  # as it is, without Student's noise


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 12))
def test_more_runs_are_never_less_sure_and_their_order_does_not_matter(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    rows = [
        replace(ROW, device=str(random.integers(2)), size=tuple(random.normal(10, 2, 4)), error=0.1, spread=0.05)
        for _ in range(count)
    ]
    spreads = [after(rows[:many], ROW)[1] for many in range(count + 1)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(spreads))
    assert after(rows[::-1], ROW) == pytest.approx(after(rows, ROW))


def test_a_covariance_of_published_runs_is_one() -> None:
    for quantity in QUANTITIES:
        _, places = published(quantity)
        every = likeness(quantity).covariance(places, places)
        assert every == pytest.approx(every.T)
        assert np.linalg.eigvalsh(every).min() > -1e-9


def test_the_table_is_small_and_its_likeness_names_the_parts() -> None:
    assert (presets_folder() / RUNS).stat().st_size < 200_000
    assert {row.quantity for row in published_errors()} == set(QUANTITIES)
    assert all(row.spread > 0 for row in published_errors())
    assert set(likeness(TIME).parts) == set(SHARED)
    assert set(likeness(MEMORY).parts) == set(SHARED) - {"layer"}  # no library chooses memory by a kernel's shape


def test_errors_of_jobs_are_the_more_alike_the_more_they_share() -> None:
    """One software on one device, on another generation, another software."""
    jobs = [
        Job(
            model=load_model("llama3-8b"),
            cluster=load_cluster(cluster),
            stack=load_stack(stack),
            gpus=64,
            seq_len=8192,
            global_batch=256,
        )
        for cluster, stack in (
            ("dgx-h100", "megatron-core"),
            ("dgx-h100", "megatron-core"),
            ("dgx-b200", "megatron-core"),
            ("dgx-b200", "maxtext"),
        )
    ]
    found = alikeness([(job, Plan(tp=2, dp=32), 0.4) for job in jobs])
    assert np.diag(found) == pytest.approx(1.0)
    assert 1.0 > found[0, 1] > found[0, 2] > found[0, 3]
    assert found[0, 1] > 0.5
