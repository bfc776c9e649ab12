"""The worked numbers of the page on the model are those of its formulas."""

from __future__ import annotations

import re

import numpy as np
import pytest

from maintain.docs.model_page import PAGE, cases
from maintain.docs.site import DOCS
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.time_terms import TIME_TERMS

TEXT = (DOCS / PAGE).read_text(encoding="utf-8")
WORKED = re.findall(r"^`(\w+)` of plan (\w)[^\n]*:\n\n```text\n(.+)\n= (\S+) (s|B)\n```$", TEXT, re.MULTILINE)


def test_every_term_is_worked_out() -> None:
    assert len(WORKED) == len(TIME_TERMS) + len(MEMORY_TERMS)
    assert {(name, unit) for name, _, _, _, unit in WORKED} == {
        *((name, "s") for name in TIME_TERMS),
        *((name, "B") for name in MEMORY_TERMS),
    }


@pytest.mark.parametrize(("name", "plan", "formula", "result", "unit"), WORKED)
def test_the_numbers_printed_give_the_number_printed(
    name: str, plan: str, formula: str, result: str, unit: str
) -> None:
    arrays = re.sub(r"\[([^\]]*)\]", r"array([\1])", formula)
    scope = {"array": np.array, "total": np.sum, "maximum": np.maximum, "log2": np.log2}
    value = float(eval(arrays, {"__builtins__": {}}, scope))
    case = next(case for case in cases() if case.title == plan)
    # A difference of nearly equal numbers of five digits loses some of them.
    assert value == pytest.approx(float(result), rel=1e-3)
    assert case.terms[f"{name} [{unit}]"].value == pytest.approx(float(result), rel=1e-4)
