"""How true the intervals are by kind: `python -m maintain.interval_coverage --runs FILE [--runs FILE]`.

Every run is judged by the interval that its stack would have without the runs of its group, made from the stack's other
groups and the errors of other stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from maintain.left_out import Judged, judged, left_out
from optimizer.calibration.runs import Run, read_runs
from optimizer.objectives.step.interval import EXPERTS, RECOMPUTED, STARVED

FEW = 30  # runs of a stack


def _vendor(row: Judged, vendor: str) -> bool:
    return row.run.job is not None and row.run.job.cluster.device.vendor == vendor


TIMES: Mapping[str, Callable[[Judged], bool]] = {
    "dense": lambda row: row.category == "",
    "MoE": lambda row: row.category == EXPERTS,
    "below 10 % MFU": lambda row: row.category == STARVED,
    "MoE below 10 % MFU among them": lambda row: row.category == STARVED and _moe(row),
    "NVIDIA's and AWS's runs of megatron-bridge-2025": lambda row: row.stack == "megatron-bridge-2025",
    "AMD": lambda row: _vendor(row, "AMD"),
    "TPU": lambda row: _vendor(row, "Google"),
    "inside of the other groups": lambda row: row.inside,
    "outside of them": lambda row: not row.inside,
}
MEMORY: Mapping[str, Callable[[Judged], bool]] = {
    "plain, nothing recomputed": lambda row: row.category == "",
    "MoE": lambda row: row.category == EXPERTS,
    "recomputed": lambda row: row.category == RECOMPUTED,
    "sharded weights among these": lambda row: row.run.plan is not None and row.run.plan.zero_stage >= 3,
}


def _moe(row: Judged) -> bool:
    return row.run.job is not None and row.run.job.model.experts is not None


@click.command()
@click.option("--runs", type=click.Path(path_type=Path), multiple=True, required=True, metavar="FILE.csv")
def main(runs: tuple[Path, ...]) -> None:
    """Print Markdown tables of coverage and width, of times and of memory."""
    measured = [run for file in runs for run in read_runs(file)]
    for quantity, kinds in (("time", TIMES), ("memory", MEMORY)):
        click.echo("\n".join(table(measured, quantity, kinds)) + "\n")


def table(runs: Sequence[Run], quantity: str, kinds: Mapping[str, Callable[[Judged], bool]]) -> list[str]:
    """Runs, groups, coverage and median half-width of each kind."""
    rows = judged(left_out(runs, quantity), quantity)
    counts = {stack: sum(row.stack == stack for row in rows) for stack in {row.stack for row in rows}}
    kinds = {**kinds, f"stacks of fewer than {FEW} runs": lambda row: counts[row.stack] < FEW}
    lines = [f"| {quantity} | runs | groups | covered | half-width |", "|---|---|---|---|---|"]
    for name, is_of_kind in kinds.items():
        some = [row for row in rows if is_of_kind(row)]
        if some:
            groups = len({(row.stack, row.group) for row in some})
            share, width = np.mean([row.covered for row in some]), np.median([row.width for row in some])
            lines.append(f"| {name} | {len(some):,} | {groups} | {share:.0%} | {width:.2f} |")
    return lines


if __name__ == "__main__":
    main()
