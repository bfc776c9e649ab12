"""Lines of NeMo AutoModel: one a step on the screen, and one of JSON in training.jsonl.

Source: NVIDIA-NeMo/Automodel, nemo_automodel/recipes/llm/train_ft.py (log_train_metrics) and
nemo_automodel/components/loggers/metric_logger.py. Its GiB are 2**30 bytes.
"""

from __future__ import annotations

import re

from optimizer.base.units import GiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

NUMBER = r"([-+\d.eE]+|nan|inf)"
PRINTED = re.compile(
    rf"\bstep (\d+) \| epoch \d+ \| loss {NUMBER} \| (?:[a-z_]+ \S+ \| )*?grad_norm {NUMBER} \| lr \S+ \| "
    rf"mem ([\d.]+) GiB \| tps [\d.]+"
)
VALUE = re.compile(rf'"(\w+)": {NUMBER}(?=[,}}])')
TOKENS = "num_tokens_per_step"


def read(text: str) -> LogLine | None:
    """A step's line: seconds where the tokens of the step are there, else its clock tells them.

    >>> found = read("step 5 | epoch 0 | loss 2.51 | grad_norm 9.2 | lr 1.00e-04 | mem 57.5 GiB | tps 800.0(100.0/gpu)")
    >>> found.step, found.loss, found.allocated / 2**30
    (5, 2.51, 57.5)
    >>> read('{"step": 4, "loss": 3.5, "mem": 58.2, "tps": 2048.0, "num_tokens_per_step": 4096}').seconds
    2.0
    """
    if match := PRINTED.search(text):
        step, loss, norm, memory = match.groups()
        return LogLine(step=int(step), loss=decimal(loss), grad_norm=decimal(norm), allocated=float(memory) * GiB)
    values = {name: decimal(value) for name, value in VALUE.findall(text)}
    number, tokens, rate, memory = (values.get(name) for name in ("step", TOKENS, "tps", "mem"))
    if number is None or not (tokens and rate):
        return None
    return LogLine(
        step=int(number),
        loss=values.get("loss"),
        grad_norm=values.get("grad_norm"),
        seconds=tokens / rate,
        allocated=memory * GiB if memory else None,
    )


LOG = LogFormat(name="NeMo AutoModel", marks=("GiB | tps ", f'"{TOKENS}":'), read=read)
