"""Lines of a loop that people wrote themselves: the number of a step, its loss, and a time with its unit or a rate.

Source: karpathy/minGPT, projects/chargpt/chargpt.py; facebookresearch/fairseq, fairseq/logging/progress_bar.py (ups:
updates per second); verl-project/verl, verl/trainer/fsdp_sft_trainer.py; Cerebras/modelzoo (Rate: samples per second).
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

NUMBER = r"(\d[\d,]*\.?\d*(?:e[-+]?\d+)?)"
UNITS = "ms|milliseconds|s|secs?|seconds"
STEP = re.compile(
    r"""(?:^|[^\w/])(?:global_)?(?:step|iter(?:ation)?|num_updates)s?["']?[ :=#\[]*"""
    r"""(\d[\d,]*)(?![.\d])(?: ?/ *(\d+))?""",
)
LOSS = re.compile(r"""loss["']?[ :=]+([-+]?\d[\d.]*(?:e[-+]?\d+)?|nan|inf)""")
# What a step took, its unit before or behind; or what is said to be of one step. Every word begins with a letter: where
# one begins is found quickly.
NAMED = re.compile(
    r"""(?:dt(?<=\bdt)|iter_dt|step[ _]time|iter(?:ation)?[ _]time|time(?:/| per )(?:step|iter(?:ation)?)|train/time)"""
    rf"""[ _]?(?:\(?(?P<unit>{UNITS})\)?)?["']?[ :=]+{NUMBER} ?(?P<behind>(?:{UNITS})\b)?""",
)
OF_STEP = re.compile(rf"{NUMBER} ?({UNITS})/(?:step|it(?:er(?:ation)?)?)\b")
UPDATES = re.compile(r"\bups=([\d.]+)")
SAMPLES = re.compile(rf"\b(?:rate=| ){NUMBER} samples/s(?:ec)?\b")
# Of no step, or of a number that begins again with each epoch.
OTHER = re.compile(
    r"(?:\b|_)(?:val|valid|validation|eval|evaluation|test)(?:\b|_)|\bepoch\b.*\b(?:step|iter)\w* *\[?\d+/",
)


def read(text: str) -> LogLine | None:
    """A step and its seconds, or its sequences per second; nothing of evaluations.

    >>> found = read("iter_dt 1657.40ms; iter 510: train loss 2.03953")
    >>> found.step, found.seconds, found.loss
    (510, 1.6574, 2.03953)
    >>> read("[train] iter 7720: loss 1.6080 2933 ms/iter").seconds
    2.933
    >>> read("step:3 - train/loss:0.88 - train/time(s):4.5").seconds
    4.5
    >>> read("| train_inner | epoch 2: 3 / 9 loss=3.1, ups=2.5, num_updates=400, train_wall=45").seconds
    0.4
    >>> read("Step=3700, Loss=3.68, Rate=494.56 samples/sec, GlobalRate=494.55 samples/sec").sequences_rate
    494.56
    >>> read("step 5 loss 2.5 dt 12.5"), read("step 5 val loss 2.5 dt 12.5ms")
    (None, None)
    """
    text = text.lower()
    loss = LOSS.search(text) if "loss" in text else None
    step = STEP.search(text) if loss else None
    if step is None or loss is None or (("val" in text or "test" in text or "epoch" in text) and OTHER.search(text)):
        return None
    seconds = _seconds(text)
    samples = SAMPLES.search(text) if seconds is None else None
    if not seconds and samples is None:
        return None
    return LogLine(
        step=int(step[1].replace(",", "")),
        last_step=int(step[2]) if step[2] else None,
        seconds=seconds,
        sequences_rate=decimal(samples[1]) if samples else None,
        loss=decimal(loss[1]),
    )


def _seconds(text: str) -> float | None:
    """The seconds of a step, None where a number has no unit."""
    if ("/step" in text or "/it" in text) and (match := OF_STEP.search(text)):
        number, unit = match[1], match[2]
    elif (match := NAMED.search(text)) and (match["unit"] or match["behind"]):
        number, unit = match[2], match["unit"] or match["behind"]
    elif match := UPDATES.search(text):
        return 1.0 / rate if (rate := decimal(match[1])) else None
    else:
        return None
    value = decimal(number)
    return value if value is None or not unit.startswith("m") else value / 1e3


LOG = LogFormat(
    name="a plain loop",
    marks=("dt", "time", "s/it", "s/step", "ups=", "samples/s"),
    read=read,
    remark="of a loop that is no known program's: if it accumulates gradients, a step may be several of what it counts",
)
