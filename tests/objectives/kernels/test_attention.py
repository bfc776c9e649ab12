"""The attention core: generations of fused kernels, the softmax through memory, and laws that hold for all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_device
from optimizer.job.job import Job
from optimizer.objectives.kernels.attention import (
    FLASH_BACKWARD,
    IN_TRAINING,
    KERNELS,
    MISALIGNED,
    flash_seconds,
    flash_time,
    generation_rate,
    launches,
    seconds,
    softmax_time,
    unfused_seconds,
)
from optimizer.objectives.kernels.operators import Attention, Layer, Scan
from tests.objectives.questions import job


def core(queries: float = 4096.0, head: int = 128) -> Attention:
    """Sixteen heads, causal."""
    length, heads = np.array([queries]), np.array([16.0])
    scores = heads * length * length
    return Attention(
        scores=scores, qk_dim=head, v_dim=head, context_share=0.5, heads=heads, queries=length, keys=length
    )


def under(kernel: str) -> Job:
    """GPT-3 on a stack with this kernel."""
    question = job("gpt3")
    return replace(question, stack=replace(question.stack, features=replace(question.stack.features, attention=kernel)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_longer_sequences_take_longer_and_the_backward_pass_takes_more(kernel: str) -> None:
    question = under(kernel)
    times = [float(seconds(question, core(queries), False)[0]) for queries in (512.0, 2048.0, 8192.0)]
    assert times == sorted(times)
    assert times[2] > 4 * times[1]
    assert float(seconds(question, core(), True)[0]) > float(seconds(question, core(), False)[0])


def test_a_fused_backward_pass_is_five_products_for_two() -> None:
    forward, backward = (float(seconds(under("flash"), core(), backward)[0]) for backward in (False, True))
    assert backward == pytest.approx(FLASH_BACKWARD * forward)
    assert FLASH_BACKWARD == 5 / 2


def test_newer_kernels_are_faster_on_hopper_and_the_mask_saves_unfused_ones_nothing() -> None:
    flash3, flash2, flash1, unfused = (
        float(seconds(under(kernel), core(), False)[0]) for kernel in ("flash3", "flash", "flash1", "unfused")
    )
    assert flash3 < flash2 < flash1
    assert flash3 / flash2 == pytest.approx(0.47)
    halved = replace(core(), context_share=0.25)
    assert float(seconds(under("unfused"), halved, False)[0]) == unfused
    assert float(seconds(under("flash"), halved, False)[0]) == pytest.approx(flash2 / 2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_kernel_beats_one_written_for_the_device(kernel: str) -> None:
    assert all(0 < generation_rate(kernel, peak) <= 1 for peak in (125e12, 312e12, 989.5e12, 2.5e15))


def test_few_thread_blocks_leave_multiprocessors_idle() -> None:
    full, scarce = (float(flash_time(np.array(1e12), np.array(1e9), np.array(w), 1e12)) for w in (1e6, 0.5))
    assert full == pytest.approx(1.0, rel=1e-5)
    assert scarce == pytest.approx(2.0, rel=1e-5)


def test_heads_that_defeat_wide_loads_slow_the_products_only() -> None:
    question = under("unfused")
    bandwidth = question.cluster.device.memory_bandwidth * question.stack["hbm_efficiency"]
    softmax = float(softmax_time(core().scores, question.stack["score_passes"], bandwidth)[0])
    aligned, odd = (float(unfused_seconds(question, core(head=head), False)[0]) - softmax for head in (128, 127))
    assert odd == pytest.approx(aligned / MISALIGNED, rel=0.05)


def at(rate: float, question: Job) -> Job:
    """The question with attention at this share of the peak."""
    rates = {**question.stack.parameters, "attention_efficiency": rate}
    return replace(question, stack=replace(question.stack, parameters=rates))


@pytest.mark.parametrize("device", ["a100-80", "rtx-4090"])
def test_without_asynchronous_units_the_older_kernels_run(device: str) -> None:
    """However slow software's kernels for H100 are, where these cannot run FlashAttention-2 has a rate of its own."""
    newer = under("flash3")
    here = replace(newer, cluster=replace(newer.cluster, device=load_device(device)))
    slow, older = at(0.05, here), at(IN_TRAINING, here)
    assert flash_seconds(slow, core()) == pytest.approx(flash_seconds(older, core()))


