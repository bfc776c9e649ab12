"""Lines of the Hugging Face Trainer, and of what trains with it: TRL, Axolotl, LLaMA-Factory, ms-swift, Unsloth.

Source: huggingface/transformers, src/transformers/trainer_utils.py (speed_metrics); axolotl-ai-cloud/axolotl,
src/axolotl/core/trainers/base.py; hiyouga/LLaMA-Factory, src/llamafactory/train/callbacks.py (trainer_log.jsonl);
modelscope/ms-swift, swift/trainers/patcher.py (the mean speed since the run began); tqdm/tqdm,
tqdm/std.py (EMA, close).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from optimizer.base.units import GiB, is_count
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal, seconds_of

BAR = re.compile(r"\s*(?:Train(?:ing)?:)?\s*\d+%\|[^|]*\|\s*(\d+)/(\d+)\s*\[[\d:]+<[\d:?]+,\s*([\d.]+)(s/it|it/s)")
VALUE = re.compile(r"""['"]([\w/() ]+)['"]: ['"]?([-\w./:, ]*[\w])['"]?(?=, ['"]|\})""")
CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)$")
STEPS, SPEED, PACE = "global_step/max_steps", "train_speed(iter/s)", "train_speed(s/it)"
RESERVED = ("memory(GiB)", "memory/device_reserved (GiB)", "vram_reserved")
LOSSES = ("{'loss'", '{"loss"', '{"current_steps"', "'loss':")
SMOOTHING = 0.3  # weight of the last step in a bar's running mean
FORGOTTEN = 20  # states after which the first step is 0.1 % of the mean
DRAWN = 0.1  # a bar is drawn no more often, and faster steps share a state [s]
SAME_RUN = 0.01  # share by which the summaries of a run's ranks differ at most
SUMMARY = re.compile(r"['\"]?train_steps_per_second['\"]?\s*[:=]\s*'?([\d.]+)")


def read(text: str) -> LogLine | None:
    """A state of the progress bar, a loss, or the summary.

    >>> read(" 10%|█         | 100/1000 [03:51<34:39,  2.31s/it]").seconds
    2.31
    >>> read("{'train_runtime': 2310.0, 'train_samples_per_second': 6.9, 'train_steps_per_second': 0.5}").seconds
    2.0
    """
    if match := BAR.match(text):
        return LogLine(
            step=int(match[1]), last_step=int(match[2]), seconds=seconds_of(match[3], match[4]), averaged=True
        )
    if "train_steps_per_second" in text and (match := SUMMARY.search(text)):
        rate = float(match[1])
        return LogLine(seconds=1.0 / rate, alone=True) if rate > 0 else None
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
    if decimal(values.get("loss")) is None:
        return None
    step, last = values.get("current_steps", ""), values.get("total_steps", "")
    if STEPS in values:
        step, _, last = values[STEPS].partition("/")
    numbered = is_count(step) and is_count(last)
    elapsed = None
    if "elapsed_time" in values and (clock := CLOCK.search(values["elapsed_time"])):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        elapsed = float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    speed, pace = decimal(values.get(SPEED)), decimal(values.get(PACE))
    if numbered and (speed or pace):
        elapsed = int(step) * pace if pace else int(step) / (speed or 1.0)
    reserved = next((size for name in RESERVED if (size := decimal(values.get(name))) is not None), None)
    return LogLine(
        step=int(step) if numbered else None,
        last_step=int(last) if numbered else None,
        loss=decimal(values["loss"]),
        grad_norm=decimal(values.get("grad_norm")),
        elapsed=elapsed,
        reserved=None if reserved is None else reserved * GiB,
    )


def longest_bars(readings: Sequence[LogLine]) -> list[LogLine | None]:
    """Bars of training go on for longer than those of evaluations and downloads: at least half as many states.

    Of summaries that follow each other the first counts where they agree: every rank prints that of one run.

    >>> bars = [LogLine(step=step, last_step=1000) for step in range(1, 9)]
    >>> [found is not None for found in longest_bars([*bars, LogLine(step=3, last_step=3), LogLine(loss=2.0)])[-2:]]
    [False, True]
    >>> two = longest_bars([LogLine(seconds=2.0, alone=True), LogLine(seconds=2.001, alone=True)])
    >>> two[0].seconds, two[1]
    (2.0, None)
    """
    states: dict[int | None, set[int]] = {}
    for reading in readings:
        if reading.step:
            states.setdefault(reading.last_step, set()).add(reading.step)
    most = max(map(len, states.values()), default=0)
    counts = (
        not _repeats(before, reading)
        if reading.step is None
        else reading.step > 0 and 2 * len(states[reading.last_step]) >= most
        for before, reading in zip((LogLine(), *readings), readings, strict=False)
    )
    return [reading if counted else None for reading, counted in zip(readings, counts, strict=True)]


def steps_of_bars(readings: Sequence[LogLine]) -> list[LogLine | None]:
    """The longest bars, whose first states say what each step took.

    A bar prints the running mean, which has the slow first step for long, and as it closes that of all steps.

    mean of n steps x (1 - (1 - s)^n) = s x last step + (1 - s) x the same of n - 1 steps

    >>> means = (5.54, 2.41, 1.41, 1 / 1.06, 1 / 1.46, 1 / 1.46, 0.66)
    >>> bars = [LogLine(step=n, last_step=9, seconds=s, averaged=True) for n, s in zip((1, 2, 3, 4, 5, 5, 5), means)]
    >>> [round(bar.seconds or 0.0, 2) for bar in steps_of_bars(bars) if bar]
    [5.54, 0.22, 0.22, 0.23, 0.23, 0.23, 0.23]
    """
    bars = longest_bars(readings)
    # Of each bar: its last state, the sum of its steps with their weights, and the last step [s].
    states: dict[int | None, tuple[int, float, float]] = {}
    for place, reading in enumerate(bars):
        if reading is None or reading.step is None or reading.seconds is None or not reading.averaged:
            continue
        step, (drawn, before, seconds) = reading.step, states.get(reading.last_step, (0, 0.0, 0.0))
        if step == 1 < drawn:  # the run began again
            drawn, before = 0, 0.0
        if step == drawn + 1 and step <= FORGOTTEN and reading.seconds >= DRAWN:
            total = reading.seconds * (1.0 - (1.0 - SMOOTHING) ** step)
            seconds = (total - (1.0 - SMOOTHING) * before) / SMOOTHING
            states[reading.last_step] = step, total, seconds
        elif step != drawn:
            continue
        if seconds > 0:
            bars[place] = reading._replace(seconds=seconds)
    return bars


def _repeats(before: LogLine, reading: LogLine) -> bool:
    """Whether two summaries are of one run."""
    pair = (before.seconds, reading.seconds) if before.alone and reading.alone else (None, None)
    return pair[0] is not None and pair[1] is not None and abs(pair[1] / pair[0] - 1) < SAME_RUN


LOG = LogFormat(
    name="Hugging Face Trainer",
    marks=("it/s", "s/it", "train_steps_per_second", *LOSSES),
    read=read,
    settle=steps_of_bars,
    remark="the bar's rate is a running mean: the spread of single steps is larger",
)
