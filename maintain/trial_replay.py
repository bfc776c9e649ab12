"""Trials replayed on measured runs: `python -m maintain.trial_replay --runs runs.csv --runs moe_runs.csv`.

Mean regret after one, two and three trials, best measured step of those tried / best of the group - 1, over groups of
runs that differ only in the plan, each left out of the fit of its stack.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from maintain.sweeps import FEWEST_PLANS
from maintain.trial_groups import (
    TRIALS,
    Policy,
    TrialGroup,
    adaptive,
    at_random,
    curve,
    expected_losses,
    groups_of,
    ranking,
    together,
)
from optimizer.calibration.groups import on_broken_network
from optimizer.calibration.runs import Run, read_runs

WRONG_SEEDS = (0, 1, 2)
SEEDS = tuple(range(10))  # of policies that draw
FIELDS = ("tp", "cp", "ep", "pp", "vpp", "micro_batch", "zero_stage", "recompute", "sequence_parallel", "schedule")
Curves = Mapping[str, Mapping[str, Sequence[float]]]


def tpe(group: TrialGroup, count: int, seed: int = 0) -> list[int]:
    """The plans that Optuna's TPE asks for: of those not tried, the one that shares most variables with what it draws.

    Only the first plan is drawn at random, and it learns of the plans that were tried. One that runs out of
    memory counts as twice the slowest.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = [{name: asdict(plan)[name] for name in FIELDS} for plan in group.plans]
    values = {name: list(dict.fromkeys(row[name] for row in rows)) for name in FIELDS}
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(choices) for name, choices in values.items()
    }
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(n_startup_trials=1, seed=seed))
    failed = 2.0 * float(group.measured[np.isfinite(group.measured)].max())
    tried: list[int] = []
    for _ in range(min(count, len(rows))):
        asked = study.ask(space).params
        left = [index for index in np.random.default_rng(seed).permutation(len(rows)).tolist() if index not in tried]
        tried.append(max(left, key=lambda index: _shared(rows[index], asked)))
        step = float(group.measured[tried[-1]])
        trial = optuna.trial.create_trial(
            params=rows[tried[-1]], distributions=space, value=step if np.isfinite(step) else failed
        )
        study.add_trial(trial)
    return tried


def _shared(row: Mapping[str, Any], asked: Mapping[str, Any]) -> int:
    return sum(row[name] == value for name, value in asked.items())


POLICIES: Mapping[str, tuple[Policy, Sequence[int]]] = {
    "trial, one by one": (adaptive, (0,)),
    "trial, all at once": (together, (0,)),
    "ranking order": (ranking, (0,)),
    "Optuna's TPE": (tpe, SEEDS),
    "random": (at_random, SEEDS),
}


SCENARIOS: Mapping[str, Callable[[Sequence[Run]], list[TrialGroup]]] = {
    "as predicted": lambda runs: list(groups_of(runs)),
    "parameters 20 % wrong": lambda runs: [group for seed in WRONG_SEEDS for group in groups_of(runs, wrong=seed)],
    "the first runs out of memory": lambda runs: [group.without_first() for group in groups_of(runs)],
    "some run out of memory": lambda runs: list(groups_of(runs, oom=True)),
}


def scenarios(runs: Sequence[Run]) -> dict[str, list[TrialGroup]]:
    """Groups by what is made difficult, without those that these runs do not have."""
    made = {name: make(runs) for name, make in SCENARIOS.items()}
    return {name: groups for name, groups in made.items() if groups}


def curves(groups: Mapping[str, Sequence[TrialGroup]]) -> Curves:
    """Mean regret of every policy in every scenario."""
    means: dict[str, dict[str, Sequence[float]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's own experimental features
        for scenario, members in groups.items():
            for name, (policy, seeds) in POLICIES.items():
                means.setdefault(name, {})[scenario] = curve(name, members, policy, seeds=seeds).mean
    return means


def table(means: Curves, groups: Mapping[str, Sequence[TrialGroup]]) -> str:
    """The curves as a table in Markdown: regret after one, two and three trials."""
    head = [f"{scenario} ({len(members)})" for scenario, members in groups.items()]
    lines = ["| trials | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name, row in means.items():
        cells = [" / ".join(map(percent, row[scenario])) for scenario in groups]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def percent(share: float) -> str:
    """A share in per cent, as many digits as matter.

    >>> percent(0.0263), percent(0.000956), percent(1.24)
    ('2.63', '0.10', '124')
    """
    return f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and print."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m maintain.trial_replay", description=__doc__)
    parser.add_argument("--runs", type=Path, action="append", required=True, metavar="FILE.csv", help="measured runs")
    runs = [run for path in parser.parse_args(arguments).runs for run in read_runs(path) if not on_broken_network(run)]
    groups = scenarios(runs)
    if not groups:
        parser.error(f"no group of at least {FEWEST_PLANS} measured runs differs only in the plan")
    print(f"Mean regret [%] after 1 / 2 / {TRIALS} trials (groups)\n")
    print(table(curves(groups), groups))
    expected = 100 * np.nanmean(expected_losses(next(iter(groups.values()))), axis=0)
    print("\nSaid to be left, one by one: " + " / ".join(f"{value:.2g}" for value in expected))


if __name__ == "__main__":
    main()
