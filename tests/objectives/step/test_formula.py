"""A formula is printed as it is executed."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.objectives.step.formula import COMPUTE, STREAM, WAIT, Formula, Term, is_expression
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.time_terms import TIME_TERMS

TERMS = (*TIME_TERMS.values(), *MEMORY_TERMS.values())


def spread(power: float, gpus: float) -> float:
    """Power of all GPUs [W].

    power: of one [W]; gpus: how many [1].

    Source: arithmetic.

    >>> float(spread(2.0, 3.0))
    6.0
    """
    return np.maximum(power * gpus, 0.0)


def test_text_names_and_docstring_are_the_function_s_own() -> None:
    formula = Formula(function=spread)
    assert (formula.name, formula.names, formula.text) == ("spread", ("power", "gpus"), "maximum(power * gpus, 0.0)")
    assert formula.about == "Power of all GPUs [W]. power: of one [W]; gpus: how many [1]."
    assert formula.source == "arithmetic."


def test_inputs_are_found_by_name() -> None:
    formula = Formula(function=spread)
    assert formula({"gpus": 8.0, "power": np.array([700.0, -1.0]), "unused": 1.0}).tolist() == [5600.0, 0.0]
    with pytest.raises(KeyError, match="gpus"):
        formula({"power": 1.0})


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_every_term_is_one_expression_with_its_unit_and_a_label(term: Term) -> None:
    assert is_expression(term.formula.function)
    assert f"[{term.unit}]" in term.formula.about
    assert term.label
    assert term.burns in (COMPUTE, STREAM, WAIT)
    assert all(name in term.formula.text for name in term.formula.names)
