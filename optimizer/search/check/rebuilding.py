"""A saved answer built again from its job, plans and knobs: what this version would have written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.answer.answer import Alternative, Answer, Certificate, Clash, Safety
from optimizer.answer.keys import ExplainedKeys
from optimizer.answer.saved import SavedAnswer, SavedPlan
from optimizer.constraints.pin_text import pins_of
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.target import unbuilt
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.explain import explain
from optimizer.search.check.plan_rules import possible, priced
from optimizer.search.infeasible.conflict import CUT_SHORT, ConflictQuestion, conflict
from optimizer.search.lattice.enumerate import Space, space_of
from optimizer.search.lattice.oracle import Sweep, Tuning, fold
from optimizer.search.layouts.assigned import LayoutBounds
from optimizer.search.layouts.candidates import bounds_of
from optimizer.search.layouts.one_layout import best_even
from optimizer.search.plan.alternatives import flags, near_ties, value_of
from optimizer.search.plan.certificate import described, status_of, unfinished, without_plan
from optimizer.search.plan.precision import format_of, joint, joint_status
from optimizer.search.plan.safety import on_paper
from optimizer.search.why.comparison import why_not
from optimizer.search.why.robustness import robustness

NOWHERE = float("inf")
# Stands for a certificate that is missing.
UNCLAIMED = Certificate(proven=True, lower_bound=0.0, space=0)
NO_BOUNDS = LayoutBounds(band=0, undecided=0, knob_bound=0.0)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """The search of one number format, done again without a solver: its plan priced, the whole lattice swept.

    What CP-SAT did is taken from the `claims`. tuning: how the search found each plan's knobs. `cut_short`: the time
    was over before every plan was priced.
    """

    job: Job
    plan: Plan | None
    knobs: Knobs
    tuning: Tuning
    claims: Certificate

    @property
    def cut_short(self) -> bool:
        """Whether the claims are those of a sweep that ran out of time: it leaves no bound over all knobs."""
        return not self.claims.proven and not self.claims.knob_bound

    @cached_property
    def estimate(self) -> Estimate | None:
        """The price of the plan."""
        return priced(self.job, self.plan, self.knobs) if self.plan else None

    @cached_property
    def value(self) -> float:
        """What the plan is minimised by, infinite without one [unit of the objective]."""
        if self.plan is None or self.estimate is None:
            return NOWHERE
        with np.errstate(over="ignore", invalid="ignore"):
            return value_of(self.job, possible(self.job, self.plan), self.knobs, self.estimate)

    @cached_property
    def space(self) -> Space:
        """Every plan of the lattice, priced once."""
        return space_of(self.job)

    @cached_property
    def swept(self) -> Sweep:
        """Every plan of the lattice at its own knobs."""
        return fold(self.job, self.space, self.tuning)

    @cached_property
    def bounds(self) -> LayoutBounds:
        """What bounds over every layout say."""
        if self.estimate is None or not self.swept.space:
            return NO_BOUNDS
        if self.job.layout_given:
            return replace(NO_BOUNDS, knob_bound=self.swept.knob_bound)
        # A plan that is worse than an even split was changed: bounds that far up would rule out nothing, for minutes.
        return bounds_of(self.job, self.space, self.tuning, self._even, min(self.value, self._even))

    @cached_property
    def _even(self) -> float:
        """Value of the best even split [unit of the objective], infinite where none fits or the layout was given."""
        points = self.swept.points
        even = best_even(self.job, points) if points and not self.job.layout_given else None
        return even.value if even else NOWHERE

    @cached_property
    def fits(self) -> bool:
        """Whether any plan fits, with all optimizer state on the host and whatever its layout."""
        question = ConflictQuestion(job=self.job)
        return question.holds(question.rules())

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate of a search that did what was claimed."""
        claims, swept = self.claims, self.swept
        if self.cut_short:
            ideal = swept.ideal if claims.space else 0.0
            swept = replace(swept, space=claims.space, fitting=claims.fitting, ideal=ideal)
        if self.estimate is None:
            return without_plan(self.job, replace(swept, complete=claims.proven))
        best = self.value
        if self.cut_short:
            return unfinished(self.job, swept, best)
        certificate = Certificate(
            proven=claims.proven,
            lower_bound=best if claims.proven else claims.lower_bound,
            best=best,
            space=swept.space,
            fitting=swept.fitting,
            candidates=claims.candidates,
            knob_bound=self.bounds.knob_bound,
            even=self._even,
            band=self.bounds.band,
            solved=claims.solved,
        )
        return described(self.job, certificate)

    def answer(self) -> Answer:
        """The answer without runners-up."""
        return Answer(
            status=status_of(self.certificate),
            job=self.job,
            plan=self.plan,
            knobs=self.knobs,
            estimate=self.estimate,
            certificate=self.certificate,
        )


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """The document that should have been saved, from the searches of its number formats, the winner's first."""

    document: Mapping[str, Any]
    alternatives: tuple[Alternative, ...]
    safety: Safety | None
    searches: tuple[Searched, ...]


