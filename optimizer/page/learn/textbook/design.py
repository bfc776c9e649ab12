"""Act II: a design TP x PP x DP for GPT-3 on 1,024 H100, by a textbook's rules.

The rules are the document's, slips included; what is wrong with each is said in the slips of content/act_2.toml.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.base.errors import InputError
from optimizer.objectives.pipeline.schedules import bubble_fraction
from optimizer.page.learn.textbook.data_parallel import LAB
from optimizer.page.learn.textbook.first_order import rule_of_thumb_mfu, sharded_memory

GPUS = 1024
PARAMS = 175e9
LAYERS = 96
HBM = 80e9  # of a GPU [B]
CEILING = 0.10  # largest bubble
WEIGHT_BYTES, STATE_BYTES, ACTIVATIONS = 2, 8, 8e9
DEGREES = 64  # largest tp, pp and number of micro-batches offered
GOOD = 0.40  # MFU from which on a design counts as good
# what can be wrong with a design, what cannot run first
KINDS = (
    "product does not divide",
    "out of memory",
    "tensor parallelism crosses nodes",
    "bubble over its ceiling",
)


@dataclass(frozen=True, kw_only=True)
class Design:
    """GPT-3 cut into `tp` x `pp`, with `microbatches` in each step of a pipeline.

    >>> design = Design(tp=8, pp=4, microbatches=8)
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

        >>> Design(tp=8, pp=16, microbatches=8).bubble
        0.1171875
        """
        return float(bubble_fraction(self.pp, 1, self.pp * self.microbatches - self.pp + 1))

    @property
    def exact_bubble(self) -> float:
        """Share of its time that a stage of 1F1B waits, (pp - 1) / (m + pp - 1) [1].

        >>> round(Design().exact_bubble, 3)
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

        >>> Design(tp=16, pp=3, microbatches=1).failures == KINDS
        True
        """
        failed = (not self.divides, not self.fits, self.crosses, self.bubble > CEILING)
        return tuple(kind for kind, is_so in zip(KINDS, failed, strict=True) if is_so)


def best_by_rule() -> Design:
    """The design that the document's own rules would choose: the highest MFU of those with nothing wrong.

    It has no tensor parallelism, since by these rules that only costs:

    >>> best_by_rule()
    Design(tp=1, pp=64, microbatches=64)
    """
    powers = [1 << power for power in range(7)]
    every = (Design(tp=tp, pp=pp, microbatches=m) for tp in powers for pp in powers for m in range(1, DEGREES + 1))
    return max((design for design in every if design.passes), key=lambda design: design.mfu)
