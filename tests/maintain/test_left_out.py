"""Errors on runs left out, and what is believed of them without them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from maintain.belief import believed, forecasts, levelled, noises, scales
from maintain.fit_verdicts import counted_verdicts, table
from maintain.interval_coverage import coverages
from maintain.left_out import (
    CELL,
    DISTANCES,
    ELSEWHERE,
    LARGEST,
    NONE,
    STACK,
    STEPS,
    WHOLES,
    left_out,
    sampled,
    usable,
)
from optimizer.calibration.scores import Verdicts
from optimizer.job.known import TIME
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.posterior import Posterior
from tests.measured import published_runs

RUNS = [run for name in ("megatron-2021", "mlperf-tuned") for run in published_runs(name)]


BELIEVED = cache(lambda: believed(RUNS, TIME))
PARTS = cache(lambda: list(left_out(usable(RUNS, TIME), TIME)))


def test_every_run_is_left_out_in_every_way() -> None:
    runs = usable(RUNS, TIME)
    parts = PARTS()
    for by in (*WHOLES, STACK):
        places = np.concatenate([part.places for part in parts if part.by == by])
        assert sorted(places.tolist()) == list(range(len(runs)))
    assert any(part.by == LARGEST for part in parts)
    assert all(len(part.own) == len(part.places) for part in parts)


def test_runs_that_are_left_out_are_met() -> None:
    """A fit without the tables of a run predicts it, of two stacks with three tables or more each."""
    by_model = [part for part in PARTS() if part.by == "model"]
    for stack, most in (("megatron-2021", 0.06), ("mlperf-tuned", 0.15)):
        errors = np.concatenate([part.own for part in by_model if part.name.startswith(stack)])
        assert np.median(np.abs(errors)) < most


def test_a_forecast_is_the_posterior_of_the_other_runs() -> None:
    """The formula of blocks against conditioning on the rest, with the noise that all runs together give."""
    _, places, errors, parts = BELIEVED()
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
    _, places, errors, parts = BELIEVED()
    part = max((part for part in parts if part.by == CELL), key=lambda part: len(part.places))
    found = next(iter(forecasts(likeness(TIME), places, errors, [part])))
    mean, spread = found.given([0])
    assert mean[0] == pytest.approx(part.own[0], abs=0.03)
    assert (spread < found.spread).all()


def test_intervals_of_published_runs_cover_them() -> None:
    _, places, errors, parts = BELIEVED()
    rows = coverages(forecasts(likeness(TIME), places, errors, parts))
    of = {by: [row for row in rows if row.by == by] for by in ("model", "1 of them given")}
    assert np.mean([row.covered for row in of["model"]]) > 0.8
    assert np.mean([row.error for row in of["1 of them given"]]) < 0.07


def test_software_that_errs_more_than_others_has_a_larger_scale() -> None:
    _, places, errors, parts = BELIEVED()
    quiet = scales(likeness(TIME), places, errors, parts)
    louder = [replace(part, errors=5 * part.errors) for part in parts]
    loud = scales(likeness(TIME), places, 5 * errors, louder)
    assert loud["megatron"] > quiet["megatron"]


def test_a_sample_keeps_a_few_of_each_kind() -> None:
    assert len(sampled(RUNS, 1)) < len(RUNS) == len(sampled(RUNS, len(RUNS)))


def test_runs_left_out_are_as_far_as_an_answer_says() -> None:
    """Whole stacks have nothing near; a device's generation left out is another one, where others are left."""
    parts = PARTS()
    for part in parts:
        assert len(part.distances) == len(part.places)
        if part.by == STACK:
            assert {DISTANCES[distance] for distance in part.distances} == {NONE}
        if part.by == "device generation":
            assert {DISTANCES[distance] for distance in part.distances} <= {ELSEWHERE, NONE}
    largest = {DISTANCES[distance] for part in parts if part.by == LARGEST for distance in part.distances}
    assert largest & set(STEPS[1:])


def test_software_whose_runs_lie_apart_has_more_noise() -> None:
    """Errors of one software that are scattered by hand raise its noise alone, and nothing lowers it below 1."""
    _, places, errors, parts = BELIEVED()
    cell = max((part for part in parts if part.by == CELL), key=lambda part: len(part.places))
    scattered = errors.copy()
    scattered[cell.places] += 0.4 * (-1.0) ** np.arange(len(cell.places))
    before, after = (noises(likeness(TIME), places, each, parts) for each in (errors, scattered))
    software = places.softwares[cell.places[0]]
    assert after[software] > before.get(software, 1.0)
    assert {name: value for name, value in after.items() if name != software} == {
        name: value for name, value in before.items() if name != software
    }
    assert all(value > 1.0 for value in after.values())


def test_levels_hold_what_was_left_out() -> None:
    """Deviations that are far too small are widened, far too large ones narrowed."""
    _, places, errors, parts = BELIEVED()

    def width(factor: float) -> float:
        alike = likeness(TIME)
        changed = replace(alike, parts={name: factor * value for name, value in alike.parts.items()})
        return sum(levelled(changed, places, errors, parts, 0.9).parts.values()) / sum(changed.parts.values())

    assert width(0.3) > 1.0 > width(3.0)


def test_verdicts_are_counted_by_what_happened_and_what_was_predicted() -> None:
    ended = [replace(RUNS[0], out_of_memory=failed) for failed in (False, False, True, True)]
    found = counted_verdicts(ended, [0.9, 1.1, 0.8, 1.2])
    assert found == Verdicts(fits_predicted_fits=1, fits_predicted_oom=1, oom_predicted_fits=1, oom_predicted_oom=1)
    assert table({"mine": found})[-1] == "| all | 1 | 1 | 1 | 1 | 50.0% |"
