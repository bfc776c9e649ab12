"""torchtitan's Python configs in the keys of its TOML.

Source of the keys: pytorch/torchtitan, torchtitan/config/configs.py, torchtitan/distributed/activation_checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.python import CLASS, Leaf, read_function, with_lines

MODE, CONVERTERS = "activation_checkpoint.mode", "model.converters"
NAME, FLAVOR = "model.name", "model.flavor"
POLICIES: Mapping[str, str] = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory-budget"}
CLASSES: Mapping[str, str] = {"full": "FullAC", "selective": "SelectiveAC"}
CHUNKS = "loss.num_chunks"  # parts of the tokens of which a loss has the logits in turn
SPEC = "model_spec."
SPECIFIED = [SPEC + name for name in ("0", "flavor", "converters")]
OTHER_CONVERTERS = "model_converters.converters"  # where configs of early 2026 have them


def titan_leaves(text: str, function: str) -> dict[str, Leaf]:
    """The values of a config by the paths that a TOML has; classes become the modes that they stand for."""
    values = read_function(text, function)
    leaves = {
        path: leaf
        for path, leaf in values.items()
        if not path.endswith(CLASS) and not path.startswith("activation_checkpoint.") and path not in SPECIFIED
    }
    if (called := values.get(f"activation_checkpoint.{CLASS}")) is not None:
        policy = str(called.value).removesuffix(".Config")
        leaves[MODE] = values.get(MODE) or Leaf(POLICIES.get(policy, "selective"))
    elif (off := values.get("activation_checkpoint")) is not None and off.value is None:
        leaves[MODE] = Leaf("none")
        leaves.pop("activation_checkpoint")
    if str(getattr(values.get(f"loss.{CLASS}"), "value", "")).startswith("Chunked"):
        leaves[CHUNKS] = values.get(CHUNKS) or Leaf(8)  # torchtitan/components/loss.py
    if flavor := values.get(f"{SPEC}0") or values.get(f"{SPEC}flavor"):
        leaves[FLAVOR] = Leaf(flavor.value)
        size = str(flavor.value).lower().replace(".", "_").replace("-", "_")
        family, size_named, _ = function.partition(f"_{size}")
        if size_named:
            leaves[NAME] = Leaf(family)
    converters = values.get(f"{SPEC}converters") or values.get(OTHER_CONVERTERS)
    if converters is not None:
        leaves[CONVERTERS] = Leaf([str(name) for name in converters.value or []])
    leaves.pop(OTHER_CONVERTERS, None)
    return leaves


def titan_values(text: str, function: str) -> dict[str, Any]:
    """The same without places."""
    return {path: leaf.value for path, leaf in titan_leaves(text, function).items()}


def titan_changed(text: str, function: str, path: str, value: Any) -> str:
    """The file with one value set: where this function alone holds it, else in a line before it returns."""
    leaf = titan_leaves(text, function).get(path)
    if leaf is not None and leaf.span:
        return text[: leaf.span[0]] + repr(value) + text[leaf.span[1] :]
    if path != MODE:
        return with_lines(text, function, [f"config.{path} = {value!r}"])
    if value not in CLASSES:
        return with_lines(text, function, ["config.activation_checkpoint = None"])
    policy = CLASSES[value]
    return with_lines(
        text,
        function,
        [
            f"from torchtitan.distributed.activation_checkpoint import {policy}",
            f"config.activation_checkpoint = {policy}.Config()",
        ],
    )
