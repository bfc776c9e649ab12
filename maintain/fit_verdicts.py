"""How often it is known whether a run fits that no fit saw: `python -m maintain.fit_verdicts FILE [FILE]`.

Groups of like runs are left out of the fit of their stack's memory; a run is predicted to fit where it should reserve
no more than is usable. Balanced accuracy: the mean of the shares of right verdicts, of runs that fitted and that did
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path

import click
import numpy as np

from maintain.belief import runs_of
from optimizer.calibration.groups import folds, gathered
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS, fit_memory, predicted_memory
from optimizer.calibration.predict import batches
from optimizer.calibration.runs import Run
from optimizer.calibration.scores import Verdicts
from optimizer.catalog import load_stack
from optimizer.objectives.arrays import FloatArray

MOST = 60  # runs of one stack, device, model and outcome


def verdicts(runs: Sequence[Run]) -> dict[str, Verdicts]:
    """Verdicts on all runs of each stack, of which some ran out of memory, each group of like runs left out."""
    clean = [run for run in runs if run.job is not None and not run.doubted and run.out_of_memory is not None]
    by_stack: dict[str, Verdicts] = {}
    for name, members in gathered(_sampled(clean), lambda run: run.stack_name).items():
        if any(run.out_of_memory for run in members):
            by_stack[str(name)] = counted_verdicts(members, _ratios(members, str(name)))
    return by_stack


def _sampled(runs: Sequence[Run]) -> list[Run]:
    """At most MOST runs that are alike and ended alike, by chance, the same ones every time."""
    random, chosen = np.random.default_rng(0), list[int]()
    keys = [(run.stack_name, run.row.get("gpu"), run.row.get("model"), run.out_of_memory) for run in runs]
    for places in gathered(range(len(runs)), lambda place: keys[place]).values():
        chosen += places if len(places) <= MOST else random.permutation(places)[:MOST].tolist()
    return [runs[place] for place in sorted(chosen)]


def _ratios(members: Sequence[Run], name: str) -> list[float]:
    """What each run is predicted to reserve over what is usable [1], its group left out."""
    stack = load_stack(name)
    home = load_stack(stack.parent) if stack.parent else replace(stack, parameters={})
    free = [each for each in MEMORY_PARAMETERS if each in stack.parameters]
    start = replace(stack, parameters={**stack.parameters, **{each: home[each] for each in free}})
    ratios = np.zeros(len(members))
    for with_ends in folds(members):
        part = with_ends[ratios[with_ends] == 0.0]  # each run with its like; far ends come later
        if not len(part):
            continue
        rest = [members[place] for place in np.setdiff1d(np.arange(len(members)), part).tolist()]
        values = fit_memory(rest, start, free, guess={each: stack[each] for each in free}).parameters if rest else {}
        under = {**start.parameters, **values}
        ratios[part] = share_of_usable([members[place] for place in part.tolist()], under)
    return [float(ratio) for ratio in ratios]


def share_of_usable(runs: Sequence[Run], under: Mapping[str, float]) -> FloatArray:
    """What each run is predicted to reserve under some parameters over what is then usable [1]."""
    stacks = [(run.job.usable_memory, run.job.stack["context_memory"]) for run in runs if run.job]
    usable = [memory + own - under.get("context_memory", own) for memory, own in stacks]
    return np.asarray(predicted_memory(batches(runs), len(runs), under)[0] / np.array(usable))


def counted_verdicts(runs: Sequence[Run], ratios: Sequence[float]) -> Verdicts:
    """Runs by what happened and what was predicted, their memory being over what is usable [1]."""
    fits = np.array(ratios) <= 1.0
    failed = np.array([bool(run.out_of_memory) for run in runs])
    return Verdicts(
        fits_predicted_fits=int((fits & ~failed).sum()),
        fits_predicted_oom=int((~fits & ~failed).sum()),
        oom_predicted_fits=int((fits & failed).sum()),
        oom_predicted_oom=int((~fits & failed).sum()),
    )


def table(by_stack: Mapping[str, Verdicts]) -> list[str]:
    """A row for each stack, and one for all runs together."""
    heads = ("stack", "fitted, predicted so", "not", "ran out, predicted to fit", "predicted so", "balanced accuracy")
    counts = np.sum([astuple(each) for each in by_stack.values()], axis=0).tolist()
    every = Verdicts(**dict(zip(asdict(Verdicts()), counts, strict=True)))
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, each in {**by_stack, "all": every}.items():
        cells = (name, *(f"{count:,}" for count in astuple(each)), f"{each.balanced_accuracy or 0.0:.1%}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


@click.command(help=__doc__)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def main(files: tuple[Path, ...]) -> None:
    """Print a Markdown table."""
    by_stack = verdicts(runs_of(files))
    if not by_stack:
        raise click.UsageError("no stack has runs that ran out of memory")
    click.echo("\n".join(table(by_stack)))


if __name__ == "__main__":
    main()
