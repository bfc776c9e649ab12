"""The answer to a job: the plan, what it costs, how sure that is, and what else was close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from html import escape
from typing import TYPE_CHECKING, Any

from optimizer.base.picture import bar
from optimizer.job.job import TIME, Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.minimised.registry import objective
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import CAUSAL, CONVENTIONS
from optimizer.objectives.step.interval import interval, mfu
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.safe_memory import chance_to_fit, safe_memory
from optimizer.objectives.step.time_terms import TIME_TERMS

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
WIDEST = 98  # columns of a line of `repr`
STATUSES = ("optimal", "feasible", "infeasible", "unknown")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What was proven. `lower_bound` and `best` are values of `minimize`, in its unit; `gap` is best / lower_bound - 1.

    `space` plans satisfy every rule but memory and were priced, `fitting` of them fit, and `candidates` of them went
    through CP-SAT: all (`held_all`), or those that could be best. Over all layouts of the layers, `band` plans could
    beat the best even split, `even` (infinite where none fits), and CP-SAT assigned the layers of `solved` of them. All
    values hold for each plan's own knobs; `knob_bound` is one that no setting of the continuous knobs beats on any
    plan. `method` says in words what was proven over what. `given`: the user placed the layers, so that no other layout
    was compared. `by_format`: where several number formats were searched, the certificate of each, of which this one
    is what holds over all of them.
    """

    proven: bool
    lower_bound: float
    best: float
    space: int
    fitting: int = 0
    candidates: int = 0
    knob_bound: float = 0.0
    even: float = float("inf")
    band: int = 0
    solved: int = 0
    method: str = ""
    given: bool = False
    minimize: str = TIME
    by_format: Mapping[str, Certificate] = field(default_factory=dict)

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
        """How far the best plan may be from the optimum, over the bound; infinite without a plan.

        >>> Certificate(proven=False, lower_bound=8.0, best=10.0, space=5).gap
        0.25
        """
        return round(self.best / self.lower_bound - 1.0, 12) if self.best < float("inf") else self.best


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A runner-up of another structure at its own knobs; `slower`: its value over the best plan's, minus one."""

    plan: Plan
    knobs: Knobs = Knobs()
    estimate: Estimate
    slower: float


@dataclass(frozen=True, kw_only=True)
class Format:
    """The best plan in another number format at its own knobs, None if none fits; `slower`: its value over the best
    plan's, minus one.
    """

    dtype: str
    status: str
    plan: Plan | None = None
    knobs: Knobs = field(default_factory=Knobs)
    estimate: Estimate | None = None
    slower: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NearTies:
    """How many other plans come within 1 % and 5 % of the best, at the same knobs."""

    within_1_percent: int = 0
    within_5_percent: int = 0


@dataclass(frozen=True, kw_only=True)
class Safety:
    """What the job's risk of going out of memory costs: the fastest plan that is predicted to fit, None where that is
    the best plan itself.
    """

    fastest: Alternative | None = None

    @property
    def cost(self) -> float:
        """Value of the best plan over that of the best which is predicted to fit, minus one [1]."""
        return 1.0 / (1.0 + self.fastest.slower) - 1.0 if self.fastest else 0.0


