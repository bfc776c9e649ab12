"""Which layers the pipeline stages hold, for many plans at once: three that represent an even split, or all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from optimizer.model import Model
from optimizer.objectives.kernels.operators import FloatArray
from optimizer.plan import SCHEDULES, Placement, Plans, virtual_stages
from optimizer.recomputation import RECOMPUTE

STAGES = "stages"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One representative stage of every plan: its layers by kind, and whether it holds embedding and head.

    `in_flight` is the number of micro-batches whose activations it keeps at most (fractional under interleaving).
    `exists` is False where a plan has no such stage. `mtp` of the layers predict further tokens. `spared` are the dense
    and MoE layers that a plan under full recomputation does not rebuild (None: it rebuilds all).
    """

    dense: FloatArray
    moe: FloatArray
    embedding: FloatArray
    head: FloatArray
    in_flight: FloatArray
    exists: FloatArray
    mtp: FloatArray | float = 0.0
    spared: tuple[FloatArray, FloatArray] | None = None

    @property
    def counts(self) -> tuple[FloatArray, ...]:
        """Layers by what they cost: dense, MoE, and those of either kind that are spared."""
        if self.spared is None:
            return self.dense, self.moe
        return self.dense - self.spared[0], self.moe - self.spared[1], *self.spared

    @property
    def layers(self) -> FloatArray:
        """Layers of both kinds."""
        return self.dense + self.moe


