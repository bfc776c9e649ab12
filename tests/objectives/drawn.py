"""Random jobs and plans for the invariants of the objective: every kind of layer, every stack, every degree."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from optimizer.catalog import load_cluster, load_stack, stack_names
from optimizer.job.hardware import Cluster
from optimizer.job.job import Job
from optimizer.job.model import Model
from optimizer.job.plan import Knobs, Plan
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import Stack
from tests.search.jobs import DENSE, LATENT, MIXED, SHARED

LAYERS = 8
CLUSTERS = ("dgx-h100", "dgx-a100-80", "gb200-nvl72", "mi300x-8", "tpu-v5p-pod")
PLAIN = replace(DENSE, layers=LAYERS, vocab=51_200)
MODELS: tuple[Model, ...] = (
    PLAIN,
    replace(PLAIN, tied_embeddings=True),
    replace(PLAIN, experts=MIXED),
    replace(PLAIN, experts=SHARED, mtp_layers=1),
    replace(PLAIN, mla=LATENT.mla, experts=SHARED),
    replace(PLAIN, mla=LATENT.mla, mtp_layers=2, tied_embeddings=True),
)
STACKS = stack_names()


@cache
def stack(name: str) -> Stack:
    """A stack preset, read once."""
    return load_stack(name)


@cache
def cluster(name: str) -> Cluster:
    """A cluster preset, read once."""
    return load_cluster(name)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A small model on a cluster of some kind, in half precision."""
    return Job(
        model=draw(st.sampled_from(MODELS)),
        cluster=cluster(draw(st.sampled_from(CLUSTERS))),
        stack=stack(draw(st.sampled_from(STACKS))),
        gpus=64,
        seq_len=4096,
        global_batch=64,
        train=draw(st.sampled_from(["full", "full", "lora:8", "qlora:8:mlp", "frozen:experts,head"])),
        optimizer=draw(st.sampled_from(["", "", "lion", "adamw-8bit"])),
    )


@st.composite
def plans(draw: st.DrawFn, *, pipeline: int = 4) -> Plan:
    """Degrees that divide each other, any way to shard, to schedule and to recompute; sometimes uneven stages."""
    degrees = {name: 2 ** draw(st.integers(0, most)) for name, most in (("tp", 2), ("cp", 1), ("dp", 4))}
    replicas = degrees["cp"] * degrees["dp"]
    ep = draw(st.sampled_from([n for n in (1, 2, 4) if replicas % n == 0]))
    pp = draw(st.sampled_from([n for n in (1, 2, 4) if n <= pipeline]))
    several = ["1f1b", "interleaved", "zero-bubble", "zero-bubble-2p", "dualpipe"]
    schedule = draw(st.sampled_from(several if pp > 1 else ["1f1b"]))
    count = pp * draw(st.integers(1, 8))
    uneven = (3, 2, 2, 1) if pp == 4 and schedule != "interleaved" and draw(st.booleans()) else ()
    return Plan(
        **degrees,
        ep=ep,
        etp=draw(st.sampled_from([1, degrees["tp"]])),
        pp=pp,
        vpp=2 if schedule == "interleaved" else 1,
        micro_batch=draw(st.integers(1, 3)),
        num_microbatches=count,
        sequence_parallel=degrees["tp"] > 1 and draw(st.booleans()),
        zero_stage=draw(st.integers(0, 3)),
        shard=draw(st.sampled_from([0, 0, 2])) if replicas % 2 == 0 else 0,
        recompute=draw(st.sampled_from(RECOMPUTE)),
        activation_offload=draw(st.sampled_from([0, 0, 50])),
        schedule=schedule,
        overlap_exchange=ep > 1 and draw(st.booleans()),
        layers_per_stage=uneven,
    )


@st.composite
def knobs(draw: st.DrawFn) -> Knobs:
    """Knobs anywhere in their box."""
    return Knobs(
        bucket=draw(st.floats(10e6, 1e9)),
        comm_sm_share=draw(st.floats(0.02, 0.3)),
        offload=draw(st.sampled_from([0.0, 0.4, 1.0])),
    )
