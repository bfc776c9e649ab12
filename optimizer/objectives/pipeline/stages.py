"""Which layers the pipeline stages hold, for many plans at once: three that represent an even split, or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.job.model import Model
from optimizer.job.plan import Placement, Plans, virtual_stages
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedules import both_ways, in_flight

EMBEDDING, DENSE, MOE, MTP, HEAD = "embedding", "dense", "moe", "mtp", "head"
LAYERS = (DENSE, MOE, MTP)  # kinds that recomputation applies to
FULL = RECOMPUTE.index("full")
Runs = tuple[tuple[str, int], ...]
Counts = Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Contents of pipeline stages; arrays have a row for each stage and a column for each plan.

    counts: layers by kind, embedding and head. recomputed: those of the layers that full recomputation recomputes.
    in_flight: micro-batches whose activations a stage keeps at most, fractional under interleaving. exists: 0 where a
    plan has no such stage.
    """

    counts: Counts
    recomputed: Counts
    in_flight: FloatArray
    exists: FloatArray


def filled_stages(model: Model, pp: int) -> tuple[int, ...]:
    """Layers of each stage of a software that fills them one after the other with layers and head by their products.

    A stage is full when its layers and those before have reached its share of all operations, the head's counting as
    well, and keeps the layer that reached it. Stages that this leaves empty are listed after the first one.

    Source: huggingface/nanotron, src/nanotron/models/base.py, build_model, and get_block_compute_costs of
    src/nanotron/models/llama.py, whose count of a layer's products (4 hidden^2 + 3 hidden ffn_hidden) this takes.

    >>> from optimizer.catalog import load_model
    >>> filled_stages(load_model("llama3-8b"), 4)
    (9, 9, 8, 6)
    """
    layer = 4 * model.heads * model.head_dim + 3 * model.ffn_hidden
    share = (model.layers * layer + model.vocab) / pp
    counts, done = [0] * pp, 0
    stage = 0
    for _ in range(model.layers):
        counts[stage] += 1
        done += layer
        if done >= (stage + 1) * share and stage < pp - 1:
            stage += 1
    used, empty = counts[: stage + 1], counts[stage + 1 :]
    return (*used[:1], *empty, *used[1:])


def kinds_of(model: Model) -> dict[str, float]:
    """How many of each kind the whole model has: embedding, layers, MTP layers, head.

    >>> from optimizer.catalog import load_model
    >>> kinds_of(load_model("deepseek-v3"))
    {'embedding': 1.0, 'dense': 3.0, 'moe': 58.0, 'mtp': 1.0, 'head': 1.0}
    """
    counts = {EMBEDDING: 1, DENSE: model.dense_layers, MOE: model.moe_layers, MTP: model.mtp_layers, HEAD: 1}
    present = {EMBEDDING, DENSE, HEAD} | ({MOE} if model.experts else set())
    return {kind: float(count) for kind, count in counts.items() if count or kind in present}


def layer_sequence(model: Model) -> Runs:
    """Runs of layers of one kind in the order of the model, from the embedding to the head.

    >>> from optimizer.catalog import load_model
    >>> layer_sequence(load_model("deepseek-v3"))
    (('embedding', 1), ('dense', 3), ('moe', 58), ('mtp', 1), ('head', 1))
    """
    kinds = [MOE if is_moe else DENSE for is_moe in moe_pattern(model)]
    runs = [(EMBEDDING, 1)]
    for kind in [*kinds, *[MTP] * model.mtp_layers, HEAD]:
        if runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return tuple(runs)


def stages_of(model: Model, plans: Plans) -> Stages:
    """Representative stages of an even split; every stage where some plan says where its layers lie, or runs its
    mirror's layers as well, or where layers with experts do not recur evenly.
    """
    few = plans.placements is None and not np.any(both_ways(plans)) and not model.feed_forwards
    return even_stages(model, plans) if few else placed_stages(model, plans)


