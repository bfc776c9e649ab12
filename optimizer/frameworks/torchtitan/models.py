"""Which models torchtitan has, by preset: their family, what it calls their size, and the recipe that holds the rest.

Source: pytorch/torchtitan v0.2.2 (73a0e6979), v0.3.0 and b5bcd76c6: torchtitan/models/*/__init__.py and
config_registry.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer.job.model import Model

OLD, NEW, MAIN = "v0.2.2", "v0.3.0", "main (b5bcd76c6)"


@dataclass(frozen=True)
class Flavor:
    """A model in torchtitan: `recipe` is the function of its registry that sets data, loss and optimizer."""

    family: str
    name: str
    recipe: str
    releases: tuple[str, ...] = (OLD, NEW, MAIN)


LLAMA = {size: Flavor("llama3", size, f"llama3_{size.lower()}") for size in ("8B", "70B", "405B")}
NEWER = (NEW, MAIN)
MODELS: Mapping[str, Flavor] = {
    "llama3-8b": LLAMA["8B"],
    "llama3.1-8b": LLAMA["8B"],
    "llama3-70b": LLAMA["70B"],
    "llama3.1-70b": LLAMA["70B"],
    "llama3.3-70b": LLAMA["70B"],
    "llama3.1-405b": LLAMA["405B"],
    "llama3.2-1b": Flavor("llama3", "1B", "llama3_8b", NEWER),
    "llama3.2-3b": Flavor("llama3", "3B", "llama3_8b", NEWER),
    "deepseek-v2-lite": Flavor("deepseek_v3", "16B", "deepseek_v3_16b"),
    "deepseek-v2": Flavor("deepseek_v3", "236B", "deepseek_v3_16b"),
    "deepseek-v3": Flavor("deepseek_v3", "671B", "deepseek_v3_671b"),
    "deepseek-r1": Flavor("deepseek_v3", "671B", "deepseek_v3_671b"),
    "qwen3-0.6b": Flavor("qwen3", "0.6B", "qwen3_0_6b"),
    "qwen3-1.7b": Flavor("qwen3", "1.7B", "qwen3_1_7b"),
    "qwen3-4b": Flavor("qwen3", "4B", "qwen3_1_7b"),
    "qwen3-8b": Flavor("qwen3", "8B", "qwen3_14b"),
    "qwen3-14b": Flavor("qwen3", "14B", "qwen3_14b"),
    "qwen3-32b": Flavor("qwen3", "32B", "qwen3_32b"),
    "qwen3-30b-a3b": Flavor("qwen3", "30B-A3B", "qwen3_30b_a3b"),
    "qwen3-235b-a22b": Flavor("qwen3", "235B-A22B", "qwen3_30b_a3b"),
    "gpt-oss-20b": Flavor("gpt_oss", "20b", "gpt_oss_20b"),
    "gpt-oss-120b": Flavor("gpt_oss", "120b", "gpt_oss_120b"),
}


def flavor_of(model: Model, release: str) -> Flavor | None:
    """The model in a release of torchtitan; None where it has none of this shape.

    >>> from optimizer.catalog import load_model
    >>> flavor_of(load_model("llama3-70b"), NEW).recipe, flavor_of(load_model("gpt3"), NEW)
    ('llama3_70b', None)
    """
    from optimizer.catalog import preset_model

    flavor = MODELS.get(model.name)
    if flavor is None or release not in flavor.releases:
        return None
    own = preset_model(model.name)
    return flavor if replace(own, mtp_layers=0) == replace(model, mtp_layers=0) else None
