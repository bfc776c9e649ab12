"""Devices, links and clusters by name, from presets/devices.csv, links.csv and clusters.csv."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from optimizer.base.errors import InputError, UnknownName
from optimizer.catalog.places import existing, file_of, own_file, own_files
from optimizer.catalog.rows import Row, canonical, index, names, plain, rows
from optimizer.job.hardware import DIMENSIONS, Cluster, Device, Link, Tier
from optimizer.job.model import Provenance

DEVICES, LINKS, CLUSTERS = "devices.csv", "links.csv", "clusters.csv"
T = TypeVar("T", Device, Link, Cluster)
_CONVERT = {"int": int, "bool": bool}
_OF_TIER = ("link", "size", "ports_per_gpu", "oversubscription")  # quantities of a tier; its others are of its link


def device_names() -> tuple[str, ...]:
    """Names of the devices, without their aliases."""
    return names(DEVICES)


def link_names() -> tuple[str, ...]:
    """Names of the links, without their aliases; what links only inherit from is left out."""
    return names(LINKS, having="bandwidth")


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters, without their aliases and those of devices."""
    return names(CLUSTERS)


def load_device(name: str | Path) -> Device:
    """The device of this name, alias or TOML file.

    Raises UnknownName or InvalidFile.

    >>> load_device("a100").name, load_device("h100").peak("bf16")
    ('a100-80', 989500000000000.0)
    """
    if path := file_of(name):
        from optimizer.catalog.readers.hardware_file import read_device

        return read_device(existing("device", path), find_device=preset_device)
    return preset_device(str(name))


def preset_device(name: str) -> Device:
    """The preset of this name or alias; no file is opened. Raises UnknownName."""
    return _device(canonical("device", DEVICES, name, device_names(), "alias"))


def load_link(name: str) -> Link:
    """The link of this name or alias; the bandwidth of a NIC is that of one port.

    >>> load_link("ndr").bandwidth
    50000000000.0
    """
    return _link(canonical("link", LINKS, name, link_names(), "alias"))


def load_cluster(name: str | Path) -> Cluster:
    """The cluster of this name, alias or TOML file; the name of a device means its default cluster.

    Raises UnknownName or InvalidFile.

    >>> load_cluster("h100").name, [tier.name for tier in load_cluster("h100").tiers]
    ('dgx-h100', ['scale_up', 'rail', 'spine'])
    """
    if path := file_of(name):
        return _read_cluster(existing("cluster", path))
    return known_cluster(str(name))


def known_cluster(name: str) -> Cluster:
    """The user's own or the shipped preset of this name; no other file is opened. Raises UnknownName."""
    if path := own_file("cluster", name):
        return replace(_read_cluster(path), name=path.stem)
    return preset_cluster(name)


def _read_cluster(path: Path) -> Cluster:
    from optimizer.catalog.readers.hardware_file import read_cluster

    return read_cluster(path, find_device=preset_device, find_link=load_link)


def preset_cluster(name: str) -> Cluster:
    """The shipped preset of this name or alias, or the default one of a device.

    Raises UnknownName, or InputError for a device that no cluster is the default of.
    """
    device = index(DEVICES, "alias").get(plain(name), name)
    known = (*own_files("cluster"), *cluster_names())
    try:
        return _cluster(canonical("cluster", CLUSTERS, device, known, "alias", "default_for"))
    except UnknownName:
        if plain(device) in device_names():
            raise InputError(f"{device} is a device without a cluster of its own: give a --cluster of it") from None
        raise


def with_network(
    cluster: Cluster,
    *,
    nic_bandwidth: float | None = None,
    oversubscription: float | None = None,
    scale_up_size: int | None = None,
    memory: float | None = None,
) -> Cluster:
    """The same cluster with another NIC bandwidth per GPU, one way [B/s], or other sizes.

    `oversubscription` is that of the outermost tier, `scale_up_size` the GPUs of the innermost one (tiers that it
    swallows disappear), `memory` the usable memory of a GPU [B]. Raises InputError for values that make no cluster.

    >>> [tier.bandwidth for tier in with_network(load_cluster("h100"), nic_bandwidth=100e9, oversubscription=2).tiers]
    [450000000000.0, 100000000000.0, 50000000000.0]
    """
    changes = {"nic_bandwidth": nic_bandwidth, "oversubscription": oversubscription, "scale_up_size": scale_up_size}
    given = {key: value for key, value in {**changes, "memory": memory}.items() if value is not None}
    if wrong := [f"{key} must be positive, but got {value}" for key, value in given.items() if value <= 0]:
        raise InputError("; ".join(wrong))
    inner, *outer = cluster.tiers
    if not outer and (nic_bandwidth or oversubscription):
        raise InputError(f"{cluster.name} has no network between nodes to change; describe one in a cluster file")
    if scale_up_size:
        inner, reach = replace(inner, size=scale_up_size), cluster.tiers[-1].size
        if outer and reach <= scale_up_size:
            raise InputError(f"scale_up_size must be below the {reach} GPUs of {cluster.name}, but got {scale_up_size}")
        outer = [tier for tier in outer if tier.size > scale_up_size]
    if nic_bandwidth:
        outer = [replace(tier, link=tier.link.scaled(nic_bandwidth)) for tier in outer]
    if oversubscription:
        outer[-1] = replace(outer[-1], oversubscription=oversubscription)
    device = cluster.device
    if memory:
        device = replace(device, memory=memory, memory_nominal=max(memory, device.memory_nominal))
    assumed = Provenance(source="assumed", note="changed for a study")
    return replace(
        cluster,
        device=device,
        tiers=(inner, *outer),
        max_gpus=cluster.max_gpus if outer else inner.size,
        provenance={**cluster.provenance, **dict.fromkeys(given, assumed)},
    )


