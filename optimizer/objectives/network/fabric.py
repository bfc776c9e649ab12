"""The network outside the scale-up domain, by its parts: NICs, switches, and links with their optics."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from optimizer.catalog.economics import default_price

PORT = 50e9  # one port of 400 Gb/s, one way [B/s]
RADIX = 64  # ports of a switch


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """A folded Clos network of one to three levels. ports: of 400 Gb/s, per GPU [1]; levels: 0 without a network.

    oversubscription: bandwidth below / above the last level but one [1].
    """

    gpus: int
    ports: float
    levels: int
    oversubscription: float = 1.0

    @property
    def nics(self) -> int:
        """Network cards, in units of one port of 400 Gb/s."""
        return ceil(self.gpus * self.ports) if self.levels else 0

    @property
    def switches(self) -> int:
        """Switches of 64 ports.

        n (2 L - 1) / 64 without oversubscription; of the last level and what it hangs on only 2 / o of 2 are left.
        n: GPUs x ports, L: levels, o: oversubscription [1].

        Source: 8, 48 and 2,560 switches for 512, 1,024 and 32,768 H100 in the cluster-cost spreadsheet of 2024-08.

        >>> [fabric(gpus, 8, 1.0).switches for gpus in (512, 1024, 32768)]
        [8, 48, 2560]
        """
        if not self.levels:
            return 0
        each = 1.0 if self.levels == 1 else 2 * self.levels - 3 + 2.0 / self.oversubscription
        return ceil(self.gpus * self.ports * each / RADIX)

    @property
    def links(self) -> int:
        """Cables with the optics of both ends: one per port and level, those of the last level over o.

        >>> [fabric(gpus, 8, 1.0).links for gpus in (512, 1024, 32768)]
        [512, 2048, 98304]
        """
        if not self.levels:
            return 0
        each = 1.0 if self.levels == 1 else self.levels - 1 + 1.0 / self.oversubscription
        return ceil(self.gpus * self.ports * each)

    def price(self) -> float:
        """Price of its parts [USD]: switches and links; the NICs of the cluster as it is sold are in its servers.

        The spreadsheet's 1,728,000 USD of switches and 2,621,440 USD of optics and cables for 1,024 H100:

        >>> fabric(1024, 8, 1.0).price()
        4349440.0
        """
        return self.switches * default_price("switch_400g").value + self.links * default_price("link_400g").value

    def words(self) -> str:
        """The parts as they would be ordered.

        >>> fabric(2048, 8, 2.0).words()
        '4,096 NICs, 192 switches of 64 ports and 8,192 links with optics at 400 Gb/s'
        """
        if not self.levels:
            return "no network between machines"
        return (
            f"{self.nics:,} NICs, {self.switches:,} switches of {RADIX} ports and {self.links:,} links with optics "
            "at 400 Gb/s"
        )


def fabric(gpus: int, node: int, ports: float, oversubscription: float = 1.0) -> Fabric:
    """The network of `gpus` GPUs in nodes of `node`, each GPU on its own rail: as few levels as the switches allow.

    A rail of L levels joins 64 (32 ** (L - 1)) nodes.
    """
    nodes = ceil(gpus / node)
    levels = 0 if not ports or nodes == 1 else 1 if nodes <= RADIX else 2 if nodes <= RADIX * RADIX // 2 else 3
    return Fabric(gpus=gpus, ports=ports, levels=levels, oversubscription=oversubscription)
