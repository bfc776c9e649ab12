"""A CP-SAT program of integer variables under linear constraints, on the solver's own messages.

The usual Python layer imports pandas, a third of a second that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.constraints.program import FEASIBLE, INFEASIBLE, OPTIMAL, UNKNOWN, intervals

LIMIT = 2**60
Term = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The solver's status, the values by variable (None without a solution), and its bound."""

    status: str
    values: tuple[int, ...] | None
    bound: float


class IntegerProgram:
    """Variables are numbered in the order of their making; a term is (variable, coefficient)."""

    def __init__(self) -> None:
        from ortools.sat.python import cp_model_helper

        self.message: Any = cp_model_helper.CpModelProto()

    def variable(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        variable = self.message.variables.add()
        variable.domain.extend([low, high])
        return len(self.message.variables) - 1

    def choice(self, values: Sequence[int]) -> int:
        """An integer of these, in increasing order."""
        variable = self.message.variables.add()
        variable.domain.extend(intervals(np.asarray(values, dtype=np.int64)))
        return len(self.message.variables) - 1

    def linear(self, terms: Sequence[Term], low: int | None, high: int | None) -> None:
        """Low <= sum of terms <= high."""
        linear = self.message.constraints.add().linear
        linear.vars.extend([variable for variable, _ in terms])
        linear.coeffs.extend([coefficient for _, coefficient in terms])
        linear.domain.extend([-LIMIT if low is None else low, LIMIT if high is None else high])

    def allow(self, variables: Sequence[int], rows: Sequence[Sequence[int]]) -> None:
        """The variables take one of these rows of values."""
        table = self.message.constraints.add().table
        for variable in variables:
            expression = table.exprs.add()
            expression.vars.append(variable)
            expression.coeffs.append(1)
        table.values.extend([value for row in rows for value in row])

    def minimise(self, terms: Sequence[Term]) -> None:
        """The objective, in place of any other."""
        self.message.clear_objective()
        self.message.objective.vars.extend([variable for variable, _ in terms])
        self.message.objective.coeffs.extend([coefficient for _, coefficient in terms])

    def hint(self, values: Sequence[int]) -> None:
        """A solution for the first variables, to start from."""
        self.message.solution_hint.vars.extend(range(len(values)))
        self.message.solution_hint.values.extend(values)

    def solve(self, seed: int = 0, time_limit: float | None = None, effort: float | None = None) -> Result:
        """Solve with one worker: the same program and seed give the same solution unless the time limit [s] cuts in.

        `effort` limits the solver's deterministic time, about seconds, in the same way on every machine.
        """
        from ortools.sat.python import cp_model_helper

        parameters = cp_model_helper.SatParameters()
        parameters.num_workers = 1
        parameters.random_seed = seed
        if time_limit is not None:
            parameters.max_time_in_seconds = max(time_limit, 0.001)
        if effort is not None:
            parameters.max_deterministic_time = effort
        wrapper: Any = cp_model_helper.SolveWrapper()
        wrapper.set_parameters(parameters)
        response = wrapper.solve(self.message)
        status = response.status.name
        if status not in (OPTIMAL, FEASIBLE, INFEASIBLE, UNKNOWN):
            raise ValueError(f"CP-SAT rejects the program: {status}")
        found = status in (OPTIMAL, FEASIBLE)
        values = tuple(int(value) for value in response.solution) if found else None
        return Result(status=status, values=values, bound=response.best_objective_bound)
