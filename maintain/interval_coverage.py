"""How true what is believed of errors is: `python -m maintain.interval_coverage FILE [FILE]`.

Every part of every stack's runs is left out of its fit and judged by what is believed without it. Then one run, and
three, of each stack, device and model are given, and the rest is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from maintain.belief import PartForecast, believed, forecasts, runs_of
from maintain.left_out import CELL, DISTANCES
from optimizer.calibration.groups import gathered
from optimizer.calibration.runs import Run
from optimizer.job.known import QUANTITIES
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import by_own_runs, likeness
from optimizer.objectives.step.interval import SIDES

MOST = 30  # runs of one stack, source, device and model
DRAWS = 20  # of several runs that are given
NOTICED = 0.005  # by which an error grows before it counts as worse [1]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """One part that was left out.

    Attributes:
        by: what was left out, how far its runs are from the rest, or how many were given.
        runs: of it.
        covered: share of them within their intervals [1].
        error: their mean error [1].
        width: mean half-width of their intervals, in log [1].
        before: mean error of all runs of the cell with none given [1].
    """

    by: str
    runs: int
    covered: float
    error: float
    width: float
    before: float = 0.0

    @classmethod
    def of(cls, by: str, errors: FloatArray, mean: FloatArray, spread: FloatArray) -> Coverage:
        """Of log(measured / predicted) against its mean and spread [1]."""
        return cls(
            by=by,
            runs=len(errors),
            covered=float(np.mean(np.abs(errors - mean) <= SIDES * spread)),
            error=float(np.mean(np.abs(np.expm1(mean - errors)))),
            width=float(np.mean(SIDES * spread)),
        )


def coverages(ahead: Iterable[PartForecast]) -> list[Coverage]:
    """Every part as it is believed, its runs by distance, and cells given one run and three; means widen, as they do in
    answers.
    """
    rows = []
    for forecast in ahead:
        own = forecast.part.own
        widened = np.hypot(forecast.spread, forecast.mean)
        rows.append(Coverage.of(forecast.part.by, own, np.zeros(len(own)), widened))
        for distance, name in enumerate(DISTANCES):
            if (there := forecast.part.distances == distance).any():
                rows.append(Coverage.of(name, own[there], np.zeros(int(there.sum())), widened[there]))
        if forecast.part.by == CELL and len(own) > 1:
            before = float(np.mean(np.abs(np.expm1(-own))))
            given = [Coverage.of(f"{few} of them given", *judged) for few, judged in _given(forecast)]
            rows += [replace(row, before=before) for row in given]
    return rows


def _given(forecast: PartForecast) -> list[tuple[int, tuple[FloatArray, FloatArray, FloatArray]]]:
    """The rest of a cell once some of its runs are known: each one of them, or several draws of these."""
    random, count, own = np.random.default_rng(0), len(forecast.mean), forecast.part.own
    judged = []
    for few in (few for few in (1, 3) if few < count):
        parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        each = [np.array([one]) for one in range(count)]
        for chosen in each if few == 1 else [random.permutation(count)[:few] for _ in range(DRAWS)]:
            rest = np.setdiff1d(np.arange(count), chosen)
            after = forecast.given(chosen.tolist())
            near = forecast.near[:, chosen[0]] if few == 1 else np.ones(count)
            mean, spread = by_own_runs((forecast.mean, forecast.spread), after, forecast.noise, near)
            parts.append((own[rest], mean[rest], spread[rest]))
        errors, means, spreads = (np.concatenate(column) for column in zip(*parts, strict=True))
        judged.append((few, (errors, means, spreads)))
    return judged


def table(runs: Sequence[Run]) -> list[str]:
    """A row for each quantity and what was left out, every part weighing alike."""
    lines = ["| left out | of | parts | runs | covered | mean error | half-width |", "|---|---|---|---|---|---|---|"]
    sentences = [""]
    for quantity in QUANTITIES:
        _, places, errors, parts = believed(runs, quantity, MOST)
        rows = coverages(forecasts(likeness(quantity), places, errors, parts))
        groups: Mapping[object, list[Coverage]] = gathered(rows, lambda row: row.by)
        for by, some in groups.items():
            cells = [np.mean([getattr(row, name) for row in some]) for name in ("covered", "error", "width")]
            total = sum(row.runs for row in some)
            shares = " | ".join(f"{cell:.1%}" for cell in cells)
            lines.append(f"| {by} | {quantity} | {len(some)} | {total:,} | {shares} |")
        sentences += [f"{quantity}, {line}" for line in _worse(rows)]
    return [*lines, *sentences]


def _worse(rows: Sequence[Coverage]) -> list[str]:
    """How many cells are further off with the runs that were given, in sentences."""
    lines = []
    for by, some in gathered([row for row in rows if row.before], lambda row: row.by).items():
        before = float(np.mean([row.before for row in some]))
        further = [row.error - row.before for row in some if row.error - row.before > NOTICED]
        lines.append(
            f"{by}: mean error {before:.1%} before; {len(further)} of {len(some)} groups further off by more than "
            f"{NOTICED:.1%}, by {sum(further):.1%} together"
        )
    return lines


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Print a Markdown table of coverage, error and width."""
    click.echo("\n".join(table(runs_of(files))))


if __name__ == "__main__":
    main()
