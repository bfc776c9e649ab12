"""A fitted link as a tier of a cluster file, with all of its protocols."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.base.names import one_line, toml_string
from optimizer.calibration.link import FITTED
from optimizer.job.hardware import Link, Tier


def link_lines(link: Link, like: str = "") -> list[str]:
    """What a tier's table says of a link whose protocols are all in `quantities`; `like` names its preset.

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
    inner = [f"p2p_bandwidth_one_way = {toml_string(_rate(link.p2p_bandwidth))}"] if link.p2p_bandwidth else []
    return [
        "[[tiers]]",
        *(f"# {one_line(note)}" for note in notes),
        f"name = {toml_string(tier.name)}",
        *link_lines(link, link.name.removesuffix(FITTED) if known else ""),
        f"bandwidth_one_way = {toml_string(_rate(link.bandwidth))}",
        *inner,
        f"in_switch_reduction = {'true' if link.in_switch_reduction else 'false'}",
        f"topology = {toml_string(link.topology)}",
        f"size = {tier.size}",
        f"oversubscription = {float(tier.oversubscription)}",
        *quantity_lines(link),
    ]


def _rate(value: float) -> str:
    return f"{value / 1e9:.6g} GB/s"
