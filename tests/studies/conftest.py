"""A job small enough to count by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job

OVERLAPS = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "p2p_overlap")


@pytest.fixture
def llama_job() -> Job:
    """LLaMA-3 8B on two nodes of H100, 64 sequences of 2,048 tokens."""
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=16,
        seq_len=2048,
        global_batch=64,
    )


@pytest.fixture
def unhidden() -> Callable[[Job], Job]:
    """The same job with a stack that hides no communication."""

    def change(job: Job) -> Job:
        parameters = {**job.stack.parameters, **dict.fromkeys(OVERLAPS, 0.0)}
        return replace(job, stack=replace(job.stack, parameters=parameters))

    return change
