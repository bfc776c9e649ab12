"""Lines of NeMo: one a step, or a progress bar, as of NeMo 1.

Source: NVIDIA/NeMo, nemo/lightning/pytorch/callbacks/progress_printer.py; sample in awslabs/awsome-distributed-ai,
3.test_cases/megatron/nemo/PERFORMANCE.md.
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal, rate_of_bar

NUMBER = r"([-+\d.eE]+|nan|inf)"
MARK = "train_step_timing in s"
TIME = re.compile(rf"{re.escape(MARK)}[:=]\s*([\d.]+)(?=[\s,|\]]|$)")
PRINTED = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)")
BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
UNBOUNDED = re.compile(r":\s*(\d+)it \[")  # a bar of a run whose end is not known
GLOBAL_STEP = re.compile(r"\bglobal_step[:=]\s*(\d+(?:\.\d+)?(?:e[+]\d+)?)")
LOSS = re.compile(rf"\breduced_train_loss[:=]\s*{NUMBER}")
BATCH = re.compile(r"\bglobal_batch_size[:=]\s*(\d+)")


def read(text: str) -> LogLine | None:
    """A step's line.

    >>> line = "Training epoch 0, iteration 10/999 | lr: 1e-06 | global_batch_size: 512 | global_step: 29 | "
    >>> found = read(line + "reduced_train_loss: 11.03 | train_step_timing in s: 46.84 | consumed_samples: 15360")
    >>> found.step, found.seconds, found.facts["global_batch"]
    (29, 46.84, '512')
    >>> bar = "Epoch 0:   1%|   | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, reduced_train_loss=3.090, "
    >>> found = read(f"{bar}global_step=794.0, consumed_samples=1.63e+6]")
    >>> found.step, found.seconds
    (794, 41.36)
    >>> read(f"{bar}global_step=7.9e+3, consumed_samples=1.63e+6]").step
    795
    >>> open_end = "Epoch 1: : 7it [00:31,  4.36s/it, reduced_train_loss=0.674, global_step=7.000, "
    >>> read(f"{open_end}train_step_timing in s=3.370, batch_time=4.400]").seconds
    3.37
    """
    time = TIME.search(text)
    place = PRINTED.search(text) or BAR.search(text) or UNBOUNDED.search(text)
    step, loss, batch = GLOBAL_STEP.search(text), LOSS.search(text), BATCH.search(text)
    seconds = decimal(time[1]) if time else rate_of_bar(text) if step else None
    if seconds is None or place is None:
        return None
    return LogLine(
        step=int(float(step[1])) if step and "e" not in step[1] else int(place[1]),  # 3.1e+4 is of many steps
        last_step=int(place[2]) if place.re.groups > 1 else None,
        seconds=seconds,
        averaged=time is None,
        loss=decimal(loss[1]) if loss else None,
        facts={"global_batch": batch[1]} if batch else {},
    )


LOG = LogFormat(name="NeMo", marks=(MARK, "reduced_train_loss="), read=read)
