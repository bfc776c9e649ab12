"""Lines of nanoGPT, of nanochat, and of what is like nanoGPT: build-nanogpt, modded-nanogpt and llm.c.

Source: karpathy/nanoGPT, train.py and model.py (estimate_mfu); karpathy/nanochat, scripts/base_train.py;
karpathy/build-nanogpt, train_gpt2.py; karpathy/llm.c, train_gpt2.cu; KellerJordan/modded-nanogpt, train_gpt.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

NANOGPT = re.compile(r"\biter (\d+): loss ([-\d.]+|nan|inf)(?: \w+)?, time ([\d.]+) ?ms(?:, mfu ([\d.]+)%)?")
NANOCHAT = re.compile(
    r"\b[Ss]tep *(\d+)(?:/(\d+))?(?: \([\d.]+%\))? *[|,] loss: ([-\d.]+|nan|inf)(?: \||,).*?\b(?:dt|time):?"
    r" ([\d.]+) ?ms(?: \||,) (?:tok(?:en)?s?/sec: )?[\d,.]+(?: \| (?:bf16_)?mfu: ([\d.]+))?"
)
LLM_C = re.compile(r"\bstep +(\d+)/(\d+) \| (?:train )?loss +([-\d.]+|nan|inf) .*?\| ([\d.]+) ms(?= \|| *$)")
MODDED = re.compile(r"\bstep:(\d+)/(\d+) (?:(train|val)_loss:([-\d.]+|nan|inf) )?train_time:([\d.]+)(ms|s)\b")
GPU = re.compile(r"\bGPU: .* \| Peak FLOPS \(BF16\): (\d\.\d+e\+\d+|inf)")
# What MFUs are shares of [FLOP/s]: always in nanoGPT, and in nanochat where it does not print the GPU's own.
A100, H100 = 312e12, 989e12
PEAK = "peak"


def read(text: str) -> LogLine | None:
    """A step's line, all its micro-batches in it, or that of the GPU whose peak nanochat counts with.

    >>> found = read("iter 1631: loss 4.0863, time 562.00ms, mfu 41.20%")
    >>> found.seconds, round(found.flops_rate / 1e12, 1)
    (0.562, 128.5)
    >>> found = read("step 00010/21400 (0.05%) | loss: 9.1 | lrm: 1.00 | dt: 512.50ms | tok/sec: 1,023,000 | mfu: 47.5")
    >>> found.step, found.last_step, found.seconds, round(found.flops_rate / 1e12, 1)
    (10, 21400, 0.5125, 469.8)
    >>> read("step   19/19560 | loss 7.5 (+nanz)| norm 3.1 (+nanz)| lr 1.6e-05 | 512.25 ms | 29.2% bf16 MFU").seconds
    0.51225
    >>> read("step:19/5100 train_loss:6.4148 train_time:1315ms step_avg:146.14ms").elapsed
    1.315
    >>> read("step:250/3000 val_loss:4.25 train_time:210.5s step_avg:842.00ms").elapsed
    210.5
    """
    if match := NANOGPT.search(text):
        step, loss, milliseconds, mfu = match.groups()
        return _timed(step, None, loss, milliseconds, mfu, A100)
    if match := NANOCHAT.search(text):
        step, last, loss, milliseconds, mfu = match.groups()
        return _timed(step, last, loss, milliseconds, mfu, H100)
    if match := LLM_C.search(text):
        step, last, loss, milliseconds = match.groups()
        return _timed(step, last, loss, milliseconds, None, H100)
    if match := MODDED.search(text):
        step, last, kind, loss, time, unit = match.groups()
        return LogLine(
            step=int(step),
            last_step=int(last),
            loss=None if kind == "val" else decimal(loss),
            elapsed=float(time) / (1e3 if unit == "ms" else 1.0),
            alone=kind == "val",
        )
    if match := GPU.search(text):
        return LogLine(facts={PEAK: match[1]})
    return None


def _timed(step: str, last: str | None, loss: str, milliseconds: str, mfu: str | None, peak: float) -> LogLine:
    return LogLine(
        step=int(step),
        last_step=int(last) if last else None,
        loss=decimal(loss),
        seconds=float(milliseconds) / 1e3,
        flops_rate=float(mfu) / 100 * peak if mfu else None,
    )


def of_the_gpu(readings: Sequence[LogLine]) -> Sequence[LogLine | None]:
    """Operations per second by the peak that the log names; none where that is of no GPU. Evaluations, whose clock
    stands still, tell the time where no step does.

    >>> found = of_the_gpu([LogLine(facts={PEAK: "3.12e+14"}), LogLine(step=1, flops_rate=H100 / 2)])
    >>> found[0], found[1].flops_rate / 1e12
    (None, 156.0)
    """
    settled: list[LogLine | None] = []
    peak, evaluations = H100, not any(reading.step is not None and not reading.alone for reading in readings)
    for reading in readings:
        if PEAK in reading.facts:
            peak = float(reading.facts[PEAK])
            settled.append(None)
        elif reading.alone:
            settled.append(reading._replace(alone=False) if evaluations else None)
        elif reading.flops_rate and peak != H100:
            settled.append(
                reading._replace(flops_rate=reading.flops_rate / H100 * peak if peak < float("inf") else None)
            )
        else:
            settled.append(reading)
    return settled


LOG = LogFormat(
    name="nanoGPT", marks=(": loss ", "ms |", "ms, tok", " train_time:", "Peak FLOPS"), read=read, settle=of_the_gpu
)
