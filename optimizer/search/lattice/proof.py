"""The lattice as a CP-SAT program: the rules on its variables, and one literal for every plan, with its value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.base.errors import OptimizerError
from optimizer.constraints.posted import allowed
from optimizer.constraints.program import INFEASIBLE, OPTIMAL, Program
from optimizer.constraints.rule import BoolArray, Rule
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Plans
from optimizer.objectives.arrays import different

RESOLUTION = 10**8  # integer steps of the least value of a plan that fits: bounds are rounded down by at most 1e-8


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What CP-SAT proved over the points it was given."""

    proven: bool  # whether no point that satisfies the rules has a value below `bound`
    bound: float  # in the unit of the values
    point: int = -1  # the solver's plan, or -1
    ties: tuple[int, ...] = ()  # points that its rounded bound cannot tell from it


def prove(
    job: Job,
    rules: Sequence[Rule],
    plans: Plans,
    values: NDArray[np.float64],
    *,
    fits: BoolArray | None = None,
    hint: int = -1,
    seed: int = 0,
    time_limit: float | None = None,
) -> Proof:
    """The plan of the least value under the rules, each posted under a literal of its own name.

    The plans need not satisfy the rules: rejecting those that do not is the solver's part. `fits` says which fit in
    memory, of which it has no reading of its own: the others are false from the start. Without it the rule's own check
    counts. Raises OptimizerError where what was posted allows another plan than the check.
    """
    fitting = values if fits is None or not fits.any() else values[fits]
    unit = float(fitting.min()) / RESOLUTION
    costs = np.floor(values / unit).astype(np.int64)
    program = program_of(job, rules, plans, fits)
    _compare(job, rules, plans, program)
    program.enforce()
    possible = np.arange(len(plans)) if fits is None else np.flatnonzero(fits)
    points = np.array(program.points)[possible].tolist()
    program.minimise(list(zip(points, costs[possible].tolist(), strict=True)))
    if hint >= 0:
        program.hint({program.points[hint]: 1})
    # One of the points is true: propagation decides them in less time than presolve takes.
    solution = program.solve(seed, time_limit, prepare=False)
    if solution.values is None or solution.status != OPTIMAL:
        infeasible = solution.status == INFEASIBLE
        return Proof(proven=infeasible, bound=np.inf if infeasible else max(0.0, solution.bound) * unit)
    point = next(point for point, literal in enumerate(program.points) if solution.values[literal])
    ties = tuple(np.flatnonzero(costs <= costs[point] + 1).tolist())
    return Proof(proven=True, bound=float(costs[point]) * unit, point=point, ties=ties)


def core(job: Job, rules: Sequence[Rule], plans: Plans, time_limit: float | None = None) -> tuple[str, ...]:
    """Names of rules that none of the plans satisfies together; empty when some plan satisfies all, or none were found
    in time [s].

    Source: CP-SAT, sufficient_assumptions_for_infeasibility (not minimal).
    """
    program = program_of(job, rules, plans)
    program.assume()
    return program.solve(time_limit=time_limit).core


def program_of(job: Job, rules: Sequence[Rule], plans: Plans, fits: BoolArray | None = None) -> Program:
    """Variables over the plans' values, a literal for every plan, and every rule."""
    columns = _columns(plans)
    program = Program({name: different(column).tolist() for name, column in columns.items()})
    program.hold(columns, fits)
    for rule in rules:
        if isinstance(rule, Memory):
            rule = replace(rule, fits=rule.check(job, plans) if fits is None else fits)
        elif isinstance(rule, HostActivations):
            rule = replace(rule, fits=rule.check(job, plans))
        rule.post(job, program, program.literal(rule.name))
    return program


def _compare(job: Job, rules: Sequence[Rule], plans: Plans, program: Program) -> None:
    """Both readings of every rule agree on every plan; memory, of devices and of hosts, has no
    other than its check.
    """
    posted = allowed(program, _columns(plans))
    for rule in rules:
        if isinstance(rule, Memory | HostActivations):
            continue
        differs = np.flatnonzero(rule.check(job, plans) != posted[rule.name])
        if len(differs):
            shown = plans.plan(int(differs[0])).summary()
            raise OptimizerError(
                f"numpy and CP-SAT read the rule {rule.name} differently for {shown}; please report this job"
            )


def _columns(plans: Plans) -> dict[str, NDArray[np.int64]]:
    return {name: getattr(plans, name).astype(np.int64) for name in FIELDS}
