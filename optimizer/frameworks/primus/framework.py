"""Primus on Megatron-LM; on MaxText its configs are read as those of MaxText."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import ConfigFormat, Framework
from optimizer.frameworks.megatron import config
from optimizer.frameworks.megatron.framework import SETTABLE
from optimizer.frameworks.primus import log

PRIMUS = Framework(
    name=config.PRIMUS,
    stack="megatron-core",
    config=ConfigFormat(files=("Primus YAML",), recognised=config.is_primus, read=partial(config.read, config.PRIMUS)),
    log=log.LOG,
    settable=SETTABLE,
)
