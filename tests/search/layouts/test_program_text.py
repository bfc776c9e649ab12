"""The program of some small problems, line by line: what loosens in it costs time alone, and no answer tells.

`programs/` holds them. After a wanted change: `python -m tests.search.layouts.test_program_text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

import pytest

from optimizer.constraints.program import LIMIT, Program
from optimizer.search.layouts.solve.program import LayoutProgram
from tests.search.layouts.test_program import ONCE, problem_of

RUNS = (("embedding", 1), ("dense", 2), ("moe", 3), ("dense", 2), ("head", 1))
FOLDER = Path(__file__).parent / "programs"
# Seeds of problems, and what their pipelines may take [s]: states on the host, kinds in turn of which stages recompute
# their first layers alike, the same of runs of kinds, one kind with fewer micro-batches than stages, and two kinds of
# which each stage recomputes some.
PROBLEMS = {"hosted": (33, inf), "in-turn": (10, 400.0), "alike": (18, inf), "few": (7, 150.0), "chosen": (31, 500.0)}
# Three runs of two kinds that are recomputed alike, with one micro-batch more than stages, and two more, which do
# nothing once per step; a part of the states on the host; and the least memory.
ASIDE = replace(problem_of(22), sequence=RUNS, seconds=0.5, microbatches=4)
IDLE = {kind: replace(layer, **dict.fromkeys(("per_step", *ONCE), 0.0)) for kind, layer in ASIDE.kinds.items()}
PARTLY = replace(problem_of(33), memory=replace(problem_of(33).memory, offload=0.25), hosted_price=5.0)
PROGRAMS = {
    **{name: partial(LayoutProgram, problem_of(seed), at_most) for name, (seed, at_most) in PROBLEMS.items()},
    "aside": partial(LayoutProgram, ASIDE),
    "idle": partial(LayoutProgram, replace(ASIDE, microbatches=5, kinds=IDLE)),
    "partly": partial(LayoutProgram, PARTLY, 400.0),
    "lean": partial(LayoutProgram, ASIDE, lean=True),
}


def program_of(name: str) -> Program:
    return PROGRAMS[name]().program


def lines(program: Program) -> Iterator[str]:
    """Variables with their domains, constraints, and the objective."""
    domains = (list(variable.domain) for variable in program.message.variables)
    for domain, alike in groupby(enumerate(domains), key=lambda numbered: numbered[1]):
        yield f"{', '.join(f'x{number}' for number, _ in alike)} in {domain}"
    for constraint in program.message.constraints:
        yield "".join(f"x{literal} => " for literal in constraint.enforcement_literal) + _line(constraint)
    yield f"minimise {_sum(program.message.objective.vars, program.message.objective.coeffs)}"


def _line(constraint: Any) -> str:
    if constraint.has_table():
        names = ", ".join(_sum(each.vars, each.coeffs) for each in constraint.table.exprs)
        return f"({names}) in {list(constraint.table.values)}"
    if constraint.has_lin_max():
        of = ", ".join(_sum(each.vars, each.coeffs) for each in constraint.lin_max.exprs)
        return f"{_sum(constraint.lin_max.target.vars, constraint.lin_max.target.coeffs)} = max({of})"
    linear = constraint.linear
    ends = ["" if abs(end) == LIMIT else str(end) for end in linear.domain]
    return f"{_sum(linear.vars, linear.coeffs)} in {'..'.join(ends)}"


def _sum(variables: Sequence[int], coefficients: Sequence[int]) -> str:
    return " ".join(f"{factor:+} x{number}" for number, factor in zip(variables, coefficients, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_as_it_was(name: str) -> None:
    text = "\n".join(lines(program_of(name))) + "\n"
    assert text == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for name in PROGRAMS:
        (FOLDER / f"{name}.txt").write_text("\n".join(lines(program_of(name))) + "\n", encoding="utf-8")
