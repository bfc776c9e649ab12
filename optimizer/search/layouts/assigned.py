"""What a search for layouts has found: plans with their best layouts, what CP-SAT is given of them, and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.search.layouts.bounds.lattice_bounds import LatticeBounds
from optimizer.search.layouts.solve.layout import Solved


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan with its best layout, or without one where time or effort ran out."""

    plan: Plan  # with its layers assigned where it is `solved`
    value: float  # of the plan at its knobs, else the bound [unit of the objective]
    knobs: Knobs = Knobs()  # of the plan
    solved: bool = False  # whether the plan has a layout
    proven: bool = True  # whether no layout has a lower value
    least: float = 0.0  # where it is not proven, a value that no layout stays below [unit of the objective]
    safer: float = 1.0  # by what the value falls where the layout fits at less risk than it was searched at

    @property
    def at_its_risk(self) -> Candidate:
        """The same valued at the risk that it takes."""
        return replace(self, value=self.value * self.safer, least=self.least * self.safer, safer=1.0)


@dataclass(frozen=True, kw_only=True)
class ProofPlans:
    """Plans for CP-SAT, in the order of the lattice: all of it up to PROVEN_WHOLE plans, else those of the lowest
    bounds.
    """

    layer_costs: LayerCosts  # of what CP-SAT is given
    # of the best layout of each, else a value that no layout beats at any knobs [unit of the objective]
    values: FloatArray
    fits: BoolArray  # False where it was seen that no layout of the plan does

    @property
    def plans(self) -> Plans:
        """What CP-SAT is given."""
        return self.layer_costs.plans


@dataclass(frozen=True, kw_only=True)
class AssignedLayouts:
    """The best plan over lattice, layouts and knobs. `best` is None when no layout of any plan fits.

    candidates: the plans whose layouts were looked for. proof: what CP-SAT is given, the best plan among it, None
    without any. bound: no
    layout of any plan is better at the plan's own knobs, knob_bound: at any setting of the knobs [unit of objective].
    band: plans whose bound is below the best even split, `solved` of them got the best of their layouts. `complete`: no
    layout that could be better was left out for want of time or effort. placed: what `place` found for runners-up, by
    the plan without a layout. lattice: what no layout of any plan beats, layouts: the problems that were solved.
    """

    best: Candidate | None
    candidates: tuple[Candidate, ...]
    proof: ProofPlans | None
    bound: float
    knob_bound: float
    space: int
    band: int
    solved: int
    complete: bool
    placed: Mapping[Plan, Candidate | None] = field(default_factory=dict)
    lattice: LatticeBounds | None = field(default=None, compare=False)
    layouts: Solved = field(default_factory=Solved, compare=False)


@dataclass(frozen=True, kw_only=True)
class LayoutBounds:
    """The part of a LaidOut that numpy finds, and how many plans it leaves `undecided`: only a solver knows whether a
    layout of theirs beats the best.
    """

    band: int
    undecided: int
    knob_bound: float
