"""Of plans that take as long, the one with the fewest moving parts is answered, and of these the one with most room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price
from optimizer.reports.plan_words import moving_parts
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.knobs import knobs_at
from optimizer.search.lattice.oracle import Tuning, fold
from optimizer.search.plan.best import best_plan

SAME = 1e-6  # of a step


@pytest.mark.parametrize(("model", "gpus", "seq_len"), [("llama2-13b", 64, 4096), ("llama3-8b", 16, 4096)])
def test_no_plan_as_fast_is_simpler_or_has_more_room(model: str, gpus: int, seq_len: int) -> None:
    stack = load_stack("megatron-core")
    hidden = dict.fromkeys(("cp_overlap", "dp_overlap", "p2p_overlap"), 1.0)  # so that context parallelism may be free
    job = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=replace(stack, parameters={**stack.parameters, **hidden}),
        gpus=gpus,
        seq_len=seq_len,
        global_batch=256,
    )
    best, points = best_plan(job), fold(job, Space(job, structural(job)), Tuning()).points
    assert best is not None
    assert points is not None
    own = len(moving_parts(best.plan, best.knobs)), best.estimate.reserved
    close = np.flatnonzero(points.fits & (points.values <= best.estimate.step_time * (1 + SAME)))
    others = []
    for place in close.tolist():
        plan, knobs = points.plans.plan(place), knobs_at(points.knobs, place)
        parts = len(moving_parts(plan, knobs))
        others.append(parts)
        assert parts >= own[0]
        if parts == own[0]:
            assert float(price(job, Plans.of([plan]), knobs).reserved[0]) >= own[1] * (1 - SAME)
    assert max(others) > own[0]  # there is a tie to decide
