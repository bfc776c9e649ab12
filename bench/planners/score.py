"""The scorer: what a planner predicted against what was measured.

    python -m bench.planners.score predictions.json

Standard library only, so that it runs where the planner runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any

HERE = Path(__file__).resolve().parent
FORMAT = 1


class Unreadable(ValueError):
    """A file that does not follow the format; the message says where."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One planner's figures; None where no run tells.

    mape, median: of |predicted / measured - 1| [1]; bias: median of predicted / measured, less 1 [1]; scaled: median
    error once that factor is divided out, so that a constant cannot earn it [1]. kendall, spearman: agreement of
    tokens/s per GPU in the order of runs, mean over groups [-1 to 1]. regret_first: throughput lost by the run that
    is predicted to be fastest, against the fastest of its group, mean over groups [1]; regret_two: by the better of
    the first two. oom_caught: runs out of memory that were said to be [1]; oom_false: runs that ran and were said to
    be out of memory [1].
    """

    answered: int
    of: int
    mape: float | None
    median: float | None
    bias: float | None
    scaled: float | None
    groups: int
    kendall: float | None
    spearman: float | None
    regret_first: float | None
    regret_two: float | None
    oom_caught: float | None
    oom_false: float | None


def score(jobs: Sequence[Mapping[str, Any]], measured: Mapping[str, Any], predicted: Mapping[str, Any]) -> Score:
    """Score predictions by job id. Answered are the jobs with a step time, and of those that went out of memory the
    ones of which it was said whether they fit.
    """
    timed = {
        job["id"]: (float(predicted[job["id"]]["step_time_s"]), float(measured[job["id"]]["step_time_s"]))
        for job in jobs
        if measured[job["id"]]["step_time_s"] and predicted.get(job["id"], {}).get("step_time_s")
    }
    ratios = [said / true for said, true in timed.values()]
    factor = exp(median(map(log, ratios))) if ratios else 1.0
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for job in jobs:
        if job["id"] in timed:
            work = job["global_batch"] * job["seq_len"] / job["gpus"]
            said, true = timed[job["id"]]
            groups[job["group"]].append((work / said, work / true))
    ranked = [pairs for pairs in groups.values() if len(pairs) > 1 and len({true for _, true in pairs}) > 1]
    verdicts = {
        job["id"]: (bool(predicted[job["id"]]["fits"]), bool(measured[job["id"]]["out_of_memory"]))
        for job in jobs
        if predicted.get(job["id"], {}).get("fits") is not None
    }
    return Score(
        answered=len(timed.keys() | {name for name, (_, out) in verdicts.items() if out}),
        of=len(jobs),
        mape=_mean([abs(ratio - 1) for ratio in ratios]),
        median=median(abs(ratio - 1) for ratio in ratios) if ratios else None,
        bias=factor - 1 if ratios else None,
        scaled=median(abs(ratio / factor - 1) for ratio in ratios) if ratios else None,
        groups=len(ranked),
        kendall=_mean([kendall(pairs) for pairs in ranked]),
        spearman=_mean([spearman(pairs) for pairs in ranked]),
        regret_first=_mean([regret(pairs, 1) for pairs in ranked]),
        regret_two=_mean([regret(pairs, 2) for pairs in ranked if len(pairs) > 2]),
        oom_caught=_mean([float(not fits) for fits, out in verdicts.values() if out]),
        oom_false=_mean([float(not fits) for fits, out in verdicts.values() if not out]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau of what was said and what is true: pairs in the same order less those in the other, over all pairs
    of which the truth has an order; a tie that was said counts for neither.

    >>> kendall([(1, 1), (2, 2), (3, 3)]), kendall([(3, 1), (2, 2), (1, 3)]), kendall([(1, 1), (1, 2)])
    (1.0, -1.0, 0.0)
    """
    signs = [
        (said > other_said) - (said < other_said) if true > other_true else (said < other_said) - (said > other_said)
        for (said, true), (other_said, other_true) in combinations(pairs, 2)
        if true != other_true
    ]
    return sum(signs) / len(signs)


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rho: the correlation of ranks, those of ties at their mean; 0 where everything was said to be alike.

    >>> round(spearman([(1, 10), (2, 30), (3, 20)]), 3), spearman([(1, 1), (1, 2)])
    (0.5, 0.0)
    """
    said, true = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    middle = (len(pairs) + 1) / 2
    shared = sum((a - middle) * (b - middle) for a, b in zip(said, true, strict=True))
    spread = (sum((a - middle) ** 2 for a in said) * sum((b - middle) ** 2 for b in true)) ** 0.5
    return shared / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]


def regret(pairs: Sequence[tuple[float, float]], tries: int) -> float:
    """Share of the best throughput that is lost by the best of the first tries; of predictions alike the worst.

    >>> regret([(3, 90), (2, 100), (1, 50)], 1), regret([(3, 90), (2, 100), (1, 50)], 2), regret([(1, 80), (1, 100)], 1)
    (0.1, 0.0, 0.2)
    """
    first = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:tries]
    best = max(true for _, true in pairs)
    return round(1 - max(true for _, true in first) / best, 12)


def read(path: Path, key: str) -> Any:
    """The content of a file of the format.

    Raises Unreadable when it cannot be read or is of another format.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT or key not in document:
        raise Unreadable(f'{path}: must be an object with "format": {FORMAT} and "{key}"')
    return document[key]


def read_predictions(path: Path, jobs: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The planner's name and its predictions by job.

    Raises Unreadable for a job that there is not, one that is answered twice, and a time that is no positive number.
    """
    entries, known = read(path, "predictions"), {job["id"] for job in jobs}
    if not isinstance(entries, list):
        raise Unreadable(f"{path}: predictions must be a list")
    found: dict[str, Any] = {}
    for number, entry in enumerate(entries):
        where = f"{path}: predictions[{number}]"
        if not isinstance(entry, dict) or entry.get("id") not in known:
            raise Unreadable(f"{where}: id must be that of a job")
        if entry["id"] in found:
            raise Unreadable(f"{where}: {entry['id']} is answered twice")
        seconds = entry.get("step_time_s")
        if seconds is not None and not (type(seconds) in (int, float) and 0 < seconds < float("inf")):
            raise Unreadable(f"{where}: step_time_s must be a positive number or null, but got {seconds!r}")
        if entry.get("fits") not in (True, False, None):
            raise Unreadable(f"{where}: fits must be true, false or null, but got {entry['fits']!r}")
        found[entry["id"]] = entry
    return str(read(path, "planner")), found


def main(words: Sequence[str] | None = None) -> int:
    """Print one planner's figures; exit code 2 for files that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m bench.planners.score", description="Score a planner.")
    parser.add_argument("predictions", type=Path, help="what the planner said: predictions.schema.json")
    parser.add_argument("--jobs", type=Path, default=HERE / "jobs.json")
    parser.add_argument("--measured", type=Path, default=HERE / "measured.json")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(words)
    try:
        jobs, measured = read(given.jobs, "jobs"), read(given.measured, "runs")
        planner, predicted = read_predictions(given.predictions, jobs)
    except Unreadable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    figures = score(jobs, measured, predicted)
    if given.json:
        print(json.dumps({"planner": planner, **asdict(figures)}, indent=2))
    else:
        print(planner, *(f"  {name:13} {_said(value)}" for name, value in asdict(figures).items()), sep="\n")
    return 0


def _said(value: float | None) -> str:
    return "-" if value is None else f"{value}" if isinstance(value, int) else f"{value:.4f}"


if __name__ == "__main__":
    raise SystemExit(main())
