"""Plan the training of large language models: the proven best parallelism for a model and a number of GPUs.

    import optimizer

    answer = optimizer.plan(model="gpt3", gpus=1024)

Names are imported when they are first used, so that `optimize --help` stays fast.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from optimizer.answer.answer import Alternative, Answer, Certificate, Clash
    from optimizer.api import plan
    from optimizer.base.errors import Infeasible, InputError, OptimizerError
    from optimizer.catalog import load_cluster, load_device, load_link, load_model, load_stack
    from optimizer.job.hardware import Cluster, Device, Link
    from optimizer.job.job import Job, Limits
    from optimizer.job.model import Model
    from optimizer.job.plan import Knobs, Plan
    from optimizer.job.stack import Stack
    from optimizer.objectives.step.estimate import Estimate

    __version__: str

# The public names of each module.
_NAMES = {
    "optimizer.answer.answer": ("Alternative", "Answer", "Certificate", "Clash"),
    "optimizer.api": ("plan",),
    "optimizer.base.errors": ("Infeasible", "InputError", "OptimizerError"),
    "optimizer.catalog": ("load_cluster", "load_device", "load_link", "load_model", "load_stack"),
    "optimizer.job.hardware": ("Cluster", "Device", "Link"),
    "optimizer.job.job": ("Job", "Limits"),
    "optimizer.job.model": ("Model",),
    "optimizer.job.plan": ("Knobs", "Plan"),
    "optimizer.job.stack": ("Stack",),
    "optimizer.objectives.step.estimate": ("Estimate",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["Alternative", "Answer", "Certificate", "Clash", "Cluster", "Device", "Estimate", "Infeasible"]
__all__ += ["InputError", "Job", "Knobs", "Limits", "Link", "Model", "OptimizerError", "Plan", "Stack"]
__all__ += ["load_cluster", "load_device", "load_link", "load_model", "load_stack", "plan"]


def __getattr__(name: str) -> _typing.Any:
    if name == "__version__":
        return _importlib.import_module("optimizer.base.release").release()
    if name not in _HOME:
        raise AttributeError(f"module 'optimizer' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
