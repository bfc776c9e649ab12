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
    seconds,
    softmax_time,
    unfused_seconds,
)
from optimizer.objectives.kernels.operators import Attention
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
