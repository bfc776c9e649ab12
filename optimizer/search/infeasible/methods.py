"""Lighter ways of training a model that does not fit on one node: an optimizer of fewer bytes, adapters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from optimizer.job.job import Job
from optimizer.job.method import lighter_ways


def lighter_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """The job by every lighter way, with the options that ask for it; nothing where it has more GPUs than a node.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=16, train="lora:64")
    >>> [options for options, _ in lighter_jobs(job)], [lighter.train for _, lighter in lighter_jobs(job)]
    (['--train qlora:64'], ['qlora:64'])
    """
    if job.gpus > job.cluster.gpus_per_node:
        return
    for train, optimizer in lighter_ways(job.train, job.optimizer):
        options = f"--train {train}" if train != job.train else f"--optimizer {optimizer}"
        base = job.base if job.method.adapts and train.partition(":")[0] == job.method.name else ""
        yield options, replace(job, train=train, optimizer=optimizer, base=base)
