"""Virtual stages of unlike length in the program of layouts: which are searched, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from optimizer.constraints.program import Term
from optimizer.objectives.pipeline.stages import EMBEDDING, HEAD, MTP
from optimizer.objectives.pipeline.stall import NEGLECTED

if TYPE_CHECKING:
    import numpy as np

    from optimizer.search.layouts.program import LayoutProgram

DOUBT = 0.05  # share of the best step that layouts may seem to lose, as they often lose less: assumed
SHARES = 100  # of which NEGLECTED is a whole number
SMOOTHING = 0.5  # the solver's deterministic time for evening out virtual stages
TIME_STEPS = 10**7  # integer steps of one micro-batch's time through all layers


def keep_pace(layouts: LayoutProgram, at_most: float) -> None:
    """Count in the objective what a pipeline whose stages all held the vpp longest virtual stages would take longer.

    Stages wait for each other no longer than that (objectives/pipeline/stall.py); NEGLECTED does not count, and layouts
    that might lose DOUBT of `at_most` [s] are left out. The sum of the vpp longest is the least of vpp x + what each of
    all exceeds x by. What a stage spends beside its layers is spread evenly over its virtual ones.
    """
    problem, program = layouts.problem, layouts.program
    vpp, most = problem.vpp, 4 * problem.vpp * layouts.whole_ticks
    level = program.variable(0, most)
    beyond = []
    for place in range(layouts.places):
        over = program.variable(0, most)
        beyond.append(over)
        terms, fixed = _busy(layouts, place, vpp, vpp)
        terms += [(again, layouts.extra[kind]) for kind, again in layouts.recomputed[place % problem.pp].items()]
        program.linear([*terms, (level, -1), (over, -1)], None, -fixed)
    allowed = SHARES + round(NEGLECTED * SHARES)
    weight, turns = vpp * problem.microbatches - 1, vpp * problem.microbatches + problem.pp - 1
    longest: list[Term] = [(level, SHARES * vpp * turns), *((over, SHARES * turns) for over in beyond)]
    closed: list[Term] = [(layouts.slowest, -allowed * vpp * weight)]
    closed += [(n, -allowed * vpp * layouts.extra[kind]) for stage in layouts.recomputed for kind, n in stage.items()]
    fixed = layouts.whole_ticks + (problem.pp + weight) * layouts.aside
    lost = min(DOUBT * vpp * at_most / layouts.tick, vpp * problem.microbatches * most)
    layouts.late = program.variable(0, int(lost))
    program.linear([*longest, *closed, (layouts.late, -allowed * vpp)], None, allowed * vpp * fixed)
    layouts.cost = [*layouts.cost, (layouts.late, 1)]
    program.minimise(layouts.cost)
    if at_most < inf:
        keep_within(layouts, at_most * (1 + DOUBT))  # follows from both limits, and spares the solver a lot


def keep_within(layouts: LayoutProgram, at_most: float) -> None:
    """The pipeline and what happens once per step take `at_most` [s], or would with as little optimizer state on the
    host as any layout needs there. Rounding may add half a tick for each layer.
    """
    problem, longest = layouts.problem, layouts.longest
    if any(costs.spared for costs in problem.kinds.values()):
        longest = layouts.once(spared=True)
    cost = [(longest if variable == layouts.longest else variable, factor) for variable, factor in layouts.cost]
    weight = problem.vpp * problem.microbatches - 1
    whole = sum(n * problem.kinds[kind].seconds for kind, n in problem.sequence)
    ticks = (problem.vpp * at_most - whole - (problem.pp + weight) * problem.seconds) / layouts.tick
    layouts.program.linear(cost, None, int(ticks + (weight + 1) * (len(layouts.names) + 3)))


def count_chain(layouts: LayoutProgram, ahead: NDArray[np.int64], back: NDArray[np.int64]) -> None:
    """The pipeline takes no less than a chain of passes: visits to virtual stages, forward and backward, by stage."""
    problem = layouts.problem
    vpp, weight = problem.vpp, problem.vpp * problem.microbatches - 1
    factors: Counter[int] = Counter()
    constant, passes = 0, 0
    for place in range(layouts.places):
        stage = place % problem.pp
        forward, backward = (int(visits[stage, place // problem.pp]) for visits in (ahead, back))
        terms, fixed = _busy(layouts, place, vpp * forward, vpp * backward, aside=False)
        terms += [(again, backward * layouts.extra[kind]) for kind, again in layouts.recomputed[stage].items()]
        for variable, factor in terms:
            factors[variable] += SHARES * factor
        constant, passes = constant + fixed, passes + forward + backward
    constant = SHARES * constant + SHARES * passes * layouts.aside // 2
    # What the closed form says, as the objective counts it, and NEGLECTED of it.
    allowed = SHARES + round(NEGLECTED * SHARES)
    constant -= allowed * (layouts.whole_ticks + (problem.pp + weight) * layouts.aside)
    factors[layouts.slowest] -= allowed * weight
    for again_by_kind in layouts.recomputed:
        for kind, again in again_by_kind.items():
            factors[again] -= allowed * layouts.extra[kind]
    factors[layouts.waits] -= SHARES
    layouts.program.linear(list(factors.items()), None, -constant)


def wait(layouts: LayoutProgram, values: Sequence[int], ahead: NDArray[np.int64], back: NDArray[np.int64]) -> None:
    """Count in the objective what the schedule loses where this chain is longest; start from these values."""
    if layouts.waits < 0:
        layouts.waits = layouts.program.variable(0, layouts.problem.vpp * layouts.problem.microbatches * layouts.most)
        layouts.cost = [*layouts.cost, (layouts.waits, 1)]
        layouts.program.minimise(layouts.cost)
    count_chain(layouts, ahead, back)
    layouts.program.hint(dict(enumerate(values)))


def waited(layouts: LayoutProgram, values: Sequence[int], slowest: float) -> float:
    """What the program counts for what the schedule loses in a solution whose slowest stage takes so long [s].

    It may count more than that for a layout whose virtual stages do not keep pace, as if a stage were slower.
    """
    problem = layouts.problem
    counted = values[layouts.slowest] * layouts.tick + problem.seconds - slowest
    slower = max(0.0, counted) * (problem.microbatches - 1 / problem.vpp)
    lost = sum(values[variable] for variable in (layouts.waits, layouts.late) if variable >= 0)
    return slower + lost * layouts.tick / problem.vpp


def smoothed(layouts: LayoutProgram, values: Sequence[int], seed: int) -> Sequence[int]:
    """Among layouts as good as this one, virtual stages of like length: uneven ones stall the interleaved schedule.

    Minimises the longest virtual stage of all, the longest of every round, and what each has beyond its share, within a
    fixed effort.
    """
    problem, program = layouts.problem, layouts.program
    program.linear(layouts.cost, None, sum(values[variable] * factor for variable, factor in layouts.cost))
    program.hint(dict(enumerate(values)))
    overall = program.variable(0, TIME_STEPS)
    rounds = [program.variable(0, TIME_STEPS) for _ in range(problem.vpp)]
    beyond = [program.variable(0, TIME_STEPS) for _ in layouts.layers]
    share = layouts.whole_ticks // layouts.places
    for virtual, kinds in enumerate(layouts.layers):
        busy = [(variable, sign * layouts.ticks[kind]) for kind, terms in kinds.items() for variable, sign in terms]
        if layouts.predicted:
            busy.append((layouts.predicted[virtual], layouts.ticks[MTP]))
        head = layouts.ticks[HEAD] if virtual == layouts.places - 1 else 0
        program.linear([*busy, (rounds[virtual // problem.pp], -1)], None, -head)
        program.linear([*busy, (overall, -1)], None, -head)
        program.linear([*busy, (beyond[virtual], -1)], None, share - head)
    program.minimise([(overall, problem.vpp), *((longest, 1) for longest in (*rounds, *beyond))])
    return program.solve(seed, effort=SMOOTHING).values or values


def _busy(
    layouts: LayoutProgram, place: int, forward: int, backward: int, *, aside: bool = True
) -> tuple[list[Term], int]:
    """Ticks of so many forward and backward passes of a place: what its layers take, and what is there anyway."""
    costs, found = layouts.problem.kinds, Counter[int]()

    def ticks(kind: str) -> int:
        ahead = round(costs[kind].forward / layouts.tick)
        return forward * ahead + backward * (layouts.ticks[kind] - ahead)

    for kind, terms in layouts.layers[place].items():
        for variable, sign in terms:
            found[variable] += sign * ticks(kind)
    if layouts.predicted:
        found[layouts.predicted[place]] += ticks(MTP)
    fixed = layouts.aside if aside else 0
    fixed += ticks(HEAD) if place == layouts.places - 1 else 0
    return list(found.items()), fixed + (ticks(EMBEDDING) if place == 0 else 0)
