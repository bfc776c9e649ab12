"""A CP-SAT program: integer variables by number, some of them named, and constraints, some under the name of a rule.

Written on the solver's own messages: the usual Python layer imports pandas, a third of a second that nobody asked for,
and adds a table one tuple at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.objectives.arrays import different

FEASIBLE, OPTIMAL, INFEASIBLE, UNKNOWN = "FEASIBLE", "OPTIMAL", "INFEASIBLE", "UNKNOWN"
LIMIT = 2**60
Term = tuple[int, int]
Variable = int | str


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What the solver answers."""

    status: str  # FEASIBLE, OPTIMAL, INFEASIBLE or UNKNOWN
    values: tuple[int, ...] | None  # by variable; None without a solution
    bound: float  # of the objective
    core: tuple[str, ...] = ()  # names of rules that cannot hold together


class Program:
    """Variables are numbered in the order of their making; a term is (variable, coefficient).

    A literal is a variable of 0 and 1, `~literal` its negation. A constraint under a literal holds where that is true.
    """

    def __init__(self, domains: Mapping[str, Iterable[int]] | None = None) -> None:
        """A program with these named variables, each with its values."""
        from ortools.sat.python import cp_model_helper

        self.message: Any = cp_model_helper.CpModelProto()
        self.domains: dict[str, tuple[int, ...]] = {}
        self.index: dict[str, int] = {}
        self.literals: dict[str, int] = {}
        self.points: list[int] = []
        for name, values in (domains or {}).items():
            self.domains[name] = tuple(sorted({int(value) for value in values}))
            self.index[name] = self.choice(self.domains[name])

    def variable(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        self.message.variables.add().domain.extend([low, high])
        return len(self.message.variables) - 1

    def _literals(self, possible: NDArray[np.bool_]) -> list[int]:
        """A literal for each of these, false where it is not possible."""
        from ortools.sat.python import cp_model_helper

        first, binary, never = len(self.message.variables), *(cp_model_helper.IntegerVariableProto() for _ in range(2))
        binary.domain.extend([0, 1])
        never.domain.extend([0, 0])
        self.message.variables.extend([binary if each else never for each in possible.tolist()])
        return list(range(first, first + len(possible)))

    def choice(self, values: Sequence[int]) -> int:
        """An integer of these, in increasing order."""
        self.message.variables.add().domain.extend(intervals(np.asarray(values, dtype=np.int64)))
        return len(self.message.variables) - 1

    def literal(self, name: str) -> int:
        """The literal under which a rule is posted."""
        if name not in self.literals:
            self.literals[name] = self.variable(0, 1)
        return self.literals[name]

    def combinations(self, variables: Sequence[str]) -> list[tuple[int, ...]]:
        """Every row of values that these named variables could take together, whatever the constraints.

        >>> Program({"tp": (1, 2), "pp": (1, 4)}).combinations(("tp", "pp"))
        [(1, 1), (1, 4), (2, 1), (2, 4)]
        """
        return list(product(*(self.domains[name] for name in variables)))

    def hold(self, columns: Mapping[str, NDArray[np.int64]], possible: NDArray[np.bool_] | None = None) -> None:
        """One literal for every row of these columns: exactly one is true, and the named variables have its values.

        Exactly one of "not variable = value" and the rows with that value is true: the value is implied by its rows
        and implies one of them. Rows that are not `possible` are false from the start and imply nothing.
        """
        possible = np.ones(len(next(iter(columns.values()))), dtype=np.bool_) if possible is None else possible
        self.points = self._literals(possible)
        literals = np.array(self.points)[possible]
        self.exactly_one(literals.tolist())
        for name, column in columns.items():
            column = column[possible]
            values = different(column)
            self.restrict(name, values)
            for value in values:
                equal = self.variable(0, 1)
                self.restrict(name, [value], equal)
                self.restrict(name, values[values != value], ~equal)
                self.exactly_one([~equal, *literals[column == value].tolist()])

    def linear(self, terms: Sequence[Term], low: int | None, high: int | None, literal: int | None = None) -> None:
        """Low <= sum of terms <= high."""
        linear = self._constraint(literal).linear
        linear.vars.extend([variable for variable, _ in terms])
        linear.coeffs.extend([coefficient for _, coefficient in terms])
        linear.domain.extend([-LIMIT if low is None else low, LIMIT if high is None else high])

    def lesser(self, one: int, other: int, most: int) -> int:
        """A variable that is the lesser of two others, neither negative; it is at most `most`."""
        result = self.variable(0, most)
        largest = self.message.constraints.add().lin_max
        for expression, variable in (
            (largest.target, result),
            (largest.exprs.add(), one),
            (largest.exprs.add(), other),
        ):
            expression.vars.append(variable)
            expression.coeffs.append(-1)
        return result

    def product(self, one: int, other: int, most: tuple[int, int]) -> int:
        """A variable that is the product of two others, neither negative, which are at most so large.

        The second in binary digits, each of which adds the first as often as it counts: CP-SAT 9.15 has been seen to
        prove the wrong optimum with its own constraint on products.
        """
        digits, parts = [], []
        for place in range(most[1].bit_length()):
            digit, part = self.variable(0, 1), self.variable(0, most[0])
            digits.append((digit, 2**place))
            parts.append((part, 2**place))
            self.linear([(part, 1), (one, -1)], 0, 0, digit)
            self.restrict(part, [0], ~digit)
        result = self.variable(0, most[0] * most[1])
        self.linear([*digits, (other, -1)], 0, 0)
        self.linear([*parts, (result, -1)], 0, 0)
        return result

    def allow(self, variables: Sequence[Variable], rows: Iterable[Sequence[int]], literal: int | None = None) -> None:
        """The variables take one of these rows of values."""
        values = np.asarray(list(rows) if not isinstance(rows, np.ndarray) else rows, dtype=np.int64)
        if values.size == 0:
            return self._never(literal)
        table = self._constraint(literal).table
        for variable in variables:
            expression = table.exprs.add()
            expression.vars.append(self._number(variable))
            expression.coeffs.append(1)
        table.values.extend(values.ravel().tolist())
        return None

    def where(self, variables: Sequence[str], holds: Callable[..., object], literal: int) -> None:
        """The named variables take values for which a condition holds, which is asked about every row of theirs.

        >>> program = Program({"tp": (1, 2, 4), "pp": (1, 2)})
        >>> program.where(("tp", "pp"), lambda tp, pp: tp * pp == 4, program.literal("four"))
        >>> list(program.message.constraints[0].table.values)
        [2, 2, 4, 1]
        """
        rows = [row for row in self.combinations(variables) if holds(*row)]
        if len(variables) == 1:
            self.restrict(variables[0], [value for (value,) in rows], literal)
        else:
            self.allow(variables, rows, literal)

    def restrict(self, variable: Variable, values: Iterable[int], literal: int | None = None) -> None:
        """The variable takes one of these values."""
        allowed = np.array(sorted(set(values)), dtype=np.int64)
        if allowed.size == 0:
            return self._never(literal)
        linear = self._constraint(literal).linear
        linear.vars.append(self._number(variable))
        linear.coeffs.append(1)
        linear.domain.extend(intervals(allowed))
        return None

    def exactly_one(self, literals: Sequence[int]) -> None:
        """One of the literals is true and no other."""
        self.message.constraints.add().exactly_one.literals.extend(literals)

    def forbid(self, literals: Iterable[int], literal: int | None = None) -> None:
        """None of the literals is true."""
        self._constraint(literal).bool_and.literals.extend([~each for each in literals])

    def minimise(self, terms: Sequence[Term]) -> None:
        """The objective, in place of any other."""
        self.message.clear_objective()
        self.message.objective.vars.extend([variable for variable, _ in terms])
        self.message.objective.coeffs.extend([coefficient for _, coefficient in terms])

    def hint(self, values: Mapping[int, int]) -> None:
        """Values of some variables to start from, in place of any others."""
        self.message.clear_solution_hint()
        self.message.solution_hint.vars.extend(values.keys())
        self.message.solution_hint.values.extend(values.values())

    def enforce(self) -> None:
        """Every rule holds."""
        for literal in self.literals.values():
            self.message.constraints.add().bool_or.literals.append(literal)

    def assume(self) -> None:
        """Every rule is an assumption, so that an infeasible program names those that clash."""
        self.message.assumptions.extend(self.literals.values())

    def solve(
        self,
        seed: int = 0,
        time_limit: float | None = None,
        effort: float | None = None,
        *,
        prepare: bool = True,
        relaxed: bool = False,
    ) -> Solution:
        """Solve with one worker: the same program and seed give the same solution unless the time limit [s] cuts in.

        `effort` limits the solver's deterministic time, about seconds, in the same way on every machine. Without
        `prepare` the search starts at once, without presolve, probing, symmetries and linear relaxation: what
        propagation decides alone is decided sooner. `relaxed`: the linear relaxation holds all constraints, not some.
        """
        from ortools.sat.python import cp_model_helper

        parameters = cp_model_helper.SatParameters()
        parameters.num_workers = 1
        # With both or either on, CP-SAT 9.15 has been seen to lose the best solution or to hang.
        parameters.cp_model_probing_level = parameters.presolve_inclusion_work_limit = 0
        parameters.random_seed = seed
        if not prepare:
            parameters.cp_model_presolve = False
            parameters.cp_model_probing_level = parameters.symmetry_level = parameters.linearization_level = 0
        if relaxed:
            parameters.linearization_level = 2
        if time_limit is not None:
            parameters.max_time_in_seconds = max(time_limit, 0.001)
        if effort is not None:
            parameters.max_deterministic_time = effort
        parameters.catch_sigint_signal = False
        wrapper: Any = cp_model_helper.SolveWrapper()
        wrapper.set_parameters(parameters)
        response = _interruptible(wrapper, self.message)
        status = response.status.name
        if status not in (OPTIMAL, FEASIBLE, INFEASIBLE, UNKNOWN):
            raise ValueError(f"CP-SAT rejects the program: {status}")
        solved = status in (OPTIMAL, FEASIBLE)
        clashing = set(response.sufficient_assumptions_for_infeasibility) if status == INFEASIBLE else set()
        return Solution(
            status=status,
            values=tuple(map(int, response.solution)) if solved else None,
            bound=response.best_objective_bound,
            core=tuple(name for name, literal in self.literals.items() if literal in clashing),
        )

    def _number(self, variable: Variable) -> int:
        return self.index[variable] if isinstance(variable, str) else variable

    def _constraint(self, literal: int | None) -> Any:
        constraint = self.message.constraints.add()
        if literal is not None:
            constraint.enforcement_literal.append(literal)
        return constraint

    def _never(self, literal: int | None) -> None:
        """No values are allowed: the literal is false, or the program infeasible."""
        self._constraint(literal).linear.domain.extend([1, 1])


def _interruptible(wrapper: Any, message: Any) -> Any:
    """The solver's answer, sought in a thread of its own: Python sees no Ctrl-C while it waits for another language."""
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(wrapper.solve, message)
        try:
            return answer.result()
        except KeyboardInterrupt:
            wrapper.stop_search()
            raise


def intervals(values: NDArray[np.int64]) -> list[int]:
    """Sorted values as the solver's domain: first and last of every run of consecutive ones.

    >>> intervals(np.array([1, 2, 3, 8]))
    [1, 3, 8, 8]
    """
    ends: list[int] = []
    for value in values.tolist():
        if ends and value == ends[-1] + 1:
            ends[-1] = value
        else:
            ends += [value, value]
    return ends
