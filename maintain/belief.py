"""What is believed of errors: `python -m maintain.belief FILE [FILE] [--likeness | --levels]`.

Writes presets/belief.csv, the errors of the shipped stacks on the published runs, and with --likeness
presets/belief.toml: how alike errors are, by the runs that fits did not see; --levels keeps the shape of what is there.
With --tuning it writes those of software that fine-tunes to presets/belief-tuning.csv, and to presets/belief.toml how
far such software errs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from maintain.left_out import CELL, LeftOut, left_out, sampled, usable
from maintain.sweeps import sweeps
from optimizer.calibration.fit import time_errors
from optimizer.calibration.groups import source_name
from optimizer.calibration.known import known_error, known_errors, thinned
from optimizer.calibration.memory_fit import memory_errors
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog.belief import LEADING, LIKENESS, RUNS, SEVERAL, SWEEPS, TUNING, published_errors
from optimizer.catalog.files import presets_folder
from optimizer.catalog.stacks import load_stack
from optimizer.job.known import MEMORY, QUANTITIES, TIME, RunError, SweptError
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import SEVERAL as TELLING
from optimizer.objectives.belief.belief import likeness as shipped
from optimizer.objectives.belief.likeness import ErrorLikeness, nearness
from optimizer.objectives.belief.places import SHARED, Places, family
from optimizer.objectives.belief.posterior import ALONE, REWEIGHTINGS, SITE, Posterior, unlike
from optimizer.objectives.belief.posterior import FREEDOM as NOISE_FREEDOM
from optimizer.objectives.step.interval import SIDES

# Stacks that are fitted to runs of others, whose rows name these, and those that print the memory that they reserve.
ALSO: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "megatron-core": {
        TIME: ("nemo-2024", "megatron-bridge-2025"),
        MEMORY: ("megatron-te-2026-no-overlap", "megatron-zero-bubble-2024"),
    }
}
SAMPLE = 8  # runs of one stack, source, device and model that the likeness is fitted to
FREEDOM = 8.0  # of Student's distribution that scores a prediction
START = ErrorLikeness(parts=dict.fromkeys(SHARED, 0.07), noise=0.03, size=3.0, plan=3.0, slope=0.3)
STEPS = (0.7, 0.35, 0.2)  # in log, of the search
BOUNDS = {"parts": (0.002, 0.6), "noise": (0.01, 0.1), "size": (0.5, 10.0), "plan": (0.5, 10.0), "slope": (0.05, 1.0)}
MEDIAN_PART, WIDTH = 0.07, 1.5  # of the prior of a part, in log: parts that no leave-out tells stay there
QUIET, LOUD = 8.0, 3.0  # sources that a scale of 1 counts as, against those that err less than usual, and more
CLIPPED = 9.0  # most of a squared error over its variance
# Share of what is left out that intervals are to hold. Times of runs that nobody who wrote the mechanisms had seen are
# held less often than of runs that a fit did not see: more of these are, and some parts are no less than so much.
COVERED = {TIME: 0.92, MEMORY: 0.9}
UNSEEN = {TIME: {"site": 0.05}, MEMORY: {}}
WEIGHT = 50.0  # of the mean score against the prior
SCATTERED = 25.0  # most of a cell's variance over that of the noise
WITHIN = ("model", "size", "plan")  # parts that runs of one software on one machine differ by
DARING = 4.0  # weight of coverage below what is to be held against that above
FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)


@dataclass(frozen=True, kw_only=True)
class PartForecast:
    """What is believed of runs that a fit did not see.

    Attributes:
        part: what was left out.
        mean: of the errors [1].
        covariance: of the errors without noise [1].
        noise: standard deviation of one run's own [1].
        near: how much every two of them are one run again [1].
    """

    part: LeftOut
    mean: FloatArray
    covariance: FloatArray
    noise: FloatArray
    near: FloatArray

    @property
    def spread(self) -> FloatArray:
        """Standard deviation of each error, noise included [1]."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + self.noise**2)

    def given(self, measured: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Mean and spread of all of them once some were measured [1]."""
        chosen = list(measured)
        several = len(chosen) >= TELLING
        strange = unlike(self.part.own[chosen], self.mean[chosen], self.spread[chosen])
        covariance = self.covariance + (strange**2 if several else 0.0)
        within = covariance[np.ix_(chosen, chosen)]
        errors, noise = self.part.own[chosen] - self.mean[chosen], self.noise[chosen] ** 2
        scaled = noise.copy()
        for _ in range(REWEIGHTINGS):
            inverse = np.linalg.inv(within + np.diag(scaled))
            squares = (scaled * (inverse @ errors)) ** 2 + np.maximum(scaled - scaled**2 * np.diag(inverse), 0.0)
            scaled = noise * (NOISE_FREEDOM + squares / noise) / (NOISE_FREEDOM + 1.0)
        inverse = np.linalg.inv(within + np.diag(scaled))
        like = covariance[:, chosen]
        variance = np.diag(covariance) - np.einsum("ij,jk,ik->i", like, inverse, like)
        moved = like @ inverse @ errors
        if strange and not several:  # as Posterior.in_doubt
            variance = variance + 0.5 * float(errors[0] - ALONE * moved[chosen[0]]) ** 2
        return self.mean + moved, np.sqrt(np.maximum(variance, 0.0) + self.noise**2)


def forecasts(
    likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut]
) -> Iterator[PartForecast]:
    """Each part that was left out, given all other runs.

    With P the inverse of the covariance of all runs, the errors e of a part g have the covariance (P_gg)^-1 and the
    mean -(P_gg)^-1 P_gr e_r, e_r being the errors of the rest under the stacks that did not see the part.

    Source: Rasmussen and Williams (2006), section 5.4.2, for blocks.
    """
    every = Posterior.given(likeness, places, errors, np.zeros(len(places)))
    single = likeness.single(places)
    for part in parts:
        seen = errors.copy()
        seen[part.stack] = part.errors
        seen[part.places] = 0.0
        covariance = np.asarray(np.linalg.inv(every.inverse[np.ix_(part.places, part.places)]), dtype=np.float64)
        mean = -covariance @ (every.inverse[part.places] @ seen)
        yield PartForecast(
            part=part,
            mean=mean,
            covariance=covariance - np.diag(every.noise[part.places]),
            noise=single[part.places],
            near=nearness(own := places.take(part.places), own),
        )


def score(likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut]) -> float:
    """Mean log density of errors on runs left out, and on the rest of a cell once one or three of it are known.

    A part of n runs weighs n^0.3. The prior holds parts that nothing tells.
    """
    random = np.random.default_rng(1)
    total = weight = 0.0
    for forecast in forecasts(likeness, places, errors, parts):
        own, count = forecast.part.own, len(forecast.part.own)
        share = count**0.3
        total += share * _density(own, forecast.mean, forecast.spread)
        weight += share
        if forecast.part.by == CELL and count > 1:
            for few in (1, 3):
                chosen = random.permutation(count)[: min(few, count - 1)]
                rest = np.setdiff1d(np.arange(count), chosen)
                mean, spread = forecast.given(chosen.tolist())
                total += share * _density(own[rest], mean[rest], spread[rest])
                weight += share
    away = np.log(np.array(list(likeness.parts.values())) / MEDIAN_PART) / WIDTH
    return WEIGHT * total / weight - 0.5 * float(np.sum(away**2))


def _density(errors: FloatArray, mean: FloatArray, spread: FloatArray) -> float:
    """Mean log density of Student's distribution with these means and standard deviations, but for a constant."""
    scale = spread * np.sqrt((FREEDOM - 2.0) / FREEDOM)
    squares = ((errors - mean) / scale) ** 2
    return float(np.mean(-np.log(scale) - (FREEDOM + 1.0) / 2.0 * np.log1p(squares / FREEDOM)))


def fitted(places: Places, errors: FloatArray, parts: Sequence[LeftOut], start: ErrorLikeness) -> ErrorLikeness:
    """The likeness of the best score, by a search along each coordinate."""
    names = [*(("parts", name) for name in start.parts), *((name, "") for name in ("noise", "size", "plan", "slope"))]
    chosen = start
    for step in STEPS:
        chosen = replace(chosen, noises=noises(chosen, places, errors, parts))
        chosen = replace(chosen, scales=scales(chosen, places, errors, parts))
        best = score(chosen, places, errors, parts)
        for name, key in names:
            for sign in (1.0, -1.0):
                changed = _moved(chosen, name, key, float(np.exp(sign * step)))
                while (value := score(changed, places, errors, parts)) > best + 1e-3:
                    best, chosen = value, changed
                    changed = _moved(chosen, name, key, float(np.exp(sign * step)))
        click.echo(f"{best:.3f} {chosen}", err=True)
    return chosen


def scales(likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut]) -> dict[str, float]:
    """Errors of each root's software over what the likeness says of all, where cells are left out [1].

    g^2 = (u + sum_i z_i^2) / (u + n) over n sources i, z^2 being the mean of squared errors over their variances, at
    most CLIPPED: what a source has of several cells errs alike. u is QUIET where that is below 1, else LOUD.

    Source: Shah, Wilson and Ghahramani, Student-t processes as alternatives to Gaussian processes (2014), equation 4.
    """
    plain = replace(likeness, scales={}, own_scales={})
    return _scaled(_squares_by(places.roots, plain, places, errors, parts))


