"""Errors on runs left out, and what is believed of them without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maintain.belief import believed, forecasts, scales
from maintain.interval_coverage import coverages
from maintain.left_out import CELL, LARGEST, STACK, WHOLES, left_out, sampled, usable
from optimizer.job.known import TIME
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.posterior import Posterior
from tests.measured import published_runs

RUNS = [run for name in ("megatron-2021", "mlperf-tuned") for run in published_runs(name)]


def test_every_run_is_left_out_in_every_way() -> None:
    runs = usable(RUNS, TIME)
    parts = list(left_out(runs, TIME))
    for by in (*WHOLES, STACK):
        places = np.concatenate([part.places for part in parts if part.by == by])
        assert sorted(places.tolist()) == list(range(len(runs)))
    assert any(part.by == LARGEST for part in parts)
    assert all(len(part.own) == len(part.places) for part in parts)


def test_runs_that_are_left_out_are_met() -> None:
    """A fit without the tables of a run predicts it, of two stacks with three tables or more each."""
    by_model = [part for part in left_out(usable(RUNS, TIME), TIME) if part.by == "model"]
    for stack, most in (("megatron-2021", 0.06), ("mlperf-tuned", 0.15)):
        errors = np.concatenate([part.own for part in by_model if part.name.startswith(stack)])
        assert np.median(np.abs(errors)) < most


def test_a_forecast_is_the_posterior_of_the_other_runs() -> None:
    """The formula of blocks against conditioning on the rest, with the noise that all runs together give."""
    _, places, errors, parts = believed(RUNS, TIME)
    alike, part = likeness(TIME), next(part for part in parts if part.by == CELL and len(part.places) > 1)
    found = next(iter(forecasts(alike, places, errors, [part])))
    noise = np.sqrt(Posterior.given(alike, places, errors, np.zeros(len(errors))).noise)
    seen = errors.copy()
    seen[part.stack] = part.errors
    rest = np.setdiff1d(np.arange(len(errors)), part.places)
    direct = Posterior.given(alike, places.take(rest), seen[rest], noise[rest])
    mean, spread = direct.at(places.take(part.places))
    assert found.mean == pytest.approx(mean)
    assert found.spread == pytest.approx(spread)


def test_a_run_that_is_given_tells_the_rest_of_its_cell() -> None:
    """What the first run errs is what the others are then believed to, and they are surer."""
    _, places, errors, parts = believed(RUNS, TIME)
    part = max((part for part in parts if part.by == CELL), key=lambda part: len(part.places))
    found = next(iter(forecasts(likeness(TIME), places, errors, [part])))
    mean, spread = found.given([0])
    assert mean[0] == pytest.approx(part.own[0], abs=0.03)
    assert (spread < found.spread).all()


def test_intervals_of_published_runs_cover_them() -> None:
    _, places, errors, parts = believed(RUNS, TIME)
    rows = coverages(forecasts(likeness(TIME), places, errors, parts))
    of = {by: [row for row in rows if row.by == by] for by in ("model", "1 of them given")}
    assert np.mean([row.covered for row in of["model"]]) > 0.8
    assert np.mean([row.error for row in of["1 of them given"]]) < 0.07


def test_software_that_errs_more_than_others_has_a_larger_scale() -> None:
    _, places, errors, parts = believed(RUNS, TIME)
    quiet = scales(likeness(TIME), places, errors, parts)
    louder = [replace(part, errors=5 * part.errors) for part in parts]
    loud = scales(likeness(TIME), places, 5 * errors, louder)
    assert loud["megatron"] > quiet["megatron"]


def test_a_sample_keeps_a_few_of_each_kind() -> None:
    assert len(sampled(RUNS, 1)) < len(RUNS) == len(sampled(RUNS, len(RUNS)))
