"""Memory intervals of a stack whose runs print no peak: `python -m maintain.memory_widths STACK FILE`.

Runs of stacks that allocate as this one does are priced with its parameters of memory: what they err is what it errs
where it has not been measured. Plain runs, runs that recompute and MoE runs have widths of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from optimizer.calibration.intervals import conformal, memory_errors, memory_kind
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import load_stack
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import EXPERTS, RECOMPUTED

# Whose runs tell a kind. Megatron-Core's own, and Primus, which runs it on AMD, for what they have; nobody prints the
# memory of Megatron-Core recomputing: Megatron-DeepSpeed and torchtitan, which are less alike.
ALIKE: Mapping[str, tuple[str, ...]] = {
    "": ("megatron-te-2026-no-overlap", "megatron-zero-bubble-2024"),
    EXPERTS: ("megatron-te-2026-no-overlap", "primus-2025"),
    RECOMPUTED: ("megatron-deepspeed-2022", "torchtitan-2024"),
}
FEWEST = 10
WIDER = 1.5  # an extrapolation of software that prints no peak, for which nothing tells how much wider it is


def errors_of_kind(stack: Stack, runs: Sequence[Run], kind: str) -> FloatArray:
    """log(predicted / measured) peaks of the runs of a kind under the stack's parameters [1].

    What lies outside of the allocator is that of the runs' own software and devices.
    """
    alike = [run for run in runs if run.stack_name in ALIKE[kind] and run.memory and memory_kind(run) == kind]
    known = [run for run in alike if run.job is not None and not run.doubted]
    values = {name: stack[name] for name in MEMORY_PARAMETERS if name != "context_memory"}
    return memory_errors(known, values) if known else np.zeros(0)


def memory_widths(stack: Stack, runs: Sequence[Run]) -> dict[str, float]:
    """Half-widths in log by kind: interpolated and extrapolated [1]."""
    widths: dict[str, float] = {}
    for kind in ALIKE:
        errors = errors_of_kind(stack, runs, kind)
        if len(errors) >= FEWEST:
            width = conformal(np.abs(errors))
            widths |= {f"memory{kind}_interpolated": width, f"memory{kind}_extrapolated": WIDER * width}
            widths |= {f"memory{kind}_n": float(len(errors))}
    return widths


if __name__ == "__main__":
    measured = [run for file in sys.argv[2:] for run in read_runs(Path(file))]
    for name, value in memory_widths(load_stack(sys.argv[1]), measured).items():
        print(f"{name} = {value:.4g}")