def own_scales(
    likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut], quantity: str
) -> dict[str, float]:
    """The same of each software over its root's [1]; of one that borrows runs, with the cells of those that lend."""
    squares = _squares_by(places.softwares, replace(likeness, own_scales={}), places, errors, parts)
    for borrower, lenders in ALSO.items():
        lent = [value for name in lenders[quantity] for value in squares.get(family(name), [])]
        squares[family(borrower)] = [*squares.get(family(borrower), []), *lent]
    return _scaled(squares)


def _squares_by(
    names: Sequence[str], likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut]
) -> dict[str, list[float]]:
    """Mean of squared errors over their variances of every source, cell by cell, by the name of its software."""
    cells: dict[tuple[str, int], list[float]] = {}
    for forecast in forecasts(likeness, places, errors, [part for part in parts if part.by == CELL]):
        far = np.minimum(((forecast.part.own - forecast.mean) / forecast.spread) ** 2, CLIPPED)
        first = forecast.part.places[0]
        cells.setdefault((names[first], int(places.codes[first, SITE])), []).append(float(np.mean(far)))
    squares: dict[str, list[float]] = {}
    for (name, _), values in cells.items():
        squares.setdefault(name, []).append(float(np.mean(values)))
    return squares


def _scaled(squares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    scaled = {}
    for name, own in squares.items():
        if own:
            usual = QUIET if np.mean(own) < 1.0 else LOUD
            scaled[name] = round(float(np.sqrt((usual + sum(own)) / (usual + len(own)))), 3)
    return scaled


def noises(likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut]) -> dict[str, float]:
    """Noise of each software's runs over what the likeness says of all, by how far runs of one cell lie apart [1].

    f^2 = (1 + sum_c w_c x_c) / (1 + sum_c w_c), at least 1, over its cells c of n runs: x is the variance of their
    errors beyond what their plans and sizes explain, over that of the noise, at most SCATTERED; w = (n - 1) / (n + 1).
    The first 1 stands for a usual cell. Errors are of the stacks that saw the runs: what all runs of a cell share is no
    noise.

    Source: Gelman et al., Bayesian Data Analysis (2013), section 2.6, for the variance of a normal distribution.
    """
    single, like = replace(likeness, noises={}).single(places), likeness.covariance(places, places)
    sums: dict[str, tuple[float, float]] = {}
    for part in parts:
        own, count = part.places, len(part.places)
        if part.by != CELL or count < 2:
            continue
        within = like[np.ix_(own, own)]
        explained = np.trace(within) / count - (within.sum() - np.trace(within)) / (count * (count - 1))
        beyond = max(float(np.var(errors[own], ddof=1) - explained), 0.0) / float(np.mean(single[own] ** 2))
        weight = (count - 1) / (count + 1)
        total, weights = sums.get(places.softwares[own[0]], (1.0, 1.0))
        sums[places.softwares[own[0]]] = total + weight * min(beyond, SCATTERED), weights + weight
    by_software = {name: round(max(1.0, total / weights) ** 0.5, 3) for name, (total, weights) in sums.items()}
    return {name: value for name, value in by_software.items() if value > 1.0}


