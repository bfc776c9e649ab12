"""Collectives of a step against isolated ones: the stack's share of the links, and ranks that arrive late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.objectives.network.collectives import KINDS, collective_time
from optimizer.objectives.network.messages import collective
from optimizer.objectives.network.topology import span
from tests.objectives.questions import job

MESSAGE = np.array([64e6])


def ideal(**parameters: float) -> Job:
    """A stack that loses nothing but what is named."""
    question = job("gpt3")
    lossless = {"scale_up_efficiency": 1.0, "network_efficiency": 1.0, "collective_skew": 0.0}
    stack = replace(question.stack, parameters={**question.stack.parameters, **lossless, **parameters})
    return replace(question, stack=stack)


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "point_to_point"])
def test_a_stack_that_loses_nothing_is_as_fast_as_alone(kind: str, ranks: int) -> None:
    question = ideal()
    alone = collective_time(kind, MESSAGE, span(question.cluster, np.array([ranks]), np.array([1])), question.cluster)
    assert collective(question, kind, MESSAGE, [ranks], [1]).tolist() == pytest.approx(np.ravel(alone).tolist())


def test_late_ranks_cost_a_skew_for_each_doubling() -> None:
    lost = collective(ideal(collective_skew=1e-5), "all_reduce", MESSAGE, [8], [1])
    none = collective(ideal(), "all_reduce", MESSAGE, [8], [1])
    assert float((lost - none)[0]) == pytest.approx(3e-5)
    unskewed = collective(ideal(collective_skew=1e-5), "all_reduce", MESSAGE, [8], [1], skewed=False)
    assert unskewed.tolist() == none.tolist()


def test_only_the_links_that_are_crossed_count() -> None:
    half = ideal(network_efficiency=0.5)
    assert collective(half, "all_gather", MESSAGE, [8], [1]) == collective(ideal(), "all_gather", MESSAGE, [8], [1])
    assert collective(half, "all_gather", MESSAGE, [8], [8]) > collective(ideal(), "all_gather", MESSAGE, [8], [8])


def test_a_group_of_one_sends_nothing() -> None:
    found = collective(ideal(collective_skew=1e-5), "all_reduce", np.array([1e9, 1e9]), [1, 1], [1, 8])
    assert found.tolist() == [0.0, 0.0]
