"""The default's choice replayed on measured runs: `python -m maintain.default_replay --runs FILE.csv`.

On groups of runs that differ only in the plan, each left out of the fit of its stack: what the plan of the best
expectation loses beside the best of its group, and how often it runs out of memory, beside the fastest on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from maintain.trial_groups import TrialGroup, groups_of
from optimizer.calibration.groups import on_broken_network, plan_group
from optimizer.calibration.runs import Run, read_runs
from optimizer.job.fields import EXPECTED, FIELDS
from optimizer.job.plan import Plans
from optimizer.objectives.expected import layout_factor, memory_factor, parts_factor
from optimizer.objectives.step.safe_memory import safe_memory

WORST = 5  # groups that are listed
TWO = 2  # plans of which the better one is launched


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The choices of one preference, by group: what they lose [1], and whether they run out of memory."""

    prefer: str
    regret: tuple[float, ...]
    failed: tuple[bool, ...]


def tried_groups(runs: Sequence[Run]) -> list[TrialGroup]:
    """Every group of at least four plans that trained, with those of its plans that ran out of memory."""
    failing = {group.name: group for group in groups_of(runs, oom=True)}
    return [failing.get(group.name, group) for group in groups_of(runs)]


def choice(group: TrialGroup, prefer: str) -> int:
    """The plan that a preference takes: of those that fit with the usual chance, else of those predicted to fit, else
    the one of least memory.
    """
    job, plans, values = replace(group.job, prefer=prefer), Plans.of(group.plans), group.seconds
    if prefer == EXPECTED:
        values = values * group.longer * parts_factor(job, plans)
        values = values * layout_factor(job, plans, 0.0) * memory_factor(job, group.reserved)
    for limit in (safe_memory(job), job.usable_memory):
        fits = group.reserved <= limit
        if fits.any():
            return int(np.where(fits, values, np.inf).argmin())
    return int(group.reserved.argmin())


def replayed(groups: Sequence[TrialGroup], prefer: str) -> Replayed:
    """Every group's choice; one that runs out of memory loses what the next in the ranking does that trains."""
    chosen = [choice(group, prefer) for group in groups]
    return Replayed(
        prefer=prefer,
        regret=tuple(group.regret([index]) for group, index in zip(groups, chosen, strict=True)),
        failed=tuple(not np.isfinite(group.measured[index]) for group, index in zip(groups, chosen, strict=True)),
    )


def table(groups: Sequence[TrialGroup]) -> str:
    """Both preferences as a table in Markdown, beside what they lose by time alone: if it were known what fits."""
    lines = [
        "| prefer | groups | mean regret | worst groups | out of memory | by time alone | best of two |",
        "|---|---|---|---|---|---|---|",
    ]
    known = [[group.regret(order) for order in (_fitting(group, 1), _fitting(group, TWO))] for group in groups]
    one, two = (100 * float(value) for value in np.mean(known, axis=0))
    for prefer in FIELDS["prefer"].choices:
        result = replayed(groups, prefer)
        worst = ", ".join(f"{100 * value:.1f}" for value in sorted(result.regret, reverse=True)[:WORST])
        mean, failed = (100 * float(np.mean(column)) for column in (result.regret, result.failed))
        lines.append(
            f"| {prefer} | {len(groups)} | {mean:.2f} % | {worst} | {failed:.1f} % | {one:.2f} % | {two:.2f} % |"
        )
    return "\n".join(lines)


def _fitting(group: TrialGroup, count: int) -> list[int]:
    """The plans that are predicted to be the fastest of those that trained."""
    seconds = group.seconds * group.longer
    order = np.argsort(np.where(np.isfinite(group.measured), seconds, np.inf), kind="stable")
    return [int(place) for place in order[:count]]


@click.command(help=__doc__)
@click.option(
    "--runs", "paths", type=click.Path(path_type=Path, exists=True), multiple=True, required=True, metavar="FILE.csv"
)
def main(paths: tuple[Path, ...]) -> None:
    """Replay and print."""
    runs = [run for path in paths for run in read_runs(path)]
    groups = tried_groups(runs)
    broken = {plan_group(run) for run in runs if run.job and on_broken_network(run)}
    whole = [group for group in groups if group.name not in broken]
    if not whole:
        raise click.UsageError("no group of at least four measured runs differs only in the plan")
    click.echo(table(whole))
    if len(whole) < len(groups):
        click.echo("\non networks that the runs' own benchmarks show to be broken:\n")
        click.echo(table([group for group in groups if group.name in broken]))
    click.echo("")
    regret = replayed(whole, EXPECTED).regret
    for index in np.argsort([-value for value in regret])[:WORST].tolist():
        group = whole[index]
        taken = group.plans[choice(group, EXPECTED)].summary()
        best = group.plans[int(group.measured.argmin())].summary()
        click.echo(f"{100 * regret[index]:5.1f} %  {group.name}: {taken}; best {best}")


if __name__ == "__main__":
    main()
