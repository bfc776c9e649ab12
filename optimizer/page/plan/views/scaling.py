"""MFU against GPUs: the best plan at each number, beside data parallelism alone."""

from __future__ import annotations

from typing import Any

from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import html_of
from optimizer.studies.scaling import scaling
from optimizer.studies.scaling_report import scaling_chart

FACTORS = (0.25, 0.5, 1, 2, 4)


def scaling_view(asked: PlanQuestion) -> dict[str, Any]:
    """The study around the number of GPUs asked for, at one batch."""
    job = answered(asked).answer.job
    if "dp" in job.limits.fixed:
        raise InputError("DP is pinned, and with it the number of GPUs: free it to see others")
    study = scaling(job, counts(job))
    return {"html": html_of(scaling_chart(study))}


def counts(job: Job) -> list[int]:
    """Numbers of GPUs around the job's, of those that the cluster can have.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=6, seq_len=2048, global_batch=96)
    >>> counts(job)
    [3, 6, 12, 24]
    """
    sizes = (job.gpus * factor for factor in FACTORS)
    return sorted({int(size) for size in sizes if size == int(size) and 1 <= size <= job.cluster.max_gpus})
