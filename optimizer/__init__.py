"""Plan the training of large language models: the proven best parallelism for a model and a number of GPUs.

    import optimizer

    answer = optimizer.plan(model="gpt3", gpus=1024)

Names are imported when they are first used, so that `optimize --help` stays fast.
"""

from __future__ import annotations

import importlib as _importlib
import sys as _sys
import types as _types
import typing as _typing

if _typing.TYPE_CHECKING:
    from optimizer.answer import Alternative, Answer, Certificate, Clash
    from optimizer.api import plan
    from optimizer.errors import Infeasible, InputError, OptimizerError
    from optimizer.hardware import Cluster, Device, Link
    from optimizer.job import Job, Limits
    from optimizer.model import Model
    from optimizer.objectives.step.estimate import Estimate
    from optimizer.plan import Knobs, Plan
    from optimizer.presets import load_cluster, load_device, load_link, load_model, load_stack
    from optimizer.stack import Stack

    __version__: str

_HOME = {
    "Alternative": "optimizer.answer",
    "Answer": "optimizer.answer",
    "Certificate": "optimizer.answer",
    "Clash": "optimizer.answer",
    "Cluster": "optimizer.hardware",
    "Device": "optimizer.hardware",
    "Estimate": "optimizer.objectives.step.estimate",
    "Infeasible": "optimizer.errors",
    "InputError": "optimizer.errors",
    "Job": "optimizer.job",
    "Knobs": "optimizer.plan",
    "Limits": "optimizer.job",
    "Link": "optimizer.hardware",
    "Model": "optimizer.model",
    "OptimizerError": "optimizer.errors",
    "Plan": "optimizer.plan",
    "Stack": "optimizer.stack",
    "load_cluster": "optimizer.presets",
    "load_device": "optimizer.presets",
    "load_link": "optimizer.presets",
    "load_model": "optimizer.presets",
    "load_stack": "optimizer.presets",
}

__all__ = [
    "Alternative",
    "Answer",
    "Certificate",
    "Clash",
    "Cluster",
    "Device",
    "Estimate",
    "Infeasible",
    "InputError",
    "Job",
    "Knobs",
    "Limits",
    "Link",
    "Model",
    "OptimizerError",
    "Plan",
    "Stack",
    "load_cluster",
    "load_device",
    "load_link",
    "load_model",
    "load_stack",
    "plan",
]


def __getattr__(name: str) -> _typing.Any:
    if name == "__version__":
        return _importlib.import_module("optimizer.release").release()
    if name not in _HOME:
        raise AttributeError(f"module 'optimizer' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(_types.ModuleType):
    """The package as a module whose `plan` is always the function.

    Importing the submodule `optimizer.plan` would otherwise rebind the name to that module.
    """

    @property
    def plan(self) -> _typing.Any:
        return _importlib.import_module("optimizer.api").plan

    @plan.setter
    def plan(self, module: _types.ModuleType) -> None:
        """Ignore the import system: `optimizer.plan` stays importable, being in `sys.modules`."""


_sys.modules[__name__].__class__ = _Package
