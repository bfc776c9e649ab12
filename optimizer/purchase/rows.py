"""One flat row per point of a purchase: what JSON, CSV and tables share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimizer.base.units import DAY, GB
from optimizer.purchase.units import J_PER_MWH

if TYPE_CHECKING:
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.ranges import Range

COMMUNICATION = "_communication"


def point_row(point: Point) -> dict[str, Any]:
    """A point in the units of the contract: days, USD, MWh, tonnes, MW."""
    design, found = point.design, point.figures
    first = point.answers[0]
    return {
        "device": design.kind,
        "cluster": design.cluster.name,
        "gpus": design.gpus,
        "dtype": design.dtype,
        "global_batch": first.job.global_batch,
        "power_cap": design.power_cap,
        "nic_gbit_per_s": design.network_bandwidth * 8 / 1e9,
        "oversubscription": design.taper,
        "scale_up_domain": design.scale_up or design.cluster.scale_up_size,
        "hbm_gb": (design.hbm or design.cluster.device.memory) / GB,
        "time_to_train_days": found.time_to_train / DAY,
        "cost_usd": found.cost,
        "energy_mwh": found.energy / J_PER_MWH,
        "co2_t": found.co2 / 1e3,
        "mfu": found.mfu,
        "goodput": found.goodput,
        "gpu_hours": found.gpu_seconds / 3600,
        "tokens": found.tokens,
        "usd_per_mtoken": found.cost_per_token * 1e6,
        "tokens_per_joule": found.tokens_per_joule,
        "site_power_mw": found.peak_power / 1e6,
        "racks": found.racks,
        "paid_gpus": found.paid_gpus,
        "order": found.lot.words(),
        "network_usd": found.network,
        "host_memory_gb_per_gpu": point.on_host / GB,
        "committed_usd": found.committed,
        "ends_days": [end / DAY for end in found.ends],
        "checkpoint_interval_s": found.checkpoint_interval,
        "checkpoint_tb": found.checkpoint.size / 1e12,
        "checkpoint_write_s": found.checkpoint.write,
        "storage_share": found.storage_share,
        "spare_nodes": design.spares,
        "waiting_for_repair": found.waiting,
        "proven": point.proven,
        "limits_broken": [excess.limit for excess in point.excesses],
        "bottleneck": bottleneck(point),
        "plan": first.plan.summary() if first.plan else "",
    }


def range_row(ranges: Mapping[str, Range]) -> dict[str, list[float]]:
    """Low and high end of the results of one point, in the units of the contract."""
    units = {
        "time_to_train": ("time_to_train_days", DAY),
        "cost": ("cost_usd", 1.0),
        "energy": ("energy_mwh", J_PER_MWH),
        "co2": ("co2_t", 1e3),
    }
    return {
        name: [ranges[result].low / size, ranges[result].high / size]
        for result, (name, size) in units.items()
        if result in ranges
    }


def phases(point: Point) -> dict[str, float]:
    """Seconds of the first run's step in the groups that a buyer can act on."""
    estimate = point.answers[0].estimate
    time = estimate.time if estimate else {}
    groups = {
        "matrix products and attention": 0.0,
        "memory-bound kernels": 0.0,
        "communication": 0.0,
        "pipeline bubble": 0.0,
    }
    other = 0.0
    for term, seconds in time.items():
        if term in ("gemm", "attention", "head"):
            groups["matrix products and attention"] += seconds
        elif term in ("elementwise", "optimizer"):
            groups["memory-bound kernels"] += seconds
        elif term.endswith(COMMUNICATION) or term == "contention":
            groups["communication"] += seconds
        elif term == "bubble":
            groups["pipeline bubble"] += seconds
        else:
            other += seconds
    return groups | {"launches, stragglers, overhead": other}


def bottleneck(point: Point) -> str:
    """The largest loss of a step beside the matrix products, with its share."""
    parts = phases(point)
    total = sum(parts.values())
    losses = {name: seconds for name, seconds in parts.items() if name != "matrix products and attention"}
    name, seconds = max(losses.items(), key=lambda item: item[1])
    return f"{name} ({seconds / total:.0%} of the step)" if total else ""


def memory_use(point: Point) -> tuple[float, float]:
    """Memory reserved by the first run's plan and memory usable on the device [B]."""
    answer = point.answers[0]
    return (answer.estimate.reserved if answer.estimate else 0.0), answer.job.usable_memory
