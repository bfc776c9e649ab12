"""The two contexts of the lab: a small model on few nodes, and a large one on many."""

from __future__ import annotations

from functools import cache

from optimizer.job.job import Job
from optimizer.page.learn.content_files import table

SMALL, LARGE = CONTEXTS = ("data parallel", "3-D parallel")


def title(context: str) -> str:
    """What the switch shows of a context."""
    return str(next(each["title"] for each in table("lab.toml")["context"] if each["name"] == context))


@cache
def job_of(context: str) -> Job:
    """The job of a context, on DGX H100 with the default software.

    >>> job_of(LARGE).gpus, job_of(SMALL).model.name
    (1024, 'gpt3-6.7b')
    """
    from optimizer.catalog import load_cluster, load_model, load_stack

    numbers = next(each for each in table("lab.toml")["context"] if each["name"] == context)
    return Job(
        model=load_model(numbers["model"]),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        **{name: numbers[name] for name in ("gpus", "seq_len", "global_batch")},
    )
