"""Why nothing fits: a minimal set of rules that cannot hold together, and the smallest relaxation of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import prod
from time import perf_counter

import numpy as np

from optimizer.answer.answer import Clash
from optimizer.base.errors import TimeLimit
from optimizer.base.units import GB
from optimizer.constraints.given_layout import GivenLayout, given_layouts
from optimizer.constraints.pins import Pin
from optimizer.constraints.rule import FloatArray, LimitRule, NumberRule, Rule
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.space import domains
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.variables import FREE, names_of
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.infeasible.methods import lighter_jobs, shorter_jobs
from optimizer.search.infeasible.nearest import Numbers
from optimizer.search.lattice.deadline import Deadline
from optimizer.search.lattice.enumerate import OPTIONS, lattice
from optimizer.search.lattice.proof import core
from optimizer.search.layouts.least_memory import LeastMemory

CUT_SHORT = "the time was over before it was known whether less clashes, and what would be enough"
CORE_POINTS = 1000  # above this, CP-SAT's core costs more than the deletions it saves


@dataclass(frozen=True, kw_only=True)
class ConflictQuestion:
    """Whether a job has a plan, in any layout of its layers, under some of its rules.

    Its methods raise TimeLimit after the deadline of its `memory`.
    """

    job: Job
    memory: LeastMemory = field(default_factory=LeastMemory)
    others: dict[tuple[str, frozenset[str]], Job | None] = field(default_factory=dict)
    moves: dict[tuple[str, frozenset[str]], float] = field(default_factory=dict)

    def rules(self) -> tuple[Rule, ...]:
        """Every rule of the job."""
        return (*structural(self.job), Memory())

    def asked(self, rules: Sequence[Rule]) -> Job:
        """The job with those of its pins, and the memory of its hosts, that are among the rules."""
        wanted = {rule.variable for rule in rules if isinstance(rule, Pin | GivenLayout)}
        job = self.job.without_pin(*(name for name in self.job.limits.fixed if name not in wanted))
        there = any(isinstance(rule, HostActivations) for rule in rules)
        return job if there else HostActivations().lifted(job)

    def plans(self, rules: Sequence[Rule]) -> Iterator[Plans]:
        """The plans that satisfy these rules but for memory."""
        return lattice(self.asked(rules), rules, deadline=self.memory.deadline)

    def holds(self, rules: Sequence[Rule]) -> bool:
        """Whether some layout of some plan satisfies these rules."""
        plans = self.plans(rules)
        if not any(isinstance(rule, Memory) for rule in rules):
            return any(True for _ in plans)
        return self.memory.fits(self.asked(rules), plans)

    def feasible(self, rules: Sequence[Rule]) -> bool:
        """Whether some plan satisfies these rules; a Numbered rule left out may be satisfied by another job."""
        if self.holds(rules):
            return True
        names, every = {rule.name for rule in rules}, self.rules()
        absent = [rule for rule in every if rule.name not in names and isinstance(rule, NumberRule)]
        # A job that has a plan under every rule, which is asked for anyhow where they clash, has one under these.
        return any(
            self.nearest(rule, asked) is not None
            for rule in absent
            for asked in ({other.name for other in every if other is not rule}, names)
        )

    def nearest(self, rule: NumberRule, names: set[str]) -> Job | None:
        """The job with the nearest number that gives it a plan under the rules so named and the rule itself."""
        key = rule.name, frozenset(names)
        if key not in self.others:
            both = {*names, GpuProduct().name, Batch().name}
            named = [other for other in self.rules() if other.name in both]
            job = self.asked(named)
            numbers = Numbers(
                job=job,
                rules=[other for other in named if not isinstance(other, NumberRule)],
                memory=self.memory if Memory().name in names else None,
                holds=lambda other: self.holds_for(other, both),
                deadline=self.memory.deadline,
            )
            find = numbers.nearest_gpus if isinstance(rule, GpuProduct) else numbers.nearest_batch
            other = find(rule.others(job))
            self.others[key] = other and replace(self.job, gpus=other.gpus, global_batch=other.global_batch)
        return self.others[key]

    def holds_for(self, job: Job, names: set[str]) -> bool:
        """Whether another job has a plan under the rules so named."""
        other = ConflictQuestion(job=job, memory=self.memory)
        return other.holds([rule for rule in other.rules() if rule.name in names])

    def least(self, rules: Sequence[Rule], rule: LimitRule) -> float:
        """The smallest move of the rule's limit with which some plan satisfies all rules [the rule's unit]."""
        key = rule.name, frozenset(other.name for other in rules)
        if key not in self.moves:
            self.moves[key] = self._least(rules, rule)
        return self.moves[key]

    def _least(self, rules: Sequence[Rule], rule: LimitRule) -> float:
        job = self.asked(rules)
        if isinstance(rule, Memory):
            return self.memory.least(job, self.plans(rules))[0]
        memory = any(isinstance(other, Memory) for other in rules)
        open_moves: list[tuple[FloatArray, Plans]] = []
        for plans in self.plans(rules):
            moves = rule.required(job, plans)
            open_ = np.isfinite(moves)
            if memory:
                open_ &= self.memory.bounds(job, plans, safe_memory(job)) <= safe_memory(job)
            open_moves.append((moves[open_], plans.take(open_)))
        for move in sorted({float(move) for moves, _ in open_moves for move in moves}):
            if not memory or self.memory.fits(job, (plans.take(moves == move) for moves, plans in open_moves)):
                return move
        return float("inf")


def conflict(job: Job, *, memory: LeastMemory | None = None, time_limit: float | None = None) -> tuple[Clash, ...]:
    """A minimal conflict of an infeasible job, each rule with its numbers and its relaxation.

    Both hold for every layout of the layers; `memory` says at which knobs, else all optimizer state is on the host.
    Facts of model and software (heads, layers, ...) take part only when the job is infeasible before memory counts.
    When the time is over [s] limits and pins that may clash are told, and a note says that fewer might.
    """
    if alone := [rule for rule in given_layouts(job) if rule.beyond(job)]:
        return tuple(Clash(rule=r.name, reason=r.explain(job), relaxation=r.relax(job, 1.0)[1]) for r in alone)
    memory = memory or LeastMemory()
    if time_limit is not None:
        memory = replace(memory, deadline=Deadline(perf_counter() + time_limit, CUT_SHORT))
    question = ConflictQuestion(job=job, memory=memory)
    rules = question.rules()
    names = minimal(question, rules)
    clashing = [rule for rule in rules if rule.name in names]
    try:
        holds = question.holds(rules)
    except TimeLimit:
        asked = [rule for rule in clashing if _soft(rule) or isinstance(rule, Pin | GivenLayout)]
        return tuple(_cut_short(question, rule) for rule in asked or clashing)
    if holds:
        return tuple(Clash(rule=rule.name, reason=_reason(question, rules, rule)) for rule in clashing)
    return tuple(_clash(question, rules, rule) for rule in clashing)


def minimal(question: ConflictQuestion, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Names of rules that clash, none of which can be left out (facts apart, see `conflict`) while there is time.

    Where the host's memory alone is too small, GPUs and batch are taken as they are: to look at all others takes
    minutes, and more memory does.
    """
    before_memory = [rule for rule in rules if not isinstance(rule, Memory | HostActivations)]
    others = [rule for rule in rules if not isinstance(rule, HostActivations)]
    clashing = list(rules)
    try:
        structurally = not any(True for _ in question.plans(before_memory))
        here = len(others) < len(rules) and not structurally and question.holds(others)
        background = (
            []
            if structurally
            else [rule for rule in rules if not _soft(rule) or (here and isinstance(rule, NumberRule))]
        )
        clashing = before_memory if structurally else [rule for rule in rules if rule not in background]
        clashing = _core(question, clashing) if structurally else clashing
        for rule in sorted(clashing, key=_importance):
            rest = [other for other in clashing if other is not rule]
            if not question.feasible([*background, *rest]):
                clashing = rest
    except TimeLimit:
        pass
    return tuple(rule.name for rule in clashing)


