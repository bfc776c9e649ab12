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

_HOME = {
    "Alternative": "optimizer.answer.answer",
    "Answer": "optimizer.answer.answer",
    "Certificate": "optimizer.answer.answer",
    "Clash": "optimizer.answer.answer",
    "Cluster": "optimizer.job.hardware",
    "Device": "optimizer.job.hardware",
    "Estimate": "optimizer.objectives.step.estimate",
    "Infeasible": "optimizer.base.errors",
    "InputError": "optimizer.base.errors",
    "Job": "optimizer.job.job",
    "Knobs": "optimizer.job.plan",
    "Limits": "optimizer.job.job",
    "Link": "optimizer.job.hardware",
    "Model": "optimizer.job.model",
    "OptimizerError": "optimizer.base.errors",
    "Plan": "optimizer.job.plan",
    "Stack": "optimizer.job.stack",
    "load_cluster": "optimizer.catalog",
    "load_device": "optimizer.catalog",
    "load_link": "optimizer.catalog",
    "load_model": "optimizer.catalog",
    "load_stack": "optimizer.catalog",
    "plan": "optimizer.api",
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
        return _importlib.import_module("optimizer.base.release").release()
    if name not in _HOME:
        raise AttributeError(f"module 'optimizer' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
