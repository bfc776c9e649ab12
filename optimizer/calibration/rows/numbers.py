"""The numbers in a row of measured runs, and which cells hold none that can be used."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

from optimizer.base.errors import InputError
from optimizer.base.units import HUGE, LARGEST

COUNTS = (
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "seq_len", "gpus", "gpus_per_node"),
    *("tp", "cp", "ep", "etp", "pp", "vpp", "micro_batch", "global_batch", "experts", "topk", "moe_ffn_hidden"),
    *("grad_accum", "adapter_rank"),
)
QUANTITIES = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "mem_gb")


def number_problems(row: Mapping[str, str]) -> list[str]:
    """One sentence for each cell that must hold a number and does not; blank cells are fine.

    >>> number_problems({"tp": "two", "pp": "4.0", "step_time_s": "-1"})
    ["tp must be a whole number of at least 1, but got 'two'", "step_time_s must be a positive number, but got '-1'"]
    """
    problems = []
    for name in (*COUNTS, *QUANTITIES):
        if text := row.get(name, ""):
            least, most = ("a whole number of at least 1", LARGEST) if name in COUNTS else ("a positive number", HUGE)
            value = _value(text)
            if not value > 0 or (name in COUNTS and value % 1):
                problems.append(f"{name} must be {least}, but got {text!r}")
            elif value > most:
                problems.append(f"{name} must be at most {most}, but got {text!r}")
    return problems


def number(row: Mapping[str, str], key: str) -> float:
    """The number in a cell; raises InputError where there is none."""
    try:
        return float(row[key])
    except ValueError:
        raise InputError(f"{key} must be a number, but got {row[key]!r}") from None


def integer(row: Mapping[str, str], key: str, default: int | None = None, assumed: list[str] | None = None) -> int:
    """The whole number in a cell, or the default of a blank one, noted in `assumed`; raises InputError without."""
    if not row.get(key):
        if default is None:
            raise InputError(f"the row has no {key}")
        if assumed is not None:
            assumed.append(f"{key} {default}")
        return default
    value = number(row, key)
    if value < 1 or value != int(value):
        raise InputError(f"{key} must be a whole number of at least 1, but got {row[key]!r}")
    return int(value)


def flag(row: Mapping[str, str], key: str, default: bool) -> bool:
    """Whether a cell says yes; the default where it is blank."""
    text = row.get(key, "").lower()
    if not text:
        return default
    return text.startswith(("true", "on", "1", "yes"))


def _value(text: str) -> float:
    """The number in a text, not a number where there is none."""
    try:
        return float(text)
    except ValueError:
        return nan