@cache
def _device(name: str) -> Device:
    return _made(Device, DEVICES, name=name, **_values(rows(DEVICES, name), Device))


@cache
def _link(name: str) -> Link:
    return _made(Link, LINKS, name=name, **_values(rows(LINKS, name), Link))


def _made(kind: type[T], file: str, **values: Any) -> T:
    """A Device, Link or Cluster of its rows; raises InputError where some are lacking."""
    needed = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]
    if lacking := [name for name in needed if name not in values]:
        raise InputError(f"presets/{file}: {values['name']} lacks the rows {', '.join(lacking)}")
    return kind(**values)


@cache
def _cluster(name: str) -> Cluster:
    """A cluster: rows without a dot describe it, the others its tiers in the order of their first row."""
    own: list[Row] = []
    parts: dict[str, list[Row]] = {}
    for row in rows(CLUSTERS, name):
        tier, dot, quantity = row.quantity.partition(".")
        if dot:
            parts.setdefault(tier, []).append(replace(row, quantity=quantity))
        else:
            own.append(row)
    values = _values([row for row in own if row.quantity != "device"], Cluster)
    if device := [row.text for row in own if row.quantity == "device"]:
        values["device"] = _device(device[-1])
    reach = values.get("max_gpus", Cluster.max_gpus)
    if parts:
        values["tiers"] = tuple(_tier(tier, rows_of_one, reach) for tier, rows_of_one in parts.items())
    provenance = values.pop("provenance") | {
        f"{tier}.{row.quantity}": row.provenance for tier, rows_of_one in parts.items() for row in rows_of_one
    }
    return _made(Cluster, CLUSTERS, name=name, provenance=provenance, **values)


def _tier(name: str, rows_of_one: list[Row], reach: int) -> Tier:
    """A tier: its link, with as many ports as a GPU has, and whatever the rows say of the link in this place."""
    own = {row.quantity: row for row in rows_of_one if row.quantity in _OF_TIER}
    if "link" not in own:
        raise InputError(f"presets/{CLUSTERS}: {rows_of_one[0].name} lacks the row {name}.link")
    link = load_link(own.pop("link").text)
    numbers = {"size": reach, "ports_per_gpu": 1.0, "oversubscription": 1.0}
    numbers |= {quantity: row.number("1") for quantity, row in own.items()}
    values = _values([row for row in rows_of_one if row.quantity not in _OF_TIER], Link)
    values["provenance"] = {**link.provenance, **values["provenance"]}
    values["quantities"] = {**link.quantities, **values.get("quantities", {})}
    link = replace(link.scaled(link.bandwidth * numbers["ports_per_gpu"]), **values)
    return Tier(name=name, link=link, size=int(numbers["size"]), oversubscription=numbers["oversubscription"])


def _values(rows_of_one: Iterable[Row], kind: type[Device] | type[Link] | type[Cluster]) -> dict[str, Any]:
    """Arguments of a Device, Link or Cluster: a quantity that is a field of it becomes that field.

    `peak_flops.bf16` is the entry bf16 of the field peak_flops. Other numbers go to `quantities` where the kind has
    that field; other words are left out.
    """
    known = {field.name: str(field.type) for field in fields(kind)}
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for row in rows_of_one:
        field, _, key = row.quantity.partition(".")
        if field not in known:
            if row.is_text or "quantities" not in known:
                continue
            values.setdefault("quantities", {})[row.quantity] = row.number(DIMENSIONS.get(field, ""))
        elif row.is_text:
            values[field] = row.text
        elif key:
            values.setdefault(field, {})[key] = row.number(DIMENSIONS.get(field, ""))
        else:
            values[field] = _CONVERT.get(known[field], float)(row.number(DIMENSIONS.get(field, "")))
        provenance[row.quantity] = row.provenance
    return {**values, "provenance": provenance}
