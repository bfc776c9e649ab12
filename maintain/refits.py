"""What stacks err on models, cards and sources that no fit saw: `python -m maintain.refits FILE [FILE] [--moe]`.

Each stack that was fitted to these runs is fitted again without one model, one card, one source, where it has runs of
several: the same parameters, held by the prior alone. A stack that was fitted to none is as it is. Prints Markdown:
errors of time (mean, median, runs) and memory (mean) and verdicts on memory, by method, of runs of LONG tokens or more,
of mixtures by vendor, and by stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from maintain.belief import runs_of
from maintain.fit_verdicts import share_of_usable
from maintain.left_out import FEWEST
from optimizer.calibration.calibrate import informed
from optimizer.calibration.fit import fit_times, time_errors
from optimizer.calibration.groups import device_name, method, model_name, places_by, source_name
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS, fit_memory, memory_errors
from optimizer.calibration.runs import Run
from optimizer.catalog import load_stack
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray

LONG = 16384  # tokens of a sequence that counts as long
BY: Mapping[str, Callable[[Run], str]] = {"model": model_name, "card": device_name, "source": source_name}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How far every run is predicted from what was measured, nan where there is nothing to compare.

    Attributes:
        time: log(predicted / measured step time) [1].
        memory: log(predicted / measured peak) [1].
        share: memory predicted over what is usable [1].
    """

    time: FloatArray
    memory: FloatArray
    share: FloatArray


def fitted_runs(runs: Sequence[Run]) -> list[Run]:
    """The clean runs of stacks that were fitted to them, and not to other runs mostly."""
    clean = [run for run in runs if run.job is not None and run.plan is not None and not run.doubted]
    chosen: list[int] = []
    for name, places in places_by(clean, lambda run: run.stack_name).items():
        if 2 * sum(bool(clean[place].step_time) for place in places) >= load_stack(str(name)).runs:
            chosen += places
    return [clean[place] for place in sorted(chosen)]


def judged(runs: Sequence[Run], key: Callable[[Run], str] | None) -> Judged:
    """Every run under its stack fitted without those that share its key, under the shipped one without a key."""
    time, memory, share = (np.full(len(runs), np.nan) for _ in range(3))
    for name, places in places_by(runs, lambda run: run.stack_name).items():
        stack = load_stack(str(name))
        for part in _parts([runs[place] for place in places], key):
            left = [runs[places[place]] for place in part]
            rest = [runs[place] for number, place in enumerate(places) if number not in set(part)]
            values = refitted(rest, stack) if key and stack.runs else {}
            for errors, errors_of, known in (
                (time, time_errors, [bool(run.step_time) for run in left]),
                (memory, memory_errors, [bool(run.memory) for run in left]),
                (share, share_of_usable, [run.out_of_memory is not None for run in left]),
            ):
                those = [place for place, tells in enumerate(known) if tells]
                if those:
                    differences = errors_of([left[place] for place in those], {**stack.parameters, **values})
                    errors[[places[part[place]] for place in those]] = differences
    return Judged(time=time, memory=memory, share=share)


def _parts(members: Sequence[Run], key: Callable[[Run], str] | None) -> Iterator[list[int]]:
    """Positions of runs that are left out together: all where there is no key, none where all share theirs."""
    if key is None:
        yield list(range(len(members)))
    elif len(groups := places_by(members, key)) > 1:
        yield from groups.values()


def refitted(rest: Sequence[Run], stack: Stack) -> dict[str, float]:
    """The fitted parameters of a stack as these runs alone tell them, those of its parent where they are too few."""
    home = load_stack(stack.parent) if stack.parent else Stack(name="defaults")
    start = replace(stack, parameters={name: home[name] for name in stack.parameters})
    timed = [run for run in rest if run.step_time]
    telling = set(informed(timed))
    values = dict(start.parameters)
    free = [name for name in stack.parameters if name in telling and name not in MEMORY_PARAMETERS]
    if free and len(timed) >= FEWEST:
        values |= fit_times(timed, start, free=free, guess={name: stack[name] for name in free}).parameters
    free = [name for name in stack.parameters if name in MEMORY_PARAMETERS]
    return values | dict(fit_memory(rest, start, free=free, guess={name: stack[name] for name in free}).parameters)


def table(runs: Sequence[Run], by_part: Mapping[str, Judged], rows: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    """A row for each choice of runs: mean and median error of time, mean of memory, and right verdicts."""
    heads = ["runs", *(f"{by}: {what}" for by in by_part for what in ("time", "memory", "verdicts"))]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    failed = np.array([bool(run.out_of_memory) for run in runs])
    for name, chosen in rows.items():
        cells = [name]
        for each in by_part.values():
            right = (each.share > 1.0) == failed
            cells += [_sizes(each.time[chosen], True), _sizes(each.memory[chosen], False)]
            cells.append(_counted(right[chosen & ~np.isnan(each.share)]))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _sizes(errors: FloatArray, median: bool) -> str:
    sizes = np.abs(np.expm1(errors[~np.isnan(errors)]))
    if not len(sizes):
        return ""
    return f"{np.mean(sizes):.1%}" + (f", {np.median(sizes):.1%} ({len(sizes)})" if median else "")


def _counted(right: NDArray[np.bool_]) -> str:
    return f"{right.sum()} of {len(right)}" if len(right) else ""


def _places(runs: Sequence[Run], key: Callable[[Run], str]) -> dict[str, NDArray[np.bool_]]:
    keys = np.array([key(run) for run in runs])
    return {str(name): keys == name for name in sorted({*keys.tolist()})}


@click.command(help=__doc__)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--moe", is_flag=True, help="stacks with runs of MoE models, and these alone")
def main(files: tuple[Path, ...], moe: bool) -> None:
    """Print the tables."""
    runs = fitted_runs(runs_of(files))
    if moe:
        having = {run.stack_name for run in runs if _kind(run)}
        runs = [run for run in runs if run.stack_name in having]
    if not runs:
        raise click.UsageError("no clean run of a stack that was fitted to these")
    by_part = {"seen": judged(runs, None), **{f"{by} left out": judged(runs, key) for by, key in BY.items()}}
    long = np.array([bool(run.job and run.job.seq_len >= LONG) for run in runs])
    shown = np.array([bool(_kind(run)) for run in runs]) if moe else np.ones(len(runs), dtype=bool)
    kinds = {**_places(runs, method), f"{LONG:,} tokens or more": long, **_places(runs, _kind), "all": shown}
    stacks = _places(runs, lambda run: run.stack_name)
    for rows in (kinds, stacks):
        chosen = {name: those & shown for name, those in rows.items() if name and (those & shown).any()}
        click.echo("\n".join(table(runs, by_part, chosen)) + "\n")


def _kind(run: Run) -> str:
    """A mixture's vendor in words, "" for a dense model."""
    return f"MoE on {run.job.cluster.device.vendor}" if run.job and run.job.model.experts else ""


if __name__ == "__main__":
    main()
