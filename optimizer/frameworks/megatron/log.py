"""Lines of Megatron-LM, and of Megatron-DeepSpeed, which prints the same.

Source: NVIDIA/Megatron-LM, megatron/training/training.py (training_log) and megatron/training/utils (report_memory).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from optimizer.base.units import MiB, is_count
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal, tera
from optimizer.frameworks.megatron.flag_names import COUNTS as FLAG_COUNTS

DOTTED = re.compile(r"\s([a-z]\w*) \.{3,} ?(\S+)\s*$")
PRINTED = (
    *("gpus", "tp", "pp", "cp", "ep", "micro_batch", "global_batch", "seq_len"),
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads"),
)
COUNTS: Mapping[str, str] = {
    **{flag[2:].replace("-", "_"): name for flag, name in FLAG_COUNTS.items() if name in PRINTED},
    "padded_vocab_size": "vocab",
    "train_batch_size": "global_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
}
# Settings that speak for or against a cause; not columns of a run.
SWITCHES = ("overlap_grad_reduce", "overlap_param_gather", "overlap_comm", "num_workers")


def settings(text: str) -> LogLine | None:
    """The setting in a line such as those of Megatron-LM and DeepSpeed, None for any other line.

    Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (_print_args); microsoft/DeepSpeed, deepspeed/runtime/
    config.py (print).

    >>> settings("  tensor_model_parallel_size ...................... 8").facts
    {'tp': '8'}
    """
    match = DOTTED.search(f" {text}")
    if match is None:
        return None
    name, value = match.groups()
    if name in COUNTS and is_count(value) and int(value) > 0:
        return LogLine(facts={COUNTS[name]: value})
    return LogLine(facts={name: value.lower()}) if name in SWITCHES else None


STEP = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+|infinity)\s*\|(.*)\|")
MEMORY = re.compile(r"memory \(MB\) \|.*?\bmax allocated: ([\d.]+) \|(?:.*?\bmax reserved: ([\d.]+))?")
TIME, TIME_S = "elapsed time per iteration (ms)", "elapsed time per iteration (s)"
THROUGHPUT = "throughput per GPU (TFLOP/s/GPU)"
MARKS = ("iteration", "memory (MB)", " ....")


def fields(text: str) -> dict[str, str]:
    """The values between the bars of a line, by name; what has no bar after it may be cut short and is left out.

    >>> fields(" consumed samples: 32 | grad norm: 1.5 | lr 3.0E-4 ")
    {'consumed samples': '32', 'grad norm': '1.5'}
    """
    pairs = (part.rpartition(":") for part in text.split("|"))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def read(text: str) -> LogLine | None:
    """A line of a step, of a rank's memory, or of a printed setting.

    >>> line = " iteration       10/    1000 | elapsed time per iteration (ms): 1147.6 | global batch size:    16 |"
    >>> found = read(line)
    >>> found.step, found.last_step, found.seconds, found.facts
    (10, 1000, 1.1476, {'global_batch': '16'})
    """
    if match := STEP.search(text):
        return step(match, fields(match[3] + "|"))
    if match := MEMORY.search(text):
        reserved = decimal(match[2])
        return LogLine(allocated=float(match[1]) * MiB, reserved=None if reserved is None else reserved * MiB, facts={})
    return settings(text)


def step(match: re.Match[str], values: dict[str, str]) -> LogLine | None:
    """The reading of a step's line; None for a line that tells no time."""
    milliseconds = decimal(values.get(TIME, "").partition("/")[0] or None)
    seconds = decimal(values.get(TIME_S)) if milliseconds is None else milliseconds / 1e3
    if seconds is None:
        return None
    batch = values.get("global batch size", "")
    facts = {"global_batch": batch} if is_count(batch) else {}
    if is_count(length := values.get("actual seqlen", "")):
        facts["seq_len"] = length
    return LogLine(
        step=int(match[1]),
        last_step=int(match[2]) if is_count(match[2]) else None,
        seconds=seconds,
        averaged=True,
        flops_rate=tera(values.get(THROUGHPUT)),
        loss=decimal(values.get("lm loss")),
        grad_norm=decimal(values.get("grad norm")),
        skipped=int(decimal(values.get("number of skipped iterations")) or 0),
        nans=int(decimal(values.get("number of nan iterations")) or 0),
        facts=facts,
    )


LOG = LogFormat(name="Megatron-LM", marks=MARKS, read=read)