def filled_stages(model: Model, pp: int) -> tuple[int, ...]:
    """Layers of each stage of a software that fills them one after the other with layers and head by their products.

    A stage is full when its layers and those before have reached its share of all operations, the head's counting as
    well, and keeps the layer that reached it. Stages that this leaves empty are listed after the first one.

    Source: huggingface/nanotron, src/nanotron/models/base.py, build_model, and get_block_compute_costs of
    src/nanotron/models/llama.py, whose count of a layer's products (4 hidden^2 + 3 hidden ffn_hidden) this takes.

    >>> from optimizer.presets import load_model
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


def layer_counts(model: Model) -> tuple[int, int]:
    """Dense and MoE layers of the whole model, prediction layers among those of the last kind.

    >>> from optimizer.presets import load_model
    >>> layer_counts(load_model("deepseek-v3"))
    (3, 59)
    """
    if model.experts is None:
        return model.dense_layers + model.mtp_layers, 0
    return model.dense_layers, model.moe_layers + model.mtp_layers


def stages_of(model: Model, plans: Plans) -> tuple[Stage, ...]:
    """Representative stages of an even split; every stage where some plan says where its layers lie."""
    return representative_stages(model, plans) if plans.placements is None else placed_stages(model, plans)


def representative_stages(model: Model, plans: Plans) -> tuple[Stage, Stage, Stage]:
    """First, busiest middle and last stage; without pipelining the first holds everything.

    The middle one is the first that holds no leading dense layers any more: a MoE layer costs more time and memory.
    """
    known = plans.memo.get(STAGES)
    if known is None or known[0] is not model:
        known = plans.memo[STAGES] = model, _representatives(model, plans)
    found: tuple[Stage, Stage, Stage] = known[1]
    return found


def _representatives(model: Model, plans: Plans) -> tuple[Stage, Stage, Stage]:
    pp = plans.pp.astype(np.float64)
    first, middle, last = _counts(model, plans)
    several, deep = (pp > 1).astype(np.float64), (pp > 2).astype(np.float64)
    dense_ahead = float(model.experts.first_dense_layers) if model.experts else float(model.layers)
    leading = dense_ahead if model.experts else 0.0
    dense_stages = np.ceil(np.maximum(0.0, leading - first) / np.maximum(middle, 1.0))
    one = np.ones_like(pp)

    def stage(
        count: FloatArray, before: FloatArray, number: FloatArray, ends: tuple[FloatArray, FloatArray], here: FloatArray
    ) -> Stage:
        dense, moe = _kinds(model, count, np.maximum(0.0, dense_ahead - before))
        embedding, head = ends
        mtp = model.mtp_layers * head if model.mtp_layers else 0.0
        dense, moe = (dense + mtp, moe) if model.experts is None else (dense, moe + mtp)
        held = in_flight(plans, number)
        return Stage(dense=dense, moe=moe, embedding=embedding, head=head, in_flight=held, exists=here, mtp=mtp)

    second = np.minimum(1 + dense_stages, np.maximum(pp - 2, 1))
    return (
        stage(first, 0 * pp, 0 * pp, (one, 1 - several), one),
        stage(middle, model.layers - last - middle, second, (0 * pp, 0 * pp), deep),
        stage(last, model.layers - last, pp - 1, (0 * pp, several), several),
    )


def placed_stages(model: Model, plans: Plans) -> tuple[Stage, ...]:
    """Every stage of every plan, as many as the deepest pipeline has; MoE layers of a stage are rebuilt before others.

    Plans that do not place their layers have them split evenly. Prediction layers lie with the head or `mtp_ahead`
    virtual stages before it, and are rebuilt whenever recomputation is full.
    """
    placements = plans.placements or (Placement(),) * len(plans)
    depth = int(plans.pp.max(initial=1))
    chosen = (plans.recompute == RECOMPUTE.index("full")).tolist()
    rows: dict[tuple[Placement, int, int, bool], list[int]] = {}
    for row, key in enumerate(zip(placements, plans.pp.tolist(), plans.vpp.tolist(), chosen, strict=True)):
        rows.setdefault(key, []).append(row)
    columns = np.zeros((5, depth, len(plans)))
    for (placed, pp, vpp, rebuilds), alike in rows.items():
        columns[:, :pp, alike] = _held(model, placed, pp, vpp, rebuilds)[:, :, None]
    dense, moe, mtp, spared_dense, spared_moe = columns
    dense, moe = (dense + mtp, moe) if model.experts is None else (dense, moe + mtp)
    stage_numbers = np.arange(depth, dtype=np.float64)[:, None]
    return tuple(
        Stage(
            dense=dense[stage],
            moe=moe[stage],
            embedding=np.full(len(plans), float(stage == 0)),
            head=(plans.pp == stage + 1).astype(np.float64),
            in_flight=in_flight(plans, np.minimum(stage_numbers[stage], plans.pp - 1)),
            exists=(plans.pp > stage).astype(np.float64),
            mtp=mtp[stage],
            spared=(spared_dense[stage], spared_moe[stage]),
        )
        for stage in range(depth)
    )


def _held(model: Model, placed: Placement, pp: int, vpp: int, rebuilds: bool) -> FloatArray:
    """Dense, MoE and prediction layers on each stage of one plan, and the dense and MoE layers that it spares."""
    counts = np.array(virtual_stages(placed.layers, model.layers, pp, vpp))
    held = counts.reshape(vpp, pp).sum(axis=0)
    columns = np.zeros((5, pp))
    if model.experts:
        edges = np.concatenate([[0], np.cumsum(counts)])
        moe_before = np.concatenate([[0], np.cumsum(moe_pattern(model))])
        columns[1] = np.diff(moe_before[np.minimum(edges, model.layers)]).reshape(vpp, pp).sum(axis=0)
    columns[0] = held - columns[1]
    columns[2, (pp * vpp - 1 - placed.mtp_ahead) % pp] = model.mtp_layers
    if placed.rebuilt and rebuilds:
        columns[3] = np.maximum(0, np.minimum(columns[0], held - np.array(placed.rebuilt)))
        columns[4] = np.maximum(0, columns[1] - np.array(placed.rebuilt))
    return columns


def stacked(stages: Sequence[Stage]) -> Stage:
    """Stages as one whose columns have a row per stage."""

    def rows(columns: Iterable[FloatArray | float]) -> FloatArray:
        return np.stack(np.broadcast_arrays(*columns))

    spared = None
    if all(stage.spared for stage in stages):
        dense, moe = zip(*(stage.spared for stage in stages if stage.spared), strict=True)
        spared = rows(dense), rows(moe)
    names = [f.name for f in fields(Stage) if f.name != "spared"]
    return Stage(**{name: rows(getattr(stage, name) for stage in stages) for name in names}, spared=spared)


def moe_pattern(model: Model) -> NDArray[np.int64]:
    """1 for every layer with a mixture of experts, 0 for every dense one, in the order of the model.

    >>> from optimizer.presets import load_model
    >>> moe_pattern(load_model("deepseek-v3"))[:5].tolist()
    [0, 0, 0, 1, 1]
    """
    pattern = np.zeros(model.layers, dtype=np.int64)
    if model.experts:
        first, every = model.experts.first_dense_layers, model.experts.every
        pattern[first + every - 1 :: every] = 1
    return pattern


def in_flight(plans: Plans, stage: FloatArray) -> FloatArray:
    """Micro-batches whose activations a stage keeps at its peak [micro-batches].

    1F1B: min(m, pp - stage). Interleaved, at most m: ((vpp - 1) pp + 2 (pp - stage - 1) + 1) / vpp. Zero-bubble
    schedules keep activations until the weight gradient is done: min(m, pp) on every stage, 2 pp - 1 under ZB-2p.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; Korthikanti et al., arXiv 2205.05198, section 4.2.3; Qi et
    al., arXiv 2401.10241, section 2.3.
    """
    pp, vpp = plans.pp, plans.vpp
    left = pp - stage
    held = np.where(vpp > 1, ((vpp - 1) * pp + 2 * left - 1) / vpp, left)
    if np.any(plans.schedule >= SCHEDULES.index("zero-bubble")):
        held = np.where(plans.schedule == SCHEDULES.index("zero-bubble"), pp, held)
        held = np.where(plans.schedule == SCHEDULES.index("zero-bubble-2p"), 2 * pp - 1, held)
    return np.minimum(plans.num_microbatches, held)


def _counts(model: Model, plans: Plans) -> tuple[FloatArray, FloatArray, FloatArray]:
    pp = plans.pp.astype(np.float64)
    most = np.ceil(model.layers / pp)
    missing = most * pp - model.layers
    last = most - (missing >= 1) * (pp > 1)
    first = most - (missing >= 2)
    middle = most - (missing >= pp)
    return first, middle, last


def _kinds(model: Model, count: FloatArray, dense_left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split a stage's layers into dense and MoE, `dense_left` dense layers leading the rest of the model."""
    if model.experts is None:
        return count, np.zeros_like(count)
    leading = np.minimum(count, dense_left)
    moe = (count - leading) / model.experts.every
    return count - moe, moe
