"""What the local shapes of a layer's operators depend on: one entry of every array for each shape of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.arrays import BoolArray, FloatArray, different

LAYER_KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel", "dispatcher", "overlap_exchange")
SHAPE_KEYS = (*LAYER_KEYS, "recompute", "activation_offload")
TRANSFER_KEYS = ("tp", "cp", "pp", "dp", "micro_batch", "sequence_parallel")
REPLICA_KEYS = ("tp", "cp", "ep", "etp", "pp", "dp", "zero_stage", "shard")
COST_KEYS = tuple(dict.fromkeys((*SHAPE_KEYS, *REPLICA_KEYS)))  # all but micro-batches, virtual stages and schedule


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """What a layer's local shapes depend on; arrays of one length.

    `tokens` are those of one micro-batch on one context-parallel rank: micro_batch * seq_len / cp. `dispatcher` are
    indices of DISPATCHERS, None for all-to-all everywhere; `overlap` says where the
    expert all-to-all overlaps with another micro-batch, None for nowhere; `eager` where graphs of parts capture nothing
    in software that has such graphs, None for nowhere. `documents` are lengths and how likely each is, by shape, where
    a sequence is not one document; `seq_len` is an array then, the tokens of it that are computed.
    """

    tp: FloatArray
    cp: FloatArray
    ep: FloatArray
    etp: FloatArray
    micro_batch: FloatArray
    sequence_parallel: BoolArray
    seq_len: int | FloatArray
    documents: tuple[FloatArray, FloatArray] | None = None
    dispatcher: NDArray[np.int64] | None = None
    overlap: BoolArray | None = None
    eager: BoolArray | None = None

    @property
    def tokens(self) -> FloatArray:
        """Tokens of one micro-batch on one context-parallel rank [tokens]."""
        return self.micro_batch * self.seq_len / self.cp

    @property
    def sp(self) -> FloatArray:
        """Ranks over which sequence parallelism splits norms and residuals (1 without it)."""
        return np.where(self.sequence_parallel, self.tp, 1.0)

    def busiest(self, imbalance: float) -> FloatArray:
        """Tokens of the busiest expert rank / mean [1]: a rank can have no more than all, and alone it has all.

        >>> one = np.ones(3)
        >>> shapes = Shapes(tp=one, cp=one, ep=np.array([1.0, 2.0, 8.0]), etp=one, micro_batch=one,
        ...     sequence_parallel=one > 2, seq_len=1)
        >>> shapes.busiest(4.0).tolist()
        [1.0, 2.0, 4.0]
        """
        return np.minimum(imbalance, self.ep)


def by_dispatcher(shapes: Shapes, value: Callable[[str], FloatArray | float]) -> FloatArray:
    """What each plan has under its own dispatcher.

    >>> one = np.ones(2)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=1,
    ...     dispatcher=np.array([0, 1]))
    >>> by_dispatcher(shapes, lambda which: float(len(which))).tolist()
    [8.0, 6.0]
    >>> from dataclasses import replace
    >>> by_dispatcher(replace(shapes, tp=one[:0], dispatcher=np.array([], dtype=int)), lambda which: 1.0).size
    0
    """
    if shapes.dispatcher is None or not shapes.dispatcher.size:
        return value(DISPATCHERS[0]) + np.zeros_like(shapes.tp)
    used = different(shapes.dispatcher).tolist()
    chosen = value(DISPATCHERS[used[0]]) + np.zeros_like(shapes.tp)
    for number in used[1:]:
        chosen = np.where(shapes.dispatcher == number, value(DISPATCHERS[number]), chosen)
    return chosen


def layer_keys(job: Job) -> tuple[str, ...]:
    """What of a plan the times of its layers depend on: recomputation, too, where graphs may capture parts of them."""
    return (*LAYER_KEYS, "recompute") if job.stack.features.graphed else LAYER_KEYS


def shapes_of(job: Job, plans: Plans) -> Shapes:
    """The local shapes of each plan's layers.

    Whole layers that are recomputed exclude graphs of parts.

    Source: NVIDIA-NeMo/Megatron-Bridge @067f987df, docs/training/cuda-graphs.md.
    """
    eager = plans.recompute == RECOMPUTE.index("full")
    columns = {name: getattr(plans, name).astype(np.float64) for name in LAYER_KEYS[:5]}
    return Shapes(
        **columns,
        sequence_parallel=plans.sequence_parallel,
        seq_len=job.seq_len,
        dispatcher=plans.dispatcher,
        overlap=plans.overlap_exchange if np.any(plans.overlap_exchange) else None,
        eager=eager if job.stack.features.graphed and np.any(eager) else None,
    )


def computed_shapes(job: Job, plans: Plans) -> Shapes:
    """The local shapes of what is computed in the mean: of padded documents up to the longest of their micro-batch.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=8, lengths="p0:100,p100:2048")
    >>> computed_shapes(job, Plans.of([Plan(micro_batch=size) for size in (1, 8)])).tokens.round().tolist()
    [503.0, 7240.0]
    """
    shapes, lengths = shapes_of(job, plans), job.documents
    if lengths is None:
        return shapes
    seq_len, shares = lengths.computed(shapes.micro_batch, job.seq_len), lengths.shares(shapes.micro_batch)
    return replace(shapes, seq_len=seq_len, documents=(lengths.sizes, shares))


def without_full(recompute: IntArray) -> IntArray:
    """Modes of recomputation with nothing recomputed where whole layers would be: what a spared layer has."""
    return np.where(recompute == RECOMPUTE.index("full"), RECOMPUTE.index("none"), recompute)
