"""The recomputation of activations is one that the stack offers and the model allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.recomputation import MODES, RECOMPUTE, modules_of
from optimizer.objectives.layer.module_sets import offered_modules


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """Recompute is none, selective or full as the stack offers, or modules that it can recompute in this model."""

    name: str = "recompute"
    variables: tuple[str, ...] = ("recompute",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can recompute so."""
        offered = np.array([_offered(job, mode) for mode in RECOMPUTE])
        return np.asarray(offered[plans.recompute])

    def post(self, job: Job, program: Program, literal: int) -> None:
        """The mode is one of those offered."""
        program.restrict("recompute", [code for code, mode in enumerate(RECOMPUTE) if _offered(job, mode)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        modules = offered_modules(job.model, job.stack.features.recompute_modules)
        named = f", and in {job.model.name} of the modules {', '.join(modules)}" if modules else ""
        return f"{job.stack.name} offers {', '.join(job.stack.features.recompute)} recompute{named}"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """The mode to offer, cheapest first."""
        return plans.recompute.astype(np.float64)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A stack that offers one more mode, or the modules of one more."""
        mode, features = RECOMPUTE[int(required)], job.stack.features
        if mode in MODES:
            features = replace(features, recompute=(*features.recompute, mode))
        else:
            modules = dict.fromkeys((*features.recompute_modules, *modules_of(mode)))
            features = replace(features, recompute_modules=tuple(modules))
        return replace(job, stack=replace(job.stack, features=features)), f"allow {mode} recompute"


def _offered(job: Job, mode: str) -> bool:
    if mode in MODES:
        return mode in job.stack.features.recompute
    return set(modules_of(mode)) <= set(offered_modules(job.model, job.stack.features.recompute_modules))
