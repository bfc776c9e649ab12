"""`optimize calibrate-link` and `optimize topology`: a user's own network from its logs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from optimizer.commands.options import help_text, listed
from optimizer.commands.output import OutFile, check_new, write_output
from optimizer.commands.values import FILE
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.calibration.link import LinkFit
    from optimizer.catalog.readers.nvidia_topo import Topology

WIDTH = 80  # columns of a terminal


@click.command("calibrate-link", help=help_text("calibrate-link"))
@click.argument("logs", nargs=-1, required=True, type=FILE)
@listed("calibrate-link")
def calibrate_link(
    logs: Sequence[Path],
    link: str,
    scale_up: str | None,
    gpus_per_node: int,
    kind: str | None,
    ranks: int | None,
    as_json: bool,
) -> None:
    """Read every log, fit, print the tier."""
    from optimizer.calibration.link import fit_link
    from optimizer.catalog import load_link
    from optimizer.catalog.readers.nccl_tests import read_nccl_tests

    with waiting("fitting"):
        samples = [sample for log in logs for sample in read_nccl_tests(log, kind, ranks)]
        inner = load_link(scale_up) if scale_up else None
        fit = fit_link(samples, load_link(link), scale_up=inner, gpus_per_node=gpus_per_node)
    click.echo(_as_json(fit) if as_json else _as_text(fit, link), nl=as_json)


@click.command(help=help_text("topology"))
@click.argument("file", type=FILE)
@listed("topology", out=OutFile(""))
def topology(file: Path, link: str | None, device: str, network: str | None, out: Path | None, force: bool) -> None:
    """Read the matrix, print what it means, write the cluster."""
    from optimizer.base.units import show
    from optimizer.catalog import load_link
    from optimizer.catalog.readers.nvidia_topo import read_topo

    if (out is None) != (not device):
        raise click.UsageError("--out and --device go together: a cluster file needs the GPUs of the node")
    node = read_topo(file)
    if out is not None:
        _write_cluster(node, out, device, link, network, force)
    print_lines(f"{len(node.gpus)} GPUs, {node.scale_up_size} of them in one NVLink domain, {len(node.nics)} NICs")
    if link:
        bandwidth = node.nvlink_bandwidth(load_link(link))
        print_lines(f"NVLink bandwidth of {node.gpus[0]}: {show(bandwidth, 'B/s')} one way, as links of {link}")
    for number, gpu in enumerate(node.gpus):
        links = {other: node.nvlinks(number, place) for place, other in enumerate(node.gpus) if place != number}
        nearest = ", ".join(node.nearest_nics(number)) or "no NIC listed"
        print_lines(f"{gpu}: {peers(links)}; nearest NIC: {nearest}")


def _write_cluster(node: Topology, out: Path, device: str, link: str | None, network: str | None, force: bool) -> None:
    """Write the file, where nothing is in its way that may not be overwritten."""
    from optimizer.calibration.node_cluster import NodeCluster
    from optimizer.catalog import load_device, load_link, preset_cluster

    check_new(out, force, ".toml")
    made = NodeCluster(
        name=out.stem,
        node=node,
        usual=preset_cluster(load_device(device).name),
        link=load_link(link) if link else None,
        network=load_link(network) if network else None,
    )
    write_output(out, made.toml(), "")


def peers(links: Mapping[str, int]) -> str:
    """How many NVLinks lead to each other GPU.

    >>> peers({"GPU1": 18, "GPU2": 18}), peers({"GPU1": 4, "GPU2": 0, "GPU3": 2}), peers({"GPU1": 0})
    ('NV18 to all 2 others', 'GPU1 NV4, GPU3 NV2', 'no NVLink')
    """
    counts = set(links.values())
    if len(links) > 1 and len(counts) == 1 and 0 not in counts:
        return f"NV{counts.pop()} to all {len(links)} others"
    return ", ".join(f"{other} NV{count}" for other, count in links.items() if count) or "no NVLink"


def print_lines(text: str) -> None:
    """Print a sentence in lines that fit a terminal, all but the first of them indented."""
    click.echo(textwrap.fill(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False))


def _as_text(fit: LinkFit, base: str) -> str:
    import numpy as np

    from optimizer.calibration.link import link_lines, quantity_lines

    before = float(np.median(np.abs(np.expm1(fit.before))))
    lines = [
        f"# {len(fit.samples)} samples; median error {before:.1%} as {base}, {fit.median_error:.1%} fitted",
        "[[tiers]]",
        'name = "fitted"',
        *link_lines(fit.link, base),
        *quantity_lines(fit.link),
    ]
    return "\n".join(lines) + "\n"


def _as_json(fit: LinkFit) -> str:
    from optimizer.reports.render.json import json_text

    link = fit.link
    described = {
        "name": link.name,
        "bandwidth_bytes_per_s": link.bandwidth,
        "latency_s": link.latency,
        "efficiency": link.efficiency,
        "quantities": {name: float(value) for name, value in sorted(link.quantities.items())},
    }
    return json_text({"link": described, "samples": len(fit.samples), "median_error": fit.median_error})
