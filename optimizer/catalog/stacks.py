"""Stack presets, one TOML file each in presets/stacks, written by `optimize calibrate`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.base.errors import UnknownName
from optimizer.catalog.files import presets_folder
from optimizer.catalog.places import ENDINGS, existing, file_of, own_file, own_files
from optimizer.catalog.software import families, releases, stack_and_target
from optimizer.catalog.targets import aimed
from optimizer.job.hardware import Device
from optimizer.job.model import Provenance
from optimizer.job.stack import PARAMETERS, Features, Fixed, Stack
from optimizer.job.switches import switched_to
from optimizer.job.target import AT

DEFAULT_STACK = "megatron-core"
USUAL: Mapping[str, str] = {"AMD": "primus-2025", "Google": "maxtext"}  # by vendor, where it is another one
TUNING, IN_BACKWARD = (
    "hf-2026",
    "torchtune-2024",
)  # of jobs that fine-tune, and whose optimizer steps in the backward pass


def default_stack(device: Device, tuned: bool = False, in_backward: bool = False) -> str:
    """The stack preset that a job on this device takes unless it names another one; `tuned`, one that fine-tunes.

    >>> from optimizer.catalog import load_device
    >>> default_stack(load_device("h100")), default_stack(load_device("tpu-v5p"))
    ('megatron-core', 'maxtext')
    >>> default_stack(load_device("rtx-4090"), tuned=True)
    'hf-2026'
    """
    if in_backward or tuned:
        return IN_BACKWARD if in_backward else TUNING
    return USUAL.get(device.vendor, DEFAULT_STACK)


@cache
def stack_names() -> tuple[str, ...]:
    """Names of all stack presets, sorted."""
    return tuple(sorted(path.stem for path in (presets_folder() / "stacks").glob("*.toml")))


def load_stack(name: str | Path) -> Stack:
    """A stack by the name of a family, FAMILY@RELEASE or a preset, or a stack file by path.

    Before another target than its own stands one more "@": "megatron-core@any", "megatron-bridge@26.02@megatron-lm".

    Raises UnknownName for a name that is neither, InvalidFile for a file with unknown or impossible values.
    """
    plain, at, target = str(name).rpartition(AT)
    if at and file_of(plain) and "/" not in target and not target.endswith(ENDINGS):
        return aimed(load_stack(type(name)(plain)), target)
    if path := file_of(name):
        from optimizer.catalog.readers.stack_file import read_stack

        return read_stack(existing("stack", path))
    return known_stack(str(name))


def known_stack(name: str) -> Stack:
    """The user's own or the shipped preset of this name, for another target after "@"; no other file is opened.

    Raises UnknownName.
    """
    plain, target = stack_and_target(name)
    if path := own_file("stack", plain):
        from optimizer.catalog.readers.stack_file import read_stack

        own = read_stack(path).named(path.stem)
        return aimed(own, target) if target else own
    return preset_stack(name)


def preset_stack(name: str) -> Stack:
    """The shipped stack of this name: of a family, a release or a fit, for another target after "@".

    Raises UnknownName.
    """
    plain, target = stack_and_target(name)
    if target:
        return aimed(preset_stack(plain), target)
    if release := releases().get(plain):
        rates = _preset(release.rates)
        offered = replace(rates, name=plain, features=replace(rates.features, **release.offers))
        return switched_to(offered, release.on)
    if plain not in stack_names():
        raise UnknownName("stack", plain, (*own_files("stack"), *families(), *stack_names()))
    return _preset(plain)


@cache
def _preset(name: str) -> Stack:
    """A shipped file without the checks of read_stack, to which tests hold it: importing pydantic takes 0.1 s."""
    data = tomllib.loads((presets_folder() / "stacks" / f"{name}.toml").read_text("utf-8"))
    features: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data["features"].items()
    }
    values: dict[str, Any] = {
        table: {key: float(value) for key, value in data.get(table, {}).items()}
        for table in ("parameters", "residuals")
    }
    known = data.get("fixed", {})
    values["fixed"] = {
        key: Fixed(value=float(known[key]["value"]), why=known[key]["why"]) for key in PARAMETERS if key in known
    }
    values["ranges"] = {key: (float(low), float(high)) for key, (low, high) in data.get("ranges", {}).items()}
    values["features"], values["provenance"] = Features(**features), Provenance(**data["provenance"])
    return Stack(**{**data, **values, "devices": tuple(data.get("devices", ()))})
