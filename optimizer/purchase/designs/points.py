"""Designs with their plans: each inner plan is searched once, and every point knows which limits it breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.power import capped_slowdown
from optimizer.objectives.step.host_memory import on_host, uses_host
from optimizer.purchase.campaign import AUTO, Campaign, Design
from optimizer.purchase.designs.figures import Figures, PlannedRun, figures
from optimizer.purchase.price.catalogue import host_memory, paid, power_curve, price_row
from optimizer.purchase.price.goodput import cheapest_count
from optimizer.studies.best_use import batches_near

PRODUCTS, REST = "matrix products and attention", "launches, stragglers, overhead"
GROUPS: Mapping[str, tuple[str, ...]] = {  # the terms of an estimate that a buyer sees as one
    PRODUCTS: ("gemm", "attention", "head"),
    "memory-bound kernels": ("elementwise", "optimizer"),
    "communication": ("communication", "contention"),
    "pipeline bubble": ("bubble",),
}
Planner = Callable[[Job], Answer]


@dataclass(frozen=True, kw_only=True)
class Excess:
    """A limit that a point breaks, with both values in SI; a `share` of 0.1 is 10 % beyond it."""

    limit: str
    value: float
    allowed: float

    @property
    def share(self) -> float:
        """Distance beyond the limit, relative to the limit [1].

        >>> Excess(limit="racks", value=6.0, allowed=4.0).share
        0.5
        """
        return self.value / self.allowed - 1.0 if self.allowed else float("inf")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One design with the best plan of each run and what they cost together, at the middle of every assumption."""

    design: Design
    answers: tuple[Answer, ...]
    planned: tuple[PlannedRun, ...]  # the step of each run's plan
    figures: Figures
    excesses: tuple[Excess, ...]
    on_host: float  # the most that a plan keeps in the host's memory, per GPU [B]

    @property
    def feasible(self) -> bool:
        """Whether every limit of the buyer holds."""
        return not self.excesses

    @property
    def proven(self) -> bool:
        """Whether every inner plan was proven optimal."""
        return all(answer.status == "optimal" for answer in self.answers)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A design without a plan, or one that cannot be asked about, and why."""

    design: Design
    reason: str


def default_planner(job: Job) -> Answer:
    """The best plan at its own knobs, as `optimize` and a batch find it, without runners-up.

    Bounds prove it; that numpy and CP-SAT read the rules alike is for the answer about one job to say.
    """
    from optimizer.search.plan.planner import plan

    return plan(job, top=0, priced_risk=False, read_twice=False)


@dataclass
class Workshop:
    """Turns designs into points; inner plans are kept, so that power caps and repeated designs cost nothing."""

    campaign: Campaign
    planner: Planner = default_planner
    plans: dict[tuple[object, ...], Answer] = field(default_factory=dict)
    points: dict[tuple[object, ...], Point | Rejected] = field(default_factory=dict)
    on_point: Callable[[], None] = lambda: None

    def point(self, design: Design) -> Point | Rejected:
        """The point of a design, planned at most once."""
        key = design.key
        if key not in self.points:
            self.points[key] = self._flexed(design) if self.campaign.flex else self._evaluate(design)
            self.on_point()
        return self.points[key]

    @property
    def evaluated(self) -> tuple[Point, ...]:
        """Every point so far, in the order of evaluation."""
        return tuple(point for point in self.points.values() if isinstance(point, Point))

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Every design without a point."""
        return tuple(point for point in self.points.values() if isinstance(point, Rejected))

    def _flexed(self, design: Design) -> Point | Rejected:
        """The point of the batch, of those within reach, that ends first; every run's batch moves by the same share."""
        first = design.batch(self.campaign.runs[0])
        near = batches_near(first, self.campaign.flex, design.gpus)
        factors = [design.batch_factor * (batch / first) for batch in near]
        tried = [self._evaluate(replace(design, batch_factor=factor)) for factor in factors]
        points = [point for point in tried if isinstance(point, Point)]
        return min(points, key=lambda point: point.figures.time_to_train) if points else tried[0]

    def _evaluate(self, design: Design) -> Point | Rejected:
        answers, planned = [], []
        try:
            for index, run in enumerate(self.campaign.runs):
                answer = self._plan(index, design, design.job(self.campaign, run))
                if answer.plan is None or answer.estimate is None:
                    reasons = "; ".join(clash.reason for clash in answer.conflict)
                    return Rejected(design=design, reason=reasons or f"no plan ({answer.status})")
                answers.append(answer)
                planned.append(PlannedRun.of(answer.job, answer.plan, answer.knobs, answer.estimate))
        except InputError as error:
            return Rejected(design=design, reason=str(error))
        on_host = max(host_bytes(answer) for answer in answers)
        design = with_spares(self.campaign, design, planned, on_host)
        outcome = figures(self.campaign, design, planned, self.campaign.scenario(design), on_host)
        return Point(
            design=design,
            answers=tuple(answers),
            planned=tuple(planned),
            figures=outcome,
            excesses=excesses(self.campaign, design, outcome, on_host),
            on_host=on_host,
        )

    def _plan(self, run: int, design: Design, job: Job) -> Answer:
        # Neither the power cap nor spare nodes are known to the planner, so they are no part of the key.
        key = (run, replace(design, power_cap=1.0, spares=None).key)
        if key not in self.plans:
            self.plans[key] = self.planner(job)
        return self.plans[key]


