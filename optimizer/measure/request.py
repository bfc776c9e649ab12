"""The program that users run on their nodes: what it should measure for a job is written into it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from optimizer.job.job import Job
from optimizer.objectives.kernels.operators import Attention, Layer, head_operators, layer_operators
from optimizer.objectives.kernels.shapes import Shapes

SPLITS = (1.0, 2.0, 4.0, 8.0)  # tensor (and expert) parallelism of the shapes
MICRO_BATCHES = (1.0, 2.0)
# Edges of the grid besides the job's own shapes: the curve that is fitted must also hold for other models.
GRIDS = ((512, 2048, 8192), (1024, 4096, 16384))
MESSAGES = tuple(2**power for power in range(11, 31))  # 20 sizes, 2 KiB to 1 GiB
LARGEST_ARRAY = 2**30  # B, of the memory part
EMPTY = "REQUEST: dict[str, Any] = {}\n"


def program_text(request: Mapping[str, Any]) -> str:
    """The source of the node program, whole and importing nothing of ours, with this request in place of its empty one.

    >>> text = program_text({"seconds": 60.0})
    >>> 'REQUEST: dict[str, Any] = {"seconds": 60.0}' in text, "optimizer" in text
    (True, False)
    """
    source = files("optimizer.measure").joinpath("node_program.py").read_text(encoding="utf-8")
    before, after = source.split(EMPTY)
    # JSON of numbers, texts and lists is Python.
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in request.items()]
    literal = "{" + lines[0] + "}" if len(lines) == 1 else "{\n    " + ",\n    ".join(lines) + ",\n}"
    return f"{before}REQUEST: dict[str, Any] = {literal}\n{after}"


def measure_request(job: Job, seconds: float) -> dict[str, Any]:
    """The request that the node program holds; `seconds` [s] is the time of all parts.

    Products are (m, n, k) of the forward pass and (n, k, m) of weight gradients, over SPLITS and MICRO_BATCHES.
    """
    layers = _layers(job)
    return {
        "job": {"model": job.model.name, "seq_len": job.seq_len, "dtype": job.dtype},
        "seconds": seconds,
        "products": sorted(
            {*(size for edges in GRIDS for size in itertools.product(edges, repeat=3)), *_products(layers)}
        ),
        "attention": _attention(job, layers),
        "memory": LARGEST_ARRAY,
        "messages": MESSAGES,
    }


def _layers(job: Job) -> list[Layer]:
    """The operators of every kind of layer and of the head, each over all the splits."""
    model = job.model
    splits = [tp for tp in SPLITS if model.heads % tp == 0]
    tp, micro = (np.array(column) for column in zip(*itertools.product(splits, MICRO_BATCHES), strict=True))
    experts = model.experts.count if model.experts else 1
    shapes = Shapes(
        tp=tp,
        cp=np.ones_like(tp),
        ep=np.array([float(math.gcd(experts, 8))] * tp.size),
        etp=np.ones_like(tp),
        micro_batch=micro,
        sequence_parallel=tp > 1,
        seq_len=job.seq_len,
    )
    return [
        *(layer_operators(kind.model, shapes, job.software, kind.moe) for kind in model.kinds),
        head_operators(model, shapes, job.stack),
    ]


def _products(layers: list[Layer]) -> set[tuple[int, int, int]]:
    products = set()
    for gemm in (gemm for layer in layers for gemm in layer.gemms):
        for m, n, k in zip(
            *(np.maximum(1, np.round(x)).astype(int).tolist() for x in (gemm.m, gemm.n, gemm.k)), strict=True
        ):
            products |= {(m, n, k), (n, k, m)}
    return products


def _attention(job: Job, layers: list[Layer]) -> list[dict[str, int]]:
    """Heads of one rank over the job's sequence, and over shorter ones."""
    core = next(layer.attention for layer in layers if isinstance(layer.attention, Attention))
    heads = sorted({round(value) for value in core.heads.tolist()})
    lengths = sorted({length for length in (1024, 4096, job.seq_len) if length <= job.seq_len})
    return [
        {"batch": 1, "heads": count, "seq_len": length, "qk_dim": core.qk_dim, "v_dim": core.v_dim}
        for length in lengths
        for count in heads
    ]
