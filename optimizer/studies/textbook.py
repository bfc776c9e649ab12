"""The formulas that textbooks teach, slips included: what several acts work out, apart from how it is shown.

First-order estimates of a job known only by its number of parameters: people make them before they have a model of
their cluster. Act I: a data-parallel step by the document's constants (`LAB`) or the datasheets' (`corrected`). Act II:
a design TP x PP x DP for GPT-3 on 1,024 H100 by the document's rules; the slips of the Learn tab name the errors.
The formulas are those of the cost model wherever it has them; the planner uses none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log2

from optimizer.base.errors import InputError
from optimizer.objectives.network.collectives import ring_all_reduce_time, volume_per_rank
from optimizer.objectives.pipeline.schedules import bubble_fraction

GRADIENT_BYTES = 2  # per parameter, in half precision
SEQUENCE = 2048  # tokens, which the document names and its FLOPs forget
COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)
CLAIMED = {8: 0.52, 64: 0.38, 512: 0.19}  # MFU by GPUs in the message of act I
NVLINK, INFINIBAND = "nvlink", "infiniband"
FABRICS = (NVLINK, INFINIBAND)
GPUS, PARAMS = 1024, 175e9  # of act II
HBM = 80e9  # of a GPU [B]
CEILING = 0.10  # largest bubble
WEIGHT_BYTES, STATE_BYTES, ACTIVATIONS = 2, 8, 8e9
SHARDED = {3: 2, 2: 2, 1: 12}  # bytes of weights, gradients and states by the stage of ZeRO that first shards them
DEGREES = 64  # largest tp, pp and number of micro-batches offered
GOOD = 0.40  # MFU from which on a design counts as good
# what can be wrong with a design, what cannot run first
KINDS = ("product does not divide", "out of memory", "tensor parallelism crosses nodes", "bubble over its ceiling")


def dense_flops(params: float, tokens: float, *, recomputed: bool = False) -> float:
    """Operations of a forward and backward pass: 2 x params x tokens x 3, or x 4 with recomputation [FLOP].

    Source: Kaplan et al., arXiv 2001.08361, section 2.1; Narayanan et al., arXiv 2104.04473, equation 3 (factor 4).

    >>> dense_flops(2e9, 2048 * 16, recomputed=True) / 8 / 1e12
    65.536
    """
    return 2.0 * params * tokens * (4.0 if recomputed else 3.0)


def serial_mfu(compute: float, communication: float, reference: float) -> float:
    """MFU when nothing of the communication hides: reference x compute / (compute + communication) [1].

    `compute` [s] is the time at the MFU `reference` without communication, `communication` [s].

    >>> serial_mfu(3.0, 1.0, 0.52)
    0.39
    """
    return reference * compute / (compute + communication)


def sharded_memory(
    params: float, tp: int, pp: int, *, weight_bytes: float, state_bytes: float, activations: float
) -> float:
    """Memory of a GPU: (weight_bytes + state_bytes) x params / (tp x pp) + activations [B].

    `weight_bytes` and `state_bytes` [B per parameter], `activations` [B] of one GPU.

    >>> sharded_memory(1e9, 2, 1, weight_bytes=2, state_bytes=8, activations=1e9) / 1e9
    6.0
    """
    return (weight_bytes + state_bytes) * params / (tp * pp) + activations


def zero_bytes(stage: int, ranks: int) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states of a GPU at a stage of ZeRO [B per parameter].

    2, 2 and 12 with Adam in mixed precision, each over `ranks` from its stage of SHARDED on.

    Source: Rajbhandari et al., arXiv 1910.02054, section 3.1 and figure 1: 7.5 billion parameters on 64 GPUs take 120,
    31.4, 16.6 and 1.9 GB.

    >>> [round(7.5 * sum(zero_bytes(stage, 64)), 1) for stage in range(4)]
    [120.0, 31.4, 16.6, 1.9]
    """
    weights, gradients, states = (each / ranks if stage >= first else float(each) for first, each in SHARDED.items())
    return weights, gradients, states


