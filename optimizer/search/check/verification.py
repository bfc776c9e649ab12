"""An answer checked without a solver: every rule in plain Python, every value again, the bound by exhaustion."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isclose
from typing import Any

import numpy as np

from optimizer.answer.answer import Alternative, Safety, estimate_dict, job_dict, plan_dict
from optimizer.answer.saved import SavedAnswer
from optimizer.base.units import GB
from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.check.plan_rules import Finding, possible, priced, rule_findings
from optimizer.search.check.rebuilding import Searched, is_cut_short, rebuilt
from optimizer.search.lattice.knobs import knobs_at
from optimizer.search.lattice.oracle import Sweep, fold
from optimizer.search.plan.alternatives import runners_up, structure, value_of
from optimizer.search.plan.safety import on_paper

TOLERANCE = 1e-6  # relative: what a number may be off by
NOISE = 1e-12  # of the largest number beside it: what is left of nothing where sums cancel
LONGEST = 60  # characters of a value in a message
# Places that are not compared, and why.
UNCHECKED = {
    "search_s": "the seconds that the search took where it ran",
    "assumptions": "what was typed is not in the file",
    "certificate.candidates": "how many plans CP-SAT read: its run was not repeated",
    "certificate.layouts_solved": "of how many plans layouts were searched: that was not repeated",
}
UNPROVEN = dict.fromkeys(
    ("certificate.lower_bound_s", "certificate.lower_bound"),
    "CP-SAT's bound of a search that was cut short; the gap follows from it",
)
CUT_SHORT = dict.fromkeys(
    ("certificate.space", "certificate.fitting", "certificate.method", "near_ties"),
    "how many plans were priced before the time was over",
)
# What all else follows from.
GIVEN = {
    "job, knobs, search": "taken as they are; what follows from them is checked",
    "plan": "another that keeps the rules and costs the same would pass for it",
    "number of alternatives": "--top and --within are not in the file: the slowest may be missing",
}
CLASHES = {
    "conflict": "which of the rules clash, and what would be enough, was not known when the time was over; what they "
    "say is checked"
}
ONLY_SEARCHED = "only their search has compared these; bounds over every layout rule out that any other is faster"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a check says of one plan, its price in this version, and what could not be checked: place and reason.

    `plan` and `estimate` are None for an answer that there is no plan. `rules` are about the plan, `claims` about what
    was stated beside it; `agreeing` counts the values that are as this version finds them, by part of the answer.
    """

    job: Job
    plan: Plan | None
    estimate: Estimate | None
    rules: tuple[Finding, ...] = ()
    claims: tuple[Finding, ...] = ()
    agreeing: Mapping[str, int] = field(default_factory=dict)
    unchecked: Mapping[str, str] = field(default_factory=dict)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """What does not hold."""
        return tuple(finding for finding in (*self.rules, *self.claims) if not finding.holds)

    def to_dict(self) -> dict[str, Any]:
        """The verification as plain values."""
        return {
            "holds": not self.broken,
            "broken": [finding.name for finding in self.broken],
            "job": job_dict(self.job),
            "plan": plan_dict(self.plan) if self.plan else None,
            "estimate": estimate_dict(self.estimate) if self.estimate else None,
            "findings": [asdict(finding) for finding in (*self.rules, *self.claims)],
            "agreeing": dict(self.agreeing),
            "unchecked": [f"{place}: {reason}" for place, reason in self.unchecked.items()],
        }


def verify(saved: SavedAnswer) -> Verification:
    """Every rule and every value of an answer that was saved; of a plan alone the rules.

    Raises InputError for a pin on an unknown variable.
    """
    job, plan = saved.job, saved.plan
    rules = rule_findings(job, plan, saved.knobs) if plan else ()
    if not saved.document:
        estimate = priced(job, plan, saved.knobs) if plan else None
        return Verification(job=job, plan=plan, estimate=estimate, rules=rules)
    # A plan that breaks rules may be of any size: what overflows is a value that does not agree.
    with np.errstate(all="ignore"):
        fresh = rebuilt(saved)
        main, *others = fresh.searches
        claims = [*_of_search(main), *_of_alternatives(main, fresh.alternatives), *_of_safety(main, fresh.safety)]
        for number, other in enumerate(others):
            claims += _of_format(main, other, f"formats[{number}]")
    skipped, left = dict(UNCHECKED), GIVEN
    for item in fresh.searches:
        skipped |= CUT_SHORT if item.cut_short else {} if item.claims.proven else UNPROVEN
        if not item.cut_short and (count := item.bounds.undecided):
            left = left | {f"layouts of {count:,} plans in {item.job.dtype}": ONLY_SEARCHED}
    if is_cut_short(saved.document.get("conflict")):
        left = left | CLASHES
    wrong = tuple(disagreements(saved.document, fresh.document, skipped))
    off = {finding.name.partition(".")[0].partition("[")[0] for finding in wrong}
    agreeing = {
        name: leaves(part) for name, part in fresh.document.items() if name not in (*off, *skipped) and leaves(part)
    }
    return Verification(
        job=job,
        plan=plan,
        estimate=main.estimate,
        rules=rules,
        claims=(*claims, *wrong),
        agreeing=agreeing,
        unchecked=skipped | left,
    )