def with_spares(
    campaign: Campaign, design: Design, planned: Sequence[PlannedRun], on_host: float, **changes: float
) -> Design:
    """The design with as many spare nodes as the campaign asks for, or as pay at the middle of all but given inputs."""
    if campaign.spares != AUTO:
        return replace(design, spares=campaign.spares)
    values = campaign.scenario(design, **changes)

    def cost(spares: int) -> float:
        return figures(campaign, replace(design, spares=spares), planned, values, on_host).cost

    together = paid(campaign, design).size // design.cluster.gpus_per_node
    return replace(design, spares=cheapest_count(cost, together=together))


def check_kinds(campaign: Campaign, designs: Sequence[Design]) -> None:
    """Raise InputError for a machine without a price or power figure, or an impossible cap, before any search."""
    for cap in {design.power_cap for design in designs}:
        capped_slowdown(1.0, 0.0, cap)
    for design in {design.kind: design for design in designs}.values():
        power_curve(design, campaign.scenario(design))
        price_row(campaign, design)


def host_bytes(answer: Answer) -> float:
    """What a plan keeps in the host's memory instead of the device's, per GPU [B]; 0 where it offloads nothing."""
    plan, knobs = answer.plan, answer.knobs
    if plan is None or answer.estimate is None:
        return 0.0
    plans = Plans.of([plan])
    something = knobs.offload or uses_host(answer.job, plans)[0]
    return float(on_host(layer_costs_of(answer.job, plans), knobs)[0]) if something else 0.0


def figures_in(campaign: Campaign, point: Point, values: Mapping[str, float]) -> Figures:
    """What a point comes to in another scenario."""
    return figures(campaign, point.design, point.planned, values, point.on_host)


def excesses(campaign: Campaign, design: Design, outcome: Figures, on_host: float) -> tuple[Excess, ...]:
    """The limits, dates of runs and memory of the host that a design breaks."""
    bounds = campaign.bounds
    checks: dict[str, tuple[float, float]] = {
        "deadline": (outcome.time_to_train, bounds.deadline),
        "budget": (outcome.cost, bounds.budget),
        "power": (outcome.peak_power, bounds.power),
        "racks": (outcome.racks, bounds.racks),
        "devices on hand": (design.gpus, bounds.on_hand.get(design.kind, float("inf"))),
    }
    for run, end in zip(campaign.runs, outcome.ends, strict=True):
        checks[f"date of {run.model.title or run.model.name}"] = (end, run.by)
    there = host_memory(design)
    if not campaign.buy and there is not None:  # that of rented machines cannot be added to
        checks["host memory"] = (on_host, there)
    return tuple(
        Excess(limit=limit, value=float(value), allowed=allowed)
        for limit, (value, allowed) in checks.items()
        if value > allowed
    )


def phases(point: Point) -> dict[str, float]:
    """Seconds of the first run's step in the groups that a buyer can act on."""
    estimate = point.answers[0].estimate
    time = estimate.time if estimate else {}
    seconds = dict.fromkeys((*GROUPS, REST), 0.0)
    for term, value in time.items():
        name = "communication" if term.endswith("_communication") else term
        group = next((group for group, terms in GROUPS.items() if name in terms), REST)
        seconds[group] += value
    return seconds


def bottleneck(point: Point) -> str:
    """What takes most of a step besides the matrix products, with its share."""
    parts = phases(point)
    total = sum(parts.values())
    losses = {name: seconds for name, seconds in parts.items() if name != PRODUCTS}
    name, seconds = max(losses.items(), key=lambda item: item[1])
    return f"{name} ({seconds / total:.0%} of the step)" if total else ""
