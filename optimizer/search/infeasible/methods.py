"""Other ways of training a model: lighter ones than that which does not fit, each with the software that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from optimizer.catalog import load_stack
from optimizer.catalog.stacks import default_stack
from optimizer.job.job import Job
from optimizer.job.method import WAYS, lighter_ways, method_of, optimizer_of, tunes


def lighter_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """The job by every lighter way, with the options that ask for it; nothing where it has more GPUs than a node.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=16)
    >>> [(options, lighter.stack.name) for options, lighter in lighter_jobs(job)][-1]
    ('--train qlora', 'hf-2026')
    """
    if job.gpus > job.cluster.gpus_per_node:
        return
    for train, optimizer in lighter_ways(job.train, job.optimizer):
        options = f"--train {train}" if train != job.train else f"--optimizer {optimizer}"
        yield options, by_way(job, train, optimizer)


def by_way(job: Job, train: str, optimizer: str) -> Job:
    """The job by another way of training; software that is the usual one of some way gives place to that of the way."""
    usual = {_usual(job, *way) for way in (*WAYS, (job.train, job.optimizer))}
    tuned = tunes(method_of(train), optimizer_of(optimizer)) and job.stack.name in usual
    stack = load_stack(_usual(job, train, optimizer)) if tuned else job.stack
    return replace(job, train=train, optimizer=optimizer, base=job.base if train == job.train else "", stack=stack)


def _usual(job: Job, train: str, optimizer: str) -> str:
    """The software that a way takes where nobody names it."""
    method, rule = method_of(train), optimizer_of(optimizer)
    return default_stack(job.cluster.device, tunes(method, rule), rule.in_backward)