def rule_of_thumb_mfu(base: float, *, tp: int, dp: int, bubble: float, tp_slowdown: float = 1.0) -> float:
    """MFU from a base by rules of thumb: 5 % lost per doubling of tp, the bubble, 2 % per doubling of dp [1].

    base x (1 - 0.05 log2(tp) x tp_slowdown) x (1 - bubble) x (1 - 0.02 log2(dp)), clipped to [0, base];
    `tp_slowdown` is the bandwidth inside a node over the one that tp uses.

    Source: assumed form of a teaching lab on parallelism; not fitted to anything.

    >>> round(rule_of_thumb_mfu(0.52, tp=8, dp=32, bubble=3 / 32), 4)
    0.3605
    """
    share = (1.0 - 0.05 * log2(tp) * tp_slowdown) * (1.0 - bubble) * (1.0 - 0.02 * log2(dp))
    return max(0.0, min(base, base * share))


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the formulas are fed with."""

    name: str  # whose constants they are
    peak: float  # of a GPU [FLOP/s]
    nvlink: float  # rate inside a node [B/s]
    infiniband: float  # rate between nodes [B/s]
    tokens_per_sequence: int  # that are counted
    reference: float = 0.52  # MFU without communication [1]
    node: int = 8  # GPUs that NVLink connects


LAB = Constants(name="the document's", peak=1979e12, nvlink=900e9, infiniband=400e9, tokens_per_sequence=1)


@cache
def corrected() -> Constants:
    """The datasheets' constants: dense peak, one-way rates per GPU, all tokens of a sequence.

    >>> h100 = corrected()
    >>> h100.peak / 1e12, h100.nvlink / 1e9, h100.infiniband / 1e9, h100.tokens_per_sequence
    (989.5, 450.0, 50.0, 2048)
    """
    from optimizer.catalog import load_device, load_link

    return Constants(
        name="the datasheets'",
        peak=load_device("h100").peak("bf16"),
        nvlink=load_link("nvlink4").bandwidth,
        infiniband=load_link("infiniband-ndr").bandwidth,
        tokens_per_sequence=SEQUENCE,
    )


@dataclass(frozen=True, kw_only=True)
class DataParallel:
    """`billions` of parameters on `gpus` replicas, each with `batch` sequences a step; gradients are added up over
    `fabric`, and over InfiniBand as soon as the replicas fill more than a node.

    >>> step = DataParallel(gpus=64)
    >>> round(step.all_reduce * 1e3, 3), round(step.compute * 1e3, 3), step.forced
    (68.906, 1.306, True)
    """

    billions: float = 7
    gpus: int = 8
    batch: float = 32
    fabric: str = NVLINK
    constants: Constants = LAB

    def __post_init__(self) -> None:
        if self.fabric not in FABRICS:
            raise InputError(f"unknown fabric {self.fabric!r}; use one of {', '.join(FABRICS)}")
        low = {name: getattr(self, name) for name in ("billions", "gpus", "batch") if getattr(self, name) <= 0}
        if low:
            raise InputError("; ".join(f"{name} must be positive, but got {value}" for name, value in low.items()))

    @property
    def gradients(self) -> float:
        """Gradients of the model [B]."""
        return GRADIENT_BYTES * 1e9 * self.billions

    @property
    def sent(self) -> float:
        """What a GPU sends to add the gradients up: 2 (N - 1) / N of them [B]."""
        return float(volume_per_rank("all_reduce", self.gradients, self.gpus))

    @property
    def forced(self) -> bool:
        """Whether NVLink was asked for but does not reach."""
        return self.fabric == NVLINK and self.gpus > self.constants.node

    @property
    def uses(self) -> str:
        """The fabric that the gradients really cross."""
        return INFINIBAND if self.forced else self.fabric

    @property
    def bandwidth(self) -> float:
        """The rate of that fabric [B/s]."""
        return self.constants.nvlink if self.uses == NVLINK else self.constants.infiniband

    @property
    def all_reduce(self) -> float:
        """Time to add the gradients up, in a ring without latency [s].

        >>> [round(DataParallel(gpus=gpus).all_reduce * 1e3, 3) for gpus in (8, 64, 512)]
        [27.222, 68.906, 69.863]
        """
        return float(ring_all_reduce_time(self.gradients, self.gpus, 0.0, 1.0 / self.bandwidth))

    @property
    def flops(self) -> float:
        """Operations of a GPU's forward and backward pass: 6 x parameters x tokens [FLOP]."""
        return dense_flops(1e9 * self.billions, self.batch * self.constants.tokens_per_sequence)

    @property
    def compute(self) -> float:
        """Time of those at the reference MFU [s].

        >>> round(DataParallel().compute * 1e3, 3), round(DataParallel(constants=corrected()).compute, 2)
        (1.306, 5.35)
        """
        return self.flops / (self.constants.peak * self.constants.reference)

    @property
    def ratio(self) -> float:
        """Communication over computation [1]."""
        return self.all_reduce / self.compute

    @property
    def mfu(self) -> float:
        """MFU where nothing of the communication hides behind the computation [1].

        >>> [round(100 * DataParallel(gpus=gpus).mfu, 1) for gpus in (8, 64, 512)]
        [2.4, 1.0, 1.0]
        """
        return serial_mfu(self.compute, self.all_reduce, self.constants.reference)