def rebuilt(saved: SavedAnswer) -> Rebuilt:
    """Everything that a saved answer states, worked out again.

    Raises InputError for pins, of the job or of a comparison, that no plan can have.
    """
    searches = _searches(saved)
    main, *others = searches
    answer = replace(
        main.answer(),
        alternatives=_alternatives(saved, main),
        safety=Safety(fastest=_fastest(saved, main)) if saved.risked else None,
        formats=tuple(format_of(other.answer(), other.value, main.value) for other in others),
        conflict=_conflict(saved, main),
        flags=(*flags(saved.job, main.estimate), *unbuilt(saved.job.stack, main.plan))
        if main.estimate and main.plan
        else (),
        trials=saved.trials,
        seed=saved.seed,
    )
    if main.plan and main.estimate and main.swept.points:
        ties = near_ties(main.swept.points, main.plan, main.value, answer.alternatives)
        answer = replace(answer, near_ties=ties)
    if others:
        order = saved.claims.by_format if saved.claims else ()
        parts = {item.job.dtype: item.certificate for item in searches}
        certificate = joint(saved.job.dtype, {name: parts[name] for name in (*order, *parts) if name in parts})
        answer = replace(answer, certificate=certificate, status=joint_status(answer.status, certificate))
    document = answer.to_dict() | _sections(saved, answer)
    for name, place in saved.places.items():
        document["job"][name] = saved.document.get("job", {}).get(name, place)
    plain = json.loads(json.dumps(document))
    return Rebuilt(document=plain, alternatives=answer.alternatives, safety=answer.safety, searches=searches)


def _searches(saved: SavedAnswer) -> tuple[Searched, ...]:
    """The search of the winner's number format, then those of the others."""
    parts = saved.claims.by_format if saved.claims else {}
    own = parts.get(saved.job.dtype) or saved.claims or UNCLAIMED
    tuning = Tuning(trials=saved.trials, seed=saved.seed)
    knobs = saved.knobs if saved.plan else Knobs()
    main = Searched(job=saved.job, plan=saved.plan, knobs=knobs, tuning=tuning, claims=own)
    return main, *(
        Searched(
            job=replace(saved.job, dtype=other.dtype),
            plan=other.plan,
            knobs=other.knobs if other.plan else Knobs(),
            tuning=tuning,
            claims=parts.get(other.dtype, UNCLAIMED),
        )
        for other in saved.formats
    )


def _conflict(saved: SavedAnswer, main: Searched) -> tuple[Clash, ...]:
    if main.plan or not main.claims.proven or main.fits:
        return ()
    return as_far_as_known(saved.job, saved.document.get("conflict")) or conflict(saved.job)


def _alternatives(saved: SavedAnswer, main: Searched) -> tuple[Alternative, ...]:
    if main.estimate is None:
        return ()
    return tuple(
        replace(other, slower=max(0.0, other.slower)) for other in _alternatives_priced(main, saved.alternatives)
    )


def _fastest(saved: SavedAnswer, main: Searched) -> Alternative | None:
    other = saved.fastest
    if main.estimate is None or other is None:
        return None
    return next(iter(_alternatives_priced(replace(main, job=on_paper(main.job)), (other,))))


def _alternatives_priced(main: Searched, others: Iterable[SavedPlan]) -> Iterator[Alternative]:
    """Plans beside the best with their prices, and by how much each is worse."""
    for other in others:
        it = replace(main, plan=other.plan, knobs=other.knobs)
        if it.estimate is not None:
            yield Alternative(
                plan=other.plan, knobs=other.knobs, estimate=it.estimate, slower=it.value / main.value - 1
            )


def _sections(saved: SavedAnswer, answer: Answer) -> dict[str, Any]:
    """The parts that are only there when asked for, of plans whose layers can lie as they do."""
    if answer.plan is None:
        return {}
    others = tuple(replace(other, plan=possible(answer.job, other.plan)) for other in answer.alternatives)
    answer = replace(answer, plan=possible(answer.job, answer.plan), alternatives=others)
    sections: dict[str, Any] = {}
    if "explain" in saved.document and answer.plan:
        sections["explain"] = [ExplainedKeys.of(term) for term in explain(answer.job, answer.plan, answer.knobs)]
    if saved.pins and answer.plan:
        sections["why_not"] = why_not(answer.job, answer, pins_of(saved.pins)).to_dict()
    if "robust" in saved.document:
        steady = robustness(answer)
        sections |= {"robust": steady.to_dict()} if steady else {}
    return sections


def as_far_as_known(job: Job, stated: object) -> tuple[Clash, ...]:
    """The clashes of a saved conflict whose time was over that rules of the job can have, once each, with their
    numbers; none for a conflict that was known.

    What would be enough is as it was stated, where the time was not over for it.
    """
    if not is_cut_short(stated):
        return ()
    rules = {rule.name: rule for rule in ConflictQuestion(job=job).rules()}
    clashes: dict[str, Clash] = {}
    for entry in _tables(stated):
        rule = rules.get(str(entry.get("rule")))
        if rule is None or rule.name in clashes:
            continue
        reason, saved_reason = rule.explain(job), str(entry.get("reason", ""))
        if entry.get("note") == CUT_SHORT:
            clashes[rule.name] = Clash(rule=rule.name, reason=reason, note=CUT_SHORT)
            continue
        clashes[rule.name] = Clash(
            rule=rule.name,
            reason=saved_reason if saved_reason.startswith(reason) else reason,
            relaxation=str(entry.get("relaxation", "")),
            note=str(entry.get("note", "")),
        )
    return tuple(clashes.values())


def is_cut_short(stated: object) -> bool:
    """Whether a saved conflict says of one of its rules that the time was over."""
    return any(entry.get("note") == CUT_SHORT for entry in _tables(stated))


def _tables(stated: object) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in stated if isinstance(entry, dict)] if isinstance(stated, list) else []
