"""picotron."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import ConfigFormat, Framework, launch_by_keys
from optimizer.frameworks.picotron import config

NAME = "picotron"
PICOTRON = Framework(
    name=NAME,
    stack="nanotron-2024",
    config=ConfigFormat(
        files=("picotron JSON",),
        recognised=config.recognised,
        read=partial(launch_by_keys, NAME, config.read, config.write),
    ),
    only={"vpp": (1,), "ep": (1,), "recompute": ("none",), "sequence_parallel": (False,)},
    zero_stages=(0,),
)
