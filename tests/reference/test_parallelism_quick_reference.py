"""The quick reference on parallelism: volumes, messages, bubbles and the roofline of GPT-3 175B.

What is wrong or inconsistent in the document, and what is used here:

* DP 2P and FSDP 3P drop (N - 1) / N; the printed 700 and 1050 GB are the limits for many GPUs.
* TP is 1228 GB in a table and ~1200 GB elsewhere; B = 32, S = 2048, H = 12288 give 1237 GB. 1228.8 GB comes from
  rounding an all-reduce's 3.22 GB to 3.2 GB. It also drops (N - 1) / N, 12.5 % at TP 8.
* PP ~45 GB is twice what its 448 messages carry, 448 x 50.3 MB = 22.5 GB: sender and receiver are both counted. And it
  is the sum over all stage boundaries, whereas DP, FSDP and TP are per GPU; an inner stage sends 3.2 GB.
* "~100 messages per step" of FSDP counts one per layer; its own recipe has three, 288 for 96 layers, and the
  embedding and the head are sharded as well: 294.
* DP and FSDP are timed over "InfiniBand 200 GB/s": that is 200 Gb/s, 25 GB/s, per HDR port. At it, 28 s and 42 s.
* "Gradient staleness" is no drawback of the synchronous pipelines described, which flush every step.
* A pipeline does not "store M micro-batches" under 1F1B, but at most as many as there are stages after it.
* "FSDP is 1.5x slower" compares traffic, not steps; it overlaps, as the same document says.
* V100 900 GB/s and A100 1555 GB/s are right (the 40 GB A100), H100 is 3350 GB/s and 989 dense TFLOP/s, not 3000, 1000.
* NVLink "~600 GB/s" is the duplex figure of NVLink 3.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.kernels.roofline import attainable_flops, ridge
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.objectives.pipeline.schedules import bubble_fraction
from optimizer.studies.communication import communication

GPT3 = load_model("gpt3")
WEIGHTS = 175e9 * 2
MANY = 10**6
SAMPLES, SEQUENCE = 32, 2048


@pytest.fixture(scope="module")
def job() -> Job:
    """GPT-3 with the document's batch of 32 sequences of 2,048 tokens, fp16."""
    return Job(
        model=GPT3,
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=8,
        seq_len=SEQUENCE,
        global_batch=SAMPLES,
    )


def test_volumes_per_device() -> None:
    """1 GB on four devices: 1.5 GB for an all-reduce, 0.75 GB for each of its halves; on 1,024 devices 1.998 GB."""
    assert float(volume_per_rank("all_reduce", 1e9, 4)) == 1.5e9
    assert float(volume_per_rank("all_gather", 1e9, 4)) == 0.75e9
    assert float(volume_per_rank("reduce_scatter", 1e9, 4)) == 0.75e9
    assert round(float(volume_per_rank("all_reduce", 1e9, 1024)) / 1e9, 3) == 1.998


def test_data_parallel_and_fsdp_volumes() -> None:
    dp = float(volume_per_rank("all_reduce", WEIGHTS, MANY))
    fsdp = float(2 * volume_per_rank("all_gather", WEIGHTS, MANY) + volume_per_rank("reduce_scatter", WEIGHTS, MANY))
    assert (round(dp / 1e9), round(fsdp / 1e9)) == (700, 1050)
    assert round(fsdp / dp, 9) == 1.5
    assert (round(dp / 200e9, 2), round(fsdp / 200e9, 2)) == (3.5, 5.25)
    assert (round(dp / 25e9), round(fsdp / 25e9)) == (28, 42)
    assert round(1024 * dp / 1e12, 1) == 716.8


def test_tensor_parallel_volume(job: Job) -> None:
    """4 all-reduces in each of 96 layers, 384 in a step with one micro-batch of 32 sequences."""
    study = communication(job, Plan(tp=8, dp=1, micro_batch=SAMPLES, num_microbatches=1))
    (reduce,) = (row for row in study.rows if row.traffic.parallelism == "tp")
    assert reduce.traffic.kind == "all_reduce"
    assert (reduce.traffic.per_layer, reduce.traffic.per_step) == (4, 384)
    assert reduce.traffic.message == 2 * SAMPLES * SEQUENCE * 12288
    assert reduce.volume_per_step == pytest.approx(7 / 8 * 384 * 2 * reduce.traffic.message)
    assert round(384 * float(volume_per_rank("all_reduce", reduce.traffic.message, MANY)) / 1e12, 1) == 1.2
    assert int(384 * float(volume_per_rank("all_reduce", 1.6e9, MANY)) / 1e9) == 1228


def test_pipeline_messages_and_volume(job: Job) -> None:
    """8 stages, 32 micro-batches of one sequence: 2 x 32 x 7 = 448 messages of 50.3 MB, 22.5 GB; twice that is 45."""
    study = communication(job, Plan(pp=8, micro_batch=1, num_microbatches=32))
    (send,) = (row for row in study.rows if row.traffic.parallelism == "pp")
    assert send.traffic.in_total == 448
    assert send.total_volume == pytest.approx(448 * 2 * SEQUENCE * 12288)
    assert round(send.total_volume / 1e9, 1) == 22.5
    assert round(2 * send.total_volume / 1e9) == 45
    assert round(send.volume_per_step / 1e9, 1) == 3.2


def test_messages_of_data_parallelism(job: Job) -> None:
    """One per step without buckets; FSDP gathers twice and scatters once in each of 96 layers, embedding and head.

    The document's gradients are fp16 as its weights are.
    """
    features = replace(job.stack.features, grad_bytes=2)
    job = replace(job, stack=replace(job.stack, features=features))
    plain = communication(job, Plan(dp=8, num_microbatches=4, zero_stage=0), Knobs(bucket=1e15))
    sharded = communication(job, Plan(dp=8, micro_batch=4, zero_stage=3))
    assert [row.traffic.per_step for row in plain.rows] == [1]
    assert sum(row.traffic.per_step for row in sharded.rows) == 3 * (96 + 2)
    traffic = {row.traffic.kind: row.volume_per_step for row in sharded.rows}
    assert traffic["all_gather"] == pytest.approx(2 * traffic["reduce_scatter"])


def test_bubble() -> None:
    """Four stages, 16 micro-batches: 3/19 of the time idle, 3/16 over the ideal time."""
    exact = float(bubble_fraction(4, 1, 16))
    assert round(exact * 100, 1) == 15.8
    assert exact / (1 - exact) == pytest.approx(3 / 16)
    deep = float(bubble_fraction(8, 1, 4 * 8))
    assert deep / (1 - deep) < 0.25


def test_megatrons_gpt3() -> None:
    assert Plan(tp=8, pp=16, dp=8).gpus == 1024


def test_roofline() -> None:
    """min(peak, bandwidth x intensity): a 500 TFLOP/s GPU fed with 25 FLOP/B at 2 TB/s sustains 50 TFLOP/s."""
    assert float(attainable_flops(25.0, 500e12, 2e12)) == 50e12
    assert float(attainable_flops(1e4, 500e12, 2e12)) == 500e12
    assert ridge(1000e12, 3000e9) == pytest.approx(333.3, abs=0.1)
    assert round(1555 / 900, 2) == 1.73


def test_strong_scaling_halves_the_work_of_a_gpu(job: Job) -> None:
    twice = replace(job, gpus=16)
    assert (twice.tokens / twice.gpus) * 2 == job.tokens / job.gpus
