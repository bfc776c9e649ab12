"""Act IV: what each strategy sends by a textbook's volumes, what a message costs on each kind of hop, and what the best
plan of a context really sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log10

import numpy as np

from optimizer.base.content import Values
from optimizer.job.hardware import Cluster, Device, Link, Tier
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.objectives.network.energy import network_energy, path, path_time, ring_time
from optimizer.objectives.network.topology import span
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.content_files import table
from optimizer.page.learn.priced import best, job_of, once, title
from optimizer.reports.charts.palette import PALETTE
from optimizer.studies.communication import CommunicationStudy, communication

PARAMS, LAYERS, HIDDEN = 175e9, 96, 12288  # of GPT-3
WIDTH = 2  # of weights, gradients and activations [B]
MANY = 10**6  # ranks for which (N - 1) / N is 1
WIDE_NODE = 200e9  # what the document calls InfiniBand's rate; 200 Gb/s are 25 GB/s
PORT = 25e9  # what 200 Gb/s really are [B/s]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What one GPU sends in a step by a strategy: its volume [B] in so many messages."""

    strategy: str
    volume: float
    messages: int


@dataclass(frozen=True, kw_only=True)
class Volumes:
    """GPT-3 by one strategy alone on `ranks` GPUs: `batch` sequences of `seq_len` tokens, `microbatches` of a pipeline.

    >>> [round(sent.volume / 1e9) for sent in Volumes(ranks=MANY).sent[:3]]
    [700, 1050, 1237]
    >>> Volumes().pipeline_messages, round(Volumes().pipeline_total / 1e9, 1)
    (448, 22.5)
    """

    ranks: int = 8
    batch: int = 32
    seq_len: int = 2048
    microbatches: int = 32

    @property
    def weights(self) -> float:
        """Weights, and gradients, in half precision [B]."""
        return WIDTH * PARAMS

    @property
    def activations(self) -> float:
        """A layer's output for the whole batch [B]."""
        return float(WIDTH * self.batch * self.seq_len * HIDDEN)

    @property
    def pipeline_messages(self) -> int:
        """Messages over all boundaries of stages in a step: there and back for each micro-batch [1]."""
        return 2 * self.microbatches * (self.ranks - 1)

    @property
    def pipeline_total(self) -> float:
        """Bytes over all boundaries of stages in a step [B]."""
        return 2.0 * (self.ranks - 1) * self.activations

    @property
    def sent(self) -> tuple[Sent, ...]:
        """Each strategy: DP, FSDP, TP and an inner stage of PP."""
        gathered = float(volume_per_rank("all_gather", self.weights, self.ranks))
        scattered = float(volume_per_rank("reduce_scatter", self.weights, self.ranks))
        sums, weights = (float(volume_per_rank("all_reduce", n, self.ranks)) for n in (self.activations, self.weights))
        inner = 2.0 * self.activations if self.ranks > 1 else 0.0
        return (
            Sent(strategy="DP", volume=weights, messages=1),
            Sent(strategy="FSDP", volume=2.0 * gathered + scattered, messages=3 * LAYERS),
            Sent(strategy="TP", volume=4 * LAYERS * sums, messages=4 * LAYERS),
            Sent(strategy="PP", volume=inner, messages=2 * self.microbatches),
        )


@dataclass(frozen=True, kw_only=True)
class HopRow:
    """A layer's communication over typed hops: bytes of a GPU [B], latency [s], energy on the links [J]."""

    layer: str
    mode: str
    volume: float
    latency: float
    energy: float


@cache
def two_nodes() -> Cluster:
    """Two nodes of eight with the document's links: 90 and 50 GB/s, 0.2 and 2 us, 5 and 25 pJ per bit."""
    nvlink = Link(name="NVLink at 90 GB/s", bandwidth=90e9, latency=0.2e-6, energy=5e-12)
    infiniband = Link(name="InfiniBand", bandwidth=50e9, latency=2e-6, energy=25e-12)
    return Cluster(
        name="two nodes of eight",
        device=Device(name="h100", peak_flops={}, memory=0, memory_nominal=0, memory_bandwidth=0),
        tiers=(Tier(name="node", link=nvlink, size=8), Tier(name="network", link=infiniband, size=16)),
    )


