"""Named models, devices, links, clusters and software stacks, each number with its source."""

from collections.abc import Callable, Mapping
from typing import Any

from optimizer.presets.hardware import (
    cluster_names,
    device_names,
    link_names,
    load_cluster,
    load_device,
    load_link,
    preset_cluster,
    preset_device,
)
from optimizer.presets.models import load_model, model_names, model_spellings, preset_model
from optimizer.presets.stacks import load_stack, preset_stack, stack_names

# Every kind of preset: its names, and what loads one.
KINDS: Mapping[str, tuple[Callable[[], tuple[str, ...]], Callable[[str], Any]]] = {
    "model": (model_names, load_model),
    "device": (device_names, load_device),
    "link": (link_names, load_link),
    "cluster": (cluster_names, load_cluster),
    "stack": (stack_names, load_stack),
}

__all__ = [
    "KINDS",
    "cluster_names",
    "device_names",
    "link_names",
    "load_cluster",
    "load_device",
    "load_link",
    "load_model",
    "load_stack",
    "model_names",
    "model_spellings",
    "preset_cluster",
    "preset_device",
    "preset_model",
    "preset_stack",
    "stack_names",
]
