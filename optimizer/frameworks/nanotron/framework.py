"""nanotron."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import ConfigFormat, Framework, launch_by_keys
from optimizer.frameworks.nanotron import config, log

NAME = "nanotron"
NANOTRON = Framework(
    name=NAME,
    stack="nanotron-2024",
    config=ConfigFormat(
        files=("nanotron YAML",),
        recognised=config.recognised,
        read=partial(launch_by_keys, NAME, config.read, config.write),
    ),
    log=log.LOG,
    only={"vpp": (1,), "recompute": ("none", "full")},
    zero_stages=(0, 1),
)
