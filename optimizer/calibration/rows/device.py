"""The device that a measured row means: names as vendors, drivers, clouds and tables write them."""

from __future__ import annotations

import re

from optimizer.base.errors import InputError, UnknownName
from optimizer.catalog import preset_device

_NVIDIA = re.compile(r"gb300|gb200|gh200|b300|b200|h200|h800|h100|h20|a800|a100|v100|l40s|a10g")
_AMD = re.compile(r"mi\d{3}[a-z]?")
_TPU = re.compile(r"(?:tpu|cloud).*?v?(\d)(x|[a-z]*)|\bv(\d)(lite|e|p)")
_TPU_NAMES = {"trillium": "tpu-v6e", "ironwood": "tpu-v7"}
_GAUDI = re.compile(r"gaudi ?-?(\d)")
_WITH_MEMORY = {"a100": ("40", "80"), "v100": ("16", "32")}  # sold with either; the usual one: see _memory
_BRANDS = re.compile(r"\b(?:nvidia|geforce|amd|instinct|google|intel|aws|generation|accelerator|gpu)\b")
_MEMORY = re.compile(r"(\d+) ?gi?b")


def device_name(gpu: str, memory: str = "") -> str:
    """The preset of a device as a row writes it; `memory` is what its column says, "" where it says nothing [GB].

    Raises InputError for a device that is not known.

    >>> [device_name(name) for name in ("H100-SXM (HBM2e, 500W limit)", "NVIDIA H100 NVL", "NVIDIA GH200 120GB")]
    ['h100-96', 'h100-nvl', 'gh200']
    >>> [device_name(name) for name in ("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "NVIDIA A100-PCIE-40GB")]
    ['h100', 'v100-32', 'a100-40-pcie']
    >>> [device_name(name) for name in ("AMD Instinct MI300X OAM", "TPU v5 lite", "Cloud TPU v6e-256", "TPU7x")]
    ['mi300x', 'tpu-v5e', 'tpu-v6e', 'tpu-v7']
    """
    text = re.sub(r"[_-]+", " ", gpu.lower())
    for pattern, named in ((_NVIDIA, _nvidia), (_AMD, None), (_GAUDI, None)):
        if match := pattern.search(text):
            return named(match[0], text, memory) if named else re.sub(r"\W", "", match[0])
    tpu = next((name for word, name in _TPU_NAMES.items() if word in text), "") or _tpu(text)
    try:
        return tpu or preset_device(" ".join(_BRANDS.sub(" ", text).split())).name
    except UnknownName as error:
        hint = f"; did you mean {' or '.join(error.nearest)}?" if error.nearest else ""
        raise InputError(f"gpu {gpu!r} is not a known device{hint}") from None
    except InputError:
        raise InputError(f"gpu {gpu!r} is not a known device") from None


def _nvidia(name: str, text: str, memory: str) -> str:
    """The preset of a GPU that NVIDIA sells in several forms."""
    pcie = "pcie" in text
    if name == "a100":
        size = _memory(name, text, memory)
        return f"a100-{size}-pcie" if pcie else f"a100-{size}" if size == "40" else "a100"
    if name == "v100":
        return f"v100-{_memory(name, text, memory)}"
    if name == "a800" and pcie:
        return "a100-80-pcie"
    if name == "h100" and "hbm2e" in text and not pcie:
        return "h100-96"
    if name == "h100" and "nvl" in text.split():
        return "h100-nvl"
    return "h100-pcie" if name == "h100" and pcie else name


def _memory(name: str, text: str, memory: str) -> str:
    """The size that the column says, else the one in the name, else the usual one [GB]."""
    small, large = _WITH_MEMORY[name]
    written = memory or next(iter(_MEMORY.findall(text)), "")
    usual = large if name == "a100" else small
    return next((size for size in (small, large) if written.startswith(size)), usual)


def _tpu(text: str) -> str:
    """The preset of a TPU by its generation, "" where the text names none."""
    match = _TPU.search(text.replace("v5 lite", "v5e").replace("v6 lite", "v6e").replace("litepod", "e"))
    if match is None:
        return ""
    generation, kind = match[1] or match[3], match[2] or match[4] or ""
    return f"tpu-v{generation}{'' if kind == 'x' else {'lite': 'e'}.get(kind, kind)}"
