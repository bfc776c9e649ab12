"""The answer to a job: the plan, what it costs, how sure that is, and what else was close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from optimizer.answer.keys import COLUMNS, AnswerKeys, EstimateKeys, JobKeys, plain, row
from optimizer.base.picture import bar
from optimizer.job.fields import FAST
from optimizer.job.job import TIME, Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.minimised.registry import objective
from optimizer.objectives.objective import Objective
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import interval
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.time_terms import TIME_TERMS

if TYPE_CHECKING:
    import pandas as pd

WIDEST = 98  # columns of a line of `repr`


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What was proven. Values are of what is minimised, in `unit`, and hold for each plan's own knobs."""

    proven: bool  # whether no plan is better
    lower_bound: float  # value that no plan beats [unit]
    best: float = float("inf")  # value of the best plan [unit]; infinite without one
    space: int  # plans that satisfy every rule but memory, all priced
    fitting: int = 0  # plans of these that fit
    candidates: int = 0  # plans of these that CP-SAT read: all (`held_all`), or those that could be best
    knob_bound: float = 0.0  # value that no setting of the continuous knobs beats on any plan [unit]
    even: float = float("inf")  # value of the best even split [unit]; infinite where none fits
    band: int = 0  # plans that could beat the best even split under some layer assignment
    solved: int = 0  # plans of these whose layers CP-SAT assigned
    method: str = ""  # in words, what was proven over what
    left_out: tuple[str, ...] = ()  # in words, what the space leaves out and what that loses
    given: bool = False  # whether the user placed the layers, so that no other layer assignment was compared
    minimize: str = TIME  # what the values are of, a name of optimizer.objectives.minimised.registry
    prefer: str = FAST  # as of the job
    # where several number formats were searched, the certificate of each; this one holds over all
    by_format: Mapping[str, Certificate] = field(default_factory=dict)

    @property
    def objective(self) -> Objective:
        """What the values are of."""
        return objective(self.minimize, self.prefer)

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return self.objective.unit

    @property
    def held_all(self) -> bool:
        """Whether CP-SAT held every plan of the lattice."""
        return 0 < self.space <= self.candidates

    @property
    def layout_gain(self) -> float | None:
        """Value of the best even split over that of the best plan, minus one; None where none fits or was asked."""
        return round(self.even / self.best - 1.0, 12) if self.even < float("inf") else None

    @property
    def gap(self) -> float:
        """How far the best plan may be from the optimum, over the bound [1]; infinite without a plan or a bound.

        >>> Certificate(proven=False, lower_bound=8.0, best=10.0, space=5).gap
        0.25
        >>> Certificate(proven=False, lower_bound=0.0, best=10.0, space=5).gap
        inf
        """
        bounded = self.lower_bound > 0 and self.best < float("inf")
        return round(self.best / self.lower_bound - 1.0, 12) if bounded else float("inf")


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A runner-up of another structure."""

    plan: Plan
    knobs: Knobs = Knobs()  # its own
    estimate: Estimate
    slower: float  # its value over the best plan's, minus one [1]


@dataclass(frozen=True, kw_only=True)
class Format:
    """The best plan in another number format."""

    dtype: str
    status: str  # as of the answer
    plan: Plan | None = None  # None if none fits
    knobs: Knobs = field(default_factory=Knobs)  # its own
    estimate: Estimate | None = None
    slower: float = 0.0  # its value over the best plan's, minus one [1]


@dataclass(frozen=True, kw_only=True)
class NearTies:
    """How many other plans come within 1 % and 5 % of the best, at the same knobs."""

    within_1_percent: int = 0
    within_5_percent: int = 0


@dataclass(frozen=True, kw_only=True)
class Safety:
    """What caution costs: of `fast` the job's risk of going out of memory, of `expected` all that may go wrong."""

    # the best plan on paper, None where that is the answer's: of `fast` of all that are predicted to fit, of `expected`
    # of those within the job's risk; `slower` is negative, by what is on paper
    fastest: Alternative | None = None

    @property
    def cost(self) -> float:
        """Value of the best plan over that of the best which is predicted to fit, minus one [1]."""
        return 1.0 / (1.0 + self.fastest.slower) - 1.0 if self.fastest else 0.0


