"""Collective times of a million messages, the size of a large lattice of plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optimizer.catalog.hardware import load_cluster
from optimizer.objectives.network.collectives import KINDS, collective_time
from optimizer.objectives.network.topology import span


@pytest.mark.parametrize("kind", KINDS)
def test_million_messages(benchmark: Any, kind: str) -> None:
    cluster = load_cluster("h100")
    generator = np.random.default_rng(0)
    size, stride = 2 ** generator.integers(0, 10, 1_000_000), 2 ** generator.integers(0, 4, 1_000_000)
    message = 10 ** generator.uniform(3, 10, 1_000_000)
    times = benchmark(lambda: collective_time(kind, message, span(cluster, size, stride), cluster))
    assert np.isfinite(times).all()


def test_one_message(benchmark: Any) -> None:
    cluster = load_cluster("h100")
    time = benchmark(lambda: collective_time("all_reduce", 1e8, span(cluster, 8, 1), cluster))
    assert float(time) > 0