@pytest.mark.parametrize(
    ("kernel", "count"), [("flash", 1), ("flash1", 1), ("flash3", 1), ("fused_softmax", 4), ("unfused", 8)]
)
def test_a_fused_core_is_one_kernel_and_a_recurrence_five(kernel: str, count: int) -> None:
    for attention, launched in ((core(), count), (SCAN, 5), (None, 0)):
        assert launches(under(kernel), Layer(gemms=(), attention=attention, elementwise=())) == launched


SCAN = Scan(flops=np.array([1e12]), moved=np.array([1e9]), blocks=np.array([264.0]))


@pytest.mark.parametrize(
    ("kernel", "peak", "rate"),
    [
        *(("flash", 312e12, 1.0), ("flash", 600e12, 0.47 * 989.5 / 600), ("flash", 989.5e12, 0.47)),
        *(("flash", 2e15, 0.47), ("flash1", 312e12, 0.5), ("flash1", 2e15, 0.235), ("flash3", 312e12, 1.0)),
    ],
)
def test_a_generation_loses_on_units_that_it_was_not_written_for(kernel: str, peak: float, rate: float) -> None:
    assert generation_rate(kernel, peak) == pytest.approx(rate)


def test_a_recurrence_is_as_fast_as_its_products_or_its_bytes() -> None:
    """Two waves on 132 multiprocessors; 0.47 x 0.63 of the attention's rate; twice and a half as long backward."""
    question = job("gpt3")
    device = question.cluster.device
    rate = device.peak("bf16") * question.stack["attention_efficiency"] * 0.47 * 0.63
    assert device.sms == 132
    products = 1e12 * 2.5 / (2 * rate)
    assert float(seconds(question, SCAN, False)[0]) == pytest.approx(products)
    assert float(seconds(question, SCAN, True)[0]) == pytest.approx(2.5 * products)
    moved = replace(SCAN, moved=np.array([1e13]))
    bandwidth = device.memory_bandwidth * question.stack["hbm_efficiency"]
    assert float(seconds(question, moved, False)[0]) == pytest.approx(1e13 / bandwidth)
    faster = replace(device, peak_flops={name: 2 * rate for name, rate in device.peak_flops.items()})
    newer = replace(question, cluster=replace(question.cluster, device=faster))
    assert float(seconds(newer, SCAN, False)[0]) == pytest.approx(products)


def test_a_backward_pass_by_the_number_of_its_products() -> None:
    """Five for two where scores are not kept, four for two where they are; half of the softmax's passes fused."""
    for kernel, times in (("flash", 2.5), ("flash3", 2.5)):
        ahead, back = (float(seconds(under(kernel), core(), backward)[0]) for backward in (False, True))
        assert back == pytest.approx(times * ahead)
    question = under("unfused")
    passes = question.stack["score_passes"]
    bandwidth = question.cluster.device.memory_bandwidth * question.stack["hbm_efficiency"]
    softmax = 2 * 16 * 4096**2 * passes / bandwidth
    ahead, back = (float(unfused_seconds(question, core(), backward)[0]) for backward in (False, True))
    assert back - softmax == pytest.approx(2 * (ahead - softmax))
    fused = float(unfused_seconds(under("fused_softmax"), core(), False)[0])
    assert ahead - fused == pytest.approx(softmax / 2)
    odd = [float(unfused_seconds(question, replace(core(), **{name: 108}), False)[0]) for name in ("qk_dim", "v_dim")]
    even = [float(unfused_seconds(question, replace(core(), **{name: 104}), False)[0]) for name in ("qk_dim", "v_dim")]
    assert min(slow - softmax for slow in odd) > 5 * max(fast - softmax for fast in even)
