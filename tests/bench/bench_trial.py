"""What trials are worth on measured runs: `python -m pytest -s tests/bench/bench_trial.py` (some two minutes).

The table in docs/accuracy.md is printed by `python -m maintain.trial_replay --runs ... --runs ...`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maintain.trial_groups import expected_losses
from maintain.trial_replay import curves, scenarios, table
from optimizer.calibration.runs import read_runs

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "measured"
FILES = [MEASURED / "runs.csv", MEASURED / "moe_runs.csv"]
NOISE = 0.001  # of regret: one group of the hundred that loses 10 % more

pytestmark = pytest.mark.skipif(not all(path.exists() for path in FILES), reason="needs ../shared/measured")


def test_trials_lose_no_more_than_the_ranking_and_far_less_than_others() -> None:
    """Over all groups as they are, and where the stack is wrong: there, by the second trial, less than the ranking."""
    groups = scenarios([run for path in FILES for run in read_runs(path)])
    found = curves(groups)
    print("\n" + table(found, groups))
    ours, ranking = found["trial, one by one"], found["ranking order"]
    for scenario in groups:
        for other in ("Optuna's TPE", "random"):
            assert np.all(np.array(ours[scenario]) < np.array(found[other][scenario])), (scenario, other)
    for scenario in ("as predicted", "parameters 20 % wrong"):
        assert np.all(np.array(ours[scenario]) <= np.array(ranking[scenario]) + NOISE), scenario
    assert ours["parameters 20 % wrong"][1] < ranking["parameters 20 % wrong"][1]
    assert ours["as predicted"][2] < 0.005
    said, was = np.nanmean(expected_losses(groups["as predicted"]), axis=0), np.array(ours["as predicted"])
    assert np.all(was < 1.5 * said)
    assert np.all(said < was + 0.01)
