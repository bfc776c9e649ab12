"""The device and the cluster that measurements make, on top of what a catalogue knows of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.base.errors import InputError
from optimizer.calibration.link import LinkFit, fit_link, scaled_link
from optimizer.calibration.rows.device import device_name
from optimizer.catalog import load_cluster, load_device, load_link, preset_device
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.job.hardware import Cluster, Device, Link, Tier
from optimizer.measure.fit_products import ProductFit, fit_products
from optimizer.measure.measured import NodeMeasurements
from optimizer.objectives.kernels.gemm_curve import curve_for
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.objectives.network.protocols import quantities

FAMILY = {"bfloat16": "bf16", "float16": "fp16"}
FEWEST = 4  # samples that a link is fitted to
UNKNOWN_LINK = "nvlink4"  # whose protocols a link starts from that no catalogue has
LARGE = 2**28  # B: what no cache holds


@dataclass(frozen=True, kw_only=True)
class Made:
    """A cluster of measured devices, and how well the fits meet what was measured."""

    cluster: Cluster
    known: bool  # whether the catalogue has the device
    products: ProductFit  # the fit of the matrix products
    best: float  # best rate of a product [FLOP/s]
    stream: float  # best rate of memory [B/s]
    links: dict[str, LinkFit]  # the fits by the name of their tier
    notes: tuple[str, ...]  # in sentences, what is not as it seems

    @property
    def device(self) -> Device:
        """The measured device."""
        return self.cluster.device


def hardware_of(measured: NodeMeasurements, *, device: str = "", cluster: str = "", name: str = "measured") -> Made:
    """What was measured, fitted; the rest is the catalogue's.

    `device` and `cluster` name presets where the machine's own name does not tell them. Raises InputError for names
    that are not known.
    """
    notes: list[str] = []
    base = _base(measured, device, cluster)
    unit, best, stream, fit = _device(measured, base, notes)
    template = load_cluster(cluster or base.name) if base else None
    tiers, links = _tiers(measured, template, notes)
    host = [t.bytes / t.seconds for t in measured.memory if t.kind in ("from_host", "to_host")]
    own = Cluster(
        name=name,
        device=unit,
        tiers=tiers,
        gpus_per_node=template.gpus_per_node if template else measured.machine.ranks_per_node,
        max_gpus=tiers[-1].size,
        host_bandwidth=min(host) if host else template.host_bandwidth if template else Cluster.host_bandwidth,
    )
    known, sentences = base is not None, tuple(notes)
    return Made(cluster=own, known=known, products=fit, best=best, stream=stream, links=links, notes=sentences)


def _base(measured: NodeMeasurements, device: str, cluster: str) -> Device | None:
    """The catalogue's device, None for a machine that it does not have."""
    if device:
        return load_device(device)
    if cluster:
        return load_cluster(cluster).device
    if measured.machine.processor == "cpu":
        return None
    try:
        return preset_device(device_name(measured.machine.name, str(round(measured.machine.memory / 2**30))))
    except InputError:
        return None


