from dataclasses import replace

import numpy as np
import pytest

from optimizer.calibration.predict import batches, predict
from optimizer.calibration.rows.recipe import with_async_tp
from optimizer.calibration.runs import Run
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price


def test_batches_hold_every_run_once(gpt_runs: list[Run]) -> None:
    grouped = batches(gpt_runs)
    assert len(grouped) == 3  # one per model: everything else is in the plans
    assert sorted(place for batch in grouped for place in batch.places) == list(range(len(gpt_runs)))


def test_a_batch_prices_like_single_runs(gpt_runs: list[Run]) -> None:
    runs = gpt_runs[::7]
    together = predict(batches(runs), len(runs))
    for place, run in enumerate(runs):
        assert run.job is not None
        assert run.plan is not None
        alone = price(run.job, Plans.of([run.plan]))
        assert together.step_time[place] == pytest.approx(float(alone.step_time[0]), rel=1e-12)
        assert together.reserved[place] == pytest.approx(float(alone.reserved[0]), rel=1e-12)


def test_terms_add_up_to_the_step(gpt_runs: list[Run]) -> None:
    found = predict(batches(gpt_runs), len(gpt_runs))
    np.testing.assert_allclose(sum(found.time.values()), found.step_time, rtol=1e-12)


def test_parameters_override_the_stack(gpt_runs: list[Run]) -> None:
    runs = gpt_runs[:4]
    slow = predict(batches(runs), 4, {"step_overhead": 1.0})
    fast = predict(batches(runs), 4, {"step_overhead": 0.0})
    assert np.all(slow.step_time - fast.step_time >= 1.0 - 1e-9)


def test_what_a_row_tells_of_its_overlap_is_priced_and_stays_under_a_fit(gpt_runs: list[Run]) -> None:
    run = next(run for run in gpt_runs if run.plan and run.plan.tp > 1 and run.job)
    assert run.job is not None
    told = replace(run, job=replace(run.job, stack=with_async_tp(run.job.stack)))
    plain, overlapped = predict(batches([run, told]), 2).step_time
    assert overlapped < plain
    every = predict(batches([run, told]), 2, {"tp_overlap": 0.0}).step_time
    assert every[1] == pytest.approx(overlapped)


def test_a_run_that_is_refused_stays_without_prediction(gpt_runs: list[Run]) -> None:
    runs = [gpt_runs[0], Run(id="none", row={}, stack_name="x", refused="no model")]
    found = predict(batches(runs), 2)
    assert np.isfinite(found.step_time[0])
    assert np.isnan(found.step_time[1])
