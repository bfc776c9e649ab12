"""A CP-SAT program with named integer variables and named rules.

Written on the solver's own messages: the usual Python layer imports pandas, a third of a second that nobody asked for,
and adds a table one tuple at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEASIBLE, OPTIMAL, INFEASIBLE, UNKNOWN = "FEASIBLE", "OPTIMAL", "INFEASIBLE", "UNKNOWN"


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What the solver said: its status, the values by variable, the bound, and the rules that cannot hold together."""

    status: str
    values: Mapping[str, int] = field(default_factory=dict)
    bound: float = 0.0
    core: tuple[str, ...] = ()


class Program:
    """Variables with sparse domains, constraints under enforcement literals, one objective."""

    def __init__(self, domains: Mapping[str, Iterable[int]]) -> None:
        """A program with these variables, each with its values."""
        from ortools.sat.python import cp_model_helper

        self.domains = {name: tuple(sorted({int(value) for value in values})) for name, values in domains.items()}
        self.message: Any = cp_model_helper.CpModelProto()
        self.index: dict[str, int] = {}
        self.literals: dict[str, int] = {}
        for name, values in self.domains.items():
            self.index[name] = self._variable(name, values)

    def literal(self, name: str) -> int:
        """The enforcement literal of a rule."""
        if name not in self.literals:
            self.literals[name] = self._variable(f"rule {name}", (0, 1))
        return self.literals[name]

    def allow(self, variables: Sequence[str], rows: Iterable[Sequence[int]], literal: int | None = None) -> None:
        """The variables take one of these rows of values."""
        values = np.asarray(list(rows) if not isinstance(rows, np.ndarray) else rows, dtype=np.int64)
        if values.size == 0:
            return self._never(literal)
        constraint = self._constraint(literal)
        for name in variables:
            expression = constraint.table.exprs.add()
            expression.vars.append(self.index[name])
            expression.coeffs.append(1)
        constraint.table.values.extend(values.ravel().tolist())
        return None

    def restrict(self, variable: str, values: Iterable[int], literal: int | None = None) -> None:
        """The variable takes one of these values."""
        allowed = np.unique(np.asarray(list(values), dtype=np.int64))
        if allowed.size == 0:
            return self._never(literal)
        constraint = self._constraint(literal)
        constraint.linear.vars.append(self.index[variable])
        constraint.linear.coeffs.append(1)
        constraint.linear.domain.extend(intervals(allowed))
        return None

    def at_least(self, larger: str, smaller: str, literal: int | None = None) -> None:
        """`larger` is at least `smaller`."""
        constraint = self._constraint(literal)
        constraint.linear.vars.extend([self.index[larger], self.index[smaller]])
        constraint.linear.coeffs.extend([1, -1])
        constraint.linear.domain.extend([0, 2**40])

    def add(self, name: str, values: Iterable[int]) -> None:
        """One more variable."""
        self.domains[name] = tuple(sorted({int(value) for value in values}))
        self.index[name] = self._variable(name, self.domains[name])

    def minimise(self, variable: str) -> None:
        """The objective."""
        self.message.objective.vars.append(self.index[variable])
        self.message.objective.coeffs.append(1)

    def hint(self, values: Mapping[str, int]) -> None:
        """A solution to start from."""
        for name, value in values.items():
            self.message.solution_hint.vars.append(self.index[name])
            self.message.solution_hint.values.append(int(value))

    def enforce(self) -> None:
        """Every rule holds."""
        for literal in self.literals.values():
            constraint = self._constraint(None)
            constraint.bool_or.literals.append(literal)

    def assume(self) -> None:
        """Every rule is an assumption, so that an infeasible program names those that clash."""
        self.message.assumptions.extend(self.literals.values())

    def solve(self, seed: int = 0, time_limit: float | None = None, *, prepare: bool = True) -> Solution:
        """Solve with one worker, so that the same program and seed give the same solution.

        Without `prepare` the search starts at once: a table of a hundred rows is decided by propagation, and presolve,
        probing, symmetries and linear relaxation would cost four times what they save.
        """
        from ortools.sat.python import cp_model_helper

        parameters = cp_model_helper.SatParameters()
        parameters.num_workers = 1
        parameters.random_seed = seed
        if not prepare:
            parameters.cp_model_presolve = False
            parameters.cp_model_probing_level = parameters.symmetry_level = parameters.linearization_level = 0
        if time_limit is not None:
            parameters.max_time_in_seconds = max(time_limit, 0.001)
        wrapper: Any = cp_model_helper.SolveWrapper()
        wrapper.set_parameters(parameters)
        response = wrapper.solve(self.message)
        status = response.status.name
        if status in (FEASIBLE, OPTIMAL):
            solution = list(response.solution)
            values = {name: int(solution[index]) for name, index in self.index.items()}
            return Solution(status=status, values=values, bound=response.best_objective_bound)
        if status == INFEASIBLE:
            named = {index: name for name, index in self.literals.items()}
            core = {named[index] for index in response.sufficient_assumptions_for_infeasibility if index in named}
            return Solution(status=status, core=tuple(name for name in self.literals if name in core))
        return Solution(status=UNKNOWN, bound=response.best_objective_bound)

    def _variable(self, name: str, values: Sequence[int]) -> int:
        variable = self.message.variables.add()
        variable.name = name
        variable.domain.extend(intervals(np.asarray(values, dtype=np.int64)))
        return len(self.message.variables) - 1

    def _constraint(self, literal: int | None) -> Any:
        constraint = self.message.constraints.add()
        if literal is not None:
            constraint.enforcement_literal.append(literal)
        return constraint

    def _never(self, literal: int | None) -> None:
        """No values are allowed: the literal is false, or the program infeasible."""
        self._constraint(literal).linear.domain.extend([1, 1])


def intervals(values: NDArray[np.int64]) -> list[int]:
    """Sorted values as the solver's domain: first and last of every run of consecutive ones.

    >>> intervals(np.array([1, 2, 3, 8]))
    [1, 3, 8, 8]
    """
    found: list[int] = []
    for value in values.tolist():
        if found and value == found[-1] + 1:
            found[-1] = value
        else:
            found += [value, value]
    return found
