"""Lines of the Hugging Face Trainer, and of what trains with it: TRL, Axolotl, LLaMA-Factory, ms-swift, Unsloth.

Source: huggingface/transformers, src/transformers/trainer_utils.py (speed_metrics); axolotl-ai-cloud/axolotl,
src/axolotl/core/trainers/base.py; hiyouga/LLaMA-Factory, src/llamafactory/train/callbacks.py (trainer_log.jsonl);
modelscope/ms-swift, swift/trainers/patcher.py (the mean speed since the run began); AI-Hypercomputer/kithara,
kithara/trainer/trainer.py (step_time).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from optimizer.base.units import GiB, is_count
from optimizer.frameworks.bars import SEVERAL, timed_by_bars
from optimizer.frameworks.log_line import LogFormat, LogLine, clock_seconds, decimal, of_bar

BAR = re.compile(r"\s*(?:(?:Train(?:ing)?|Iterations?|Steps?):)?\s*\d+%\|")
VALUE = re.compile(r"""['"]([\w/() ]+)['"]: ['"]?([-\w./:, ]*[\w])['"]?(?=, ['"]|\})""")
CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)$")
STEPS, SPEED, PACE = "global_step/max_steps", "train_speed(iter/s)", "train_speed(s/it)"
RESERVED = ("memory(GiB)", "memory/device_reserved (GiB)", "vram_reserved")
LOSSES = ("'loss':", '"loss":')
SAME_RUN = 0.01  # share by which the summaries of a run's ranks differ at most
RUNTIME = re.compile(r"['\"]?train_runtime['\"]?\s*[:=]\s*'?((?:\d+:)*[\d.]+)")
ALL_STEPS = re.compile(r'\s*"global_step": (\d+),?\s*$|.*\bTotal optimization steps = ([\d,]+)')
RESUMED = re.compile(r"\bContinuing training from global step (\d+)")
PACED = 100  # steps whose mean pace, in four digits, tells each of them within a few percent
ROUNDED = 1e-3  # digits of a summary's rate [1/s]
SUMMARY = re.compile(r"['\"]?train_steps_per_second['\"]?\s*[:=]\s*'?([\d.]+)")


def read(text: str) -> LogLine | None:
    """A state of the progress bar, a loss, or the summary.

    >>> read(" 10%|█         | 100/1000 [03:51<34:39,  2.31s/it]").seconds
    2.31
    >>> read("{'train_runtime': 2310.0, 'train_samples_per_second': 6.9, 'train_steps_per_second': 0.5}").seconds
    2.0
    """
    if BAR.match(text):
        return of_bar(text)
    of_step = any(mark in text for mark in LOSSES)  # whose rates are its own
    if not of_step and ("train_runtime" in text or "train_steps_per_second" in text):
        runtime, summary = RUNTIME.search(text), SUMMARY.search(text)
        rate = float(summary[1]) if summary else 0.0
        elapsed = clock_seconds(runtime[1]) if runtime else None
        return LogLine(seconds=1.0 / rate if rate > 0 else None, alone=True, elapsed=elapsed)
    if match := RESUMED.search(text):
        return LogLine(step=int(match[1]), alone=True)
    if match := ALL_STEPS.match(text):
        return LogLine(last_step=int((match[1] or match[2]).replace(",", "")))
    if "loss" in text and (place := text.find("{")) >= 0:
        return _values(dict(VALUE.findall(text, place)))
    return None


def _values(values: Mapping[str, str]) -> LogLine | None:
    """What a line of values says.

    >>> found = read('{"current_steps": 10, "total_steps": 90, "loss": 0.5, "lr": 1e-05, "elapsed_time": "0:01:30"}')
    >>> found.step, found.last_step, found.elapsed
    (10, 90, 90.0)
    >>> read("{'loss': 0.5, 'memory(GiB)': 69.1, 'train_speed(iter/s)': 0.5, 'global_step/max_steps': '12/94'}").elapsed
    24.0
    """
    loss, norm = decimal(values.get("loss")), decimal(values.get("grad_norm"))
    if loss is None:
        return None
    reserved = next((size for name in RESERVED if name in values and (size := decimal(values[name])) is not None), None)
    if reserved is not None:
        reserved *= GiB
    step, last = values.get("current_steps", ""), values.get("total_steps", "")
    if STEPS in values:
        step, _, last = values[STEPS].partition("/")
    if not (is_count(step) and is_count(last)):
        step = values.get("step", "")
        seconds = decimal(values.get("step_time")) if is_count(step) else None  # of Kithara
        return LogLine(
            step=int(step) if seconds else None, seconds=seconds, loss=loss, grad_norm=norm, reserved=reserved
        )
    elapsed = None
    if "elapsed_time" in values and (clock := CLOCK.search(values["elapsed_time"])):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        elapsed = float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    speed, pace = decimal(values.get(SPEED)), decimal(values.get(PACE))
    if speed or pace:
        elapsed = int(step) * pace if pace else int(step) / (speed or 1.0)
    return LogLine(step=int(step), last_step=int(last), loss=loss, grad_norm=norm, elapsed=elapsed, reserved=reserved)


