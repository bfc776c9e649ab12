"""How fast NCCL-like software drives a link: latency and share of the bandwidth for each protocol.

A protocol costs base + steps x step + bytes / (share x bandwidth): small messages go by low-latency protocols (LL,
LL128, few channels), large ones by those that fill the link, and the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from optimizer.base.units import parse
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.job.hardware import Link

RING = ("ll", "ll128", "simple")
PAIRWISE = ("small", "large")
REFERENCE_EFFICIENCY = 0.8  # of the links behind the default shares
_DIMENSION = {"us": "s", "1": "1"}


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Latency of a collective [s] and of each of its steps [s], and the share of the link's bandwidth it reaches."""

    base: float
    step: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The protocols of one link.

    `ring` (as RING) serves rings and trees, `pairwise` (as PAIRWISE) all-to-all and point-to-point, `in_switch` the
    reduction inside a switch (None: it has none). Shares of `*_copy` are the rate at which a rank moves its own part
    of the buffer / link bandwidth (infinite: free). `tree` is what a tree reaches of the rate of a ring.
    """

    ring: tuple[Protocol, ...]
    pairwise: tuple[Protocol, ...]
    in_switch: Protocol | None
    gather_copy: float
    reduce_copy: float
    pairwise_copy: float
    tree: float = 1.0
    in_switch_ranks: float = 2.0

    def copy(self, kind: str) -> float:
        """Share of the link's bandwidth at which a rank moves its own part in this collective."""
        return {"all_reduce": self.reduce_copy, "all_to_all": self.pairwise_copy}.get(kind, self.gather_copy)


def profile(link: Link, network: bool = False) -> Profile:
    """Protocols of a link of the scale-up domain, or of the network between such domains.

    >>> profile(Link(name="mine", bandwidth=50e9, latency=2e-6, efficiency=0.9), network=True).ring[2].step
    1.6e-05
    """
    return _profile(*_described(link), link.in_switch_reduction, network)


def quantities(link: Link, network: bool = False) -> dict[str, float]:
    """Latencies [s] and shares [1] of a link's protocols, by name.

    The rows of its name in presets/nccl.csv are measured and complete: `latency`, `efficiency` and `half_message` of
    such a link are not used. Any other link is described by its own fields and `quantities` over NCCL's tables: the
    latency is added to each network hop, Simple reaches `efficiency` in steps of at least half_message / that rate.
    """
    return _quantities(*_described(link), network)


_Description = tuple[str, float, float, float, tuple[tuple[str, float], ...]]


def _described(link: Link) -> _Description:
    """What of a link its protocols depend on, hashable: name, latency, efficiency, time to fill a step, quantities."""
    fill = link.half_message / (link.efficiency * link.bandwidth)
    return link.name, link.latency, link.efficiency, fill, tuple(link.quantities.items())


def _quantities(
    name: str, latency: float, efficiency: float, fill: float, known: tuple[tuple[str, float], ...], network: bool
) -> dict[str, float]:
    rows, given = _rows(), dict(known)
    default = rows["network" if network else "scale-up"]
    values = {**default, **_steps({**default, **given}, latency if network else 0.0)}
    relative = efficiency / REFERENCE_EFFICIENCY
    derived = {
        "ring_simple_share": efficiency,
        "ring_ll128_share": default["ring_ll128_share"] * relative,
        "pairwise_large_share": default["pairwise_large_share"] * relative,
        "ring_simple_latency": max(values["ring_simple_latency"], fill),
    }
    explicit = {key: value for key, value in given.items() if key.endswith(("_share", "_ranks"))}
    return {**values, **derived, **explicit, **rows.get(name, {})}


@lru_cache(maxsize=256)
def _profile(
    name: str,
    latency: float,
    efficiency: float,
    fill: float,
    known: tuple[tuple[str, float], ...],
    reduces: bool,
    network: bool,
) -> Profile:
    values = _quantities(name, latency, efficiency, fill, known, network)
    return Profile(
        ring=tuple(_protocol(values, f"ring_{protocol}") for protocol in RING),
        pairwise=tuple(_protocol(values, f"pairwise_{protocol}") for protocol in PAIRWISE),
        in_switch=_protocol(values, "in_switch") if reduces else None,
        gather_copy=values.get("gather_copy_share", float("inf")),
        reduce_copy=values.get("reduce_copy_share", float("inf")),
        pairwise_copy=values.get("pairwise_copy_share", float("inf")),
        tree=values.get("tree_share", 1.0),
        in_switch_ranks=values.get("in_switch_ranks", 2.0),
    )


def _steps(values: Mapping[str, float], hop: float) -> dict[str, float]:
    """Latencies as they apply: the hop's own is added to every step, not to what a collective costs once."""
    latencies = {name: x for name, x in values.items() if name.endswith("_latency")}
    return {name: x + (0.0 if name.endswith("_base_latency") else hop) for name, x in latencies.items()}


def _protocol(values: Mapping[str, float], name: str) -> Protocol:
    return Protocol(
        base=values[f"{name}_base_latency"],
        step=values.get(f"{name}_latency", 0.0),
        share=min(1.0, values[f"{name}_share"]),
    )


@cache
def _rows() -> Mapping[str, Mapping[str, float]]:
    """Quantities of presets/nccl.csv by link name, in SI; `like` takes over the rows of another name."""
    values: dict[str, dict[str, float]] = {}
    alike: dict[str, str] = {}
    for _, row in csv_rows(presets_folder() / "nccl.csv"):
        if row["quantity"] == "like":
            alike[row["name"]] = row["value"]
            continue
        value = parse(f"{row['value']} {row['unit']}", _DIMENSION[row["unit"]])
        values.setdefault(row["name"], {})[row["quantity"]] = value
    return values | {name: values[model] for name, model in alike.items()}
