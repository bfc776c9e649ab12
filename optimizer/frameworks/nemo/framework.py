"""NeMo."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import ConfigFormat, Framework
from optimizer.frameworks.megatron import config
from optimizer.frameworks.nemo import log

NEMO = Framework(
    name=config.NEMO,
    stack="nemo-2024",
    config=ConfigFormat(files=("NeMo YAML",), recognised=config.is_nemo, read=partial(config.read, config.NEMO)),
    log=log.LOG,
)
