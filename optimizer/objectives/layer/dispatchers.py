"""How routed tokens reach their experts and come back: what each dispatcher sends, how fast, and what a call costs.

all-to-all by NCCL sends a copy for every expert; DeepEP and HybridEP one for every scale-up domain, spread inside.

Source: deepseek-ai/DeepEP @dd758ca, docs/legacy.md (H800: 153 and 158 GB/s over NVLink of 200, 50 of 50 over RDMA at
EP 64) and branch hybrid-ep @94a9f8f (64 H100 36-48 GB/s, B200 EP 8 410-536, 36 GB200 361-479); NVIDIA/Megatron-LM
@3c1b98efdc, DeepSeek-V3 GB200 guide (DeepEP over 32 GB200: dispatch 400, combine 190 GB/s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb, gcd

import numpy as np

from optimizer.job.hardware import Cluster
from optimizer.job.job import Job
from optimizer.job.model import Experts
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.network.messages import collective
from optimizer.objectives.network.topology import Span, span

NARROW = 1.0 + 4.0 / 128  # bytes of an element that is sent in fp8, with one scale in fp32 for 128 of them
NODE = 8  # ranks of a domain up to which kernels written for one node keep their rate
SHARE = "pairwise_large_share"  # quantity of a link: the share of its bandwidth that an all-to-all reaches
DEEPEP_RANKS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160)
TOGETHER = 4  # HybridEP: experts of a scale-up domain are read so many at a time


@dataclass(frozen=True, kw_only=True)
class Dispatcher:
    """One way to send tokens to their experts and back."""

    name: str
    deduplicated: bool  # one copy of a token for each scale-up domain, not for each expert
    scale_up: float  # share of the link's bandwidth inside a scale-up domain of up to NODE ranks [1]
    wide: float  # the same of more ranks [1]
    network: float  # the same between domains [1]
    sms: int  # multiprocessors that it takes while it runs
    # host time of a call over a network whose messages a thread on the host has to send, besides what the stack loses
    # in every MoE layer [s]
    proxied: float


KINDS: Mapping[str, Dispatcher] = {
    kind.name: kind
    for kind in (
        Dispatcher(name="alltoall", deduplicated=False, scale_up=1.0, wide=1.0, network=1.0, sms=16, proxied=0.0),
        # 400 and 190 GB/s of 900 are 0.29 for both passes, and 0.35 as the guide tuned it, by which its step is a
        # second shorter; 536 of 900 are 0.6, which runs of Megatron-Bridge on GB200 bear out (0.47, 0.6 and 0.8 err by
        # 7.3, 6.3 and 5.6 %); proxied: scanned, AWS rows of 512 tokens a rank.
        Dispatcher(name="deepep", deduplicated=True, scale_up=0.78, wide=0.35, network=1.0, sms=24, proxied=4e-4),
        Dispatcher(name="hybridep", deduplicated=True, scale_up=0.6, wide=0.6, network=0.84, sms=16, proxied=4e-4),
    )
}


def copies_sent(destinations: FloatArray, experts: Experts) -> FloatArray:
    """Copies of a token that leave when each destination gets one, however many of its experts it serves [1].

    Expected number of distinct destinations of top_k different experts, each holding count / n of them:
    n (1 - C(E - E/n, k) / C(E, k)); where routing is limited to some groups of experts, no more than hold these.

    Source: DeepSeek-V3, arXiv 2412.19437, sections 2.1.2 (at most 4 nodes) and 3.2.2 (once per node);
    deepseek-ai/DeepEP @dd758ca, deep_ep/buffers/elastic.py.

    >>> many = np.array([1.0, 4.0, 8.0, 32.0])
    >>> copies_sent(many, Experts(count=256, top_k=8, ffn_hidden=2048)).round(2).tolist()
    [1.0, 3.61, 5.29, 7.27]
    >>> copies_sent(many, Experts(count=256, top_k=8, ffn_hidden=2048, groups=8, group_limit=4)).round(2).tolist()
    [1.0, 2.93, 3.63, 6.6]
    """
    distinct = np.unique(destinations)
    values = np.array([_copies(float(n), experts) for n in distinct])
    return np.asarray(values[np.searchsorted(distinct, destinations)])


@lru_cache(maxsize=4096)
def _copies(n: float, experts: Experts) -> float:
    """`copies_sent` for one number of destinations."""
    total, k, groups, limit = experts.count, experts.top_k, experts.groups, experts.group_limit
    if not limit or limit >= groups:
        return n * (1.0 - _none_of(total, total / n, k))
    # First `limit` of the groups are chosen, then k of the experts in these; a destination holds `mine` whole groups.
    allowed, each = total * limit / groups, total / groups
    if n > groups:
        return n * limit / groups * (1.0 - _none_of(allowed, total / n, k))
    mine = max(1, round(groups / n))
    ways = [comb(mine, j) * comb(groups - mine, limit - j) / comb(groups, limit) for j in range(min(mine, limit) + 1)]
    return n * sum(way * (1.0 - _none_of(allowed, j * each, k)) for j, way in enumerate(ways))


def _none_of(total: float, mine: float, chosen: int) -> float:
    """Probability that none of `chosen` different ones of `total` is among `mine` of them [1]."""
    probability = 1.0
    for one in range(chosen):
        probability *= max(0.0, (total - mine - one) / (total - one))
    return probability


def copies_dealt(destinations: FloatArray, experts: Experts) -> FloatArray:
    """Copies of a token that leave where experts are dealt in order [1]: token t has k t, ..., k t + k - 1 mod E.

    mean over s of min(n, floor((s + k - 1) / m) - floor(s / m) + 1), with m = E / n experts on each of n destinations
    and s the multiples of gcd(k, E) below E.

    Source: NVIDIA-NeMo/Automodel @36044ad, nemo_automodel/components/moe/layers.py, FakeBalancedGate.

    >>> many = np.array([1.0, 8.0, 64.0])
    >>> copies_dealt(many, Experts(count=128, top_k=8, ffn_hidden=768)).tolist()
    [1.0, 1.0, 4.0]
    >>> float(copies_dealt(np.array(8.0), Experts(count=128, top_k=6, ffn_hidden=1856)))
    1.25
    """
    first = np.arange(0, experts.count, gcd(experts.top_k, experts.count), dtype=np.float64)
    mine = (experts.count / np.asarray(destinations, dtype=np.float64))[..., None]
    served = np.floor((first + experts.top_k - 1) / mine) - np.floor(first / mine) + 1.0
    return np.asarray(np.minimum(destinations, served.mean(axis=-1)))


def _distinct(job: Job, destinations: FloatArray, experts: Experts) -> FloatArray:
    """Copies of a token that leave when each destination gets one, as the job routes [1]."""
    dealt = job.stack.features.dealt_in_order and job.stack.routing_forced
    return (copies_dealt if dealt else copies_sent)(destinations, experts)


def copies(job: Job, which: str, ranks: FloatArray, group: Span) -> FloatArray:
    """Copies of a routed token that its rank sends [1]: one for each of its experts, or for each domain or rank."""
    experts = job.model.experts
    if experts is None or not KINDS[which].deduplicated:
        return np.full_like(ranks, float(experts.top_k if experts else 0))
    domains = group.domains(0)
    return _distinct(job, np.where(domains > 1, domains, ranks).astype(np.float64), experts)


def all_to_all_seconds(
    job: Job, row: FloatArray | float, tokens: FloatArray, ranks: FloatArray, stride: FloatArray, which: str
) -> FloatArray:
    """Time of one dispatch or combine of `tokens` of a rank, `row` bytes each, among (ranks, stride) [s].

    all-to-all: the collective, a row for every expert. Else the slower of the two legs that run at once,
    tokens x row x copies x (1 - 1 / n) / (share x bandwidth): between the domains with n domains, and inside them,
    where every rank gets a copy of its own, with n members. Both wait as every collective of the step does. Where
    threads on the host send every token by itself, none leaves a rank faster than they post it.

    Source: DeepEP's kernels for several nodes forward what RDMA brings over NVLink while more arrives.
    """
    kind, experts = KINDS[which], job.model.experts
    whole, apart = ranks.astype(np.int64), stride.astype(np.int64)
    alone = np.zeros(np.shape(tokens))
    if experts is None or np.all(whole <= 1):
        return alone
    group = span(job.cluster, whole, apart)
    call = proxied_seconds(job.cluster, which, group)
    if not kind.deduplicated:
        return collective(job, "all_to_all", row * tokens * experts.top_k, ranks, stride) + call
    domains, members = group.domains(0).astype(np.float64), group.members[0].astype(np.float64)
    narrow = np.where(members > NODE, kind.wide, kind.scale_up)
    inner = job.cluster.scale_up.bandwidth * narrow * job.stack["scale_up_efficiency"]
    inside = _distinct(job, ranks, experts) * (1.0 - 1.0 / members) / inner
    token = np.maximum(row / _network_rate(job, kind, group), posted_seconds(job, group))
    across = _distinct(job, domains, experts) * (1.0 - 1.0 / domains) * token
    skew = job.stack["collective_skew"] * np.log2(np.maximum(ranks, 1.0))
    return np.where(ranks > 1, tokens * np.maximum(row * inside, across) + skew + call, 0.0)


def posted_seconds(job: Job, group: Span) -> FloatArray:
    """Time in which threads on the host post one token's message to a network that needs them [s], else 0.

    Source: UCCL, arXiv 2512.19849 (its proxies write token by token); the link's time is fitted.
    """
    slowest = np.zeros(group.size.shape)
    for number, tier in enumerate(job.cluster.tiers[1:] if job.stack.features.posts_tokens else (), start=1):
        used = group.members[number] > group.members[number - 1]
        slowest = np.where(used, np.maximum(slowest, tier.link.quantities.get("posted_message", 0.0)), slowest)
    return slowest


def proxied_seconds(cluster: Cluster, which: str, group: Span) -> FloatArray:
    """Host time of one call where a network's messages pass through a thread on the host [s]."""
    needed = any("nic_latency" in tier.link.quantities for tier in cluster.tiers[1:])
    return np.where(group.domains(0) > 1, KINDS[which].proxied if needed else 0.0, 0.0)


