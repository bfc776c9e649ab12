"""Lines of NeMo 2: one a step, or a progress bar.

Source: NVIDIA/NeMo, nemo/lightning/pytorch/callbacks/progress_printer.py; sample in awslabs/awsome-distributed-ai,
3.test_cases/megatron/nemo/PERFORMANCE.md.
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

NUMBER = r"([-+\d.eE]+|nan|inf)"
MARK = "train_step_timing in s"
TIME = re.compile(rf"{re.escape(MARK)}[:=]\s*([\d.]+)(?=[\s,|\]]|$)")
PRINTED = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)")
BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
GLOBAL_STEP = re.compile(r"\bglobal_step[:=]\s*(\d+)")
LOSS = re.compile(rf"\breduced_train_loss[:=]\s*{NUMBER}")
BATCH = re.compile(r"\bglobal_batch_size[:=]\s*(\d+)")


def read(text: str) -> LogLine | None:
    """A step's line.

    >>> line = "Training epoch 0, iteration 10/999 | lr: 1e-06 | global_batch_size: 512 | global_step: 29 | "
    >>> found = read(line + "reduced_train_loss: 11.03 | train_step_timing in s: 46.84 | consumed_samples: 15360")
    >>> found.step, found.seconds, found.facts["global_batch"]
    (29, 46.84, '512')
    """
    time = TIME.search(text)
    place = PRINTED.search(text) or BAR.search(text)
    if time is None or place is None:
        return None
    step, loss, batch = GLOBAL_STEP.search(text), LOSS.search(text), BATCH.search(text)
    return LogLine(
        step=int(step[1]) if step else int(place[1]),
        last_step=int(place[2]),
        seconds=decimal(time[1]),
        loss=decimal(loss[1]) if loss else None,
        facts={"global_batch": batch[1]} if batch else {},
    )


LOG = LogFormat(name="NeMo 2", marks=(MARK,), read=read)
