"""The network by its parts, what a faster one adds to rent and price, and the host's memory as a limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.answer.answer import Answer
from optimizer.catalog.offers import PriceBook
from optimizer.job.job import Job
from optimizer.job.plan import Knobs
from optimizer.objectives.network.fabric import fabric
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.designs.points import Point, Workshop, host_bytes
from optimizer.purchase.price.catalogue import host_memory
from optimizer.purchase.words import vendor_questions
from tests.purchase.campaigns import campaign, kinds, quick_planner

# Counts of an H100 cluster of 2024-08 by the spreadsheet that presets/prices.csv names.
SPREADSHEET = {512: 8, 1024: 48, 2048: 96, 4096: 192, 8192: 384, 16384: 768, 32768: 2560, 65536: 5120}


def point(question, gpus: int = 2048, planner=quick_planner, **design) -> Point:  # type: ignore[no-untyped-def]
    found = Workshop(campaign=question, planner=planner).point(replace(kinds("h100")[0], gpus=gpus, **design))
    assert isinstance(found, Point)
    return found


@pytest.mark.parametrize(("gpus", "switches"), SPREADSHEET.items())
def test_switches_of_the_spreadsheet(gpus: int, switches: int) -> None:
    assert fabric(gpus, 8, 1.0).switches == switches


@pytest.mark.parametrize(
    ("nodes", "ports", "levels"),
    [(1, 1.0, 0), (1, 0.0, 0), (9, 0.0, 0), (2, 0.5, 1), (64, 1.0, 1), (65, 1.0, 2), (2048, 1.0, 2), (2049, 1.0, 3)],
)
def test_a_rail_has_as_few_levels_as_its_switches_allow(nodes: int, ports: float, levels: int) -> None:
    """64 nodes on a switch, 64 x 32 on two levels; none in one node or without ports."""
    found = fabric(8 * nodes, 8, ports)
    assert found.levels == levels
    assert fabric(8 * nodes - 7, 8, ports).levels == levels  # a node counts whole
    assert (found.switches, found.links, found.nics) == (0, 0, 0) if not levels else found.nics == 8 * nodes * ports


@pytest.mark.parametrize(
    ("nodes", "taper", "switches", "links"),
    [(8, 4.0, 64 / 64, 64), (128, 2.0, 1024 * 2 / 64, 1024 * 1.5), (4096, 4.0, 32768 * 3.5 / 64, 32768 * 2.25)],
)
def test_oversubscription_thins_the_last_level(nodes: int, taper: float, switches: float, links: float) -> None:
    found = fabric(8 * nodes, 8, 1.0, taper)
    assert (found.switches, found.links) == (switches, links)


@given(
    nodes=st.integers(1, 8000),
    ports=st.floats(0.25, 4.0),
    taper=st.floats(1.0, 8.0),
)
def test_more_ports_cost_more_and_a_taper_saves(nodes: int, ports: float, taper: float) -> None:
    whole = fabric(nodes * 8, 8, ports)
    assert fabric(nodes * 8, 8, ports, taper).price() <= whole.price() <= fabric(nodes * 8, 8, 2 * ports).price()
    assert whole.links >= whole.nics >= whole.switches


@pytest.mark.parametrize("buy", [False, True])
def test_a_faster_network_is_not_for_free(buy: bool) -> None:
    question = campaign(buy=buy, assumptions=assumptions(buy))
    usual, fast, slow = (point(question, nic=nic) for nic in (0.0, 100e9, 25e9))
    assert fast.figures.network > usual.figures.network >= slow.figures.network
    rates = [found.figures.cost / found.figures.time_to_train for found in (usual, fast, slow)]
    # 4,349,440 USD more for 1,024 GPUs, and 2,048 cards: 4 % of the price of an H100 of 34,000 USD and more.
    assert rates[1] > 1.02 * rates[0]
    assert rates[2] <= rates[0] if buy else rates[2] == pytest.approx(rates[0])


def test_the_surcharge_on_rent_is_what_the_network_adds_over_its_life() -> None:
    usual, fast = (point(campaign(book=PriceBook(provider="aws")), nic=nic) for nic in (0.0, 100e9))
    added = 1.4 * fabric(2048, 8, 1.0).price() + 2048 * 1599
    assert fast.figures.network == pytest.approx(added)
    rate = 2048 * 6.88 + added * (1 / 5 + 0.07 + 0.10) / 8766
    assert fast.figures.cost == pytest.approx(rate * fast.figures.time_to_train / 3600)
    assert usual.figures.network == 0.0


def offloading(job: Job) -> Answer:
    """A real plan that keeps its whole optimizer state on the host."""
    return replace(quick_planner(job), knobs=Knobs(offload=1.0))


def test_what_is_kept_on_the_host_must_fit_there() -> None:
    few = point(campaign(), gpus=512, planner=offloading)
    # 405e9 parameters, 12 bytes of state each, over 512 GPUs: 9.5 GB and what stages hold unevenly.
    assert 9e9 < few.on_host < 15e9
    assert few.feasible
    answer = few.answers[0]
    assert answer.plan is not None
    whole = replace(answer, plan=replace(answer.plan, zero_stage=0))
    assert host_bytes(whole) > 50e9


def test_rented_hosts_cannot_grow_and_bought_ones_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.purchase.designs.points.host_memory", lambda design: 5e9)
    monkeypatch.setattr("optimizer.purchase.designs.figures.host_memory", lambda design: 5e9)
    rented = point(campaign(), gpus=512, planner=offloading)
    assert [excess.limit for excess in rented.excesses] == ["host memory"]
    question = campaign(buy=True, assumptions=assumptions(True))
    bought, plain = (point(question, gpus=512, planner=planner) for planner in (offloading, quick_planner))
    assert bought.feasible
    assert bought.figures.capex - plain.figures.capex == pytest.approx(512 * (bought.on_host - 5e9) / 1e9 * 8)


def test_the_vendor_is_asked_for_the_parts_by_name() -> None:
    from optimizer.purchase.designs.pareto import pareto
    from optimizer.purchase.dossier import dossier
    from tests.purchase.campaigns import grid

    found = pareto(campaign(), grid("h100", gpus=(2048,)), planner=quick_planner)
    text = " ".join(vendor_questions(dossier(found, kinds("h100"), planner=quick_planner)))
    assert "2,048 NICs, 96 switches of 64 ports and 4,096 links with optics at 400 Gb/s" in text


def test_the_host_of_a_described_cluster_comes_before_the_catalogue_s() -> None:
    design = kinds("h100")[0]
    assert host_memory(design) == pytest.approx(2e12 / 8)
    own = replace(design, cluster=replace(design.cluster, host_memory=1e12))
    assert host_memory(own) == pytest.approx(1e12 / 8)
    assert host_memory(kinds("mi300x")[0]) is None
