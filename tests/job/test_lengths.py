"""Lengths of documents: what a text means, what packing and padding compute, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.lengths import LONGEST, OFF, ON, lengths_of, longest, quantile_text
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.flops import causal_score_flops, job_score_flops
from optimizer.objectives.step.price import price

JOB = Job(
    model=load_model("llama3.1-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("megatron-core"),
    gpus=1,
    seq_len=8192,
    global_batch=16,
    train="lora",
)


def seconds(job: Job, **plan: int) -> float:
    """The step of a plan on one GPU."""
    plan = {"micro_batch": 1, **plan}
    one = Plan(num_microbatches=job.global_batch // plan["micro_batch"], **plan)
    return float(price(job, Plans.of([one])).step_time[0])


def test_a_mean_and_a_deviation_are_log_normal() -> None:
    sizes = lengths_of("900:600", OFF, LONGEST).sizes
    assert sizes.mean() == pytest.approx(900, rel=2e-3)
    assert sizes.std() == pytest.approx(600, rel=0.03)  # of a thousand points, without the tail
    assert np.log(sizes).std() == pytest.approx(np.sqrt(np.log(1 + (600 / 900) ** 2)), rel=5e-3)


def test_quantiles_are_met() -> None:
    sizes = lengths_of("p50:400,p95:1900", OFF, LONGEST).sizes
    assert np.quantile(sizes, [0.5, 0.95]) == pytest.approx([400, 1900], rel=0.01)


def test_a_list_of_lengths_keeps_its_mean_its_squares_and_its_longest() -> None:
    drawn = np.random.default_rng(0).gamma(2.0, 300.0, 20_000).astype(int) + 1
    sizes = lengths_of(quantile_text(drawn.tolist()), OFF, LONGEST).sizes
    assert sizes.mean() == pytest.approx(drawn.mean(), rel=5e-3)
    assert (sizes**2).mean() == pytest.approx((drawn**2).mean(), rel=0.02)
    assert longest(quantile_text(drawn.tolist())) == drawn.max()


def test_the_longest_of_a_micro_batch_is_that_of_draws() -> None:
    lengths, random = lengths_of("p0:100,p50:500,p100:4000", OFF, LONGEST), np.random.default_rng(1)
    drawn = random.choice(lengths.sizes, (100_000, 8)).max(axis=1)
    assert lengths.computed(np.array([8.0]), LONGEST)[0] == pytest.approx(drawn.mean(), rel=0.01)


@pytest.mark.parametrize(
    "text",
    ["-3", "900:", "900:x", "0", "900:9000", "p50:400", "p95:400,p50:900", "p50:900,p95:400", "1e9", "17000k"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--lengths must be a file"):
        lengths_of(text, ON, 2048)


def test_documents_as_long_as_a_sequence_change_nothing() -> None:
    for packing in (ON, OFF):
        same = replace(JOB, lengths="8192", packing=packing)
        assert seconds(same) == pytest.approx(seconds(JOB), rel=1e-12)
        assert same.tokens == JOB.tokens


def test_packed_documents_attend_to_themselves_alone() -> None:
    packed = replace(JOB, lengths="1024", packing=ON)
    assert job_score_flops(packed) == causal_score_flops(JOB.model, 1024)
    assert packed.tokens == JOB.tokens
    plans = Plans.of([Plan(micro_batch=1, num_microbatches=16)])
    whole, parts = (price(job, plans).time for job in (JOB, packed))
    assert parts["attention"][0] < 0.2 * whole["attention"][0]
    assert parts["gemm"][0] == whole["gemm"][0]


def test_padding_costs_the_more_the_larger_the_micro_batch() -> None:
    padded = replace(JOB, lengths="p0:100,p100:8192")
    assert seconds(replace(padded, lengths="2000"), micro_batch=8) < seconds(padded, micro_batch=8)
    assert seconds(padded, micro_batch=8) > 1.5 * seconds(padded)
    assert seconds(padded, micro_batch=8) < seconds(JOB, micro_batch=8)
    assert padded.tokens == pytest.approx(16 * lengths_of(padded.lengths, OFF, 8192).mean, rel=1e-3)


def test_the_longest_must_fit() -> None:
    plans = Plans.of([Plan(micro_batch=2, num_microbatches=8)])
    reserved = [float(price(job, plans).reserved[0]) for job in (JOB, replace(JOB, lengths="900:600"))]
    assert reserved[0] == reserved[1]


def test_sliding_windows_count_within_documents() -> None:
    windowed = replace(JOB, model=load_model("gemma3-4b"), lengths="512", packing=ON)
    assert job_score_flops(windowed) == causal_score_flops(windowed.model, 512)