@dataclass(frozen=True, kw_only=True)
class Clash:
    """One rule of a minimal conflict: why it fails, and the smallest relaxation that helps ("" if none).

    `note` says what was looked at where nothing helps.
    """

    rule: str
    reason: str
    relaxation: str = ""
    note: str = ""

    @property
    def remedy(self) -> str:
        """What to do about it, in words."""
        return f"enough: {self.relaxation}" if self.relaxation else self.note


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer:
    """What `optimize` found for one job. `plan`, `estimate` and `certificate` are None when there is no plan.

    `formats` are the number formats besides the job's that were searched too; `safety` is None where what it costs was
    not looked for; `simpler` is as fast as the best within what a measurement tells apart, with fewer moving parts;
    `trials` and `seed` are those of the search for knobs; `assumptions` say what was chosen unasked, None
    where a whole Job was given.
    """

    status: str
    job: Job
    plan: Plan | None = None
    knobs: Knobs = field(default_factory=Knobs)
    estimate: Estimate | None = None
    certificate: Certificate | None = None
    alternatives: tuple[Alternative, ...] = ()
    formats: tuple[Format, ...] = ()
    conflict: tuple[Clash, ...] = ()
    near_ties: NearTies = field(default_factory=NearTies)
    safety: Safety | None = None
    simpler: Alternative | None = None
    flags: tuple[str, ...] = ()
    trials: int = 0
    seed: int = 0
    search_s: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, keyed as `optimize --json` prints them."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "job": job_dict(self.job),
            "plan": plan_dict(self.plan) if self.plan else None,
            "knobs": asdict(self.knobs),
            "estimate": _sure(self.job, self.plan, self.estimate) if self.plan and self.estimate else None,
            "certificate": certificate_dict(self.certificate) if self.certificate else None,
            "safety": {
                "safe_memory_bytes": safe_memory(self.job),
                "cost": self.safety.cost,
                "fastest": _other(self.job, self.safety.fastest) if self.safety.fastest else None,
            }
            if self.safety
            else None,
            "simpler": _other(self.job, self.simpler) if self.simpler else None,
            "alternatives": [_other(self.job, other) for other in self.alternatives],
            "formats": [
                {
                    "dtype": other.dtype,
                    "status": other.status,
                    "plan": plan_dict(other.plan) if other.plan else None,
                    "knobs": asdict(other.knobs),
                    "estimate": _sure(replace(self.job, dtype=other.dtype), other.plan, other.estimate)
                    if other.plan and other.estimate
                    else None,
                    "slower": other.slower,
                }
                for other in self.formats
            ],
            "conflict": [asdict(clash) for clash in self.conflict],
            "near_ties": asdict(self.near_ties),
            "flags": list(self.flags),
            "search": {"trials": self.trials, "seed": self.seed},
            "search_s": dict(self.search_s),
        } | ({} if self.assumptions is None else {"assumptions": list(self.assumptions)})

    def to_frame(self) -> pd.DataFrame:
        """The best plan and the runners-up, one row each, best first; the same columns without rows when there is none.

        Columns: the plan's variables, its knobs, figures with their 90 % intervals, then each term of the step as
        `TERM_s` and of the memory as `TERM_bytes`.
        """
        import pandas as pd

        rows = []
        if self.plan and self.estimate:
            rows.append(_row(self.job, self.plan, self.knobs, self.estimate, 0.0))
        rows += [_row(self.job, o.plan, o.knobs, o.estimate, o.slower) for o in self.alternatives]
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
    return {
        "model": job.model.name,
        "params": job.model.params,
        "cluster": job.cluster.name,
        "device": job.cluster.device.name,
        "stack": job.stack.name,
        "gpus": job.gpus,
        "seq_len": job.seq_len,
        "global_batch": job.global_batch,
        "dtype": job.dtype,
        "limits": asdict(job.limits),
        "settings": list(job.settings),
    } | ({} if job.minimize == TIME else {"minimize": job.minimize})


