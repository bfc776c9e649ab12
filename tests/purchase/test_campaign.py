"""A buyer's designs: what is built, what it is called, its batch, and the counts of GPUs that a buyer writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, counts
from optimizer.purchase.ranges import own_price
from tests.purchase.campaigns import campaign

H100 = load_cluster("h100")
PLAIN = Design(kind="h100", cluster=H100, gpus=4096)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"dtype": "fp8"}, "fp8"),
        ({"batch_factor": 0.5}, "batch ×0.5"),
        ({"batch_factor": 2.0}, "batch ×2"),
        ({"power_cap": 0.75}, "cap 75%"),
        ({"nic": 100e9}, "NIC 800 Gb/s"),
        ({"oversubscription": 2.5}, "2.5:1"),
        ({"hbm": 141e9}, "HBM 141 GB"),
        ({"scale_up": 16}, "domain 16"),
        ({"spares": 0}, ""),
        ({"spares": 1}, "1 spare node"),
        ({"spares": 2}, "2 spare nodes"),
        ({"dtype": "fp8", "power_cap": 0.5, "hbm": 96e9}, "fp8, cap 50%, HBM 96 GB"),
    ],
)
def test_a_design_is_called_by_what_is_unusual_of_it(changes: dict[str, Any], words: str) -> None:
    found = replace(PLAIN, **changes)
    assert found.label() == "4,096 H100" + f", {words}" * bool(words)
    assert (found.key == PLAIN.key) is (not changes)


def test_a_design_names_its_own_file() -> None:
    assert replace(PLAIN, kind="gb200-nvl72").title == "GB200 NVL72"
    assert replace(PLAIN, kind="my-own.toml").title == H100.name


@pytest.mark.parametrize(
    ("changes", "sizes", "bandwidths", "tapers"),
    [
        ({}, (1, 1, 1), (1, 1, 1), (1, 1, 1)),
        ({"scale_up": 32}, (4, 1, 1), (1, 1, 1), (1, 1, 1)),
        ({"nic": 100e9}, (1, 1, 1), (1, 2, 2), (1, 1, 1)),
        ({"oversubscription": 2.0}, (1, 1, 1), (1, 1, 1), (1, 1, 2)),
        ({"nic": 100e9, "oversubscription": 2.0, "scale_up": 32}, (4, 1, 1), (1, 2, 2), (1, 1, 2)),
    ],
)
def test_what_is_built_is_the_cluster_with_its_own_network_and_domain(
    changes: dict[str, Any], sizes: Any, bandwidths: Any, tapers: Any
) -> None:
    """By how much each tier of three is larger, faster and more tapered."""
    inner, outer = H100.tiers[0], replace(H100.tiers[1], link=replace(H100.tiers[1].link, bandwidth=50e9))
    cluster = replace(H100, tiers=(replace(inner, size=8), outer, outer))
    found = replace(PLAIN, cluster=cluster, **changes).built()
    assert replace(found, tiers=cluster.tiers) == cluster
    for usual, tier, size, bandwidth, taper in zip(cluster.tiers, found.tiers, sizes, bandwidths, tapers, strict=True):
        assert tier.size == size * usual.size
        assert tier.link.bandwidth == bandwidth * usual.link.bandwidth
        assert tier.oversubscription == taper * usual.oversubscription


def test_a_machine_of_one_tier_is_built_without_a_network() -> None:
    alone = replace(PLAIN, cluster=replace(H100, tiers=H100.tiers[:1]))
    for design in (replace(alone, nic=100e9), replace(alone, oversubscription=2.0)):
        assert design.built() == alone.cluster


def test_a_batch_is_that_of_the_run_times_the_factor_and_at_least_one_sequence() -> None:
    (run,) = campaign().runs
    assert [replace(PLAIN, batch_factor=factor).batch(run) for factor in (0.5, 1.0, 1.5, 1e-6)] == [1024, 2048, 3072, 1]
    assert PLAIN.job(campaign(), run).global_batch == PLAIN.batch(run) == 2048
    endless = replace(run, assumed=True, grows=True, seq_len=1 << 23)  # longer than all of a usual step
    assert endless.sequences(8) == 1
    assert run.start == 0.0 < run.by == float("inf")


def test_a_job_has_the_limits_of_its_campaign() -> None:
    asked = campaign(bubble=0.25, fixed={"tp": 8}, ranges={"pp": (1, 8)}, choices={"dp": (1, 2)})
    job = replace(PLAIN, hbm=96e9).job(asked, asked.runs[0])
    limits = job.limits
    assert (limits.bubble, limits.hbm) == (0.25, 96e9)
    assert (limits.fixed, limits.ranges, limits.choices) == (asked.fixed, asked.ranges, asked.choices)
    assert (job.gpus, job.seq_len, job.dtype) == (4096, 8192, "bf16")


def test_a_scenario_has_the_middles_those_of_the_machine_and_those_that_are_given() -> None:
    def rates(asked: Campaign) -> tuple[float, ...]:
        return tuple(asked.scenario(design, **changes)["failure_rate"] for design, changes in cases)

    cases: list[tuple[Design | None, dict[str, float]]] = [(None, {}), (PLAIN, {}), (PLAIN, {"failure_rate": 1.0})]
    usual, own = campaign(), own_price("failure_rate", "h100", "h100")
    (middle,) = [item.value.mid for item in usual.assumptions if item.name == "failure_rate"]
    assert own is not None
    assert own.value != middle
    assert rates(usual) == (middle, own.value, 1.0)
    day = 86400.0
    given = campaign(assumptions=assumptions(False, {"failure_rate": "0.5"}))
    assert rates(given) == pytest.approx((0.5 / day, 0.5 / day, 1.0))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8", (8,)),
        ("512,768", (512, 768)),
        ("1:1", (1,)),
        ("8:64", (8, 16, 32, 64)),
        ("8:63", (8, 16, 32)),
        ("3:13", (3, 6, 12)),
        ("8:24:8", (8, 16, 24)),
        ("8:23:8", (8, 16)),
        ("8:8:1", (8,)),
    ],
)
def test_counts_are_a_list_doublings_or_steps(text: str, found: tuple[int, ...]) -> None:
    assert counts(text) == found


@pytest.mark.parametrize("text", ["", "x", "0", "8,0", "0:8", "8:0", "64:8", "8:64:0", "8:64:8:8", "8:", ":8", "-8:8"])
def test_counts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no range of GPU counts"):
        counts(text)