def _core(question: ConflictQuestion, clashing: list[Rule]) -> list[Rule]:
    """CP-SAT's core of clashing rules where the space is small enough to tabulate, else all of them."""
    values = domains(question.asked([]))
    if prod(len(values[name]) for name in (*names_of(FREE), *OPTIONS)) > CORE_POINTS:
        return clashing
    points: list[Plans] = []
    for plans in question.plans([]):
        points.append(plans)
        if sum(map(len, points)) > CORE_POINTS:
            return clashing
    names = core(question.job, clashing, Plans.joined(points), question.memory.deadline.left) if points else ()
    wanted = [rule for rule in clashing if rule.name in names or isinstance(rule, NumberRule | Pin | GivenLayout)]
    return clashing if question.feasible(wanted) else wanted


def _cut_short(question: ConflictQuestion, rule: Rule) -> Clash:
    return Clash(rule=rule.name, reason=rule.explain(question.job), note=CUT_SHORT)


def _clash(question: ConflictQuestion, rules: Sequence[Rule], rule: Rule) -> Clash:
    try:
        return _remedied(question, rules, rule)
    except TimeLimit:
        return _cut_short(question, rule)


def _remedied(question: ConflictQuestion, rules: Sequence[Rule], rule: Rule) -> Clash:
    others = [other for other in rules if other.name != rule.name]
    relaxation = _relaxation(question, others, rule)
    note = "" if relaxation else _note(question, others, rule)
    if isinstance(rule, Memory):
        shorter = islice(_fitting(question, shorter_jobs(question.job)), 1)
        ways = chain.from_iterable(islice(_fitting(question, way), 1) for way in lighter_jobs(question.job))
        lighter = ", ".join((*ways, *shorter))
        note = f"fits: {lighter}" if lighter else note
    return Clash(rule=rule.name, reason=_reason(question, rules, rule), relaxation=relaxation, note=note)