def of_training(readings: Sequence[LogLine]) -> list[LogLine | None]:
    """Bars of training, unless lines with more digits tell the time of steps; of summaries that are the same, or agree
    and follow each other, the first: every rank prints that of one run, and a notebook shows it again.

    >>> two = of_training([LogLine(seconds=2.0, alone=True), LogLine(seconds=2.001, alone=True)])
    >>> two[0].seconds, two[1]
    (2.0, None)
    >>> bars = [LogLine(bar=(step, 9), step=step, seconds=3.0, elapsed=2.0 * step) for step in (1, 2, 3)]
    >>> paces = [LogLine(step=step, loss=1.0, elapsed=2.25 * step) for step in (1, 2, 3)]
    >>> [line.elapsed for line in of_training([*bars, *paces]) if line], None in of_training(bars)
    ([2.25, 4.5, 6.75], False)
    """
    exact = _unrounded(readings)
    paced = [one.step for one in exact if one.step and not (one.bar or one.alone) and (one.elapsed or 0.0) % 1 > 0]
    exactly = len(paced) >= SEVERAL and max(paced) <= PACED
    timed_lines = [None if one.bar else one for one in exact] if exactly else timed_by_bars(exact)
    shown: set[tuple[float | None, float | None]] = set()
    before, settled = LogLine(), list[LogLine | None]()
    for reading, timed in zip(exact, timed_lines, strict=True):
        seconds = reading.seconds
        if reading.alone:
            of_rank = before.alone and before.seconds and seconds and abs(seconds / before.seconds - 1) < SAME_RUN
            summary = (seconds, reading.elapsed)
            timed = (
                None if seconds is None or of_rank or summary in shown else reading._replace(elapsed=None, summary=True)
            )
            shown.add(summary)
        settled.append(timed)
        before = reading
    return settled


def _unrounded(readings: Sequence[LogLine]) -> list[LogLine]:
    """The readings, summaries with the time of a run over its steps, where these are known: rates have three digits,
    and count all steps of a run that went on from a checkpoint.

    >>> state = [LogLine(last_step=2178), LogLine(alone=True, elapsed=860000.0), LogLine(alone=True, seconds=1 / 0.003)]
    >>> round(_unrounded(state)[-1].seconds, 2)
    394.86
    >>> _unrounded([LogLine(alone=True, elapsed=273.0, seconds=1 / 0.007)])[0].seconds
    136.5
    >>> resumed = [LogLine(last_step=300), LogLine(step=200, alone=True)]
    >>> _unrounded([*resumed, LogLine(alone=True, elapsed=250.0, seconds=1 / 1.2)])[-1].seconds
    2.5
    """
    exact: list[LogLine] = []
    steps, begun, runtime = 0, 0, 0.0
    for reading in readings:
        steps = reading.last_step or steps
        if reading.step is None and reading.last_step:  # a run begins
            begun = 0
        if reading.alone and reading.step is not None:
            begun, reading = reading.step, reading._replace(step=None)
        elif reading.alone:
            runtime = reading.elapsed or runtime
            if reading.seconds and runtime:
                rate = 1 / reading.seconds
                count = steps if abs(steps / runtime - rate) <= ROUNDED else round(runtime * rate)
                if count and (count == steps or runtime * ROUNDED < 1):  # else it may be one of several numbers
                    reading = reading._replace(seconds=runtime / count)
                if begun:  # its rate counts the steps before the checkpoint too
                    reading = reading._replace(seconds=runtime / (count - begun) if count > begun else None)
        exact.append(reading)
    return exact


LOG = LogFormat(
    name="Hugging Face Trainer",
    marks=(
        *("it/s", "s/it", "train_runtime", "train_steps_per_second", '"global_step": ', "Total optimization"),
        *("Continuing training from", *LOSSES),
    ),
    read=read,
    settle=of_training,
    remark="the bar's rate is a running mean: the spread of single steps is larger",
)
