"""Why nothing fits: a minimal set of rules that cannot hold together, and the smallest relaxation of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from optimizer.answer import Clash
from optimizer.constraints.given_layout import GivenLayout
from optimizer.constraints.memory import Memory, Price
from optimizer.constraints.pins import Pin
from optimizer.constraints.rule import Measured, Rule, Stepped
from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.plan import Plans
from optimizer.search.enumerate import concatenate, lattice
from optimizer.search.lattice import core
from optimizer.units import GB

CORE_POINTS = 1000  # above this, CP-SAT's core costs more than the deletions it saves


@dataclass(frozen=True, kw_only=True)
class Question:
    """Whether a job has a plan under some of its rules."""

    job: Job
    price: Price | None = None
    steps: dict[tuple[str, frozenset[str]], tuple[Job, str] | None] = field(default_factory=dict)

    def rules(self) -> tuple[Rule, ...]:
        """Every rule of the job."""
        return (*structural(self.job), Memory(price=self.price))

    def plans(self, rules: Sequence[Rule]) -> Iterator[Plans]:
        """The plans that satisfy these rules."""
        kept = {rule.variable for rule in rules if isinstance(rule, Pin | GivenLayout)}
        job = self.job.without_pin(*(name for name in self.job.limits.fixed if name not in kept))
        memory = next((rule for rule in rules if isinstance(rule, Memory)), None)
        for plans in lattice(job, rules):
            if memory is None:
                yield plans
                continue
            fits = memory.check(job, plans)
            if fits.any():
                yield plans.take(fits)

    def feasible(self, rules: Sequence[Rule]) -> bool:
        """Whether some plan satisfies these rules; a Stepped rule left out may be satisfied by another job."""
        if any(True for _ in self.plans(rules)):
            return True
        names = {rule.name for rule in rules}
        absent = [rule for rule in self.rules() if rule.name not in names and isinstance(rule, Stepped)]
        return any(self.step(rule, names) is not None for rule in absent)

    def step(self, rule: Stepped, names: set[str]) -> tuple[Job, str] | None:
        """The first step of the rule to a job with a plan under the rules so named and the rule itself."""
        key = rule.name, frozenset(names)
        if key not in self.steps:
            self.steps[key] = next(
                (step for step in rule.steps(self.job) if self.holds(step[0], {*names, rule.name})), None
            )
        return self.steps[key]

    def holds(self, job: Job, names: set[str]) -> bool:
        """Whether another job has a plan under the rules so named."""
        other = Question(job=job, price=self.price)
        return any(True for _ in other.plans([rule for rule in other.rules() if rule.name in names]))


def conflict(job: Job, *, price: Price | None = None) -> tuple[Clash, ...]:
    """A minimal conflict of an infeasible job, each rule with its numbers and its relaxation.

    Facts of model and software (heads, layers, ...) take part only when the job is infeasible before memory counts.
    """
    question = Question(job=job, price=price)
    rules = question.rules()
    names = minimal(question, rules)
    return tuple(_clash(question, rules, rule) for rule in rules if rule.name in names)


def minimal(question: Question, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Names of rules that clash, none of which can be left out (facts apart, see `conflict`)."""
    before_memory = [rule for rule in rules if not isinstance(rule, Memory)]
    structurally = not any(True for _ in question.plans(before_memory))
    background = [] if structurally else [rule for rule in rules if not _soft(rule)]
    clashing = before_memory if structurally else [rule for rule in rules if _soft(rule)]
    clashing = _core(question, background, clashing)
    for rule in sorted(clashing, key=_importance):
        rest = [other for other in clashing if other is not rule]
        if not question.feasible([*background, *rest]):
            clashing = rest
    return tuple(rule.name for rule in clashing)


def _core(question: Question, background: list[Rule], clashing: list[Rule]) -> list[Rule]:
    """CP-SAT's core of the clashing rules where the space is small enough to tabulate, else all of them."""
    points: list[Plans] = []
    for plans in question.plans(background):
        points.append(plans)
        if sum(map(len, points)) > CORE_POINTS:
            return clashing
    if not points:
        return clashing
    names = core(question.job, clashing, concatenate(points))
    kept = [rule for rule in clashing if rule.name in names or isinstance(rule, Stepped | Pin | GivenLayout)]
    return kept if not question.feasible([*background, *kept]) else clashing


def _clash(question: Question, rules: Sequence[Rule], rule: Rule) -> Clash:
    others = [other for other in rules if other.name != rule.name]
    reason = rule.explain(question.job)
    if isinstance(rule, Memory):
        reason += f"; the leanest plan reserves {_least(question, others, rule) / GB:.1f} GB"
    relaxation = _relaxation(question, others, rule)
    if not relaxation:
        relaxation = _relaxation(question, [other for other in others if not isinstance(other, Memory)], rule)
        relaxation += ", but then memory does not suffice" if relaxation else ""
    return Clash(rule=rule.name, reason=reason, relaxation=relaxation)


def _relaxation(question: Question, others: Sequence[Rule], rule: Rule) -> str:
    """The smallest relaxation of the rule that gives the job a plan under the other rules, "" if there is none.

    None either where the job has such a plan as it is.
    """
    names = {other.name for other in others}
    if question.holds(question.job, {*names, rule.name}):
        return ""
    if isinstance(rule, Stepped):
        step = question.step(rule, names)
        return step[1] if step else ""
    if isinstance(rule, Measured):
        least = _least(question, others, rule)
        if np.isfinite(least):
            relaxed, text = rule.relax(question.job, least)
            return text if question.holds(relaxed, {*names, rule.name}) else ""
    return ""


def _least(question: Question, others: Sequence[Rule], rule: Measured) -> float:
    """The smallest move of the rule's limit with which some plan satisfies all rules [the rule's unit]."""
    return min((float(rule.required(question.job, plans).min()) for plans in question.plans(others)), default=np.inf)


def _soft(rule: Rule) -> bool:
    return isinstance(rule, Measured | Stepped)


def _importance(rule: Rule) -> int:
    """Facts are left out first, then limits, then what was asked for, then GPUs and memory."""
    order = ("bubble", "batch", "gpu-product", "memory")
    if rule.name in order:
        return 3 + order.index(rule.name)
    return 2 if isinstance(rule, Pin | GivenLayout) else int(_soft(rule))
