"""Weights that embedding and head share lie on one stage where the software keeps no copies of them in step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class TiedPipeline:
    """No pipeline for a model whose embedding is its head, unless the software has it on two stages.

    Source: pytorch/torchtitan @b5bcd76c66, torchtitan/models/common/decoder.py (update_from_config).
    """

    name: str = "tied-pipeline"
    variables: tuple[str, ...] = ("pp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether embedding and head lie on one stage."""
        return np.asarray(plans.pp == 1)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """One stage."""
        program.restrict("pp", [1], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's names."""
        return f"{job.stack.name} has no pipeline for {job.model.name}, whose embedding and head share their weights"
