"""Protocols of a link: every preset's are physical, and a link of one's own follows its fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_link
from optimizer.catalog.hardware import link_names
from optimizer.job.hardware import Link
from optimizer.objectives.network.protocols import PAIRWISE, RING, profile, quantities
from tests.looped import looped

MINE = Link(name="mine", bandwidth=50e9, latency=2e-6, efficiency=0.8)


@looped(name=link_names(), network=[False, True])
def test_no_protocol_beats_its_link(name: str, network: bool) -> None:
    found = profile(load_link(name), network)
    assert (len(found.ring), len(found.pairwise)) == (len(RING), len(PAIRWISE))
    for protocol in (*found.ring, *found.pairwise, *([found.in_switch] if found.in_switch else [])):
        assert 0 < protocol.share <= 1
        assert 0 <= protocol.step < 1e-3
        assert 0 <= protocol.base < 1e-3
    assert found.ring[0].share < found.ring[2].share, "LL is for small messages, Simple for large ones"
    assert found.ring[0].step <= found.ring[2].step
    assert 0 < found.tree <= 1


def test_a_better_link_is_described_by_its_own_fields() -> None:
    assert profile(replace(MINE, efficiency=0.9)).ring[2].share == 0.9
    lower = replace(MINE, latency=1e-6)
    assert profile(MINE, network=True).ring[0].step - profile(lower, network=True).ring[0].step == pytest.approx(1e-6)
    assert profile(MINE).ring[0].step == profile(lower).ring[0].step, "inside a node NCCL's tables hold"


def test_a_step_is_no_shorter_than_half_a_message_takes() -> None:
    slow = replace(MINE, half_message=40e6)
    assert profile(slow).ring[2].step == pytest.approx(40e6 / (0.8 * 50e9))


def test_a_reduction_in_the_switch_needs_a_switch_that_reduces() -> None:
    assert profile(MINE).in_switch is None
    assert profile(replace(MINE, in_switch_reduction=True)).in_switch is not None


def test_measured_links_are_taken_as_they_are() -> None:
    measured = load_link("nvlink4")
    assert quantities(measured) == quantities(replace(measured, latency=1e-3, half_message=1e9))
    copied = profile(measured)
    assert copied.copy("all_reduce") == copied.reduce_copy
    assert copied.copy("all_to_all") == copied.pairwise_copy
    assert copied.copy("all_gather") == copied.gather_copy