def mean_stage(model: Model, plans: Plans) -> Stages:
    """What the stages of a plan hold in the mean, nothing recomputed: one row."""
    counts = {kind: (count / plans.pp)[None] for kind, count in kinds_of(model).items()}
    nothing = {kind: np.zeros((1, len(plans))) for kind in counts if kind in LAYERS}
    one = np.ones((1, len(plans)))
    return Stages(counts=counts, recomputed=nothing, in_flight=one, exists=one)


def even_stages(model: Model, plans: Plans) -> Stages:
    """First, busiest middle and last stage of an even split; without pipelining the first holds everything.

    The middle one is the first that holds no leading dense layers any more: an MoE layer costs more time and memory.
    MTP layers lie with the head. Full recomputation recomputes every layer.
    """
    pp = plans.pp.astype(np.float64)
    most = np.ceil(model.layers / pp)
    missing = most * pp - model.layers
    last = most - (missing >= 1) * (pp > 1)
    first = most - (missing >= 2)
    middle = most - (missing >= pp)
    several, deep = (pp > 1).astype(np.float64), (pp > 2).astype(np.float64)
    leading = float(model.experts.first_dense_layers) if model.experts else 0.0
    dense_stages = np.ceil(np.maximum(0.0, leading - first) / np.maximum(middle, 1.0))
    second = np.minimum(1 + dense_stages, np.maximum(pp - 2, 1))
    layers = np.stack([first, middle, last])
    nothing, one = np.zeros_like(pp), np.ones_like(pp)
    before = np.stack([nothing, model.layers - last - middle, model.layers - last])
    head = np.stack([1 - several, nothing, several])
    ahead = np.minimum(layers, np.maximum(0.0, leading - before))
    moe = (layers - ahead) / model.experts.every if model.experts else np.zeros_like(layers)
    counts = {EMBEDDING: np.stack([one, nothing, nothing]), DENSE: layers - moe, HEAD: head}
    counts |= {MOE: moe} if model.experts else {}
    counts |= {MTP: model.mtp_layers * head} if model.mtp_layers else {}
    full = (plans.recompute == FULL).astype(np.float64)
    return Stages(
        counts=counts,
        recomputed={kind: count * full for kind, count in counts.items() if kind in LAYERS},
        in_flight=in_flight(plans, np.stack([nothing, second, pp - 1])),
        exists=np.stack([one, deep, several]),
    )


def placed_stages(model: Model, plans: Plans) -> Stages:
    """Every stage of every plan, as many as the deepest pipeline has; its MoE layers are recomputed before others.

    Plans that do not place their layers have them split evenly. MTP layers lie with the head or `mtp_ahead`
    virtual stages before it. They are recomputed whenever recomputation is full, but where only the first layers of the
    virtual stages are. Where micro-batches enter at both ends, a stage runs half of them through its own layers and
    half through its mirror's: in the mean, half of both.

    Source: Megatron-LM core_v0.19.0, megatron/core/recompute.py (block) and transformer/multi_token_prediction.py.
    """
    placements = plans.placements or (Placement(),) * len(plans)
    depth = int(plans.pp.max(initial=1))
    full = (plans.recompute == FULL).tolist()
    mirrored = both_ways(plans)
    rows: dict[tuple[Placement, int, int, bool], list[int]] = {}
    for row, key in enumerate(zip(placements, plans.pp.tolist(), plans.vpp.tolist(), full, strict=True)):
        rows.setdefault(key, []).append(row)
    columns = np.zeros((5, depth, len(plans)))
    for (placed, pp, vpp, recomputes), alike in rows.items():
        layers = _layers_on_stages(model, placed, pp, vpp, recomputes)[:, :, None]
        columns[:, :pp, alike] = np.where(mirrored[alike], (layers + layers[:, ::-1]) / 2, layers)
    dense, moe, mtp, dense_recomputed, moe_recomputed = columns
    number = np.arange(depth, dtype=np.float64)[:, None]
    first, last = (number == 0) + 0.0 * mtp, (plans.pp == number + 1).astype(np.float64)
    ends = np.where(mirrored, (first + last) / 2, first), np.where(mirrored, (first + last) / 2, last)
    counts = {EMBEDDING: ends[0], DENSE: dense, HEAD: ends[1]}
    recomputed = {DENSE: dense_recomputed}
    if model.experts:
        counts[MOE], recomputed[MOE] = moe, moe_recomputed
    if model.mtp_layers:
        counts[MTP] = mtp
        recomputed[MTP] = mtp * (plans.recompute == FULL) * np.array([placed.first == 0 for placed in placements])
    return Stages(
        counts=counts,
        recomputed=recomputed,
        in_flight=in_flight(plans, np.minimum(number, plans.pp - 1)),
        exists=(plans.pp > number).astype(np.float64),
    )


