"""Jobs whose software differs in single features, for the tests of layers and their modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job

TOKENS = 4096


def job(model: str, cluster: str = "h100", dtype: str = "bf16", **features: Any) -> Job:
    stack = load_stack("megatron-core")
    return Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        stack=replace(stack, features=replace(stack.features, **features)),
        gpus=64,
        seq_len=TOKENS,
        global_batch=256,
        dtype=dtype,
    )
