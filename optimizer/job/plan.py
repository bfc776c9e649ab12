"""A parallelism plan, and many of them at once as a struct of arrays with the same field names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.job.rows import Rows
from optimizer.job.variables import SCHEDULES as SCHEDULES
from optimizer.job.variables import VARIABLES

IntArray = NDArray[np.int64]
DISPATCHER_TITLES = {"deepep": "DeepEP", "hybridep": "HybridEP"}


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Continuous settings, searched after the discrete plan."""

    bucket: float = 160e6  # gradient bucket of the data-parallel overlap [B]
    comm_sm_share: float = 0.12  # streaming multiprocessors that communication kernels take while they overlap [1]
    offload: float = 0.0  # share of the optimizer state on host [1]


@dataclass(frozen=True, kw_only=True)
class KnobColumns(Rows):
    """Knobs of many plans, one entry per plan or one row per setting; fields and units as in Knobs."""

    bucket: NDArray[np.float64]
    comm_sm_share: NDArray[np.float64]
    offload: NDArray[np.float64]


def balanced(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage when pp need not divide them: the last, then the first, then the other stages get one less.

    The last stage also computes the loss and the first the embedding, so they are relieved first.

    >>> balanced(126, 16)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    """
    most = -(-layers // pp)
    counts = [most] * pp
    for stage in [pp - 1, *range(pp - 1)][: most * pp - layers]:
        counts[stage] -= 1
    return tuple(counts)


def virtual_stages(layers: tuple[int, ...], total: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers on each virtual stage in the order of the forward pass: the first of every stage, then the second.

    `layers` may list them already, or the stages', whose layers are dealt to the virtual stages as evenly as possible,
    the last the first to get one less; empty stands for the balanced split.

    >>> virtual_stages((), 7, 2, 2), virtual_stages((3, 4), 7, 2, 2)
    ((2, 2, 2, 1), (2, 2, 1, 2))
    """
    if len(layers) == pp * vpp:
        return layers
    per_stage = layers or balanced(total, pp)
    return tuple(count // vpp + (virtual < count % vpp) for virtual in range(vpp) for count in per_stage)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the layers of one plan lie, if not as evenly as can be.

    >>> bool(Placement()), bool(Placement(layers=(3, 4)))
    (False, True)
    """

    layers: tuple[int, ...] = ()  # Plan.layers_per_stage
    recomputed: tuple[int, ...] = ()  # Plan.recompute_layers
    first: int = 0  # Plan.recompute_first
    mtp_ahead: int = 0  # Plan.mtp_ahead

    def __bool__(self) -> bool:
        return bool(self.layers or self.recomputed or self.first or self.mtp_ahead)

    @property
    def of_plan(self) -> dict[str, Any]:
        """As fields of Plan."""
        stages = {"layers_per_stage": self.layers, "recompute_layers": self.recomputed}
        return {**stages, "recompute_first": self.first, "mtp_ahead": self.mtp_ahead}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one training step is spread over the GPUs. Degrees multiply to the GPU count: tp * cp * pp * dp."""

    tp: int = 1  # tensor parallelism
    cp: int = 1  # context parallelism
    ep: int = 1  # expert parallelism; folds across cp * dp, as in Megatron-Core
    etp: int = 1  # tensor parallelism inside an expert
    pp: int = 1  # pipeline stages
    vpp: int = 1  # virtual stages of a stage
    dp: int = 1  # replicas
    micro_batch: int = 1  # sequences of a micro-batch
    num_microbatches: int = 1  # micro-batches of a replica per step
    sequence_parallel: bool = False  # activations between tensor-parallel products are split over tp
    zero_stage: int = 1  # 0 replicates; 1, 2, 3 shard optimizer state, gradients too, weights too
    shard: int = 0  # replicas of dp * cp that share a sharded state; 0: all of them
    recompute: str = "none"  # mode of optimizer.job.recomputation
    activation_offload: int = 0  # share on host of the activations that can go there [%]
    schedule: str = "1f1b"  # one of SCHEDULES
    dispatcher: str = "alltoall"  # one of DISPATCHERS
    overlap_exchange: bool = False  # the expert-parallel all-to-all is overlapped with another micro-batch
    # transformer layers of the pp stages, or of all pp * vpp virtual stages in the order of the forward pass; empty: as
    # even as can be
    layers_per_stage: tuple[int, ...] = ()
    recompute_layers: tuple[int, ...] = ()  # layers that each stage recomputes under full recomputation; empty: all
    # layers that every virtual stage recomputes instead, its first ones and no MTP layer; 0: as recompute_layers says
    recompute_first: int = 0
    mtp_ahead: int = 0  # virtual stages between the MTP layers and the head

    @property
    def placement(self) -> Placement:
        """Where its layers lie."""
        return Placement(
            layers=self.layers_per_stage,
            recomputed=self.recompute_layers,
            first=self.recompute_first,
            mtp_ahead=self.mtp_ahead,
        )

    def lying(self, placed: Placement) -> Plan:
        """The plan with its layers placed so."""
        return replace(self, **placed.of_plan)

    @property
    def gpus(self) -> int:
        """GPUs the plan occupies."""
        return self.tp * self.cp * self.pp * self.dp

    def summary(self) -> str:
        """One line a person can read.

        >>> Plan(tp=8, pp=4, dp=32, micro_batch=2, sequence_parallel=True).summary()
        'TP 8 SP, PP 4, DP 32, micro-batch 2, ZeRO-1'
        >>> Plan(tp=2, etp=2, dp=4).summary()
        'TP 2, ETP 2, PP 1, DP 4, micro-batch 1, ZeRO-1'
        >>> Plan(dp=64, zero_stage=3, shard=8).summary()
        'TP 1, PP 1, DP 64, micro-batch 1, ZeRO-3 over 8'
        """
        parts = [f"TP {self.tp}{' SP' if self.sequence_parallel else ''}"]
        parts += [f"CP {self.cp}"] * (self.cp > 1)
        experts = [f"{name} {degree}" for name, degree in (("EP", self.ep), ("ETP", self.etp)) if degree > 1]
        by = f" by {DISPATCHER_TITLES[self.dispatcher]}" if self.dispatcher in DISPATCHER_TITLES else ""
        overlapped = " overlapped" * self.overlap_exchange
        parts += [" x ".join(experts) + by + overlapped] if experts else []
        parts += [f"PP {self.pp}" + (f" x VPP {self.vpp}" if self.vpp > 1 else "")]
        sharding = f"ZeRO-{self.zero_stage}" + (f" over {self.shard}" if self.shard else "")
        parts += [f"DP {self.dp}", f"micro-batch {self.micro_batch}", sharding]
        parts += [f"{self.schedule} schedule"] * (self.schedule not in ("1f1b", "interleaved"))
        partly = self.recompute == "full" and (len(self.recompute_layers) > 0 or self.recompute_first > 0)
        parts += [f"{self.recompute} recompute"] * (self.recompute != "none" and not partly)
        parts += [f"{self.activation_offload}% of activations on the host"] * (self.activation_offload > 0)
        count = sum(self.recompute_layers)
        parts += [f"{count} layer{'s' * (count > 1)} recomputed"] * (partly and count > 0)
        where = "virtual stage" if self.vpp > 1 else "stage"
        parts += [f"{self.recompute_first} recomputed per {where}"] * (partly and self.recompute_first > 0)
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Plans(Rows):
    """Many plans as a struct of equally long arrays; `recompute`, `schedule` and `dispatcher` are indices into
    RECOMPUTE, SCHEDULES and DISPATCHERS.

    One code path prices one plan or a million: every cost function takes this and returns arrays of its length.
    """

    tp: IntArray
    cp: IntArray
    ep: IntArray
    etp: IntArray
    pp: IntArray
    vpp: IntArray
    dp: IntArray
    micro_batch: IntArray
    num_microbatches: IntArray
    sequence_parallel: NDArray[np.bool_]
    zero_stage: IntArray
    shard: IntArray
    recompute: IntArray
    activation_offload: IntArray
    schedule: IntArray
    dispatcher: IntArray
    overlap_exchange: NDArray[np.bool_]
    placements: tuple[Placement, ...] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def gpus(self) -> IntArray:
        """GPUs each plan occupies."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def global_batch(self) -> IntArray:
        """Sequences of one step of each plan."""
        return self.dp * self.micro_batch * self.num_microbatches

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> Plans:
        """Stack single plans, keeping where their layers lie if any of them says."""
        rows = list(plans)
        columns: dict[str, Any] = {}
        for name in FIELDS:
            values: Sequence[Any] = [getattr(row, name) for row in rows]
            variable = VARIABLES[name]
            if variable.names:
                values = [variable.names.index(value) for value in values]
            columns[name] = np.array(values, dtype=bool if variable.switch else np.int64)
        placements = tuple(row.placement for row in rows)
        return cls(**columns, placements=placements if any(placements) else None)

    def take(self, index: Any) -> Plans:
        """The plans at these positions (indices, mask or slice)."""
        some = super().take(index)
        if self.placements is None:
            return some
        return some.changed(placements=tuple(self.placements[i] for i in np.arange(len(self))[index]))

    @classmethod
    def joined(cls, parts: Sequence[Plans]) -> Plans:
        """Several batches of plans as one."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS}
        placed = [part.placements or (Placement(),) * len(part) for part in parts]
        several = tuple(chain.from_iterable(placed)) if any(part.placements for part in parts) else None
        return cls(**columns, placements=several)

    def placed(self, placements: Sequence[Placement]) -> Plans:
        """The same plans with their layers placed so."""
        return self.changed(placements=tuple(placements) if any(placements) else None)

    @cached_property
    def representatives(self) -> dict[tuple[str, ...], tuple[Plans, IntArray]]:
        """What optimizer.objectives.arrays.distinct has found of these plans, by the variables that it was asked for.

        A fit prices the same plans hundreds of times.
        """
        return {}

    def plan(self, index: int) -> Plan:
        """One plan of the batch as a scalar value."""
        return self.take([index]).plans()[0]

    def plans(self) -> list[Plan]:
        """Every plan as a scalar value."""
        columns = {name: getattr(self, name).tolist() for name in FIELDS}
        for name in FIELDS:
            if words := VARIABLES[name].names:
                columns[name] = [words[value] for value in columns[name]]
        placements = self.placements or (Placement(),) * len(self)
        return [
            Plan(**dict(zip(FIELDS, values, strict=True)), **placed.of_plan)
            for *values, placed in zip(*columns.values(), placements, strict=True)
        ]


FIELDS = tuple(f.name for f in fields(Plans) if f.name != "placements")
