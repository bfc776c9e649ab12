"""The table that a notebook shows while the Trainer runs, as the summary that its log has.

Source: huggingface/transformers, src/transformers/utils/notebook.py (NotebookProgressBar, NotebookTrainingTracker).
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import clock_seconds

# Of the bar of training; that of an evaluation names no epoch.
TRAINED = re.compile(r"\[\s*(\d+)/(\d+) ([\d:]+)(?: (?:<|&lt;) [\d:]+, [\d.]+ it/s)?, Epoch [\d.]+/[\d.]+\]")


def summaries(html: str) -> list[str]:
    """The steps so far over their time, as the Trainer tells it of a run that has ended; a table that is shown again
    with more of its time counts once.

    >>> summaries("<progress value='150'></progress> [150/200 05:00 < 01:41, 0.49 it/s, Epoch 0.75/1]")
    ["{'train_runtime': 300.0, 'train_steps_per_second': 0.500000000}"]
    >>> summaries("[ 62/227 04:52 < 13:11, 0.21 it/s]")
    []
    """
    last = {steps: (int(count), clock_seconds(clock)) for count, steps, clock in TRAINED.findall(html)}
    return [
        f"{{'train_runtime': {seconds}, 'train_steps_per_second': {count / seconds:.9f}}}"
        for count, seconds in last.values()
        if seconds
    ]
