"""Every framework, a line each."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.frameworks.deepspeed.framework import DEEPSPEED
from optimizer.frameworks.framework import ConfigFormat, ExportFiles, Framework
from optimizer.frameworks.huggingface.framework import HUGGINGFACE
from optimizer.frameworks.llm_foundry.framework import LLM_FOUNDRY
from optimizer.frameworks.log_line import LogFormat
from optimizer.frameworks.maxtext.framework import MAXTEXT
from optimizer.frameworks.megatron.framework import DEEPSPEED_SCRIPTS, MEGATRON_LM
from optimizer.frameworks.megatron_bridge.framework import MEGATRON_BRIDGE
from optimizer.frameworks.nanotron.framework import NANOTRON
from optimizer.frameworks.nemo.framework import NEMO
from optimizer.frameworks.picotron.framework import PICOTRON
from optimizer.frameworks.primus.framework import PRIMUS
from optimizer.frameworks.torchtitan.framework import TORCHTITAN

# A framework whose files or lines another one has too, or trains with, comes before it.
EVERY: tuple[Framework, ...] = (
    MAXTEXT,
    PRIMUS,
    NEMO,
    MEGATRON_BRIDGE,
    MEGATRON_LM,
    DEEPSPEED_SCRIPTS,
    TORCHTITAN,
    NANOTRON,
    PICOTRON,
    LLM_FOUNDRY,
    DEEPSPEED,
    HUGGINGFACE,
)
FRAMEWORKS: Mapping[str, Framework] = {framework.name: framework for framework in EVERY}
CONFIGS: tuple[ConfigFormat, ...] = tuple(framework.config for framework in EVERY if framework.config)
LOGS: tuple[LogFormat, ...] = tuple(framework.log for framework in EVERY if framework.log)
RANKS = tuple(log.rank for log in LOGS if log.rank)
MARKS = tuple(dict.fromkeys(mark for log in LOGS for mark in log.marks))
TARGETS: Mapping[str, ExportFiles] = {name: files for framework in EVERY for name, files in framework.targets.items()}
