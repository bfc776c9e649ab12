"""The formulas that are printed: with the values that are printed they give the value that is printed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import total
from optimizer.objectives.step.explain import TermExplanation, explain
from optimizer.objectives.step.price import price
from tests.objectives.drawn import jobs, knobs, plans

FUNCTIONS = {name: getattr(np, name) for name in ("minimum", "maximum", "log2", "asarray")} | {"total": total}


def evaluated(term: TermExplanation) -> float:
    """What a reader gets who types the formula with the values beside it."""
    values = {name: np.asarray(value) for name, value in term.values.items()}
    return float(eval(term.formula, {"__builtins__": {}}, FUNCTIONS | values))


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
def test_every_formula_gives_its_value(job: Job, plan: Plan, settings_of: Knobs) -> None:
    for term in explain(job, plan, settings_of):
        assert evaluated(term) == pytest.approx(term.value, rel=1e-9, abs=1e-15), term.name


@settings(max_examples=30)
@given(jobs(), plans(), knobs())
def test_the_explained_terms_are_those_that_are_priced(job: Job, plan: Plan, settings_of: Knobs) -> None:
    terms = {term.name: term.value for term in explain(job, plan, settings_of)}
    costs = price(job, Plans.of([plan]), settings_of)
    found = {name: float(values[0]) for name, values in (*costs.time.items(), *costs.memory.items())}
    assert terms == pytest.approx(found, rel=1e-12)