def levelled(
    likeness: ErrorLikeness, places: Places, errors: FloatArray, parts: Sequence[LeftOut], level: float
) -> ErrorLikeness:
    """The likeness whose intervals come closest to holding so much of what was left out, whatever that is, rather more.

    Its deviations times one of FACTORS: those that runs of one software differ by (WITHIN) times one, those that
    software and hardware differ by times another. Of a kind of leave-out every part weighs alike.

    Source: Lei et al., Distribution-free predictive inference for regression, JASA 113 (2018).
    """

    def changed(factors: tuple[float, float]) -> ErrorLikeness:
        wider = {name: factors[name in WITHIN] * value for name, value in likeness.parts.items()}
        return replace(likeness, parts=wider)

    def missed(factors: tuple[float, float]) -> float:
        covered: dict[str, list[float]] = {}
        for each in forecasts(changed(factors), places, errors, parts):
            within = np.abs(each.part.own) <= SIDES * np.hypot(each.spread, each.mean)
            covered.setdefault(each.part.by, []).append(float(np.mean(within)))
        over = (float(np.mean(shares)) - level for shares in covered.values())
        return sum(share**2 if share > 0.0 else DARING * share**2 for share in over)

    return changed(min(product(FACTORS, FACTORS), key=missed))


def _moved(likeness: ErrorLikeness, name: str, key: str, factor: float) -> ErrorLikeness:
    low, high = BOUNDS[name]
    if key:
        value = float(np.clip(likeness.parts[key] * factor, low, high))
        return replace(likeness, parts={**likeness.parts, key: value})
    value = float(np.clip(getattr(likeness, name) * factor, low, high))
    changed: Mapping[str, Any] = {name: value}
    return replace(likeness, **changed)


