"""What tokens cost on their way: copies, the crossover of dispatchers, and which one a plan takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_link, load_model, load_stack
from optimizer.catalog.hardware import with_network
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.model import Experts
from optimizer.job.plan import Plan, Plans
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.layer.dispatch_choice import KEYS, useful_dispatchers
from optimizer.objectives.layer.dispatchers import KINDS, all_to_all_seconds, copies_dealt, copies_sent
from optimizer.objectives.step.price import price
from optimizer.search.lattice.enumerate import lattice

V3 = Experts(count=256, top_k=8, ffn_hidden=2048)
V3_OF_4 = replace(V3, groups=8, group_limit=4)


def over_efa() -> Job:
    """DeepSeek-V3 on 256 B300 with 800 Gb/s of EFA each, launched eagerly, as AWS measured it."""
    cluster, link = load_cluster("dgx-b300"), load_link("efa-v4")
    inner, *outer = cluster.tiers
    cluster = replace(cluster, tiers=(inner, *(replace(tier, link=link) for tier in outer)))
    stack = load_stack("megatron-bridge-2025")
    features = replace(stack.features, eager_experts=True, balanced_experts=True, overlap_exchange=False)
    return Job(
        model=load_model("deepseek-v3"),
        cluster=with_network(cluster, nic_bandwidth=100e9),
        stack=replace(stack, features=features),
        gpus=256,
        seq_len=4096,
        global_batch=256,
    )


def seconds(job: Job, dispatcher: str, micro_batch: int) -> float:
    plan = Plan(tp=8, pp=8, dp=4, ep=32, micro_batch=micro_batch, num_microbatches=64 // micro_batch)
    plan = replace(plan, sequence_parallel=True, recompute="full", dispatcher=dispatcher)
    return float(price(job, Plans.of([plan])).step_time[0])


def test_at_512_tokens_a_rank_the_call_decides_and_at_2048_the_bandwidth() -> None:
    """Measured: 12.5 against 14.1 s in micro-batches of 1, 9.8 against 6.3 s in micro-batches of 4."""
    job = over_efa()
    assert seconds(job, "alltoall", 1) < seconds(job, "deepep", 1)
    assert seconds(job, "alltoall", 4) > 1.3 * seconds(job, "deepep", 4)


def test_a_dispatcher_that_is_worse_in_everything_is_not_tried() -> None:
    """DeepEP permutes and sends less than all-to-all, and over InfiniBand faster than HybridEP."""
    job = over_efa()
    stack = replace(job.stack, features=replace(job.stack.features, dispatchers=DISPATCHERS))
    columns = {"tp": 8, "cp": 1, "ep": 32, "etp": 1, "sequence_parallel": 1, "micro_batch": 4}
    table = {key: np.array([columns[key]] * 2) for key in KEYS} | {"ep": np.array([32, 1])}
    rows, found = useful_dispatchers(replace(job, stack=stack, cluster=load_cluster("dgx-b300")), table)
    assert (rows.tolist(), [DISPATCHERS[one] for one in found]) == ([0, 1], ["deepep", "alltoall"])
    rows, found = useful_dispatchers(replace(job, stack=stack), table)
    assert {DISPATCHERS[one] for one in found[rows == 0]} == {"alltoall", "deepep"}
    only = replace(job, stack=stack).with_limits(choices={"dispatcher": ("alltoall", "hybridep")})
    rows, found = useful_dispatchers(only, table)
    assert "deepep" not in {DISPATCHERS[one] for one in found}


@pytest.mark.parametrize("experts", [V3, replace(V3, groups=8, group_limit=4), Experts(count=8, top_k=2, ffn_hidden=1)])
def test_a_token_leaves_at_most_once_per_destination_and_once_per_expert(experts: Experts) -> None:
    many = np.array([float(n) for n in (1, 2, 4, 8, 16, 32, 64) if n <= experts.count])
    copies = copies_sent(many, experts)
    assert np.all(copies <= np.minimum(many, experts.top_k) + 1e-9)
    assert all(one < two for one, two in pairwise(copies.tolist()))


def test_copies_are_those_of_routers_that_were_drawn() -> None:
    random = np.random.default_rng(0)
    for experts in (V3, replace(V3, groups=8, group_limit=4)):
        for domains in (4, 8):
            found = []
            for _ in range(4000):
                allowed = np.arange(256)
                if experts.group_limit:
                    groups = random.choice(experts.groups, experts.group_limit, replace=False)
                    allowed = allowed[np.isin(allowed // 32, groups)]
                chosen = random.choice(allowed, 8, replace=False)
                found.append(len(set(chosen // (256 // domains))))
            assert float(copies_sent(np.array(float(domains)), experts)) == pytest.approx(np.mean(found), rel=0.02)


@pytest.mark.parametrize(("count", "top_k"), [(128, 8), (128, 6), (512, 22), (32, 4), (256, 8)])
def test_copies_of_a_router_that_deals_in_order_are_those_of_its_tokens(count: int, top_k: int) -> None:
    experts, tokens = Experts(count=count, top_k=top_k, ffn_hidden=1), np.arange(count)
    dealt = (tokens[:, None] * top_k + np.arange(top_k)) % count
    many = np.array([1.0, 2.0, 8.0, float(count)])
    counted = [np.mean([len(set(row)) for row in dealt // int(count // n)]) for n in many]
    assert copies_dealt(many, experts).tolist() == pytest.approx(counted)


def test_only_routing_that_is_forced_is_dealt_in_order() -> None:
    job, one = over_efa(), np.ones(1)
    took = {}
    for dealt in (False, True):
        for forced in (False, True):
            features = replace(job.stack.features, dealt_in_order=dealt, balanced_experts=forced)
            own = replace(job, stack=replace(job.stack, features=features))
            took[dealt, forced] = float(all_to_all_seconds(own, 2.0 * 7168, 4096 * one, 64 * one, one, "deepep")[0])
    assert took[True, False] == took[False, False] == took[False, True]
    assert took[True, True] < took[False, True] / 2


def test_the_exchange_of_64_h800_runs_at_the_rate_that_was_measured() -> None:
    """50 GB/s over RDMA at EP 64 (deepseek-ai/DeepEP, docs/legacy.md), counted by the copies between nodes."""
    job = replace(over_efa(), cluster=load_cluster("h800"), gpus=64, stack=replace(load_stack("megatron-core")))
    bare = {"network_efficiency": 1.0, "scale_up_efficiency": 1.0, "collective_skew": 1e-6}
    job = replace(job, stack=replace(job.stack, parameters={**job.stack.parameters, **bare}))
    tokens, ones = np.array([4096.0]), np.ones(1)
    limited = copies_sent(np.array([8.0]), job.model.experts or V3)
    took = all_to_all_seconds(job, 2.0 * 7168, tokens, 64.0 * ones, ones, "deepep")
    rate = float((tokens * 2.0 * 7168 * limited * (7 / 8) / took)[0])
    assert rate == pytest.approx(50e9, rel=0.1)


def test_every_dispatcher_costs_nothing_alone_and_more_with_more_tokens() -> None:
    job, ones = over_efa(), np.ones(3)
    for which in KINDS:
        assert all_to_all_seconds(job, 1e4, 100 * ones, ones, ones, which).tolist() == [0.0] * 3
        rising = all_to_all_seconds(job, 1e4, np.array([1e2, 1e3, 1e4]), 32 * ones, ones, which)
        assert rising[0] < rising[1] < rising[2]


def test_threads_that_post_token_by_token_bound_deepep_over_efa_of_the_second_generation() -> None:
    """2.3 us for each of 2,048 tokens that leave for one other node; all-to-all sends whole buffers."""
    inner, outer = over_efa().cluster.tiers[:2]
    job = replace(
        over_efa(), cluster=replace(over_efa().cluster, tiers=(inner, replace(outer, link=load_link("efa-v2"))))
    )
    posts = replace(job, stack=replace(job.stack, features=replace(job.stack.features, posts_tokens=True)))
    ones = np.ones(1)
    took, alike = (
        {which: float(all_to_all_seconds(each, 4096.0, 2048 * ones, 16 * ones, ones, which)[0]) for which in KINDS}
        for each in (posts, job)
    )
    assert took["alltoall"] == alike["alltoall"]
    assert took["deepep"] - alike["deepep"] > 1e-3
    assert took["deepep"] == pytest.approx(2048 * 2.3e-6, rel=0.15)


@pytest.mark.parametrize(
    ("which", "ranks", "inside", "across"),
    [
        ("deepep", 8, (8, 7 / 8, 0.78), (1, 0.0, 1.0, 0.0)),
        ("deepep", 16, (16, 7 / 8, 0.78), (2, 1 / 2, 0.5, 2e-9)),
        ("deepep", 64, (64, 7 / 8, 0.78), (8, 7 / 8, 0.25, 5e-9)),
        ("hybridep", 16, (16, 7 / 8, 0.6), (2, 1 / 2, 0.5, 2e-9)),
        ("hybridep", 64, (64, 7 / 8, 0.6), (8, 7 / 8, 0.25, 5e-9)),
    ],
)
def test_an_exchange_takes_the_slower_of_its_legs(
    which: str,
    ranks: int,
    inside: tuple[int, float, float],
    across: tuple[int, float, float, float],
) -> None:
    """8 GPUs of a node, 32 of a rail at half the rate of a rank's NIC, and a spine at a quarter: copies among so many,
    their share that leaves, of the bandwidth so much; a message costs a thread on the host so long.
    """
    job = over_efa()
    inner, rail, spine = job.cluster.tiers
    tiers = [inner]
    for tier, size, share, posted in ((rail, 32, 0.5, 2e-9), (spine, 1000, 0.25, 5e-9)):
        quantities = {"pairwise_large_share": share, "posted_message": posted, "nic_latency": 1.0}
        tiers.append(replace(tier, size=size, link=replace(tier.link, quantities=quantities)))
    rates = {"network_efficiency": 0.9, "scale_up_efficiency": 0.8, "collective_skew": 1e-3}
    features = replace(job.stack.features, posts_tokens=True)
    stack = replace(job.stack, parameters={**job.stack.parameters, **rates}, features=features)
    job = replace(job, stack=stack, cluster=replace(job.cluster, tiers=tuple(tiers)))
    one, row, tokens = np.ones(1), 1000.0, 4096.0
    took = all_to_all_seconds(job, row, tokens * one, ranks * one, one, which)
    destinations, leaving, reached = inside
    near = row * float(copies_sent(np.array(float(destinations)), V3_OF_4)) * leaving / (900e9 * reached * 0.8)
    domains, away, share, posted = across
    wait = max(row / (100e9 * share * 0.9), posted)
    far = float(copies_sent(np.array(float(domains)), V3_OF_4)) * away * wait
    call = 4e-4 if domains > 1 else 0.0
    assert float(took[0]) == pytest.approx(tokens * max(near, far) + 1e-3 * np.log2(ranks) + call)


def test_dispatch_in_fp8_is_half_as_long_in_the_forward_pass() -> None:
    job = replace(over_efa(), cluster=load_cluster("h800"), dtype="fp8", gpus=256)
    narrow = replace(job, stack=replace(job.stack, features=replace(job.stack.features, fp8_dispatch=True)))
    plan = Plan(ep=64, pp=4, dp=64, num_microbatches=4, dispatcher="deepep")
    wide, half = (float(price(one, Plans.of([plan])).time["ep_communication"][0]) for one in (job, narrow))
    # of the four exchanges of a mixture one takes 1.03 bytes an element instead of 2
    assert half / wide == pytest.approx((3 + 1.03 / 2) / 4, rel=0.02)


@pytest.mark.parametrize("cluster", ["efa", "dgx-b300"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_no_pin_on_the_dispatcher_finds_a_faster_plan(cluster: str, recompute: str) -> None:
    job = over_efa()
    stack = replace(job.stack, features=replace(job.stack.features, dispatchers=DISPATCHERS))
    job = replace(job, gpus=64, global_batch=64, stack=stack)
    job = job if cluster == "efa" else replace(job, cluster=load_cluster(cluster))
    job = job.with_limits(fixed={"recompute": recompute, "tp": 8}, max_micro_batch=4)
    plans = Plans.joined(list(lattice(job, structural(job))))
    best: dict[Plan, float] = {}
    for plan, step in zip(plans.plans(), price(job, plans).step_time.tolist(), strict=True):
        same = replace(plan, dispatcher="alltoall")
        best[same] = min(step, best.get(same, np.inf))
    for name in DISPATCHERS:
        asked = job.with_limits(fixed={**job.limits.fixed, "dispatcher": name})
        pinned = Plans.joined(list(lattice(asked, structural(asked))))
        steps = price(asked, pinned).step_time.tolist()
        assert len(pinned) > 100
        for plan, step in zip(pinned.plans(), steps, strict=True):
            assert best[replace(plan, dispatcher="alltoall")] <= step * (1 + 1e-9)


def test_a_stack_without_kernels_of_its_own_has_one_dispatcher() -> None:
    job = replace(over_efa(), stack=load_stack("megatron-bridge-2025"), gpus=64, global_batch=64)
    assert job.stack.dispatchers == ("alltoall",)
    asked = job.with_limits(fixed={"dispatcher": "deepep", "tp": 8, "recompute": "none"})
    assert sum(len(plans) for plans in lattice(asked, structural(asked))) == 0


def test_groups_that_no_network_joins_take_forever_without_a_warning() -> None:
    job = replace(over_efa(), cluster=load_cluster("rtx-4090-8"), gpus=8, stack=load_stack("megatron-core"))
    columns = {**{key: np.ones(2, dtype=np.int64) for key in KEYS}, "cp": np.array([4, 16]), "ep": np.array([4, 16])}
    rows, _ = useful_dispatchers(job, columns)
    assert 0 in rows
