"""What each rule says of itself, with the numbers of the job that it is asked about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.constraints.rule import Rule
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.context_shares import ContextShares
from optimizer.constraints.rules.every import STRUCTURAL
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.rules.tied_pipeline import TiedPipeline
from optimizer.job.job import Job
from tests.constraints import test_cases as jobs
from tests.search.jobs import LATENT, small_job

DENSE = {
    "gpu-product": "tp x cp x pp x dp must be exactly 8 GPUs (8 = 2^3)",
    "batch": "dp x micro-batch must divide the global batch of 48 sequences",
    "heads": "tp must divide the 12 attention heads",
    "kv-heads": "tp must divide the 4 key-value heads or be a multiple of them",
    "mlp-width": "tp must divide the hidden and MLP widths 1,536, 6,144",
    "vocabulary": "the vocabulary of 50,000 padded to a multiple of 128 x tp may grow by at most 25%",
    "sequence": "2 cp (if cp > 1) x tp (with sequence parallelism) must divide 4,096 tokens",
    "context-parallel": "4,096 tokens / cp must leave at least 2,048 tokens on a rank",
    "layers": "pp must be at most the 12 layers; with vpp > 1, pp x vpp must divide one of the numbers from 12 to 14, "
    "as embedding and head may each count as a layer",
    "experts": "small is dense: ep must be 1",
    "expert-tp": "small is dense: etp must be 1",
    "expert-folding": "ep x etp must divide tp x cp x dp, the GPUs of one pipeline stage out of 8",
    "tp-scale-up": "tp must be at most 8 (the scale-up domain of dgx-h100) and tile nodes of 8 GPUs",
    "micro-batch": "the micro-batch must be at most 16 sequences",
    "interleaving": "vpp > 1 needs pp > 1, a number of micro-batches that pp divides, and vpp <= 16",
    "schedule": "test offers 1f1b, interleaved; interleaved needs vpp > 1 and the others vpp = 1",
    "bubble": "the pipeline bubble (pp - 1) / (vpp m + pp - 1) must be at most 0.1",
    "sequence-parallel": "sequence parallelism needs tp > 1, and ep > 1 with tp > 1 needs sequence parallelism",
    "zero-stage": "test offers ZeRO stages 0, 1; under a pipeline 0, 1",
    "shard": "the sharding group is all replicas, or under ZeRO-3 those of a node of 8 GPUs",
    "recompute": "test offers none, selective, full recompute",
    "activation-offload": "test keeps no activations on the host",
    "dispatcher": "small is dense: no tokens are dispatched",
    "overlap-exchange": "small is dense: no all-to-all can overlap",
    "overlap-pipeline": "an all-to-all that overlaps needs vpp > 1 or the schedule dualpipe where pp > 1",
    "overlap-recompute": "an all-to-all that overlaps needs a recomputation that repeats no whole layers, nor "
    "whole MoE layers",
    "dualpipe": "dualpipe needs an even pp and an even number of at least 2 pp micro-batches, and layers that you "
    "place (--fix layout=even or --fix layers_per_stage=...): it searches no layouts",
    "dualpipe-overlap": "dualpipe overlaps the all-to-all wherever ep > 1",
}
OTHERS: tuple[tuple[str, Job, str], ...] = (
    ("gpu-product", small_job(1), "tp x cp x pp x dp must be exactly 1 GPU"),
    ("gpu-product", small_job(7), "tp x cp x pp x dp must be exactly 7 GPUs (7 is prime)"),
    ("gpu-product", small_job(1015), "tp x cp x pp x dp must be exactly 1,015 GPUs (1,015 = 5 x 7 x 29)"),
    ("gpu-product", small_job(12), "tp x cp x pp x dp must be exactly 12 GPUs (12 = 2^2 x 3)"),
    ("gpu-product", small_job(6), "tp x cp x pp x dp must be exactly 6 GPUs (6 = 2 x 3)"),
    ("heads", small_job(model=LATENT), "tp must divide the 12 attention heads"),
    ("layers", jobs.EVEN, "pp x vpp must divide the 12 layers: test places them evenly"),
    ("experts", jobs.MOE, "ep must divide the 8 experts"),
    ("expert-tp", jobs.MOE, "etp must divide tp and the expert width of 1,024"),
    (
        "expert-tp",
        jobs.WHOLE,
        "etp must divide tp and the expert width of 1,024; test has etp = tp with ep = 1, and etp = 1 with more",
    ),
    ("context-parallel", jobs.UNFUSED, "test has no fused attention, which context parallelism needs"),
    ("tp-scale-up", jobs.CAPPED, "tp must be at most 4 (the limit set) and tile nodes of 8 GPUs"),
    (
        "sequence-parallel",
        jobs.MOE,
        "sequence parallelism needs tp > 1, and a MoE model with tp > 1 needs sequence parallelism",
    ),
    ("zero-stage", jobs.FSDP, "test offers ZeRO stages 0, 2, 3; under a pipeline 0, 1"),
    ("shard", jobs.ASKED, "the sharding group must divide dp x cp, and needs ZeRO stage 1 or more"),
    ("dispatcher", jobs.MOE, "test offers alltoall, where ep > 1"),
    ("overlap-exchange", jobs.MOE, "test overlaps the all-to-all with no other micro-batch when a plan asks"),
    ("overlap-exchange", jobs.OVERLAPS, "test overlaps the all-to-all with another micro-batch where ep > 1"),
    ("overlap-exchange", jobs.MTP, "an all-to-all overlaps with at most 1 MTP layer: 2"),
)
OF_SOME: tuple[tuple[Rule, Job, str], ...] = (
    (
        Memory(),
        jobs.JOB.with_limits(hbm=60e9, oom_risk=0.5),
        "every GPU must fit in 58.0 GB (60.0 GB less 2.0 GB for the context)",
    ),
    (
        HostActivations(),
        jobs.JOB,
        "activations on the host must fit in 200 GB per GPU, of 2,000 GB of a node of dgx-h100 (--set host_memory)",
    ),
    (
        TiedPipeline(),
        jobs.JOB,
        "test has no pipeline for small, whose embedding and head share their weights",
    ),
    (
        ContextShares(),
        jobs.SHARES,
        "test shares weights over whole context-parallel groups, which no ZeRO-0 does, and spreads experts over ranks "
        "that share them",
    ),
    (Batch(), replace(jobs.JOB, global_batch=1), "dp x micro-batch must divide the global batch of one sequence"),
    (Batch(), replace(jobs.JOB, global_batch=2), "dp x micro-batch must divide the global batch of 2 sequences"),
    (Batch(), replace(jobs.JOB, global_batch=1536), "dp x micro-batch must divide the global batch of 1,536 sequences"),
)
RULES = {rule.name: rule for rule in STRUCTURAL}


def test_what_rules_say_of_a_dense_model() -> None:
    assert {name: rule.explain(jobs.JOB) for name, rule in RULES.items()} == DENSE


@pytest.mark.parametrize(("name", "job", "sentence"), OTHERS)
def test_what_rules_say_of_others(name: str, job: Job, sentence: str) -> None:
    assert RULES[name].explain(job) == sentence


@pytest.mark.parametrize(("rule", "job", "sentence"), OF_SOME)
def test_what_rules_of_some_jobs_say(rule: Rule, job: Job, sentence: str) -> None:
    assert rule.explain(job) == sentence
