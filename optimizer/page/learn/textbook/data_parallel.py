"""Act I: what a data-parallel step of a model known only by its number of parameters takes, by a textbook's formulas.

The document that the act follows has constants of its own (`LAB`); `corrected` are the datasheets'. With either the
formulas stay the same, and they are those of the cost model wherever it has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from optimizer.base.errors import InputError
from optimizer.objectives.network.collectives import ring_all_reduce_time, volume_per_rank
from optimizer.page.learn.textbook.first_order import dense_flops, serial_mfu

GRADIENT_BYTES = 2  # per parameter, in half precision
SEQUENCE = 2048  # tokens, which the document names and its FLOPs forget
COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)
TOLD = {8: 0.52, 64: 0.38, 512: 0.19}  # MFU by GPUs, as the message of the act tells it
FLOOR = 0.40  # MFU that the document calls the least a practitioner should accept
NVLINK, INFINIBAND = "nvlink", "infiniband"
FABRICS = (NVLINK, INFINIBAND)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the formulas are fed with: `peak` [FLOP/s], rates of both fabrics [B/s], tokens counted per sequence.

    `reference` is the MFU [1] without communication, `node` the GPUs that NVLink connects.
    """

    name: str
    peak: float
    nvlink: float
    infiniband: float
    tokens_per_sequence: int
    reference: float = 0.52
    node: int = 8


LAB = Constants(name="the document's", peak=1979e12, nvlink=900e9, infiniband=400e9, tokens_per_sequence=1)


@cache
def corrected() -> Constants:
    """The datasheets' constants: dense peak, one-way rates per GPU, all tokens of a sequence.

    >>> found = corrected()
    >>> found.peak / 1e12, found.nvlink / 1e9, found.infiniband / 1e9, found.tokens_per_sequence
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
    def params(self) -> float:
        """Parameters of the model [1]."""
        return self.billions * 1e9

    @property
    def gradients(self) -> float:
        """Gradients of the model [B]."""
        return GRADIENT_BYTES * self.params

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
        return dense_flops(self.params, self.batch * self.constants.tokens_per_sequence)

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
    return tuple(
        DataParallel(billions=step.billions, gpus=count, batch=step.batch, fabric=fabric, constants=step.constants).mfu
        for count in counts
    )