def _of_search(item: Searched) -> Iterator[Finding]:
    """What was proven in one number format, against a full sweep of its lattice."""
    swept, claims, label = item.swept, item.claims, f"certificate of {item.job.dtype}"
    if item.plan is None:
        if claims.proven:
            fitting = "some of which fit" if item.fits else "none of which fits under any layout that is searched"
            reason = f"{swept.space:,} plans satisfy the rules but memory, {fitting}"
            yield Finding(name=f"{label}: no plan", holds=not item.fits, reason=reason)
        return
    even, objective = _best_even(swept), objective_of(item.job)
    yield Finding(
        name=f"{label}: bound",
        holds=claims.lower_bound <= even * (1 + TOLERANCE),
        reason=f"no plan that fits may be {objective.better} than {claims.lower_bound:.6g} {objective.unit}; "
        f"the {objective.best} of {swept.space:,}, evenly split, takes {even:.6g} {objective.unit}",
    )


def _best_even(swept: Sweep) -> float:
    """Value of the best plan of a sweep, infinite without one [unit of the objective]."""
    return float(swept.points.values[swept.best]) if swept.points is not None and swept.best >= 0 else np.inf


def _of_alternatives(main: Searched, others: tuple[Alternative, ...]) -> Iterator[Finding]:
    """Whether every runner-up keeps the rules, in its place, and none of another structure was passed over."""
    values = _values(main, others)
    seen = {structure(main.plan)} if main.plan else set()
    for number, other in enumerate(others):
        place = f"alternatives[{number}]"
        yield from _broken(main.job, other.plan, other.knobs, place)
        if structure(other.plan) in seen:
            yield Finding(name=place, holds=False, reason="is of the structure of one before it")
        seen.add(structure(other.plan))
        if number and values[number] < values[number - 1] * (1 - TOLERANCE):
            yield Finding(name=place, holds=False, reason=f"is {objective_of(main.job).better} than the one before it")
    if main.plan and values and (missing := _missing(main, main.plan, others)):
        reason = f"without {missing.summary()}, {objective_of(main.job).better} than the slowest"
        yield Finding(name="alternatives", holds=False, reason=reason)


def _of_safety(main: Searched, safety: Safety | None) -> Iterator[Finding]:
    """Whether the plan that is only predicted to fit keeps the other rules, and is faster than every even split."""
    if safety is None or main.estimate is None:
        return
    bold = replace(main, job=on_paper(main.job))
    fastest, objective, own = safety.fastest, objective_of(bold.job), bold.value
    (claimed,) = _values(bold, (fastest,)) if fastest else (own,)
    if fastest:
        yield from _broken(bold.job, fastest.plan, fastest.knobs, "safety.fastest")
    swept = fold(bold.job, (layer_costs.changed(job=bold.job) for layer_costs in main.space), main.tuning)
    even = _best_even(swept)
    yield Finding(
        name="safety",
        holds=claimed <= min(even, own) * (1 + TOLERANCE),
        reason=f"the {objective.best} plan on paper takes {claimed:.6g} {objective.unit}; the "
        f"{objective.best} of {swept.space:,}, evenly split, takes {even:.6g} {objective.unit}",
    )


def _values(main: Searched, others: tuple[Alternative, ...]) -> list[float]:
    """What plans beside the best are minimised by [unit of the objective]."""
    return [value_of(main.job, possible(main.job, other.plan), other.knobs, other.estimate) for other in others]


