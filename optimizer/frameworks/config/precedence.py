"""Which of several config files counts where they say different values: by the kind of file, never by their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from optimizer.frameworks.config.file import OVERRIDES, PYTHON, ConfigFile

# Kinds from that which others override to that which nothing does. A launcher's or an engine's own file comes before
# the trainer's: it takes over what is "auto" in it.
KINDS = (PYTHON, "engine", "file", OVERRIDES, "bash")
ENGINE = (
    *("zero_optimization", "train_micro_batch_size_per_gpu", "compute_environment", "distributed_type"),
    *("transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap"),  # of the Trainer's fsdp_config
)
OPEN = (None, "auto")  # values that leave it to another file


def kind(config: ConfigFile) -> str:
    """The kind of a config, one of KINDS.

    >>> kind(ConfigFile("ds.json", '{"zero_optimization": {"stage": 3}}', "json"))
    'engine'
    >>> kind(ConfigFile("sft.yaml", "bf16: true", "yaml")), kind(ConfigFile("x", "a.b=1", "overrides"))
    ('file', 'overrides')
    """
    if config.kind in KINDS:
        return config.kind
    return "engine" if any(path.partition(".")[0] in ENGINE for path in config.values) else "file"


def ordered(configs: Iterable[ConfigFile]) -> tuple[ConfigFile, ...]:
    """Configs from the one that all others override to the one that none does; of a kind by name."""
    return tuple(sorted(configs, key=lambda config: (KINDS.index(kind(config)), config.name)))


def merged(configs: Iterable[ConfigFile]) -> dict[str, Any]:
    """Everything that configs say: of a path in several the value of the last kind that does not leave it open."""
    values: dict[str, Any] = {}
    listed = ordered(configs)
    for place, config in enumerate(listed):
        later = (item for other in listed[place + 1 :] for item in other.leaves.items())
        over = {path: value for path, value in later if value not in OPEN}
        own = config.under(over) if "${" in config.text else config.values
        values |= {path: value for path, value in own.items() if value not in OPEN or path not in values}
    return values


def contradictions(configs: Sequence[ConfigFile]) -> list[str]:
    """Paths to which two files of one kind give different values, in words."""
    stated: dict[tuple[str, str], tuple[str, Any]] = {}
    problems = []
    for config in ordered(configs):
        for path, value in config.values.items():
            name, other = stated.setdefault((kind(config), path), (config.name, value))
            if value not in OPEN and other not in OPEN and value != other:
                problems.append(f"{path} is {other!r} in {name} and {value!r} in {config.name}: give one of them")
    return problems
