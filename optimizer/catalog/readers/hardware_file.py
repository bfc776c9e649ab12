"""A user's own device or cluster in a TOML file.

name = "my-cluster"
device = "h100"                     # or a table [device], complete or `like` a preset
gpus_per_node = 8

[device.gemm.bf16]                  # only where `device` is a table: its matrix products as measured
ceiling = 0.72

[[tiers]]
name = "node"
link = "nvlink4"
size = 8

[[tiers]]
name = "network"                    # no size: the whole cluster
bandwidth_one_way = "400 Gb/s"      # per GPU; bandwidth_duplex is halved
latency = "5 us"
oversubscription = 2.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.readers.hardware_schema import ClusterTable, DeviceTable, TierTable
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.text import read_described, shown
from optimizer.job.hardware import Cluster, Device, Link, Tier, cut_domain
from optimizer.job.model import Provenance

FindDevice = Callable[[str], Device]
FindLink = Callable[[str], Link]
F = TypeVar("F", Device, Link)

# The presets that a tier without a link behaves like, the innermost one and the others, but for its own values.
INNER_LIKE, OUTER_LIKE = "nvlink4", "infiniband-ndr"
# A link whose tier changes these is renamed: what was measured on the preset of that name does not hold for it.
OWN_PERFORMANCE = {"latency", "efficiency", "half_message", "quantities"}


def read_device(path: str | Path, *, find_device: FindDevice) -> Device:
    """The device that a TOML file describes; raises InvalidFile with every problem found."""
    path, problems = Path(path), list[str]()
    table = validated(DeviceTable, read_described(path, "device"), problems)
    device = _device(table, path, find_device, problems) if table else None
    if device is None or problems:
        raise InvalidFile(path, problems)
    return device


def read_cluster(path: str | Path, *, find_device: FindDevice, find_link: FindLink) -> Cluster:
    """The cluster that a TOML file describes; raises InvalidFile with every problem found."""
    path, problems = Path(path), list[str]()
    raw = read_described(path, "cluster")
    table = validated(ClusterTable, raw, problems)
    device = _cluster_device(raw.get("device"), path, find_device, problems)
    links = _links(raw.get("tiers"), find_link, problems)
    if table:
        _check_sizes(table, problems)
    if table is None or device is None or problems:
        raise InvalidFile(path, problems)
    # What stands in for the link of a tier that names none.
    usual = [replace(find_link(name), in_switch_reduction=False) for name in (INNER_LIKE, OUTER_LIKE)]
    tiers = tuple(
        _tier(tier, links.get(tier.link or "") or usual[number > 0], table.max_gpus, path)
        for number, tier in enumerate(table.tiers)
    )
    cluster = Cluster(
        name=table.name,
        device=device,
        tiers=tiers,
        gpus_per_node=table.gpus_per_node,
        max_gpus=min(table.max_gpus, tiers[-1].size),
        host_memory=table.host_memory or 0.0,
        provenance=_given(path, *raw),
    )
    return replace(cluster, host_bandwidth=table.host_bandwidth_one_way or cluster.host_bandwidth)


def _cluster_device(raw: object, path: Path, find_device: FindDevice, problems: list[str]) -> Device | None:
    if isinstance(raw, dict):
        table = validated(DeviceTable, raw, problems, "device")
        return _device(table, path, find_device, problems) if table else None
    if isinstance(raw, str):
        return _looked_up(find_device, raw, "device", problems)
    if raw is not None:
        problems.append(f"device: expected the name of a preset or a table, but got {shown(raw)}")
    return None


def _device(table: DeviceTable, path: Path, find_device: FindDevice, problems: list[str]) -> Device | None:
    """A device from its table, on top of the preset that it is `like`."""
    given = table.model_dump(exclude_none=True, exclude={"like"})
    if table.like is not None:
        base = _looked_up(find_device, table.like, "like", problems)
        if base is None:
            return None
        peaks = {**base.peak_flops, **given.get("peak_flops", {})}
        device = replace(base, **{**given, "peak_flops": peaks})
        device = replace(device, provenance={**base.provenance, **_given(path, *given)})
    else:
        device = Device(**{"memory_nominal": table.memory, "vendor": "", **given, "provenance": _given(path, *given)})
    if device.memory > device.memory_nominal:
        if table.memory_nominal:
            problems.append(f"memory: {table.memory:.4g} B is more than memory_nominal, {table.memory_nominal:.4g} B")
        return replace(device, memory_nominal=device.memory)
    return device


def _links(raw: object, find_link: FindLink, problems: list[str]) -> dict[str, Link]:
    """The preset links that the tiers name."""
    links = {}
    for number, tier in enumerate(raw if isinstance(raw, list) else []):
        name = tier.get("link") if isinstance(tier, dict) else None
        if isinstance(name, str) and (link := _looked_up(find_link, name, f"tiers[{number}].link", problems)):
            links[name] = link
    return links


def _tier(table: TierTable, base: Link, reach: int, path: Path) -> Tier:
    """A tier: its link with whatever the table says of it."""
    duplex = table.bandwidth_duplex
    bandwidth = duplex / 2 if duplex else table.bandwidth_one_way or base.bandwidth
    keys = {"latency", "energy", "efficiency", "half_message", "in_switch_reduction", "topology"}
    own = table.model_dump(include=keys, exclude_none=True)
    if table.p2p_bandwidth_one_way:
        own["p2p_bandwidth"] = table.p2p_bandwidth_one_way
    if table.quantities:
        own["quantities"] = {**base.quantities, **table.quantities}
    given = _given(path, *own, *(["bandwidth"] if bandwidth != base.bandwidth else []))
    link = replace(base.scaled(bandwidth * table.ports_per_gpu), **own, provenance={**base.provenance, **given})
    if table.link is None or OWN_PERFORMANCE & own.keys():
        link = replace(link, name=f"{path.stem}:{table.name}")
    return Tier(name=table.name, link=link, size=table.size or reach, oversubscription=table.oversubscription)


def _check_sizes(table: ClusterTable, problems: list[str]) -> None:
    """Each tier must hold more GPUs than the one below it; only the last may leave its size out."""
    below = 0
    for number, tier in enumerate(table.tiers):
        if tier.size is None and number + 1 < len(table.tiers):
            problems.append(f"tiers[{number}].size: missing; only the last tier spans the whole cluster")
        size = tier.size or table.max_gpus
        if size <= below:
            problems.append(f"tiers[{number}].size: must be above the {below} GPUs of the tier below, but got {size}")
        below = size
    if cut := cut_domain(table.gpus_per_node, table.tiers[0].size or table.max_gpus):
        problems.append(f"gpus_per_node: {cut}")


def _looked_up(find: Callable[[str], F], name: str, where: str, problems: list[str]) -> F | None:
    """The preset of this name, or None after adding the problem."""
    try:
        return find(name)
    except InputError as error:
        problems.append(f"{where}: {error}")
        return None


def _given(path: Path, *keys: str) -> dict[str, Provenance]:
    return dict.fromkeys(keys, Provenance(source=path.name, note="given by the user"))
