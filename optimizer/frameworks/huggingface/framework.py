"""The Hugging Face Trainer: its arguments are launched with DeepSpeed or Accelerate."""

from __future__ import annotations

from optimizer.frameworks.framework import Framework
from optimizer.frameworks.huggingface import log

HUGGINGFACE = Framework(name="Hugging Face Trainer", log=log.LOG)
