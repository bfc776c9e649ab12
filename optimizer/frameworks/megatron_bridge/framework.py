"""Megatron-Bridge."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.framework import ConfigFormat, ExportFiles, Framework
from optimizer.frameworks.megatron import config
from optimizer.frameworks.megatron.export import COMMUNICATORS, communicators_file
from optimizer.frameworks.megatron.framework import SETTABLE
from optimizer.frameworks.megatron_bridge import log
from optimizer.frameworks.megatron_bridge.export import FILES

MEGATRON_BRIDGE = Framework(
    name=config.BRIDGE,
    stack="megatron-bridge-2025",
    config=ConfigFormat(
        files=("Megatron-Bridge YAML",), recognised=config.is_bridge, read=partial(config.read, config.BRIDGE)
    ),
    log=log.LOG,
    targets={
        "megatron-bridge": ExportFiles(files={COMMUNICATORS: communicators_file, **FILES}, companions=(COMMUNICATORS,))
    },
    settable=SETTABLE,
)
