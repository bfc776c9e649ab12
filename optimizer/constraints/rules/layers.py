"""Every (virtual) pipeline stage holds at least one layer, evenly where the schedule asks for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Layers:
    """pp x vpp is at most the layers, and divides them unless the stack can place layers unevenly.

    With uneven stages pp is free when vpp = 1; interleaved virtual stages stay equal, but embedding, MTP layers
    and head may each count as one layer.

    Source: Megatron-LM, --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split.
    """

    name: str = "layers"
    variables: tuple[str, ...] = ("pp", "vpp")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the layers can be placed."""
        layers, virtual_stages = job.model.layers, plans.pp * plans.vpp
        even = np.logical_or.reduce([total % virtual_stages == 0 for total in range(layers, layers + slack(job) + 1)])
        if job.stack.features.uneven_stages:
            even = even | (plans.vpp == 1)
        return np.asarray((virtual_stages <= layers) & even)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the stages and virtual stages that can be filled."""
        layers, uneven = job.model.layers, job.stack.features.uneven_stages

        def fits(pp: int, vpp: int) -> bool:
            evenly = any(total % (pp * vpp) == 0 for total in range(layers, layers + slack(job) + 1))
            return pp * vpp <= layers and (evenly or (uneven and vpp == 1))

        program.where(self.variables, fits, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.stack.features.uneven_stages:
            mtp = ", MTP layers" if job.model.mtp_layers else ""
            least, most = job.model.layers, job.model.layers + slack(job)
            return (
                f"pp must be at most the {least} layers; with vpp > 1, pp x vpp must divide one of the numbers from "
                f"{least} to {most}, as embedding{mtp} and head may each count as a layer"
            )
        return f"pp x vpp must divide the {job.model.layers} layers: {job.stack.name} places them evenly"


def slack(job: Job) -> int:
    """What may count as layers besides them: embedding, MTP layers and head, where stages may be uneven."""
    return 2 + job.model.mtp_layers if job.stack.features.uneven_stages else 0
