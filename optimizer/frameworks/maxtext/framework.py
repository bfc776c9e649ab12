"""MaxText."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import ConfigFormat, Framework, launch_by_keys
from optimizer.frameworks.maxtext import config, log

NAME = "MaxText"
MAXTEXT = Framework(
    name=NAME,
    stack="maxtext",
    config=ConfigFormat(
        files=("MaxText YAML",),
        recognised=config.recognised,
        read=partial(launch_by_keys, NAME, config.read, config.write),
    ),
    log=log.LOG,
    only={"vpp": (1,), "cp": (1,), "zero_stage": (3,), "shard": (), "recompute": ("none", "selective", "full")},
    sequence_parallel=True,
)
