"""Lines of MLPerf's logging, the same from every program that trains one of its benchmarks.

Source: mlcommons/logging, mlperf_logging/mllog/mllog.py; mlcommons/training, small_llm_moe_pretraining/primus.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

# Not as JSON, of which damaged lines have lost a part, and whose numbers may be longer than a log's are kept.
KEY, WHEN = re.compile(r':::MLLOG .*?"key": ?"(\w+)"'), re.compile(r'"time_ms": ?(\d{1,15})\b')
SAMPLES, COUNT = re.compile(r'"samples_count": ?(\d{1,9})\b'), re.compile(r'"value": ?(\d{1,9})\b')
COUNTED = re.compile(r'"step": ?(\d{1,9})(?:\.0)?\b')  # sequences too, where a line has no other count
# Sequences per second without evaluations, and of how many; BERT counts sequences in epochs.
RATE = re.compile(r'"value": ?\{"throughput": ?([\d.]+).*"metadata": ?\{.*"(?:step|epoch_num)": ?(\d{1,9})(?:\.0)?\b')
LEAST, MOST = 0.9, 3.0  # times that its rate says which a part of a run with its evaluations may take
LOSS = re.compile(r'"(?:value|reduced_train_loss)": ?([-+\d.eE]+)')
TIMED = re.compile(r'"train_step_timing in s": ?([\d.]+).*"step": ?(\d{1,15})\b')  # whose steps are tokens
FACTS = {"global_batch_size": "global_batch", "max_sequence_length": "seq_len"}


def read(text: str) -> LogLine | None:
    """A loss and when it was, by the sequences so far; or the sizes of a step.

    >>> found = read(':::MLLOG {"time_ms": 9500, "key": "train_loss", "value": 2.5, "metadata": {"samples_count": 64}}')
    >>> found.step, found.elapsed, found.loss
    (64, 9.5, 2.5)
    >>> read(':::MLLOG {"time_ms": 9, "key": "train_loss", "value": 2.5, "metadata": {"step": 128.0}}').step
    128
    >>> read(':::MLLOG {"key": "tracked_stats", "value": {"train_step_timing in s": 9.5}, "step": 8}').seconds
    9.5
    >>> rate = ':::MLLOG {"time_ms": 9, "key": "tracked_stats", "value": {"throughput": 2.5}, "metadata": {"step": 64}}'
    >>> read(rate).sequences_rate
    2.5
    >>> read(':::MLLOG {"time_ms": 0, "key": "global_batch_size", "value": 32, "metadata": {}}').facts
    {'global_batch': '32'}
    """
    match = KEY.search(text)
    key = match[1] if match else ""
    if key == "tracked_stats" and (timed := TIMED.search(text)) and (seconds := decimal(timed[1])):
        return LogLine(step=int(timed[2]), seconds=seconds)
    when = WHEN.search(text)
    if key == "tracked_stats" and when and (rate := RATE.search(text)):
        return LogLine(step=int(rate[2]), elapsed=int(when[1]) / 1e3, sequences_rate=decimal(rate[1]))
    if key in FACTS and (count := COUNT.search(text)):
        return LogLine(facts={FACTS[key]: count[1]})
    of_loss = key == "train_loss" or (key == "tracked_stats" and "reduced_train_loss" in text)
    if not of_loss or '"reward"' in text:  # of reinforcement learning, whose steps are no training alone
        return None
    samples = SAMPLES.search(text) or COUNTED.search(text)
    loss = LOSS.search(text)
    if samples is None or when is None:
        return None
    return LogLine(step=int(samples[1]), elapsed=int(when[1]) / 1e3, loss=decimal(loss[1]) if loss else None)


def in_steps(readings: Sequence[LogLine]) -> Sequence[LogLine | None]:
    """Steps instead of sequences, since the first of them; nothing where no line says how many a step has.

    Lines with times of their own count in what the numbers of all of them share.

    >>> settled = in_steps([LogLine(facts={"global_batch": "32"}), LogLine(step=64, elapsed=9.5), LogLine(step=96)])
    >>> [line and line.step for line in settled]
    [None, 2, 3]
    >>> [line and line.step for line in in_steps([LogLine(step=8192, seconds=1.5), LogLine(step=12288, seconds=1.5)])]
    [2, 3]
    """
    if each := gcd(*(line.step for line in readings if line.seconds is not None and line.step)):
        return [
            line._replace(step=(line.step or 0) // each) if line.seconds is not None else None if line.step else line
            for line in readings
        ]
    readings = _rates_of_sequences(readings)
    batch = next((int(line.facts["global_batch"]) for line in readings if "global_batch" in line.facts), 0)
    if not batch:
        return [None] * len(readings)
    began = next((line.elapsed for line in readings if line.elapsed is not None), 0.0)
    return [
        line._replace(step=line.step // batch, elapsed=None if line.elapsed is None else line.elapsed - began)
        if line.step is not None
        else line
        for line in readings
    ]


def _rates_of_sequences(readings: Sequence[LogLine]) -> list[LogLine]:
    """The readings, without rates where losses tell the steps, or where the clock says that they are of no sequences.

    >>> lines = [LogLine(step=64 * n, elapsed=40.0 * n, sequences_rate=rate) for n, rate in ((1, 2.0), (2, 2.0))]
    >>> [line.sequences_rate for line in _rates_of_sequences(lines)]
    [2.0, 2.0]
    >>> tokens = [line._replace(sequences_rate=8192.0) for line in lines]
    >>> [line.sequences_rate for line in _rates_of_sequences(tokens)]
    [None, None]
    """
    rates = [(line.step or 0, line.elapsed or 0.0, line.sequences_rate) for line in readings if line.sequences_rate]
    if len(rates) < sum(line.step is not None for line in readings):
        return [LogLine() if line.sequences_rate else line for line in readings]
    for (before, began, _), (step, now, rate) in pairwise(rates):
        if step > before and not LEAST <= rate * (now - began) / (step - before) <= MOST:
            return [line._replace(sequences_rate=None) for line in readings]
    return list(readings)


LOG = LogFormat(
    name="MLPerf",
    marks=(":::MLLOG",),
    read=read,
    settle=in_steps,
    remark="where no step has a time or a rate of its own, it is that between losses: evaluations are in it",
)