def _device(
    measured: NodeMeasurements, base: Device | None, notes: list[str]
) -> tuple[Device, float, float, ProductFit]:
    """The device, the best rates of a product and of memory, and the fitted curve."""
    machine, dtype = measured.machine, FAMILY[measured.machine.dtype]
    family = "bf16"  # the curve that 16-bit products share
    best = max(product.rate for product in measured.products)
    stream = stream_rate(measured)
    if base is None:
        slug = re.sub(r"[^a-z0-9]+", "-", machine.name.lower()).strip("-") or "measured"
        unit = Device(
            name=slug,
            vendor=machine.vendor,
            peak_flops={dtype: best},
            memory=machine.memory,
            memory_nominal=machine.memory,
            memory_bandwidth=stream,
            sms=machine.sms,
        )
        efficiency = 1.0
        why = "the best product that was measured counts as its peak (--device)"
        notes.append(f"no catalogue has {machine.name!r}: {why}")
    else:
        # Where kernels reach more of the memory's peak than the catalogue's did, the share is larger, not the peak.
        bandwidth = max(stream, min(base.memory_bandwidth, stream / curve_for(base, dtype).memory_efficiency))
        efficiency = stream / bandwidth
        unit = replace(base, memory=machine.memory, memory_bandwidth=bandwidth)
        unit = replace(unit, memory_nominal=max(unit.memory_nominal, unit.memory))
        if best > base.peak(dtype):
            notes.append(f"products run above the peak of {base.name}: is it another device? (--device)")
        if machine.sms > 1 and machine.sms != base.sms:
            notes.append(
                f"{machine.name} has {machine.sms} SMs, {base.name} {base.sms}: is it another device? (--device)"
            )
            unit = replace(unit, sms=machine.sms)
    fit = fit_products(measured.products, replace(unit, gemm={}), dtype, efficiency)
    unit = replace(unit, measured_matmul={**unit.measured_matmul, dtype: best}, gemm={family: fit.parameters})
    return unit, best, stream, fit


def stream_rate(measured: NodeMeasurements) -> float:
    """Memory bandwidth that kernels reach: the best sum of two arrays beyond caches, else the best measured [B/s]."""
    sums = [t for t in measured.memory if t.kind in ("add", "copy")]
    if not sums:
        raise InputError(f"{measured.source}: the memory was not measured; run the program again with more --seconds")
    large = [t for t in sums if t.bytes >= LARGE] or [max(sums, key=lambda t: t.bytes)]
    return max(t.bytes / t.seconds for t in large)


def _tiers(
    measured: NodeMeasurements, template: Cluster | None, notes: list[str]
) -> tuple[tuple[Tier, ...], dict[str, LinkFit]]:
    """The tiers, those that were measured fitted, and the fits.

    Ranks of several nodes that lie in one scale-up domain count for that domain.
    """
    machine = measured.machine
    tiers = template.tiers if template else _unknown_tiers(measured)
    reach = max(tiers[0].size, machine.ranks_per_node)
    inside = [sample for sample in measured.collectives if sample.ranks <= reach]
    outside = [sample for sample in measured.collectives if sample.ranks > reach]
    made: list[Tier] = []
    links: dict[str, LinkFit] = {}
    for number, tier in enumerate(tiers):
        samples = (inside, outside)[number] if number < 2 else []
        link = scaled_link(tier.link, 1.0, 1.0, 1.0, network=number > 0)
        if len(samples) >= FEWEST:
            inner = made[0].link if number else None
            links[tier.name] = fit_link(samples, tier.link, scale_up=inner, gpus_per_node=made[0].size if number else 0)
            link = links[tier.name].link
        elif number < 2:
            notes.append(f"tier {tier.name}: not measured, as in the catalogue")
        made.append(replace(tier, link=link))
    return tuple(made), links


def _unknown_tiers(measured: NodeMeasurements) -> tuple[Tier, ...]:
    """Tiers of a machine that no catalogue has: a node, and a network where several nodes were measured."""
    machine = measured.machine
    node = [sample for sample in measured.collectives if sample.nodes == 1]
    network = [sample for sample in measured.collectives if sample.nodes > 1]
    tiers = [Tier(name="node", link=_unknown_link("node", node), size=machine.ranks_per_node)]
    if network:
        tiers.append(Tier(name="network", link=_unknown_link("network", network), size=machine.ranks))
    return tuple(tiers)


def _unknown_link(name: str, samples: Sequence[CollectiveSample]) -> Link:
    """A link with the rate of its largest message and the latency of its smallest, from which a fit starts."""
    start = replace(load_link(UNKNOWN_LINK), name=name, in_switch_reduction=False, quantities={})
    if not samples:
        return start
    rate = max(float(volume_per_rank(s.kind, s.message, s.ranks)) / s.time for s in samples)
    start = start.scaled(rate / start.efficiency)
    slower = min(s.time for s in samples) / quantities(start)["ring_ll_base_latency"]
    return scaled_link(start, 1.0, slower, slower)
