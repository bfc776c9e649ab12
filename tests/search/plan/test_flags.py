"""Warnings beside an answer, and the clock of its phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster
from optimizer.search.plan import unproven
from optimizer.search.plan.alternatives import MEASURED_MFU, flags
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.unproven import Clock
from tests.search.jobs import small_job


def test_more_than_was_ever_published_is_flagged() -> None:
    job = small_job()
    best = best_plan(job)
    assert best is not None
    ceiling = MEASURED_MFU["h100"]
    for mfu, flagged in ((ceiling, False), (ceiling + 0.001, True), (0.1, False)):
        assert bool(flags(job, replace(best.estimate, mfu=mfu))) is flagged
    (warning,) = flags(job, replace(best.estimate, mfu=0.7))
    assert warning.startswith("MFU 70.0% is above the 66% that is the highest published for h100")
    assert flags(replace(job, cluster=load_cluster("gb200-nvl72")), replace(best.estimate, mfu=0.99)) == ()


def test_published_shares_are_shares() -> None:
    """None is as low as what a careless run reaches, and none above what the device could do."""
    assert all(0.5 < share < 0.8 for share in MEASURED_MFU.values())


def test_phases_take_the_seconds_between_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((10.0, 12.0, 20.0, 21.5))
    monkeypatch.setattr(unproven, "perf_counter", lambda: next(ticks))
    clock = Clock()
    for name in ("sweep", "layouts"):
        with clock.phase(name):
            pass
    assert clock.all() == {"sweep": 2.0, "layouts": 1.5, "total": 3.5}
    assert (clock.left(None), clock.left(5.0), clock.left(3.0)) == (None, 1.5, 0.0)
