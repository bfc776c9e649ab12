"""Act III: the roofline of a linear layer cut in two dimensions, with the constants of the document behind it."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.objectives.kernels.roofline import (
    WORDS,
    LayerWork,
    LinearLayer,
    RooflineRates,
    forward_backward_work,
    gradient_work,
)

UTILISATION = 0.8  # of compute and memory, assumed by the document
EIGHT_BIT, MEMORY, DUPLEX = 1979e12, 3352e9, 900e9  # H100 SXM5, by the document: FLOP/s dense in 8 bits, B/s, B/s
INPUTS, OUTPUTS = 16384, 5 * 16384


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A layer of 16,384 x 81,920 on tp_in x tp_out x dp H100, `tokens` of all replicas together.

    `one_way` counts what is received against half of the duplex rate instead of the sum of both directions against all
    of it.

    >>> sheet = Sheet()
    >>> round(1e6 * sheet.time, 3), sheet.bound, round(1e6 * sheet.gradients, 1)
    (32.554, 'compute', 27.1)
    >>> Sheet(one_way=True).bound
    'network'
    """

    tp_in: int = 8
    tp_out: int = 40
    dp: int = 32
    tokens: int = 32768
    element_bytes: int = 2
    one_way: bool = False

    @property
    def layer(self) -> LinearLayer:
        """The layer as it is cut."""
        return LinearLayer(
            inputs=INPUTS,
            outputs=OUTPUTS,
            tp_in=self.tp_in,
            tp_out=self.tp_out,
            dp=self.dp,
            element_bytes=self.element_bytes,
        )

    @property
    def passes(self) -> float:
        """Words on the wire per word that is summed [1]."""
        return 2.0 if self.one_way else WORDS

    @property
    def rates(self) -> RooflineRates:
        """What a GPU reaches."""
        return RooflineRates(
            flops=UTILISATION * EIGHT_BIT / self.element_bytes,
            memory=UTILISATION * MEMORY,
            network=DUPLEX / 2 if self.one_way else DUPLEX,
        )

    @property
    def work(self) -> LayerWork:
        """Operations and bytes of a GPU, forward and backward."""
        return forward_backward_work(self.layer, float(self.tokens), self.passes)

    @property
    def time(self) -> float:
        """The slowest resource's time [s]."""
        return self.work.time(self.rates)

    @property
    def bound(self) -> str:
        """The slowest resource."""
        return self.work.bound(self.rates)

    @property
    def gradients(self) -> float:
        """Time of the gradients' all-reduce at the end of a batch [s]."""
        return gradient_work(self.layer, self.passes).time(self.rates)