def _fitting(question: ConflictQuestion, jobs: Iterable[tuple[str, Job]]) -> Iterator[str]:
    """Options with which a job has a plan, and what its leanest reserves."""
    for options, job in jobs:
        other = ConflictQuestion(job=job, memory=question.memory)
        if other.holds(other.rules()):
            yield f"{options} ({other.least(structural(job), Memory()) / GB:.1f} GB)"


def _reason(question: ConflictQuestion, rules: Sequence[Rule], rule: Rule) -> str:
    """The rule with the job's numbers, that of memory with what the leanest plan reserves."""
    reason = rule.explain(question.job)
    if isinstance(rule, Memory):
        reason += _least_memory_words(
            question, question.least([other for other in rules if other.name != rule.name], rule)
        )
    return reason


def _note(question: ConflictQuestion, others: Sequence[Rule], rule: Rule) -> str:
    """What would help if memory did not count, or what was looked at."""
    before_memory = [other for other in others if not isinstance(other, Memory)]
    if not isinstance(rule, Memory) and not question.holds([*before_memory, rule]):
        without = _relaxation(question, before_memory, rule)
        if without:
            return f"{without} would do, but then memory does not suffice"
    return rule.none(question.job) if isinstance(rule, NumberRule) else ""


def _least_memory_words(question: ConflictQuestion, least: float) -> str:
    """What the leanest plan reserves, in words."""
    if not np.isfinite(least):
        return ""
    settled = question.job.layout_given
    offloaded = question.job.most_offload and question.memory.knobs.offload
    host = " with as much optimizer state on the host as its memory takes" if offloaded else ""
    layouts = "" if settled else ", under any layout that is searched"
    return f"; the leanest plan reserves {least / GB:.1f} GB{host}{layouts}"


def _relaxation(question: ConflictQuestion, others: Sequence[Rule], rule: Rule) -> str:
    """The smallest relaxation of the rule that gives the job a plan under the other rules, "" if there is none."""
    names = {other.name for other in others}
    if isinstance(rule, NumberRule):
        other = question.nearest(rule, names)
        return rule.moved(question.job, other) if other else ""
    if isinstance(rule, LimitRule):
        least = question.least(others, rule)
        if np.isfinite(least):
            relaxed, text = rule.relax(question.job, least)
            return text if question.holds_for(relaxed, {*names, rule.name}) else ""
    return ""


def _soft(rule: Rule) -> bool:
    return isinstance(rule, LimitRule | NumberRule)


def _importance(rule: Rule) -> int:
    """Facts are left out first, then limits, then what was asked for, then GPUs and memory."""
    order = ("bubble", "batch", "gpu-product", "memory")
    if rule.name in order:
        return 3 + order.index(rule.name)
    return 2 if isinstance(rule, Pin | GivenLayout) else int(_soft(rule))