def _network_rate(job: Job, kind: Dispatcher, group: Span) -> FloatArray:
    """What a rank sends out of its domain, over the slowest tier that its group uses [B/s]."""
    rate = np.full(group.size.shape, np.inf)
    for number, tier in enumerate(job.cluster.tiers[1:], start=1):
        used = group.members[number] > group.members[number - 1]
        share = min(kind.network, tier.link.quantities.get(SHARE, 1.0))
        rate = np.where(used, np.minimum(rate, tier.bandwidth * share * job.stack["network_efficiency"]), rate)
    return rate


def row_bytes(job: Job, which: str) -> float:
    """Bytes of a token on its way to the experts in software that sends it in fp8: only some dispatchers can [B]."""
    return (NARROW if KINDS[which].deduplicated else 2.0) * job.model.routed_width


def runs_over(job: Job, dispatcher: str, ep: IntArray, etp: IntArray) -> BoolArray:
    """Whether the dispatcher runs over groups of ep x etp ranks.

    DeepEP as training software calls it has settings for DEEPEP_RANKS and no other number; its ports to AMD are taken
    to be as free as all-to-all. HybridEP asks for whole fours of experts in a scale-up domain. Both send hidden sizes
    of whole 16 bytes, which every model has.

    Source: deepseek-ai/DeepEP @dd758ca, deep_ep/buffers/legacy.py, get_dispatch_config, and branch hybrid-ep @94a9f8f,
    csrc/hybrid_ep/config.cuh, is_valid; NVIDIA/Megatron-LM core_v0.19.0, megatron/core/transformer/moe/fused_a2a.py
    (the group is that of tensor and expert ranks).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("deepseek-v2-lite"), cluster=load_cluster("dgx-h100"),
    ...     stack=load_stack("megatron-core"), gpus=64, seq_len=4096, global_batch=512)
    >>> ep, etp = np.array([2, 8, 64, 8, 64]), np.array([1, 1, 1, 5, 4])
    >>> [runs_over(job, name, ep, etp).tolist() for name in ("deepep", "hybridep")]
    [[True, True, True, False, False], [True, True, True, True, True]]
    """
    ranks = ep * etp
    experts = job.model.experts
    if dispatcher == "deepep" and job.cluster.device.vendor == "NVIDIA":
        return np.asarray(np.isin(ranks, DEEPEP_RANKS))
    if dispatcher == "hybridep" and experts:
        near = np.minimum(ranks, job.cluster.scale_up_size)
        return np.asarray(experts.count // ep * near % TOGETHER == 0)
    return np.ones(len(ranks), dtype=np.bool_)