def curve(step: DataParallel, fabric: str, counts: Sequence[int] = COUNTS) -> tuple[float, ...]:
    """MFU of this step at each number of GPUs, over this fabric where it reaches [1]."""
    return tuple(replace(step, gpus=count, fabric=fabric).mfu for count in counts)


@dataclass(frozen=True, kw_only=True)
class LabDesign:
    """GPT-3 cut into `tp` x `pp`, with `microbatches` in each step of a pipeline.

    >>> design = LabDesign(tp=8, pp=4, microbatches=8)
    >>> design.dp, round(design.memory / 1e9, 2), 100 * design.bubble, round(100 * design.mfu, 2)
    (32, 118.69, 9.375, 36.05)
    """

    tp: int = 8
    pp: int = 4
    microbatches: int = 8

    def __post_init__(self) -> None:
        low = {name: getattr(self, name) for name in ("tp", "pp", "microbatches") if getattr(self, name) < 1}
        if low:
            raise InputError("; ".join(f"{name} must be at least 1, but got {value}" for name, value in low.items()))

    @property
    def ranks(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp

    @property
    def dp(self) -> int:
        """Whole replicas on the GPUs."""
        return GPUS // self.ranks

    @property
    def divides(self) -> bool:
        """Whether the replicas fill the GPUs."""
        return GPUS % self.ranks == 0

    @property
    def weights(self) -> float:
        """Weights of a GPU in half precision [B]."""
        return sharded_memory(PARAMS, self.tp, self.pp, weight_bytes=WEIGHT_BYTES, state_bytes=0, activations=0)

    @property
    def states(self) -> float:
        """Optimizer states of a GPU [B]."""
        return sharded_memory(PARAMS, self.tp, self.pp, weight_bytes=0, state_bytes=STATE_BYTES, activations=0)

    @property
    def activations(self) -> float:
        """Activations of a GPU by the document's rule, 8 GB x tp [B]."""
        return ACTIVATIONS * self.tp

    @property
    def memory(self) -> float:
        """Memory that a GPU needs [B]."""
        return self.weights + self.states + self.activations

    @property
    def fits(self) -> bool:
        """Whether that is no more than the GPU has."""
        return self.memory <= HBM

    @property
    def bubble(self) -> float:
        """The document's bubble, (pp - 1) / (pp m) [1]; it is that of pp m - pp + 1 micro-batches.

        >>> LabDesign(tp=8, pp=16, microbatches=8).bubble
        0.1171875
        """
        return float(bubble_fraction(self.pp, 1, self.pp * self.microbatches - self.pp + 1))

    @property
    def exact_bubble(self) -> float:
        """Share of its time that a stage of 1F1B waits, (pp - 1) / (m + pp - 1) [1].

        >>> round(LabDesign().exact_bubble, 3)
        0.273
        """
        return float(bubble_fraction(self.pp, 1, self.microbatches))

    @property
    def crosses(self) -> bool:
        """Whether a tensor-parallel group is larger than a node."""
        return self.tp > LAB.node

    @property
    def slowdown(self) -> float:
        """How much slower the network of a tensor-parallel group is than NVLink [1]."""
        return LAB.nvlink / LAB.infiniband if self.crosses else 1.0

    @property
    def mfu(self) -> float:
        """MFU by rules of thumb [1]."""
        return rule_of_thumb_mfu(
            LAB.reference, tp=self.tp, dp=max(1, self.dp), bubble=self.bubble, tp_slowdown=self.slowdown
        )

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong with it by the document's rules."""
        return not self.failures

    @property
    def good(self) -> bool:
        """Whether it passes and its MFU is what the document calls good."""
        return self.passes and self.mfu >= GOOD

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that is wrong with it, of KINDS.

        >>> LabDesign(tp=16, pp=3, microbatches=1).failures == KINDS
        True
        """
        failed = (not self.divides, not self.fits, self.crosses, self.bubble > CEILING)
        return tuple(kind for kind, is_so in zip(KINDS, failed, strict=True) if is_so)


def best_by_rule() -> LabDesign:
    """The design that the document's own rules would choose: the highest MFU of those with nothing wrong.

    It has no tensor parallelism, since by these rules that only costs:

    >>> best_by_rule()
    LabDesign(tp=1, pp=64, microbatches=64)
    """
    powers = [1 << power for power in range(7)]
    # More micro-batches only make the bubble smaller.
    every = (LabDesign(tp=tp, pp=pp, microbatches=DEGREES) for tp in powers for pp in powers)
    return max((design for design in every if design.passes), key=lambda design: design.mfu)
