"""Key-value heads are split evenly, or replicated evenly when there are fewer of them than tensor ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class KvHeads:
    """tp divides the key-value heads or is a multiple of them; latent attention has none to split.

    Source: Megatron-LM, transformer_config.py (num_query_groups and tensor_model_parallel_size).
    """

    name: str = "kv-heads"
    variables: tuple[str, ...] = ("tp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the key-value heads split or replicate evenly."""
        heads = job.model.kv_heads
        return np.asarray((heads % plans.tp == 0) | (plans.tp % heads == 0) | (job.model.mla is not None))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Tp is a divisor or a multiple."""
        if job.model.mla is None:
            heads = job.model.kv_heads
            program.where(self.variables, lambda tp: max(tp, heads) % min(tp, heads) == 0, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"tp must divide the {job.model.kv_heads} key-value heads or be a multiple of them"