def virtual_counts(model: Model, placed: Placement, pp: int, vpp: int) -> Counts:
    """How many of each kind every virtual stage holds, in the order of the forward pass.

    >>> from optimizer.catalog import load_model
    >>> counts = virtual_counts(load_model("deepseek-v3"), Placement(mtp_ahead=1), 16, 2)
    >>> [counts[kind][[0, 1, 30, 31]].tolist() for kind in (DENSE, MOE, MTP, HEAD)]
    [[2.0, 1.0, 0.0, 0.0], [0.0, 1.0, 2.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    counts = np.array(virtual_stages(placed.layers, model.layers, pp, vpp))
    edges = np.minimum(np.concatenate([[0], np.cumsum(counts)]), model.layers)
    moe = np.diff(np.concatenate([[0], np.cumsum(moe_pattern(model))])[edges]).astype(np.float64)
    number = np.arange(pp * vpp)
    by_kind = {EMBEDDING: number == 0, DENSE: counts - moe, HEAD: number == pp * vpp - 1}
    by_kind |= {MOE: moe} if model.experts else {}
    by_kind |= {MTP: model.mtp_layers * (number == pp * vpp - 1 - placed.mtp_ahead)} if model.mtp_layers else {}
    return {kind: here.astype(np.float64) for kind, here in by_kind.items()}


def _layers_on_stages(model: Model, placed: Placement, pp: int, vpp: int, recomputes: bool) -> FloatArray:
    """Dense, MoE and MTP layers on each stage of one plan, and the dense and MoE layers that it recomputes."""
    here = virtual_counts(model, placed, pp, vpp)
    columns = np.zeros((5, pp))
    for row, kind in enumerate((DENSE, MOE, MTP)):
        columns[row] = here[kind].reshape(vpp, pp).sum(axis=0) if kind in here else 0.0
    if recomputes and placed.first:
        counts = (here[DENSE] + here.get(MOE, 0.0)).astype(np.int64)
        moe_before = np.concatenate([[0], np.cumsum(moe_pattern(model))])
        recomputed, starts = np.minimum(counts, placed.first), np.minimum(np.cumsum(counts) - counts, model.layers)
        moe_recomputed = moe_before[np.minimum(starts + recomputed, model.layers)] - moe_before[starts]
        columns[3:] = [row.reshape(vpp, pp).sum(axis=0) for row in (recomputed - moe_recomputed, moe_recomputed)]
    elif recomputes:
        recomputed = np.array(placed.recomputed) if placed.recomputed else columns[0] + columns[1]
        columns[4] = np.minimum(columns[1], recomputed)
        columns[3] = np.minimum(columns[0], recomputed - columns[4])
    return columns


def moe_pattern(model: Model) -> NDArray[np.int64]:
    """1 for every layer with experts, 0 for every dense one, in the order of the model.

    >>> from optimizer.catalog import load_model
    >>> moe_pattern(load_model("deepseek-v3"))[:5].tolist()
    [0, 0, 0, 1, 1]
    """
    return np.array(model.moe_pattern, dtype=np.int64)
