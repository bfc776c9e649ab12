"""Small jobs for the search's tests: by hand, and drawn by hypothesis."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from optimizer.answer.answer import Answer
from optimizer.answer.saved import SavedAnswer, SavedPlan
from optimizer.catalog import load_cluster
from optimizer.job.job import Job, Limits
from optimizer.job.model import Experts, LatentAttention, Model
from optimizer.job.recomputation import MODULES
from optimizer.job.stack import SETTABLE, Features, Stack

DENSE = Model(
    name="small",
    layers=12,
    hidden=1536,
    heads=12,
    kv_heads=4,
    head_dim=128,
    ffn_hidden=6144,
    vocab=50_000,
    max_seq_len=4096,
)
MIXTURE = replace(DENSE, name="small-moe", experts=Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=1))
LATENT = replace(
    DENSE, name="small-latent", mla=LatentAttention(q_rank=384, kv_rank=128, nope_dim=128, rope_dim=64, v_dim=128)
)

MIXED = Experts(count=4, top_k=2, ffn_hidden=512)
SHARED = replace(MIXED, shared_ffn_hidden=512, first_dense_layers=1)
ZERO_BUBBLE = ("zero-bubble", "zero-bubble-2p")


def small_job(gpus: int = 8, *, model: Model = DENSE, features: Features = Features(), **limits: Any) -> Job:
    """A job on H100s with a batch of 48 sequences of 4,096 tokens."""
    return Job(
        model=model,
        cluster=load_cluster("dgx-h100"),
        stack=Stack(name="test", features=features),
        gpus=gpus,
        seq_len=4096,
        global_batch=48,
        limits=Limits(**limits),
    )


def saved(answer: Answer) -> SavedAnswer:
    """An answer as if it had been read back, for models that are no presets."""
    bold = answer.safety.fastest if answer.safety else None
    return SavedAnswer(
        job=answer.job,
        plan=answer.plan,
        knobs=answer.knobs,
        claims=answer.certificate,
        alternatives=tuple(SavedPlan(plan=other.plan, knobs=other.knobs) for other in answer.alternatives),
        risked=answer.safety is not None,
        fastest=SavedPlan(plan=bold.plan, knobs=bold.knobs) if bold else None,
        trials=answer.trials,
        seed=answer.seed,
        document=json.loads(json.dumps(answer.to_dict())),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Random small jobs, dense and MoE, on 1 to 24 GPUs, whose limits sometimes bind and sometimes leave nothing.

    Every dimension of a plan may be on: schedules, sharding groups, recomputation of layers and modules, activations on
    the host, uneven stages, prediction layers.
    """
    heads = draw(st.sampled_from([4, 6, 8, 12]))
    model = replace(
        DENSE,
        layers=draw(st.integers(1, 10)),
        heads=heads,
        kv_heads=draw(st.sampled_from([1, 2, heads])),
        hidden=heads * 128,
        ffn_hidden=draw(st.sampled_from([2048, 3072])),
        vocab=draw(st.sampled_from([1000, 50_000])),
        experts=draw(st.sampled_from([None, None, MIXED, SHARED])),
        mla=draw(st.sampled_from([None, None, LATENT.mla])),
        mtp_layers=draw(st.sampled_from([0, 0, 1])),
    )
    features = Features(
        zero_stages=draw(st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2, 3)])),
        schedules=draw(
            st.sampled_from([("1f1b",), ("1f1b", "interleaved"), ("1f1b", "interleaved", *ZERO_BUBBLE), ()])
        ),
        recompute=draw(st.sampled_from([("none",), ("none", "full"), ("none", "selective", "full")])),
        recompute_modules=draw(st.sampled_from([(), MODULES, ("layernorm", "mlp", "moe", "shared_experts")])),
        activation_offload=draw(st.booleans()),
        hosted_weights=draw(st.sampled_from([False, False, True])),
        sequence_parallel=draw(st.booleans()),
        uneven_stages=draw(st.booleans()),
        settable=draw(st.sampled_from([SETTABLE, SETTABLE, ("bucket", "comm_sm_share"), ()])),
        offers_overlap=draw(st.booleans()),
    )
    limits = Limits(
        bubble=draw(st.sampled_from([0.05, 0.1, 0.3, 1.0])),
        hbm=draw(st.sampled_from([0.0, 3.5e9, 5e9, 10e9])),
        max_tp=draw(st.sampled_from([0, 2])),
        max_micro_batch=draw(st.sampled_from([1, 2])),
        max_vpp=draw(st.sampled_from([1, 4])),
        fixed=draw(st.sampled_from([{}, {}, {}, {"tp": 2}, {"pp": 2, "cp": 1}, {"pp": 2, "recompute": "full"}])),
    )
    return Job(
        model=model,
        cluster=load_cluster("dgx-h100"),
        stack=Stack(name="test", features=features),
        gpus=draw(st.integers(1, 24)),
        seq_len=draw(st.sampled_from([2048, 4096])),
        global_batch=draw(st.sampled_from([4, 8, 12, 24])),
        limits=limits,
        train=draw(st.sampled_from(["full", "full", "full", "lora:8", "qlora:4:attention", "frozen:embedding,mlp"])),
        optimizer=draw(st.sampled_from(["", "", "muon", "paged-adamw-8bit"])),
    )
