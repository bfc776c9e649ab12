"""Parameters that one GPU holds of a layer of each kind, and over how many replicas they are repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.job.model import NOTHING, Model
from optimizer.job.plan import IntArray, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray, joined, mapped
from optimizer.objectives.kernels.operators import keys_values_width, padded_vocab
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP, kinds_of


@dataclass(frozen=True, kw_only=True)
class LocalParameters:
    """Elements on one GPU."""

    shared: FloatArray  # replicated over dp * cp ranks, in elements of two bytes
    experts: FloatArray  # replicated over dp * cp * tp / (ep * etp)
    trained_shared: FloatArray  # of which it has a gradient and optimizer state
    trained_experts: FloatArray  # the same of experts

    @property
    def both(self) -> FloatArray:
        """All elements that it holds."""
        return self.shared + self.experts

    @classmethod
    def all_trained(cls, shared: FloatArray, experts: FloatArray) -> LocalParameters:
        """Elements that are all trained."""
        return cls(shared=shared, experts=experts, trained_shared=shared, trained_experts=experts)


def parameters(model: Model, plans: Plans) -> Mapping[str, LocalParameters]:
    """Elements of one layer of every kind that the model has, of the embedding and of the head [elements].

    Tied embeddings are stored twice where the pipeline is split. An MTP layer has a 2 hidden -> hidden projection
    and three norms besides, and the embedding where it is not at hand.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; Megatron-LM, megatron/core/models/gpt/gpt_model.py.
    """
    tp, nothing = plans.tp.astype(np.float64), np.zeros(len(plans))
    words = padded_vocab(model.vocab, tp) * model.hidden / tp
    # Positions and the norm behind them are not split; nor is the bias of the head by more than its words.
    embedding = words + (model.embedding_params - model.vocab * model.hidden)
    copied = np.where(plans.pp > 1, 1.0, 0.0) if model.tied_embeddings else 1.0
    head = words * copied + model.final_norm_params + (padded_vocab(model.vocab, tp) / tp if model.head_bias else 0.0)
    by_kind = {
        EMBEDDING: LocalParameters.all_trained(shared=embedding, experts=nothing),
        HEAD: LocalParameters.all_trained(shared=head, experts=nothing),
        DENSE: _mean_layer(model, plans, moe=False),
    }
    if model.experts:
        by_kind[MOE] = _mean_layer(model, plans, moe=True)
    if model.mtp_layers:
        layer = by_kind.get(MOE, by_kind[DENSE])
        projection = 2.0 * model.hidden**2 / tp + 3.0 * model.norm_params
        lookup = np.where(plans.pp > 1, embedding, 0.0) / model.mtp_layers
        by_kind[MTP] = LocalParameters.all_trained(shared=layer.shared + projection + lookup, experts=layer.experts)
    return by_kind


def whole_model(model: Model, each: Mapping[str, LocalParameters]) -> LocalParameters:
    """Elements of all stages together on the ranks of one pipeline, from those of one of every kind [elements]."""
    counts = kinds_of(model)
    columns = {
        column.name: np.asarray(sum(counts[kind] * getattr(elements, column.name) for kind, elements in each.items()))
        for column in fields(LocalParameters)
    }
    return LocalParameters(**columns)


def _mean_layer(model: Model, plans: Plans, *, moe: bool) -> LocalParameters:
    """A layer with experts, or one without, in the mean of those that mix tokens differently."""
    kinds = model.kinds_with(moe)
    each = [_layer(kind.model, plans, moe=moe) for kind in kinds]
    if len(each) == 1:
        return each[0]
    shares = [kind.count / sum(kind.count for kind in kinds) for kind in kinds]
    shared, experts = (
        sum(share * getattr(layer, part) for share, layer in zip(shares, each, strict=True))
        for part in ("shared", "experts")
    )
    return LocalParameters.all_trained(shared=np.asarray(shared), experts=np.asarray(experts))


def _layer(model: Model, plans: Plans, *, moe: bool) -> LocalParameters:
    """A layer of a model of one kind: routed experts split over ep and etp, the rest over tp, but for what every rank
    has: routers, vectors, projections to a latent width.
    """
    tp, experts = plans.tp.astype(np.float64), model.experts
    if not moe or experts is None:
        mlp = 0 if model.feed_forwards == NOTHING else model.mlp_params(model.ffn_hidden)
        return LocalParameters.all_trained(shared=_mixer(model, tp) + mlp / tp, experts=np.zeros(len(plans)))
    shared = model.mlp_params(experts.shared_ffn_hidden) if experts.shared_ffn_hidden else 0
    outside = model.mixer_weights + model.mixer_vectors + model.norm_vectors + shared
    gates = model.moe_shared_params - outside
    routed = experts.count * model.expert_params / (plans.ep * plans.etp)
    return LocalParameters.all_trained(
        shared=_mixer(model, tp) + gates + shared / tp, experts=routed.astype(np.float64)
    )


def _mixer(model: Model, tp: FloatArray) -> FloatArray:
    """Projections around what mixes tokens and all vectors of a layer on one TP rank [elements].

    Key-value heads are copied where there are fewer than ranks; the down-projections of latent attention, the indexer
    and the vectors are on every rank. Of a recurrence every matrix is split.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/attention.py and multi_latent_attention.py.
    """
    vectors = model.mixer_vectors + model.norm_vectors
    if not model.has_attention:
        return model.mixer_weights / tp + vectors
    vectors += model.indexer_weights
    out = model.v_dim * model.hidden / tp
    if model.mla is None:
        wide = model.q_dim / tp + keys_values_width(model, tp) + model.gate_dim / tp
        return model.hidden * wide + out + vectors
    mla = model.mla
    down = model.hidden * (mla.q_rank + mla.kv_rank + mla.rope_dim)
    up = (mla.q_rank or model.hidden) * model.q_dim + mla.kv_rank * model.heads * (mla.nope_dim + mla.v_dim)
    return down + (up + model.hidden * model.gate_dim) / tp + out + vectors


def replicas(plans: Plans) -> tuple[FloatArray, FloatArray]:
    """GPUs that hold the same shared parameters (dp * cp) and the same experts (dp * cp * tp / (ep * etp))."""
    shared = (plans.dp * plans.cp).astype(np.float64)
    return shared, np.maximum(1.0, shared * plans.tp / (plans.ep * plans.etp))


@dataclass(frozen=True, kw_only=True)
class Replicas(Rows):
    """Plans that differ in how parameters are repeated, and for each plan of a batch which of them."""

    WHOLE = ("plans", "whole", "known")

    plans: Plans
    rows: IntArray  # which of them each plan of the batch has
    whole: LocalParameters  # of all stages together on the ranks of one pipeline [elements]
    # what was found for these plans, by what it hangs on besides them and their job
    known: dict[tuple[float, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def whole_of_plans(self) -> LocalParameters:
        """`whole` of every plan of the batch."""
        taken: LocalParameters = mapped(self.whole, lambda column: column[self.rows])
        return taken

    @classmethod
    def joined(cls, parts: Sequence[Replicas]) -> Replicas:
        """Several as one: their distinct plans one after the other."""
        starts = np.cumsum([0] + [len(part.plans) for part in parts])
        return cls(
            plans=Plans.joined([part.plans for part in parts]),
            rows=np.concatenate([part.rows + start for part, start in zip(parts, starts[:-1], strict=True)]),
            whole=joined([part.whole for part in parts]),
        )


@dataclass(frozen=True, kw_only=True)
class Group:
    """The replicas of shared parameters or of experts, per plan."""

    part: str  # of which
    ranks: FloatArray  # how many
    stride: IntArray  # how far apart neighbours are [GPUs]
    shards: FloatArray  # over how many of them states are sharded
    hybrid: FloatArray  # groups over which ZeRO-3 repeats these shards, 0 where it does not
    reduced: FloatArray  # trained elements that a rank of the mean stage reduces [elements]

    @cached_property
    def divided(self) -> BoolArray:
        """Where they are several sharding groups."""
        return np.asarray(self.hybrid > 1)

    @cached_property
    def parts(self) -> FloatArray:
        """Shards of a sharding group that is one of several, else 1."""
        return np.where(self.divided, self.shards, 1.0)

    @cached_property
    def within(self) -> FloatArray:
        """Replicas of a sharding group, all where there is one."""
        return np.where(self.divided, self.shards, self.ranks)


def groups_of(plans: Plans, whole: LocalParameters) -> tuple[Group, ...]:
    """The replicas of whatever any of the plans holds, `whole` being the elements of all stages together."""
    of_parts = []
    for part, ranks, stride in groups(plans):
        elements = getattr(whole, f"trained_{part}")
        if part == "shared" or np.any(elements):
            shards, hybrid = shard_ranks(plans, ranks), hybrid_groups(plans, ranks)
            reduced = elements / plans.pp / np.where(hybrid > 1, shards, 1.0)
            of_parts.append(Group(part=part, ranks=ranks, stride=stride, shards=shards, hybrid=hybrid, reduced=reduced))
    return tuple(of_parts)


def groups(plans: Plans) -> tuple[tuple[str, FloatArray, IntArray], ...]:
    """For shared parameters and experts: which, how many replicas, and how far apart neighbours are."""
    shared, experts = replicas(plans)
    return ("shared", shared, plans.tp), ("experts", experts, plans.ep * plans.etp)


def shard_ranks(plans: Plans, ranks: FloatArray) -> FloatArray:
    """Ranks over which states are sharded: all replicas, or the plan's sharding group where it has one [1]."""
    return np.where(plans.shard > 0, np.minimum(plans.shard, ranks), ranks)


def hybrid_groups(plans: Plans, ranks: FloatArray) -> FloatArray:
    """Groups over which ZeRO-3 repeats the states that it shards inside each (HSDP); 0 where it shards over all.

    >>> from optimizer.job.plan import Plan
    >>> hybrid_groups(Plans.of([Plan(dp=64, zero_stage=3, shard=8), Plan(dp=64, zero_stage=3)]), np.full(2, 64.0))
    array([8., 0.])
    """
    grouped = (plans.zero_stage == 3) & (plans.shard > 0) & (plans.shard < ranks)
    return np.where(grouped, ranks / np.maximum(plans.shard, 1), 0.0)