def believed(
    runs: Sequence[Run], quantity: str, most: int = SAMPLE
) -> tuple[list[Run], Places, FloatArray, list[LeftOut]]:
    """The runs that tell of a quantity, their places, errors [1], and every part of them left out."""
    chosen = sampled(usable(runs, quantity), most)
    errors = -(time_errors if quantity == TIME else memory_errors)(chosen, {})
    rows = [
        known_error(run, float(error), quantity, source_name(run)) for run, error in zip(chosen, errors, strict=True)
    ]
    return chosen, Places.of(rows), errors, list(left_out(chosen, quantity))


def belief_csv(rows: Sequence[RunError] | Sequence[SweptError], about: str) -> str:
    """A table of what is believed, under a line that says what it is."""
    text = StringIO()
    text.write(f"# {about}: python -m maintain.belief\n")
    names = [field.name for field in fields(rows[0]) if field.name != "switches"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    above = [""] * len(names)
    for row in rows:
        cells = [_cell(getattr(row, name)) for name in names]
        if cells[:LEADING] != above[:LEADING]:  # a group begins, which may be read alone
            above = [""] * len(names)
        rest = zip(cells[LEADING:], above[LEADING:], strict=True)
        writer.writerow([*cells[:LEADING], *("" if cell == before else cell for cell, before in rest)])
        above = cells
    return text.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return SEVERAL.join(f"{number:.4g}" for number in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def likeness_toml(likenesses: dict[str, ErrorLikeness]) -> str:
    """presets/belief.toml."""
    lines = ["# How alike errors of predictions are: deviations of what they share, in log; lengths in doublings."]
    for quantity, likeness in likenesses.items():
        lines += ["", f"[likeness.{quantity}]"]
        lines += [f"{name} = {getattr(likeness, name):.3g}" for name in ("noise", "size", "plan", "slope")]
        lines += [f"parts.{name} = {value:.3g}" for name, value in likeness.parts.items()]
        for table in ("scales", "own_scales", "noises"):
            values = getattr(likeness, table)
            lines += [f"{table}.{name} = {value:.3g}" for name, value in sorted(values.items())]
    return "\n".join([*lines, ""])


def runs_of(files: Sequence[Path], stack: Stack | None = None) -> list[Run]:
    """The rows of some files, under a stack of their own or this one."""
    return [run for file in files for run in read_runs(file, stack)]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--likeness", is_flag=True, help="Fit how alike errors are as well.")
@click.option("--levels", is_flag=True, help="Only widen or narrow what makes them alike, and the noise by software.")
@click.option("--tuning", is_flag=True, help="Write those of software that fine-tunes, to a file of their own.")
def main(files: tuple[Path, ...], likeness: bool, levels: bool, tuning: bool) -> None:
    """Write the table, and what makes errors alike."""
    runs = runs_of(files)
    likenesses: dict[str, ErrorLikeness] = {}
    for quantity in QUANTITIES if likeness or levels else ():
        before = shipped(quantity)
        _, places, errors, parts = believed(runs, quantity)
        start = replace(START, parts={name: START.parts[name] for name in before.parts})
        likely = fitted(places, errors, parts, start) if likeness else before
        least = UNSEEN[quantity]
        likely = replace(likely, parts={name: max(least.get(name, 0), own) for name, own in likely.parts.items()})
        likely = replace(likely, noises=noises(likely, places, errors, parts))
        likely = replace(likely, own_scales=own_scales(likely, places, errors, parts, quantity))
        likely = levelled(likely, places, errors, parts, COVERED[quantity])
        elsewhere = {name: value for name, value in before.noises.items() if name not in places.softwares}
        likenesses[quantity] = replace(
            likely, scales={**before.scales, **likely.scales}, noises={**elsewhere, **likely.noises}
        )
    known = [*known_errors(runs, source_name)]
    if tuning:
        others = {row.root for row in published_errors()}
        known = [row for row in known if row.root not in others]
        for quantity in QUANTITIES:
            likely = likenesses.get(quantity, shipped(quantity))
            seen = believed(runs, quantity)[1:]
            ours = {root: scale for root, scale in scales(likely, *seen).items() if root not in others}
            tuned = {row.software for row in known}
            loose = {name: noise for name, noise in noises(likely, *seen).items() if name in tuned}
            likenesses[quantity] = replace(likely, scales={**likely.scales, **ours}, noises={**likely.noises, **loose})
    if likenesses:
        (presets_folder() / LIKENESS).write_text(likeness_toml(likenesses), encoding="utf-8")
    for stack, lenders in ({} if tuning else ALSO).items():
        lent = runs_of(files, load_stack(stack))
        for quantity, names in lenders.items():
            rows = known_errors([run for run in lent if run.row.get("stack") in names], source_name)
            known += [row for row in rows if row.quantity == quantity]
    named = " and ".join(file.name for file in files)
    tables: dict[str, tuple[str, Sequence[RunError] | Sequence[SweptError]]] = {
        TUNING if tuning else RUNS: (f"Errors of the shipped stacks on {named}, like runs together", thinned(known))
    }
    if not tuning:
        swept = tuple(sweeps(runs, likenesses.get(TIME, shipped(TIME))))
        tables[SWEEPS] = f"What the sweeps of {named} say of plans among each other", swept
    for file, (about, table) in tables.items():
        (presets_folder() / file).write_text(belief_csv(table, about), encoding="utf-8")


if __name__ == "__main__":
    main()