@cache
def hop_rows() -> Sequence[HopRow]:
    """LLaMA-3 8B in bf16, 2,048 tokens: data parallelism on 8 and 16, tensor parallelism, a pipeline's boundary.

    As the document has it: an MLP of two matrices, one pass of the all-reduce as the volume of a GPU, two messages of
    tensor parallelism over one hop, store and forward on every hop of a path.

    >>> [(row.layer, row.mode, round(1e3 * row.latency, 3)) for row in hop_rows()][1]
    ('attention', 'DP on 16', 6.713)
    """
    from optimizer.catalog import load_model

    llama, cluster = load_model("llama3-8b"), two_nodes()
    out = float(WIDTH * 2048 * llama.hidden)
    matrices = {"attention": 2.0 * llama.attention_weights, "MLP": 2.0 * 2 * llama.hidden * llama.ffn_hidden}
    rows = []
    for layer, message in matrices.items():
        for ranks in (8, 16):
            group = span(cluster, ranks, 1)
            volume = volume_per_rank("reduce_scatter", message, ranks)
            latency, energy = (cost("all_reduce", message, group, cluster) for cost in (ring_time, network_energy))
            rows.append((layer, f"DP on {ranks}", volume, latency, energy))
    for layer, mode, messages, tier, stride in (
        ("attention, MLP", "TP on 8", 2, 0, 1),
        ("block", "PP over NVLink", 1, 0, 1),
        ("block", "PP across nodes", 1, 1, 8),
    ):
        energy = network_energy("point_to_point", out, span(cluster, 2, stride), cluster)
        latency = path_time(out, path(cluster, tier), cluster)
        rows.append((layer, mode, np.asarray(messages * out), messages * latency, messages * energy))
    return tuple(
        HopRow(layer=layer, mode=mode, volume=float(volume), latency=float(latency), energy=float(energy))
        for layer, mode, volume, latency, energy in rows
    )


@cache
def facts() -> Values:
    """Volumes of the question, and their limits for many GPUs."""
    many = _by_name(Volumes(ranks=MANY))
    dp, fsdp = many["dp"].volume, many["fsdp"].volume
    times = {"dp_wide": dp / WIDE_NODE, "dp_port": dp / PORT, "fsdp_wide": fsdp / WIDE_NODE}
    return {"many": many, "eight": Volumes(), **times}


def shown(chosen: Values) -> Shown:
    """The reader's volumes, the hops, and the communication of a real plan."""
    volumes = Volumes(ranks=chosen["ranks"], batch=chosen["sequences"], microbatches=chosen["passing"])
    return Shown(
        values={"volumes": volumes, "others": volumes.ranks - 1, **_by_name(volumes)},
        charts={"act4-chart": lambda: volume_numbers(volumes), "act4-hops": hop_numbers},
        tables={"plan": lambda: plan_rows(chosen["context"])},
    )


def volume_numbers(volumes: Volumes) -> ChartNumbers:
    """Bytes of a GPU per step, strategy by strategy [GB]."""
    sent = volumes.sent
    values = [each.volume / 1e9 for each in sent]
    formulas = {line["what"]: line["formula"] for line in table("act_4.toml")["parts"]["lines"]["line"]}
    return ChartNumbers(
        series={"bars": Series(x=values, look={"color": list(PALETTE[:4])})},
        rows=[{"sent": each, "formula": formulas[each.strategy]} for each in sent],
        values={"most": max(sent, key=lambda each: each.volume)},
        xaxis={"range": [-0.5, 1 + log10(max(values))]},
    )


def hop_numbers() -> ChartNumbers:
    """Latency of a layer's communication over typed hops [ms], with its volume and energy as a table."""
    rows = hop_rows()
    values = [1e3 * row.latency for row in rows]
    colours = [PALETTE[0 if "DP" in row.mode else 1 if "TP" in row.mode else 2] for row in rows]
    return ChartNumbers(
        series={"bars": Series(x=values, look={"color": colours})},
        rows=[{"hop": row} for row in rows],
        values={"inside": rows[0], "across": rows[1]},
        xaxis={"range": [log10(min(values)) - 0.5, log10(max(values)) + 1.4]},
    )


@once
def study_of(context: str) -> CommunicationStudy:
    """The communication of the best plan of a context."""
    answer = best(context)
    if answer.plan is None:
        raise ValueError(f"{context} has no plan")
    return communication(job_of(context), answer.plan, answer.knobs)


def plan_rows(context: str) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
    """Caption, columns and rows of what the best plan of the context really sends, hop by hop."""
    study = study_of(context)
    rows = [
        [
            f"{row.traffic.parallelism.upper()}: {row.traffic.purpose}",
            row.traffic.kind.replace("_", " "),
            f"{row.traffic.ranks:,}",
            f"{row.traffic.per_step:,.0f}",
            f"{row.traffic.message / 1e6:,.1f} MB",
            *(f"{hop.sent / 1e6:,.1f} MB" if hop.traversals else "-" for hop in row.path),
            f"{1e3 * row.time_per_step:,.1f} ms",
        ]
        for row in study.rows
    ]
    hops = (f"sent in {tier.name}" for tier in study.job.cluster.tiers)
    columns = ["what", "collective", "ranks", "per step", "message", *hops, "time, bare"]
    return f"{title(context)}: {study.plan.summary()}", columns, rows


def _by_name(volumes: Volumes) -> dict[str, Sent]:
    return {each.strategy.lower(): each for each in volumes.sent}
