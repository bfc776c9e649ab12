"""The two contexts of the lab: a small model on few nodes, and a large one on many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from optimizer.job.job import Job

SMALL, LARGE = "data parallel", "3-D parallel"


@dataclass(frozen=True, kw_only=True)
class Context:
    """A model preset on so many H100 with its batch; `title` is what the switch shows."""

    name: str
    title: str
    model: str
    gpus: int
    global_batch: int
    seq_len: int = 2048


CONTEXTS = {
    SMALL: Context(name=SMALL, title="A. Data parallel: 7B on 64 H100", model="gpt3-6.7b", gpus=64, global_batch=2048),
    LARGE: Context(name=LARGE, title="B. 3-D parallel: 175B on 1,024 H100", model="gpt3", gpus=1024, global_batch=1536),
}


@cache
def job_of(context: str) -> Job:
    """The job of a context, on DGX H100 with the default software.

    >>> job_of(LARGE).gpus, job_of(SMALL).model.name
    (1024, 'gpt3-6.7b')
    """
    from optimizer.catalog import load_cluster, load_model, load_stack

    found = CONTEXTS[context]
    return Job(
        model=load_model(found.model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=found.gpus,
        seq_len=found.seq_len,
        global_batch=found.global_batch,
    )
