"""Plan the training of large language models: the proven best parallelism for a model and a number of GPUs.

    from optimizer import Job, load_cluster, load_model, load_stack, plan

Names are imported when they are first used, so that `optimize --help` stays fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimizer.answer import Answer
    from optimizer.hardware import Cluster, Device, Link
    from optimizer.job import Job, Limits
    from optimizer.model import Model
    from optimizer.plan import Knobs, Plan
    from optimizer.presets import load_cluster, load_device, load_link, load_model, load_stack
    from optimizer.search.plan.planner import plan
    from optimizer.stack import Stack

__version__ = "0.1.0"

_HOME = {
    "Answer": "optimizer.answer",
    "Cluster": "optimizer.hardware",
    "Device": "optimizer.hardware",
    "Job": "optimizer.job",
    "Knobs": "optimizer.plan",
    "Limits": "optimizer.job",
    "Link": "optimizer.hardware",
    "Model": "optimizer.model",
    "Plan": "optimizer.plan",
    "Stack": "optimizer.stack",
    "load_cluster": "optimizer.presets",
    "load_device": "optimizer.presets",
    "load_link": "optimizer.presets",
    "load_model": "optimizer.presets",
    "load_stack": "optimizer.presets",
}

__all__ = [
    "Answer",
    "Cluster",
    "Device",
    "Job",
    "Knobs",
    "Limits",
    "Link",
    "Model",
    "Plan",
    "Stack",
    "load_cluster",
    "load_device",
    "load_link",
    "load_model",
    "load_stack",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'optimizer' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


class _Package(ModuleType):
    """The package as a module whose `plan` is always the function.

    Importing the submodule `optimizer.plan` would otherwise rebind the name to that module.
    """

    @property
    def plan(self) -> Any:
        return importlib.import_module("optimizer.search.plan.planner").plan

    @plan.setter
    def plan(self, module: ModuleType) -> None:
        """Ignore the import system: `optimizer.plan` stays importable, being in `sys.modules`."""


sys.modules[__name__].__class__ = _Package
