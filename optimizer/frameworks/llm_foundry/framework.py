"""llm-foundry, which trains with Composer."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import SHARDED, ConfigFormat, Framework, launch_by_keys
from optimizer.frameworks.llm_foundry import config, log

NAME = "llm-foundry"
LLM_FOUNDRY = Framework(
    name=NAME,
    stack="llm-foundry-fsdp-2023",
    config=ConfigFormat(
        files=("llm-foundry YAML",),
        recognised=config.recognised,
        read=partial(launch_by_keys, NAME, config.read, config.write),
    ),
    log=log.LOG,
    only=SHARDED,
)
