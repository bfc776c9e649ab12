"""The lattice as a CP-SAT program: the rules as the solver reads them, step times as an integer table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.memory import POINT, Memory
from optimizer.constraints.program import OPTIMAL, Program
from optimizer.constraints.rule import Rule
from optimizer.job import Job
from optimizer.plan import FIELDS, Plans

COST = "cost"
SMALL = 200  # points up to which CP-SAT is faster without presolving the program
RESOLUTION = 10**8  # integer steps of the fastest plan's time: bounds are rounded down by at most 1e-8


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What CP-SAT proved over the points it was given.

    `proven`: no point that satisfies the rules is faster than `bound` [s]. `point` is the solver's plan, or -1;
    `band` are the points that its rounded bound cannot tell from it; `core` the clashing rules when there is no point.
    """

    proven: bool
    bound: float
    point: int = -1
    band: tuple[int, ...] = ()
    core: tuple[str, ...] = ()


def prove(
    job: Job,
    rules: Sequence[Rule],
    plans: Plans,
    seconds: NDArray[np.float64],
    *,
    hint: int = -1,
    seed: int = 0,
    time_limit: float | None = None,
) -> Proof:
    """The fastest of the plans under the rules, each posted under a literal of its own name.

    The plans need not satisfy the rules: rejecting those that do not is the solver's part.
    """
    unit = float(seconds.min()) / RESOLUTION
    costs = np.floor(seconds / unit).astype(np.int64)
    program = program_of(job, rules, plans, costs)
    program.enforce()
    program.minimise(COST)
    if hint >= 0:
        names = [name for name in program.domains if name in FIELDS]
        program.hint({name: int(getattr(plans, name)[hint]) for name in names} | {POINT: hint, COST: int(costs[hint])})
    solution = program.solve(seed, time_limit, prepare=len(plans) > SMALL)
    if solution.status != OPTIMAL:
        infeasible = solution.status == "INFEASIBLE"
        return Proof(proven=infeasible, bound=np.inf if infeasible else max(0.0, solution.bound) * unit)
    best = solution.values[COST]
    band = tuple(int(point) for point in np.flatnonzero(costs == best))
    return Proof(proven=True, bound=best * unit, point=solution.values[POINT], band=band)


def core(job: Job, rules: Sequence[Rule], plans: Plans, seed: int = 0) -> tuple[str, ...]:
    """Names of rules that none of the plans satisfies together; empty when some plan satisfies all.

    Source: CP-SAT, sufficient_assumptions_for_infeasibility (not minimal).
    """
    program = program_of(job, rules, plans, np.zeros(len(plans), dtype=np.int64))
    program.assume()
    return program.solve(seed).core


def program_of(job: Job, rules: Sequence[Rule], plans: Plans, costs: NDArray[np.int64]) -> Program:
    """Variables over the plans' values, the table that ties them to point and cost, and every rule."""
    columns = {name: getattr(plans, name).astype(np.int64) for name in FIELDS}
    columns |= {POINT: np.arange(len(plans)), COST: costs}
    program = Program({name: np.unique(column).tolist() for name, column in columns.items()})
    varying = [name for name, values in program.domains.items() if len(values) > 1 or name in (POINT, COST)]
    program.allow(varying, np.column_stack([columns[name] for name in varying]))
    for rule in rules:
        posted = replace(rule, points=plans) if isinstance(rule, Memory) else rule
        posted.post(job, program, program.literal(rule.name))
    return program
