"""Sequences that a loss compares lie in one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans


@dataclass(frozen=True, kw_only=True)
class Together:
    """A micro-batch has whole samples: of DPO the answer that is preferred and the one that is not.

    KTO pairs each prompt with the answer to another one of its micro-batch.

    Source: huggingface/trl v1.16.0, trl/trainer/dpo_trainer.py (DataCollatorForPreference puts both into one batch),
    kto_trainer.py.
    """

    name: str = "together"
    variables: tuple[str, ...] = ("micro_batch",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the micro-batch is a multiple of a sample, and has sequences enough."""
        return comparable(job, plans.micro_batch)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """The multiples."""
        sizes = np.array(program.domains["micro_batch"])
        program.restrict("micro_batch", sizes[comparable(job, sizes)].tolist(), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's loss."""
        loss = job.training_loss
        return f"--loss {job.loss}: micro-batch must be a multiple of {loss.together} and at least {loss.least}"


def comparable(job: Job, micro_batch: IntArray) -> BoolArray:
    """Which micro-batches hold samples of the job's loss, and sequences enough of them."""
    loss = job.training_loss
    return np.asarray((micro_batch % loss.together == 0) & (micro_batch >= loss.least))