@dataclass(frozen=True, kw_only=True)
class Clash:
    """One rule of a minimal conflict."""

    rule: str
    reason: str  # why it fails
    relaxation: str = ""  # the smallest one that helps, "" if none
    note: str = ""  # what was looked at where nothing helps, or what else would fit

    @property
    def remedy(self) -> str:
        """What to do about it, in words."""
        return "; ".join(filter(None, (f"enough: {self.relaxation}" if self.relaxation else "", self.note)))


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer:
    """The answer of `optimize` to one job."""

    status: str  # one of optimizer.answer.keys.STATUSES
    job: Job
    plan: Plan | None = None  # the best one; None, as the next but one and its certificate, when there is none
    knobs: Knobs = field(default_factory=Knobs)  # its own
    estimate: Estimate | None = None
    certificate: Certificate | None = None
    alternatives: tuple[Alternative, ...] = ()  # runners-up, best first
    formats: tuple[Format, ...] = ()  # number formats besides the job's that were searched too
    conflict: tuple[Clash, ...] = ()  # rules that cannot all hold
    near_ties: NearTies = field(default_factory=NearTies)
    safety: Safety | None = None  # None where what it costs was not looked for
    flags: tuple[str, ...] = ()  # warnings
    trials: int = 0  # of the search for knobs
    seed: int = 0  # of the search for knobs
    search_s: Mapping[str, float] = field(default_factory=dict)  # time of the search by phase [s]
    assumptions: tuple[str, ...] | None = None  # what was chosen unasked, None where a whole Job was given

    @property
    def run_bound(self) -> float | None:
        """Step that no run is expected to beat [s]: the low end of the step's 90 % interval / (1 + gap).

        None where there is no plan or no bound. Runs of other plans may err apart from it: this is no proof.
        """
        if not self.plan or not self.estimate or not self.certificate or not self.certificate.lower_bound:
            return None
        return interval(self.job, self.plan, self.estimate.step_time).low / (1.0 + self.certificate.gap)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, keyed as `optimize --json` prints them."""
        return AnswerKeys.of(self)

    def to_frame(self) -> pd.DataFrame:
        """The best plan and the runners-up, one row each, best first; the same columns without rows when there is none.

        Columns: the plan's variables, its knobs, figures with their 90 % intervals, then each term of the step as
        `TERM_s` and of the memory as `TERM_bytes`.
        """
        import pandas as pd

        document = self.to_dict()
        best = [document | {"slower": 0.0}] if self.plan and self.estimate else []
        rows = [row(other) for other in (*best, *document["alternatives"])]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def __repr__(self) -> str:
        job, title = self.job, self.job.model.title or self.job.model.name
        head = f"<Answer {self.status}: {title} on {job.gpus:,} x {job.cluster.device.name}"
        if not self.plan or not self.estimate:
            rules = ", ".join(clash.rule for clash in self.conflict)
            return _lines(head, f"these rules cannot all hold: {rules}" if rules else "no plan was found")
        step, gap = self.estimate, self.certificate.gap if self.certificate else float("inf")
        return _lines(
            f"{head}, MFU {step.mfu:.1%}, {step.step_time:.4g} s per step",
            self.plan.summary(),
            f"{step.reserved / 1e9:.1f} of {job.usable_memory / 1e9:.1f} GB, gap {gap:.2%}, "
            f"{len(self.alternatives)} runners-up",
        )

    def _repr_html_(self) -> str:
        title = escape(self.job.model.title or self.job.model.name)
        device = escape(self.job.cluster.device.name)
        head = f"<p><b>{title}</b> on {self.job.gpus:,} × {device}: {escape(self.status)}</p>"
        if not self.plan or not self.estimate:
            reasons = "".join(f"<li><b>{escape(c.rule)}</b>: {escape(c.reason)}</li>" for c in self.conflict)
            return f"{head}<ul>{reasons}</ul>"
        step = self.estimate
        time = bar(f"Where the time goes: {step.step_time:.4g} s per step", _labelled(step.time), step.step_time)
        usable = self.job.usable_memory
        memory = bar(
            f"Where the memory goes: {step.reserved / 1e9:.1f} of {usable / 1e9:.1f} GB per GPU",
            _labelled(step.memory),
            max(usable, step.reserved),
        )
        rows = [(self.plan, step), *((o.plan, o.estimate) for o in self.alternatives)]
        body = "".join(
            f"<tr><td>{escape(plan.summary())}</td><td>{estimate.step_time:.3f} s</td>"
            f"<td>{estimate.mfu:.1%}</td><td>{estimate.reserved / 1e9:.1f} GB</td></tr>"
            for plan, estimate in rows
        )
        columns = "<tr><th>plan</th><th>step</th><th>MFU</th><th>memory</th></tr>"
        return f"{head}<p>{time}</p><p>{memory}</p><table>{columns}{body}</table>"


def job_dict(job: Job) -> dict[str, Any]:
    """What was asked, as plain values."""
    return JobKeys.of(job)


def plan_dict(plan: Plan) -> dict[str, Any]:
    """A plan as plain values."""
    return dict(plain(plan))


def estimate_dict(estimate: Estimate) -> dict[str, Any]:
    """An estimate as plain values; the terms of `time_s` add up to `step_time_s`."""
    return EstimateKeys.of(estimate)


def _labelled(terms: Mapping[str, float]) -> dict[str, float]:
    """Terms by their names for people."""
    known = {**TIME_TERMS, **MEMORY_TERMS}
    return {known[name].label: value for name, value in terms.items()}


def _lines(*lines: str) -> str:
    """Lines in angle brackets, each cut where a terminal ends."""
    whole = [*lines[:-1], f"{lines[-1]}>"]
    return "\n ".join(line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…" for line in whole)
