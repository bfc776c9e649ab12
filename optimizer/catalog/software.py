"""Families of training software and their releases: which fitted stack prices one, and what it has switched on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from optimizer.base.errors import InputError
from optimizer.catalog.files import presets_folder
from optimizer.job.target import AT

FILE = "software.toml"


@dataclass(frozen=True, kw_only=True)
class SoftwareRelease:
    """One release."""

    family: str  # what the software is called
    name: str  # of the release
    newest: bool  # whether no later one is known
    rates: str  # the stack preset whose features and parameters it has
    on: Mapping[str, str] = field(default_factory=dict)  # states of switches that differ from those of that preset
    # features that say what plans may have, where that differs from the preset
    offers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spelled(self) -> str:
        """What its stack is called: the family, and the release where a newer one is known."""
        return self.family if self.newest else f"{self.family}-{self.name}"


@dataclass(frozen=True, kw_only=True)
class SoftwareFamily:
    """A training software and its releases, the oldest first."""

    name: str
    title: str
    releases: Mapping[str, SoftwareRelease]

    @property
    def newest(self) -> SoftwareRelease:
        """The release that the family's name means."""
        return next(release for release in self.releases.values() if release.newest)


@cache
def families() -> Mapping[str, SoftwareFamily]:
    """Every family by name.

    >>> list(families()["megatron-bridge"].releases)[-1], families()["megatron-bridge"].newest.rates
    ('26.10', 'megatron-bridge-2025')
    """
    tables = tomllib.loads((presets_folder() / FILE).read_text("utf-8"))
    by_name = {}
    for name, table in tables.items():
        last = list(table["releases"])[-1]
        releases: dict[str, SoftwareRelease] = {}
        for release, values in table["releases"].items():
            base = releases.get(values.get("like", ""))
            releases[release] = SoftwareRelease(
                family=name,
                name=release,
                newest=release == last,
                rates=values.get("rates") or (base.rates if base else ""),
                on={**(base.on if base else {}), **values.get("on", {})},
                offers={**(base.offers if base else {}), **_features(values.get("offers", {}))},
            )
        by_name[name] = SoftwareFamily(name=name, title=table["title"], releases=releases)
    return by_name


def _features(table: Mapping[str, Any]) -> dict[str, Any]:
    """Features as stacks have them: lists are tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def family_names() -> tuple[str, ...]:
    """Names of all families, in the order of the table."""
    return tuple(families())


@cache
def releases() -> Mapping[str, SoftwareRelease]:
    """Every release by what its stack is called.

    >>> releases()["megatron-bridge-26.02"].on, releases()["megatron-bridge"].name
    ({'graphs': 'parts'}, '26.10')
    """
    return {release.spelled: release for family in families().values() for release in family.releases.values()}


def release_by_year(name: str, *, near: bool = False) -> SoftwareRelease | None:
    """The release of the year that ends a name, the newest for a later year or none; None where none is known.

    `near`: for another year, that before it, else the oldest.

    >>> [release_by_year(name).spelled for name in ("torchtitan-2025", "torchtitan-2027", "axolotl", "trl-2026")]
    ['torchtitan-2025', 'torchtitan', 'axolotl', 'trl']
    >>> release_by_year("megatron-core-2023"), release_by_year("maxdiffusion-2025")
    (None, None)
    >>> release_by_year("llama-factory-2024", near=True).rates
    'hf-2023'
    """
    plain, _, year = name.rpartition("-")
    if not re.fullmatch(r"20\d\d", year):
        plain, year = name, ""
    if plain not in families():
        return None
    known = families()[plain]
    if not year or year > known.newest.name:
        return known.newest
    earlier = [release for release in known.releases.values() if release.name < year]
    nearest = (earlier or list(known.releases.values())[:1])[-1] if near else None
    return known.releases.get(year, nearest)


def stack_and_target(name: str) -> tuple[str, str]:
    """The name of a stack with its release folded in, and the target behind it, "" for none.

    Raises InputError for a release that the family has not.

    >>> stack_and_target("megatron-bridge@26.02"), stack_and_target("megatron-core@any"), stack_and_target("maxtext")
    (('megatron-bridge-26.02', ''), ('megatron-core', 'any'), ('maxtext', ''))
    """
    plain, _, rest = name.partition(AT)
    first, _, target = rest.partition(AT)
    if plain not in families() or not first[:1].isdigit():
        return plain, rest
    known = families()[plain].releases
    if first not in known:
        raise InputError(f"{plain} has no release {first!r}: expected one of {', '.join(known)}")
    return known[first].spelled, target
