"""Fit a link to measured collectives: three factors on the latencies and rates that its preset starts from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.base.errors import InputError
from optimizer.base.names import one_line, toml_string
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.job.hardware import Cluster, Device, Link, Tier
from optimizer.job.model import Provenance
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.protocols import quantities
from optimizer.objectives.network.topology import span

FITTED = "-fitted"
# smallest and largest factor on rates, on the latency of steps, on that of collectives
BOUNDS = ((0.2, 1.5), (0.05, 50.0), (0.05, 50.0))


@dataclass(frozen=True, kw_only=True)
class LinkFit:
    """A fitted link, and ln(predicted / measured) of every sample used, before and after the fit [1]."""

    link: Link
    samples: tuple[CollectiveSample, ...]
    before: FloatArray
    residuals: FloatArray

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1| after the fit [1]."""
        return float(np.median(np.abs(np.expm1(self.residuals))))


def fit_link(
    samples: Iterable[CollectiveSample], base: Link, *, scale_up: Link | None = None, gpus_per_node: int = 8
) -> LinkFit:
    """The link whose predicted collectives come closest to the samples, starting from `base`.

    Least squares over ln(predicted / measured), with a loss that discounts outliers, for factors on the rates, on the
    latency of steps and on that of whole collectives, within BOUNDS. Without `scale_up` the samples are taken to stay
    inside one domain of `base`; with it, `base` is the network between nodes of `gpus_per_node` on `scale_up`.
    In-place samples are used only where there are no others. Raises InputError for fewer than four samples.
    """
    from scipy.optimize import least_squares

    every = tuple(samples)
    outside = tuple(sample for sample in every if not sample.in_place)
    chosen = tuple(sample for sample in outside or every if sample.ranks > 1)
    if len(chosen) < 4:
        raise InputError(f"{len(chosen)} usable samples; fitting a link takes four or more, on two GPUs or more")
    measured = np.log([sample.time for sample in chosen])

    def misfit(logs: FloatArray) -> FloatArray:
        link = scaled_link(base, *np.exp(logs), network=scale_up is not None)
        return np.log(predicted(chosen, link, scale_up, gpus_per_node)) - measured

    low, high = np.log(np.array(BOUNDS)).T
    optimum = least_squares(misfit, np.zeros(3), bounds=(low, high), loss="soft_l1", f_scale=0.1, diff_step=1e-3)
    link = scaled_link(base, *np.exp(optimum.x), network=scale_up is not None)
    return LinkFit(link=link, samples=chosen, before=misfit(np.zeros(3)), residuals=misfit(optimum.x))


def scaled_link(base: Link, rate: float, step: float, floor: float, *, network: bool = False) -> Link:
    """`base` with shares x rate (at most 1), step latencies x step and latencies of collectives x floor.

    The result carries all of its protocols in `quantities`, under a name without rows in the presets.
    """
    values = quantities(base, network)
    hop = base.latency * step
    carried = {}
    for name, value in values.items():
        if name.endswith("_base_latency"):
            carried[name] = value * floor
        elif name.endswith("_latency"):
            carried[name] = value * step - (hop if network else 0.0)
        elif name.endswith("_share"):
            carried[name] = value * rate if "copy" in name else min(1.0, value * rate)
        else:
            carried[name] = value
    return replace(
        base,
        name=base.name.removesuffix(FITTED) + FITTED,
        latency=hop,
        efficiency=carried["ring_simple_share"],
        half_message=0.0,
        quantities={**base.quantities, **carried},
        provenance={**base.provenance, "efficiency": Provenance(source="fitted to nccl-tests", grade="A")},
    )


def predicted(samples: Sequence[CollectiveSample], link: Link, scale_up: Link | None, gpus_per_node: int) -> FloatArray:
    """Predicted time of each sample [s]."""
    largest = max(sample.ranks for sample in samples)
    tiers = [Tier(name="scale_up", link=scale_up or link, size=gpus_per_node if scale_up else largest)]
    if scale_up:
        tiers.append(Tier(name="network", link=link, size=max(largest, gpus_per_node)))
    device = Device(name="any", peak_flops={}, memory=0.0, memory_nominal=0.0, memory_bandwidth=0.0)
    cluster = Cluster(name="measured", device=device, tiers=tuple(tiers))
    columns = ("kind", "message", "ranks")
    kinds, messages, ranks = (np.array([getattr(sample, name) for sample in samples]) for name in columns)
    times = np.empty(len(samples))
    for kind in sorted(set(kinds)):
        these = kinds == kind
        times[these] = collective_time(kind, messages[these], span(cluster, ranks[these], 1), cluster)
    return times


def link_lines(link: Link, like: str = "") -> list[str]:
    """The lines of a tier's table about a link whose protocols are all in `quantities`; `like` names its preset.

    `half_message` is written too: that of the preset would make each step longer than it was fitted.
    """
    return [
        *([f"link = {toml_string(like)}"] if like else []),
        f'latency = "{link.latency * 1e6:.4g} us"',
        f"efficiency = {min(1.0, link.efficiency):.4g}",
        f'half_message = "{link.half_message:.6g} B"',
    ]


def quantity_lines(link: Link) -> list[str]:
    """The table of a tier's quantities; it must be the last of the tier."""
    return ["[tiers.quantities]", *(f"{name} = {float(value):.6g}" for name, value in sorted(link.quantities.items()))]


def tier_lines(tier: Tier, known: bool, notes: Sequence[str] = ()) -> list[str]:
    """A tier of a cluster file whose link `scaled_link` made, from a preset that is known by name or not."""
    link = tier.link
    inner = [f'p2p_bandwidth_one_way = "{link.p2p_bandwidth / 1e9:.6g} GB/s"'] if link.p2p_bandwidth else []
    return [
        "[[tiers]]",
        *(f"# {one_line(note)}" for note in notes),
        f"name = {toml_string(tier.name)}",
        *link_lines(link, link.name.removesuffix(FITTED) if known else ""),
        f'bandwidth_one_way = "{link.bandwidth / 1e9:.6g} GB/s"',
        *inner,
        f"in_switch_reduction = {'true' if link.in_switch_reduction else 'false'}",
        f"topology = {toml_string(link.topology)}",
        f"size = {tier.size}",
        f"oversubscription = {float(tier.oversubscription)}",
        *quantity_lines(link),
    ]
