"""What a node's measurements say, on the screen and as JSON: measured, fitted, and taken from a catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from optimizer.catalog import load_device
from optimizer.measure.fit_messages import alpha_betas
from optimizer.measure.hardware_of import Made
from optimizer.measure.measured import NodeMeasurements
from optimizer.reports.render.json import as_json
from optimizer.reports.report import Report, Table, Value, cell, columns, notes, section

FIGURES = columns("what | measured [text] | catalogue [text] | share [text]")
COLLECTIVES = columns(
    "collective | ranks [1] | nodes [1] | latency of a step [s] | bus bandwidth [B/s] | sizes [1] | median error [%]"
)
FITS = columns("what | samples [1] | median error [%]")
STRAGGLES = 0.03  # share by which a rank is slower than the median that is shown
FORMULAS = (
    "products: time = launch + max(compute, memory), compute by tiles and waves (optimizer/objectives/kernels/gemm.py)",
    "collectives: time = latency x steps + bytes per rank / bandwidth, of a ring (Thakur, Rabenseifner, Gropp 2005, "
    "section 4); the tiers of the cluster file have NCCL's protocols, scaled to the same samples",
    "both by least squares over ln(predicted / measured) with a loss that discounts outliers",
)


def figures(made: Made, measured: NodeMeasurements) -> Iterator[tuple[str, float, str, float | None]]:
    """Name, measured value, unit, and what the catalogue says, None where it says nothing."""
    base = load_device(made.device.name) if made.known else None
    dtype = next(key for key, value in made.device.measured_matmul.items() if value == made.best)
    peak = base.peak(dtype) if base else None
    yield f"best {dtype} product", made.best, "FLOP/s", peak
    yield "memory that kernels reach", made.stream, "B/s", base.memory_bandwidth if base else None
    yield "memory of a GPU", measured.machine.memory, "B", base.memory if base else None
    for kind, seconds in measured.launches.items():
        yield {"host": "launch by the host", "kernel": "smallest kernel"}.get(kind, kind), seconds, "s", None
    if measured.attention:
        yield "attention forward", max(row.rate for row in measured.attention), "FLOP/s", peak
    for kind in ("from_host", "to_host"):
        if rates := [row.bytes / row.seconds for row in measured.memory if row.kind == kind]:
            yield kind.replace("_", " "), max(rates), "B/s", None


def measured_report(made: Made, measured: NodeMeasurements) -> Report:
    """Tables of what was measured and fitted, and every sentence that a reader must mind."""
    machine = measured.machine
    shares = [
        (name, cell(value, unit), cell(known, unit), cell(value / known if known else None, "%"))
        for name, value, unit, known in figures(made, measured)
    ]
    collectives = [
        (row.kind, row.ranks, row.nodes, row.alpha, row.bandwidth, row.samples, row.median_error)
        for row in alpha_betas(measured.collectives)
    ]
    fits: list[Sequence[Value]] = [
        ("products", float(made.products.ratios.size), made.products.median_error),
        *((f"tier {name}", float(len(fit.samples)), fit.median_error) for name, fit in made.links.items()),
    ]
    return Report(
        title=f"{machine.ranks} × {machine.name}, {machine.ranks_per_node} a node: {made.cluster.name}",
        sections=(
            section("Measured", Table(FIGURES, shares)),
            section("Collectives", Table(COLLECTIVES, collectives)),
            section("Fitted", Table(FITS, fits)),
            notes("How", FORMULAS),
            notes("From the catalogue, not measured", catalogue_lines(made)),
            notes("Mind", [*made.notes, *_straggler(measured)]),
            notes("Left out, for want of time or memory", [summary(measured.left_out)]),
        ),
        note="Measured on the machine, and fitted by mfu-optimizer.",
    )


def catalogue_lines(made: Made) -> list[str]:
    """What of the files comes from presets."""
    tiers = [tier.name for tier in made.cluster.tiers if tier.name not in made.links]
    lines = []
    if made.known:
        lines.append(f"peaks of the matrix units, caches and power: {made.device.name} of presets/devices.csv")
    if tiers:
        lines.append(f"tier{'s' * (len(tiers) > 1)} {', '.join(tiers)}")
    lines.append("sizes of the tiers and oversubscription" if made.known else "energy, caches and power: not known")
    return lines


def _straggler(measured: NodeMeasurements) -> list[str]:
    """A rank whose product takes longer than the median's."""
    ranks = np.array(measured.ranks)
    if ranks.size < 3:
        return []
    slower = ranks.max() / np.median(ranks) - 1.0
    where = int(np.argmax(ranks))
    return [f"rank {where} multiplies {slower:.1%} slower than the median rank"] if slower > STRAGGLES else []


def summary(left_out: tuple[str, ...]) -> str:
    """How many measurements of each kind are missing.

    >>> summary(("product 1 x 2 x 3", "product 4 x 5 x 6", "node all_gather, 8 B"))
    '2 product, 1 node all_gather'
    """
    kinds = Counter(line.split(" ")[0] if line.startswith("product") else line.split(",")[0] for line in left_out)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def measured_dict(made: Made, measured: NodeMeasurements) -> dict[str, Any]:
    """The same for programs."""
    return {
        "device": made.device.name,
        "known": made.known,
        "measured": {
            name: {"value": value, "unit": unit, "catalogue": known}
            for name, value, unit, known in figures(made, measured)
        },
        "collectives": [as_json(row, alpha="alpha_s") for row in alpha_betas(measured.collectives)],
        "fits": {
            "products": {**made.products.parameters, "median_error": made.products.median_error},
            **{key: {"samples": len(fit.samples), "median_error": fit.median_error} for key, fit in made.links.items()},
        },
        "catalogue": catalogue_lines(made),
        "told": [*made.notes, *_straggler(measured)],
        "left_out": list(measured.left_out),
    }
