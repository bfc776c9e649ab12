"""Settings that plans take: shares on the host that memory asks for, and what a launcher can set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.host_memory import OFFLOAD_STEP, fits_host, most_offload
from optimizer.objectives.step.linear_stage import reserved_memory
from optimizer.objectives.step.per_step import slower_on_host
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice import knobs
from optimizer.search.lattice.knobs import BOX, NAMES, HostNeed, _Spot, columns, joined_knobs, knobs_at, tuned, valued
from tests.search.jobs import small_job

HOSTED = replace(small_job(2, hbm=12e9), prefer=EXPECTED, minimize="energy").with_host_memory(2e12)
TIGHT = Plans.of(
    [
        Plan(dp=2, micro_batch=1, num_microbatches=24),
        Plan(tp=2, num_microbatches=48),
        Plan(pp=2, vpp=2, micro_batch=2, num_microbatches=24),
        Plan(pp=2, num_microbatches=48, recompute="full"),
        Plan(tp=2, micro_batch=16, num_microbatches=3),
    ]
)
SHARES = np.arange(0.0, 1.0 + OFFLOAD_STEP / 2, 500 * OFFLOAD_STEP)


@pytest.mark.parametrize("faster_there", [False, True])
@pytest.mark.parametrize(
    "job",
    [HOSTED, HOSTED.with_limits(oom_risk=0.03), replace(HOSTED, prefer="fast"), HOSTED.with_host_memory(1.2e11)],
    ids=["expected", "of less risk", "fast", "little room there"],
)
def test_no_share_on_the_host_is_better(job: Job, faster_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every share that there may be: what fits with one fits, and at no greater value."""
    if faster_there:
        device = replace(job.cluster.device, memory_bandwidth=1e9)
        job = replace(job, cluster=replace(job.cluster, device=device))
    assert slower_on_host(job) is not faster_there
    costs = layer_costs_of(job, TIGHT)
    found, most = tuned(costs, columns(Knobs(), len(TIGHT))), most_offload(costs)
    every = np.concatenate([np.minimum(SHARES[:, None], most), [found.knobs.offload, most]])
    many = costs.take(np.tile(np.arange(len(TIGHT)), len(every)))
    at = replace(columns(Knobs(), len(many)), offload=every.ravel())
    values = valued(many, stages_of(job.model, many.plans), at).reshape(every.shape)
    reserved = reserved_memory(job, many.plans, at).reshape(every.shape)
    fits = (reserved <= safe_memory(job) * (1 + 1e-9)) & fits_host(many, at).reshape(every.shape)
    assert found.fits.tolist() == fits.any(axis=0).tolist() == fits[-2].tolist()
    assert found.values == pytest.approx(values[-2], rel=1e-12)
    assert np.all(found.values <= np.where(fits, values, np.inf).min(axis=0) * (1 + 1e-12))
    assert 0 < found.fits.sum() < len(TIGHT)


@pytest.mark.parametrize(
    ("reserved", "offloadable", "most", "share", "least", "fits"),
    [
        ((7.0, 8.0), (4.0, 4.0), 1.0, 0.0, 0.0, True),
        ((9.0, 10.0), (4.0, 4.0), 1.0, 0.5, 0.5, True),
        ((10.0, 9.0), (4.0, 1.0), 1.0, 1.0, 1.0, True),
        ((10.0, 8.0), (4.0, 0.0), 0.5, 0.5, 0.5, True),
        ((10.0, 8.0), (4.0, 0.0), 0.4, 0.5, 0.4, False),
        ((8.000001, 0.0), (1.0, 1.0), 1.0, 0.000001, 0.0001, True),
        ((8.50001, 0.0), (1.0, 1.0), 1.0, 0.50001, 0.5001, True),
        ((8.50001, 0.0), (1.0, 1.0), 0.50005, 0.50001, 0.50005, True),
        ((8.0, 8.5), (1.0, 0.0), 0.5, 0.5e9, 0.5, False),
    ],
)
def test_what_does_not_fit_leaves_for_the_host_stage_by_stage(
    reserved: tuple[float, float],
    offloadable: tuple[float, float],
    most: float,
    share: float,
    least: float,
    fits: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of eight bytes on the device, in ten thousandths of what may leave."""
    monkeypatch.setattr(knobs, "safe_memory", lambda job: 8.0)
    stages = {"reserved": np.array([reserved]).T, "offloadable": np.array([offloadable]).T}
    need, job = HostNeed(**stages, most=np.array([most])), small_job()
    assert need.share(job) == pytest.approx([share])
    found, held = need.least(job)
    assert (found.tolist(), held.tolist()) == ([pytest.approx(least)], [fits])
    assert need.needed(job) == pytest.approx([max(0.0, least - 0.0001)])
    monkeypatch.setattr(knobs, "slower_on_host", lambda job: False)
    found, held = need.least(job)
    assert (found.tolist(), held.tolist()) == ([most], [fits])


@pytest.mark.parametrize(
    ("settable", "bucket", "share"),
    [
        (("bucket", "comm_sm_share"), [10e6, 100e6, 1e9], [2 / 132, 7 / 132, 39 / 132]),
        (("bucket",), [10e6, 100e6, 1e9], [Knobs().comm_sm_share] * 3),
        (("comm_sm_share", "offload"), [Knobs().bucket] * 3, [2 / 132, 7 / 132, 39 / 132]),
    ],
)
def test_places_are_settings_that_a_launcher_can_make(
    settable: tuple[str, ...], bucket: list[float], share: list[float]
) -> None:
    """Ends and middle of both logarithmic scales; a share of 0.0548 is 7.2 of 132 multiprocessors."""
    job = small_job(features=Features(settable=settable))
    costs = layer_costs_of(job, Plans.of([Plan(dp=8, num_microbatches=6)] * 3))
    found = _Spot(layer_costs=costs, stages=stages_of(job.model, costs.plans)).knobs(np.array([[0.0, 0.5, 1.0]] * 2))
    assert found.bucket.tolist() == pytest.approx(bucket, rel=1e-12)
    assert found.comm_sm_share.tolist() == pytest.approx(share, rel=1e-12)
    assert found.offload.tolist() == [0.0, 0.0, 0.0]


def test_a_bucket_holds_whole_gradients() -> None:
    """Of seven bytes each: 100 MB are 14,285,714.3 of them."""
    job = small_job(features=Features(grad_bytes=7, settable=tuple(BOX)))
    costs: Any = layer_costs_of(job, Plans.of([Plan(dp=8)]))
    found = _Spot(layer_costs=costs, stages=stages_of(job.model, costs.plans)).knobs(np.array([[0.5], [0.5]]))
    assert found.bucket.tolist() == [7 * 14_285_714]


def test_settings_of_plans_are_put_together_and_taken_apart() -> None:
    each = [Knobs(bucket=1e7, comm_sm_share=0.1, offload=0.2), Knobs(bucket=2e7, comm_sm_share=0.2, offload=0.3)]
    several = joined_knobs([columns(one, count) for one, count in zip(each, (2, 1), strict=True)])
    assert isinstance(several, KnobColumns)
    assert [knobs_at(several, index) for index in range(3)] == [each[0], each[0], each[1]]
    assert {len(getattr(several, name)) for name in NAMES} == {3}