def _missing(main: Searched, best: Plan, others: tuple[Alternative, ...]) -> Plan | None:
    """An even split of a structure that is not listed, yet better than the last that is."""
    points = main.swept.points
    if points is None:
        return None
    listed = {structure(other.plan) for other in others}
    last = _values(main, others[-1:])[0] * (1 - TOLERANCE)
    for position in runners_up(points, best, len(points.plans)):
        if points.values[position] >= last:
            break
        plan = with_assigned_layers(main.job, points.plans.plan(position))
        if structure(plan) in listed:
            continue
        knobs = knobs_at(points.knobs, position)
        estimate = priced(main.job, plan, knobs)
        if estimate.reserved <= safe_memory(main.job) and value_of(main.job, plan, knobs, estimate) < last:
            return plan
    return None


def _of_format(main: Searched, other: Searched, place: str) -> Iterator[Finding]:
    """Whether the plan of another number format keeps the rules, is the best of its own, and none of all."""
    yield from _of_search(other)
    if other.plan is None or other.estimate is None:
        return
    yield from _broken(other.job, other.plan, other.knobs, place)
    if main.estimate is None or other.value < main.value * (1 - TOLERANCE):
        yield Finding(name=place, holds=False, reason=f"is {objective_of(main.job).better} than the best")


def _broken(job: Job, plan: Plan, knobs: Knobs, place: str) -> Iterator[Finding]:
    """The rules that a plan beside the best breaks."""
    for finding in rule_findings(job, plan, knobs):
        if not finding.holds:
            yield Finding(name=f"{place} {finding.name}", holds=False, reason=finding.reason)


def disagreements(
    saved: Any, fresh: Any, unchecked: Iterable[str], path: str = "", scale: float = 0.0
) -> Iterator[Finding]:
    """Every value that is absent, unknown, of another type or off by more than TOLERANCE.

    `unchecked` are places that are not compared, such as "search_s" or "certificate.candidates".
    """
    if _matches(path, unchecked):
        return
    if isinstance(fresh, dict) and isinstance(saved, dict):
        # Inputs of a formula have units of their own: what is noise beside one is not beside another.
        alike = () if path.endswith(".values") else fresh.values()
        scale = max((abs(value) for value in alike if _is_number(value)), default=0.0)
        for name in dict.fromkeys((*fresh, *saved)):
            place = f"{path}.{name}" if path else name
            if name in saved and name in fresh:
                yield from disagreements(saved[name], fresh[name], unchecked, place, scale)
            elif not _matches(place, unchecked):
                reason = f"unknown to this version: {shown(saved[name])}" if name in saved else "missing"
                yield Finding(name=place, holds=False, reason=reason)
    elif isinstance(fresh, list) and isinstance(saved, list):
        if len(saved) != len(fresh):
            reason = f"{len(saved)} entries; this version finds {len(fresh)}"
            yield Finding(name=path, holds=False, reason=reason)
        for index, pair in enumerate(zip(saved, fresh, strict=False)):
            yield from disagreements(*pair, unchecked, f"{path}[{index}]", scale)
    elif not same(saved, fresh, scale):
        yield Finding(
            name=path, holds=False, reason=f"claimed {shown(saved, path)}, this version finds {shown(fresh, path)}"
        )


def same(saved: Any, fresh: Any, scale: float = 0.0) -> bool:
    """Whether two leaves agree: numbers within the tolerance, counts and all else exactly.

    >>> same(1.0000001, 1.0), same(1.00001, 1.0), same(8, 8), same(8.0, 8), same(True, 1)
    (True, False, True, False, False)
    """
    if isinstance(fresh, float) and _is_number(saved):
        return isclose(saved, fresh, rel_tol=TOLERANCE, abs_tol=NOISE * scale)
    return type(saved) is type(fresh) and bool(saved == fresh)


def leaves(value: Any) -> int:
    """How many values a part of a document holds.

    >>> leaves({"a": [1, 2], "b": None})
    3
    """
    if isinstance(value, dict | list):
        return sum(map(leaves, value.values() if isinstance(value, dict) else value))
    return 1


def shown(value: Any, path: str = "") -> str:
    """A value for a message: numbers to seven digits in the unit that the path names, long texts cut.

    >>> shown(8.25e10, "estimate.memory_bytes.weights"), shown(1.5, "certificate.best_s"), shown(0.25, "estimate.mfu")
    ('82.5 GB', '1.5 s', '0.25')
    """
    if isinstance(value, float):
        bytes_, seconds = "_bytes" in path, re.search(r"_s\b", path) is not None
        return f"{value / GB:.7g} GB" if bytes_ else f"{value:.7g}{' s' if seconds else ''}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _matches(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of these places or inside; the certificate of a number format is a certificate."""
    plain = re.sub(r"\.by_format\.[^.]+", "", path)
    return any(plain == place or plain.startswith((f"{place}.", f"{place}[")) for place in places)
