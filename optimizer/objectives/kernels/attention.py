"""Seconds of the attention core: fused (flash) kernels, or the unfused product-softmax-product of older stacks."""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.gemm import gemm_time
from optimizer.objectives.kernels.gemm_curve import curve_for
from optimizer.objectives.kernels.operators import Attention, Layer, Scan

KERNELS = {"flash": 1, "flash1": 1, "flash3": 1, "fused_softmax": 4, "unfused": 8}  # launches of one forward pass
FLASH_BACKWARD = 2.5  # five products (recomputed scores, dV, dP, dQ, dK) against two forward
# HBM passes of scale, mask and softmax in one kernel / those of separate kernels: assumed, from counting reads and
# writes (scale, mask, softmax and dropout twice each against softmax and dropout).
FUSED_SOFTMAX = 0.5
# Rate of half-precision products whose rows are no multiple of 16 bytes / that of aligned ones: scanned over 0.08, 0.1,
# 0.12, 0.16 and 0.2 with a refit each on the BLOOM topology sweep (bigscience chronicles, head dimensions 150 and 108):
# MAPE of BigScience's runs 4.3, 4.1, 4.4, 5.5 and 6.2 %.
MISALIGNED = 0.1
# Rate of a recurrence's kernels on chunks / that of FlashAttention-2 on the same device: both take as long at 2,048
# tokens with states of 64 (Dao, Gu, arXiv 2405.21060, section 9.3), where the core of a width d does 4,096 d operations
# a token, and the kernels of an inner width 2 d, head_dim 64 and chunks of 256 do 2,560 d.
SCAN_RATE = 0.63
# Two products for each of the forward pass, which runs once more for what was not kept: assumed, as of flash kernels.
SCAN_BACKWARD = 2.5
SCAN_KERNELS = 5  # launches of one forward pass: chunk states, their recurrence, scores, output; mamba_ssm ssd_combined
NEWER_UNITS = 0.47  # FlashAttention-2's share of its rate on units that it was not written for, those of H100
H100 = 989.5e12  # dense peak [FLOP/s]
# Share of its rate on A100 that FlashAttention-2 reaches in training there: fitted to 165 runs of Aleph Alpha's sweep.
IN_TRAINING = 0.51
TILE = 128.0  # queries of one thread block of the fused kernel


def launches(job: Job, layer: Layer) -> int:
    """Kernels of a layer's attention core or recurrence in a forward pass [1]."""
    if isinstance(layer.attention, Scan):
        return SCAN_KERNELS
    return KERNELS[job.stack.features.attention] if layer.attention else 0


def seconds(job: Job, core: Attention | Scan, backward: bool) -> FloatArray:
    """Time of the attention core, or of the recurrence, of one layer and micro-batch [s]."""
    if isinstance(core, Scan):
        return scan_seconds(job, core) * (SCAN_BACKWARD if backward else 1.0)
    kernel = job.stack.features.attention
    if not kernel.startswith("flash"):
        return unfused_seconds(job, core, backward)
    return flash_seconds(job, core) * (FLASH_BACKWARD if backward else 1.0)


def generation_rate(kernel: str, peak: float) -> float:
    """Rate of a fused kernel's generation / one written for the device at hand, by share of the dense peak [1].

    FlashAttention-2 runs at about 225 of 312 TFLOP/s on A100 but 335 of 989 on H100, whose asynchronous units it does
    not use: 0.47 of the share. Between the two it is no faster than on H100, and on no device slower than on one with
    a lower peak. FlashAttention-1 reaches about half of FlashAttention-2's rate.

    Source: Dao, arXiv 2307.08691, section 4.1; Shah et al., arXiv 2407.08608, section 4.1 (740 TFLOP/s, "flash3").

    >>> generation_rate("flash", 312e12), generation_rate("flash3", 989.5e12), generation_rate("flash", 989.5e12)
    (1.0, 1.0, 0.47)
    """
    rate = 0.5 if kernel == "flash1" else 1.0
    return rate * (max(NEWER_UNITS, min(1.0, NEWER_UNITS * H100 / peak)) if kernel in ("flash", "flash1") else 1.0)


def flash_seconds(job: Job, core: Attention) -> FloatArray:
    """Fused forward attention at the rate of the kernel's generation [s]; see flash_time."""
    device = job.cluster.device
    peak = device.peak(job.wide_dtype)
    waves = core.heads * np.maximum(core.queries / TILE, 1.0) / device.sms
    kernel = job.stack.features.attention
    rate = job.stack["attention_efficiency"] * generation_rate(kernel, peak)
    if kernel == "flash3" and device.vendor == "NVIDIA":
        rate = max(rate, older_rate(peak))
    return flash_time(core.flops, core.keys, waves, peak * rate)


