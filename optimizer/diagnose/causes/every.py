"""The causes that are tried, one at a time."""

from __future__ import annotations

from optimizer.diagnose.causes import clocks, data_loading, host_launches, network, overlap, routing, straggler
from optimizer.diagnose.causes.cause import Cause

CAUSES: tuple[Cause, ...] = (
    network.CAUSE,
    host_launches.CAUSE,
    straggler.CAUSE,
    clocks.CAUSE,
    overlap.CAUSE,
    routing.CAUSE,
    data_loading.CAUSE,
)
