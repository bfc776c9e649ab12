"""The layout of least memory, with and without a solver, is that of exhaustion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve.layout import best_assignment, least_memory_assignment
from optimizer.search.layouts.solve.least_memory import filled, fitting_layout, least_memory_layout
from tests.search.layouts.problems import costs
from tests.search.layouts.test_layout import every_layout, random_problem
from tests.thorough import cases


@pytest.mark.parametrize("freed", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("seed", range(cases(60, sample=12)))
def test_the_least_memory_layout_is_that_of_exhaustion(seed: int, freed: float) -> None:
    problem = replace(random_problem(np.random.default_rng(seed), freed), usable=1000.25)
    least = min(max(layout.memory) for layout in every_layout(problem))
    found, solved = least_memory_layout(problem), least_memory_assignment(problem)
    assert found is not None
    assert max(found.memory) == pytest.approx(least, rel=1e-6)
    assert max(solved.memory) == pytest.approx(least, rel=1e-5)
    assert fitting_layout(replace(problem, usable=least * (1 + 1e-6))) is not None
    too_little = replace(problem, usable=least * (1 - 1e-4))
    assert fitting_layout(too_little) is None
    assert least_memory_layout(too_little) is None
    with pytest.raises(Infeasible, match="no layout fits"):
        least_memory_assignment(too_little)


def test_where_no_memory_is_usable_no_layout_fits() -> None:
    problem = replace(random_problem(np.random.default_rng(1), 0.0), usable=0.0)
    with pytest.raises(Infeasible):
        least_memory_assignment(problem)
    with pytest.raises(Infeasible):
        best_assignment(problem)


@pytest.mark.parametrize(("usable", "first"), [(20, (4, True)), (17, (4, True)), (16.9, (None, False))])
def test_mtp_layers_are_left_alone_where_to_recompute_them_takes_more(
    usable: float, first: tuple[int | None, bool]
) -> None:
    """Four layers of two bytes and two MTP layers of three, with three while a layer is recomputed; else 12 and 8."""
    layer = {"static": 1.0, "in_flight": 2.0, "recomputed": 1.0, "chosen": 1.0, "recomputing": 3.0}
    mtp = {**layer, "recomputing": 8.0}
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": layer, "mtp": mtp, "head": {}}),
        sequence=(("embedding", 1), ("dense", 4), ("mtp", 2), ("head", 1)),
        pp=1,
        microbatches=1,
        in_flight=(1.0,),
        usable=usable,
        alike=True,
    )
    layout, possible = filled(problem)
    assert (layout and layout.first, possible) == first