def plan_dict(plan: Plan) -> dict[str, Any]:
    """A plan as plain values."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}


def estimate_dict(estimate: Estimate) -> dict[str, Any]:
    """An estimate as plain values; the terms of `time_s` add up to `step_time_s`."""
    return {
        "step_time_s": estimate.step_time,
        "mfu": estimate.mfu,
        "hfu": estimate.hfu,
        "tflops_per_gpu": estimate.flops_per_gpu / 1e12,
        "tokens_per_s_per_gpu": estimate.tokens_per_s_per_gpu,
        "bubble_fraction": estimate.bubble_fraction,
        "time_s": dict(estimate.time),
        "memory_bytes": {
            "peak_reserved": estimate.reserved,
            "peak_allocated": estimate.allocated,
            **estimate.memory,
        },
    }


def _other(job: Job, other: Alternative) -> dict[str, Any]:
    """A plan beside the best as plain values."""
    return {
        "plan": plan_dict(other.plan),
        "knobs": asdict(other.knobs),
        "estimate": _sure(job, other.plan, other.estimate),
        "slower": other.slower,
    }


def _sure(job: Job, plan: Plan, estimate: Estimate) -> dict[str, Any]:
    """An estimate with the 90 % intervals of its step time and its reserved memory, the chance that it fits, and MFU by
    every convention.
    """
    time = interval(job, plan, estimate.step_time)
    memory = interval(job, plan, estimate.reserved, "memory")
    return estimate_dict(estimate) | {
        "interval_s": [time.low, time.high],
        "interval_kind": time.kind,
        "interval_reasons": list(time.reasons),
        "memory_interval_bytes": [memory.low, memory.high],
        "chance_to_fit": chance_to_fit(job, estimate.reserved),
        "mfu_convention": CAUSAL,
        "mfu_by_convention": {name: mfu(job, estimate.step_time, name) for name in CONVENTIONS},
    }


def certificate_dict(certificate: Certificate) -> dict[str, Any]:
    """A certificate as plain values, None for best and gap of no plan.

    Values of the objective are in seconds where their keys say so, else in the `unit` that stands beside them.
    """
    planned, unit = certificate.best < float("inf"), objective(certificate.minimize).unit
    beside, unit = ({}, "_s") if unit == "s" else ({"unit": unit}, "")
    return beside | {
        "proven": certificate.proven,
        f"lower_bound{unit}": certificate.lower_bound,
        f"best{unit}": certificate.best if planned else None,
        "gap": certificate.gap if planned else None,
        "space": certificate.space,
        "fitting": certificate.fitting,
        "candidates": certificate.candidates,
        "held_all": certificate.held_all,
        f"knob_bound{unit}": certificate.knob_bound,
        f"even_split{unit}": certificate.even if certificate.even < float("inf") else None,
        "layout_gain": certificate.layout_gain,
        "band": certificate.band,
        "layouts_solved": certificate.solved,
        "layout_given": certificate.given,
        "method": certificate.method,
        "by_format": {dtype: certificate_dict(part) for dtype, part in certificate.by_format.items()},
    }


FIGURES = (
    *("step_time_s", "step_time_low_s", "step_time_high_s", "mfu", "hfu", "tflops_per_gpu", "tokens_per_s_per_gpu"),
    *("bubble_fraction", "peak_reserved_bytes", "peak_reserved_low_bytes", "peak_reserved_high_bytes"),
    *("chance_to_fit", "slower"),
)
COLUMNS = (
    *(item.name for item in (*fields(Plan), *fields(Knobs))),
    *FIGURES,
    *(f"{name}_s" for name in TIME_TERMS),
    *(f"{name}_bytes" for name in MEMORY_TERMS),
)


def _row(job: Job, plan: Plan, knobs: Knobs, estimate: Estimate, slower: float) -> dict[str, Any]:
    """One plan as a row of `Answer.to_frame`."""
    time = interval(job, plan, estimate.step_time)
    memory = interval(job, plan, estimate.reserved, "memory")
    figures = (
        *(estimate.step_time, time.low, time.high, estimate.mfu, estimate.hfu, estimate.flops_per_gpu / 1e12),
        *(estimate.tokens_per_s_per_gpu, estimate.bubble_fraction, estimate.reserved, memory.low, memory.high),
        *(chance_to_fit(job, estimate.reserved), slower),
    )
    return {
        **plan_dict(plan),
        **asdict(knobs),
        **dict(zip(FIGURES, figures, strict=True)),
        **{f"{name}_s": value for name, value in estimate.time.items()},
        **{f"{name}_bytes": value for name, value in estimate.memory.items()},
    }


def _labelled(terms: Mapping[str, float]) -> dict[str, float]:
    """Terms by their names for people."""
    known = {**TIME_TERMS, **MEMORY_TERMS}
    return {known[name].label: value for name, value in terms.items()}


def _lines(*lines: str) -> str:
    """Lines in angle brackets, each cut where a terminal ends."""
    whole = [*lines[:-1], f"{lines[-1]}>"]
    return "\n ".join(line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…" for line in whole)
