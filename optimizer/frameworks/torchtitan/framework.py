"""torchtitan."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.framework import ConfigFormat, ExportFiles, Framework, launch_by_keys
from optimizer.frameworks.torchtitan import config, export, export_python, log

NAME = "torchtitan"


def _launch(configs: tuple[ConfigFile, ...], gpus: int | None, model: str) -> ConfigLaunch:
    """The launch in its configs, of which a comment may count the GPUs."""
    read = partial(config.read, text=configs[0].text)
    return launch_by_keys(NAME, read, config.write, configs, gpus, model)


TORCHTITAN = Framework(
    name=NAME,
    stack="torchtitan-2024",
    config=ConfigFormat(
        files=("torchtitan TOML", "torchtitan config_registry.py"), recognised=config.recognised, read=_launch
    ),
    log=log.LOG,
    targets={"torchtitan": ExportFiles(files={"torchtitan.toml": export.torchtitan_toml, **export_python.FILES})},
    only={"vpp": (1,), "recompute": ("none", "selective", "full")},
    zero_stages=(0, 2, 3),
    piped_zero_stages=(0, 1),
    sequence_parallel=True,
)
