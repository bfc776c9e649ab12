"""How often plans at a risk of going out of memory would have: `python -m maintain.risk_replay --runs FILE`.

On measured runs: how often an answer at each risk goes out of memory, and what the risk costs in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import click
import numpy as np

from optimizer.calibration.groups import gathered, on_broken_network, plan_group
from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.validation import PricedRun, priced
from optimizer.catalog.files import presets_folder
from optimizer.objectives.step.safe_memory import margin

RISKS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
BATCH = 500  # runs that are priced together


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The answers to groups of measured plans, each the plan predicted to be the fastest of those that the risk allows.

    Attributes:
        risk: of going out of memory [1].
        groups: of measured plans.
        answered: those with such a plan.
        failed: answers that went out of memory when they were run.
        mean_regret: measured time of answers that ran / best measured time of their group - 1, on average [1].
        dearer: the same against the answer at even risk, over groups where that ran too [1].
    """

    risk: float
    groups: int
    answered: int
    failed: int
    mean_regret: float
    dearer: float

    @property
    def rate(self) -> float:
        """Share of the answers that went out of memory [1]."""
        return self.failed / self.answered if self.answered else 0.0


def replay(runs: Sequence[Run], risks: Sequence[float]) -> tuple[Replay, ...]:
    """The answers at each risk, over groups of at least two plans of which one ran and one's memory could be too much.

    A group counts where some run of it went out of memory or reports its memory. Runs on broken networks do not count.
    """
    chosen = [run for run in runs if run.job is not None and run.plan is not None and run.out_of_memory is not None]
    chosen = [run for run in chosen if not on_broken_network(run) and (run.step_time or run.out_of_memory)]
    telling = [members for members in gathered(chosen, plan_group).values() if _telling(members)]
    chosen = list(chain.from_iterable(telling))
    rows = iter([row for start in range(0, len(chosen), BATCH) for row in priced(chosen[start : start + BATCH])])
    groups = [list(islice(rows, len(members))) for members in telling]
    bold = [answer(members, 0.5) for members in groups]
    return tuple(_replayed(groups, bold, risk) for risk in risks)


def answer(members: Sequence[PricedRun], risk: float) -> PricedRun | None:
    """The plan predicted to be the fastest of those that this risk allows; None without one."""
    allowed = [row for row in members if _allowed(row, risk)]
    return min(allowed, key=lambda row: row.step_time or np.inf, default=None)


def _allowed(row: PricedRun, risk: float) -> bool:
    job = row.run.job
    return job is not None and row.reserved is not None and row.reserved <= job.usable_memory * margin(job, risk)


def _telling(members: Sequence[Run]) -> bool:
    """Whether a group has several plans, one that ran, and something known about memory."""
    ran = any(not run.out_of_memory for run in members)
    return len({run.plan for run in members}) > 1 and ran and any(run.out_of_memory or run.memory for run in members)


def _replayed(groups: Sequence[Sequence[PricedRun]], bold: Sequence[PricedRun | None], risk: float) -> Replay:
    answers = [answer(members, risk) for members in groups]
    regrets, dearer = [], []
    for members, choice, other in zip(groups, answers, bold, strict=True):
        if choice is None or choice.run.out_of_memory or not choice.run.step_time:
            continue
        best = min(row.run.step_time for row in members if row.run.step_time and not row.run.out_of_memory)
        regrets.append(choice.run.step_time / best - 1.0)
        if other is not None and not other.run.out_of_memory and other.run.step_time:
            dearer.append(choice.run.step_time / other.run.step_time - 1.0)
    return Replay(
        risk=risk,
        groups=len(groups),
        answered=sum(choice is not None for choice in answers),
        failed=sum(bool(choice and choice.run.out_of_memory) for choice in answers),
        mean_regret=float(np.mean(regrets)) if regrets else 0.0,
        dearer=float(np.mean(dearer)) if dearer else 0.0,
    )


@click.command()
@click.option("--runs", type=click.Path(path_type=Path), metavar="FILE.csv", help="Measured runs. [published ones]")
def main(runs: Path | None) -> None:
    """Print a Markdown table with a row for each risk."""
    click.echo("\n".join(table(replay(read_runs(runs or presets_folder() / "published.csv"), RISKS))))


def table(replays: Sequence[Replay]) -> list[str]:
    """The replays as Markdown."""
    heads = ("--oom-risk", "groups", "answered", "out of memory", "rate", "mean regret", "slower than at 50%")
    rows = [
        (
            f"{item.risk:.0%}",
            f"{item.groups:,}",
            f"{item.answered:,}",
            f"{item.failed:,}",
            f"{item.rate:.1%}",
            f"{item.mean_regret:.1%}",
            f"{item.dearer:.1%}",
        )
        for item in replays
    ]
    return [f"| {' | '.join(cells)} |" for cells in (heads, tuple("---" for _ in heads), *rows)]


if __name__ == "__main__":
    main()