def older_rate(peak: float) -> float:
    """Share of the peak that FlashAttention-2 reaches in training: what runs where there are no kernels for the device.

    Those that software fitted on H100 and later calls need asynchronous units, which A100, Ada, GeForce and their like
    have not. Of a peak as high as that of H100 it is less than any fit of the newer kernels.

    Source: Dao, arXiv 2307.08691, section 4.1; IN_TRAINING is fitted.

    >>> [round(older_rate(peak), 2) for peak in (312e12, 989.5e12)]
    [0.51, 0.24]
    """
    return IN_TRAINING * generation_rate("flash", peak)


def scan_seconds(job: Job, core: Scan) -> FloatArray:
    """Time of the forward kernels of a recurrence: the slower of their operations and of their bytes [s].

    They are written for the units of A100, so that a higher peak than that of H100 makes them no faster.

    Source: state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py; that the steps of Nemotron 3 are 2.6 times as long
    on H100 as on GB300 (NVIDIA-NeMo/Megatron-Bridge @067f987df, docs/performance-summary-archive.md) and not 3.3.
    """
    device = job.cluster.device
    peak = min(device.peak(job.wide_dtype), H100)
    rate = job.stack["attention_efficiency"] * generation_rate("flash", peak) * SCAN_RATE
    waves = core.blocks / device.sms
    return scan_time(
        core.flops, core.moved, waves, (peak * rate, device.memory_bandwidth * job.stack["hbm_efficiency"])
    )


def scan_time(flops: FloatArray, moved: FloatArray, waves: FloatArray, rates: tuple[float, float]) -> FloatArray:
    """Time of the kernels of a recurrence [s]: max(flops (waves + 1/2) / (waves x rate), bytes / bandwidth).

    flops: of the products on chunks [FLOP]; moved: [B]; waves: of chunks x heads over the SMs [1]; rates: [FLOP/s] and
    [B/s].

    Source: Dao, Gu, arXiv 2405.21060, section 6; the saturation as in flash_time, assumed.

    >>> float(scan_time(np.array(1e12), np.array(1e9), np.array(2.0), (1e15, 1e12)))
    0.00125
    """
    return np.maximum(flops * (waves + 0.5) / (waves * rates[0]), moved / rates[1])


def flash_time(flops: FloatArray, keys: FloatArray, waves: FloatArray, rate: float) -> FloatArray:
    """Time of a fused forward kernel [s].

    flops: unmasked operations [FLOP]; keys: a causal mask wastes half of the diagonal blocks of 128; waves: of heads x
    queries / 128 thread blocks over the SMs, few of which leave SMs idle; rate: with all SMs busy [FLOP/s].

    Source: Dao, arXiv 2307.08691, sections 3.1 and 3.2; the form of the saturation is assumed.

    >>> float(flash_time(np.array(1e12), np.array(1280.0), np.array(2.0), 1e15))
    0.001375
    """
    return flops * (1.0 + np.minimum(1.0, 128.0 / keys)) * (waves + 0.5) / (waves * rate)


def unfused_seconds(job: Job, core: Attention, backward: bool) -> FloatArray:
    """Batched products over every score and a softmax through HBM [s].

    Products: heads x (queries x d x keys), twice forward and four times backward, the mask saving nothing.
    Softmax (scale, mask, softmax, dropout): score_passes x 2 B x scores forward, as many backward, half of them
    where one kernel scales, masks and normalises. Head dimensions
    that are no multiple of 8 defeat 16-byte loads, and the products run at MISALIGNED of their rate.

    Source: Dao et al., arXiv 2205.14135, section 2.2 (standard attention); that unaligned head dimensions are slow:
    Anthony et al., arXiv 2401.14489; by how much: assumed, see MISALIGNED.
    """
    curve = curve_for(job.cluster.device, job.wide_dtype)
    scores = gemm_time(core.queries, core.keys, float(core.qk_dim), curve, batch=core.heads)
    values = gemm_time(core.queries, float(core.v_dim), core.keys, curve, batch=core.heads)
    aligned = core.qk_dim % 8 == 0 and core.v_dim % 8 == 0
    rate = job.stack["gemm_efficiency"] * (1.0 if aligned else MISALIGNED)
    products = (scores + values) * (2.0 if backward else 1.0) / rate
    fused = FUSED_SOFTMAX if job.stack.features.attention == "fused_softmax" else 1.0
    bandwidth = job.cluster.device.memory_bandwidth * job.stack["hbm_efficiency"]
    return products + softmax_time(core.scores, job.stack["score_passes"] * fused, bandwidth)


def softmax_time(scores: FloatArray, passes: float, bandwidth: float) -> FloatArray:
    """Time of scale, mask, softmax and dropout through HBM, 2 B a score and pass [s].

    scores: of all heads [1]; passes: reads and writes of them [1]; bandwidth: that kernels reach [B/s].

    Source: Dao et al., arXiv 2205.14135, section 2.2 (standard attention).

    >>> float(softmax_time(np.array(1e9), 10.0, 2e12))
    0.01
    """
    return 2.0 * scores * passes / bandwidth
