"""Conflicts and relaxations hold for every layout: brute force over lattice and layouts says the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optimizer.answer.answer import Clash
from optimizer.constraints.rule import LimitRule, NumberRule, Rule
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.infeasible.conflict import ConflictQuestion, conflict
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import at_most_offload
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts.least_memory import LeastMemory
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from tests.search.brute_force import MOST_PLANS, layouts
from tests.search.jobs import DENSE, small_job
from tests.search.plan.test_joint_optimum import tiny_jobs
from tests.thorough import cases


def lean(job: Job) -> Knobs:
    """The knobs with which a plan of one replica fits if it does with any."""
    return Knobs(offload=job.most_offload)


MOST_LAYOUTS = 6000
STEPS = 3  # nearer numbers that are looked at


@st.composite
def tight_jobs(draw: st.DrawFn) -> Job:
    """Tiny jobs in which memory is scarce."""
    job = draw(tiny_jobs())
    model = replace(job.model, vocab=draw(st.sampled_from([1000, 50_000, 300_000])))
    job = replace(job, model=model)
    fixed = draw(st.sampled_from([{}, {}, {"pp": 2}, {"tp": 1}, {"recompute": "none"}, {"layout": "even"}]))
    context = job.stack["context_memory"]
    hbm = context + draw(st.sampled_from([0.6e9, 0.8e9, 1.0e9, 1.3e9, 1.7e9, 2.3e9, 3.1e9, 4.5e9]))
    return job.with_limits(hbm=hbm, choices={}, fixed=fixed, bubble=draw(st.sampled_from([0.05, 0.3, 1.0])))


def every_layout(job: Job, plans: Iterable[Plans]) -> Iterator[Plan]:
    """All layouts of these plans, as far as the search may choose them."""
    for some in plans:
        for index in range(len(some)):
            one = some.plan(index)
            yield from [one] if job.layout_given else layouts(job, one)


def fits(job: Job, plans: Iterable[Plans]) -> bool:
    """Whether any layout of any plan fits, each one priced; a job with too many of them is left out."""
    parts = list(plans)
    assume(sum(map(len, parts)) <= MOST_PLANS)
    every = list(islice(every_layout(job, parts), MOST_LAYOUTS + 1))
    assume(len(every) <= MOST_LAYOUTS)
    if not every:
        return False
    laid_out = Plans.of(every)
    reserved = price(job, laid_out, at_most_offload(layer_costs_of(job, laid_out))).reserved
    return bool((reserved <= safe_memory(job)).any())


def holds(job: Job, rules: Sequence[Rule]) -> bool:
    """Whether these rules leave a plan, by brute force."""
    question = ConflictQuestion(job=job)
    found = question.plans(rules)
    if not any(isinstance(rule, Memory) for rule in rules):
        return any(True for _ in found)
    return fits(question.asked(rules), found)


def feasible(job: Job) -> bool:
    return fits(job, lattice(job, structural(job)))


def relaxed(job: Job, text: str) -> tuple[Job, Job | None]:
    """The job with what a relaxation says first, and with one notch less where the relaxation has notches."""
    text = text.split(", or --oom-risk")[0]
    features = job.stack.features
    if " GPUs with a global batch of " in text:
        gpus, batch = re.findall(r"[\d,]+", text)[1:]
        return replace(job, gpus=int(gpus.replace(",", "")), global_batch=int(batch.replace(",", ""))), None
    number = float(re.findall(r"[\d.]+", text.replace(",", ""))[-1]) if "->" in text else 0.0
    if text.startswith("HBM"):
        return job.with_limits(hbm=number * 1e9), job.with_limits(hbm=(number - 1) * 1e9)
    if text.startswith("bubble"):
        return job.with_limits(bubble=number / 100), job.with_limits(bubble=(number - 0.1) / 100)
    if text.startswith("drop"):
        return job.without_pin(text.split()[2].partition("=")[0]), None
    if text.startswith("allow ZeRO"):
        stage = int(text.split()[1].removeprefix("ZeRO-"))
        features = replace(features, zero_stages=(*features.zero_stages, stage))
    elif text.startswith("allow"):
        features = replace(features, recompute=(*features.recompute, text.split()[1]))
    elif text.startswith("largest tp"):
        return job.with_limits(max_tp=int(number)), job.with_limits(max_tp=int(number) - 1)
    elif text.startswith("largest micro-batch"):
        return job.with_limits(max_micro_batch=int(number)), job.with_limits(max_micro_batch=int(number) - 1)
    elif text.startswith("vocabulary"):
        return job.with_limits(vocab_padding=number / 100), job.with_limits(vocab_padding=number / 100 - 0.01)
    elif text.startswith("tokens"):
        return job.with_limits(min_cp_tokens=int(number)), job.with_limits(min_cp_tokens=int(number) + 1)
    elif text.startswith("global batch"):
        return replace(job, global_batch=int(number)), None
    else:
        assert text.endswith("GPUs"), text
        return replace(job, gpus=int(number)), None
    return replace(job, stack=replace(job.stack, features=features)), None


def check_relaxation(job: Job, rule: Rule, clash: Clash) -> None:
    """What was told is enough, and nothing less is; so is the risk that was told beside it."""
    if risk := re.search(r"--oom-risk 10% -> (\d+)%", clash.relaxation):
        assert feasible(job.with_limits(oom_risk=int(risk[1]) / 100)), clash
        assert not feasible(job.with_limits(oom_risk=(int(risk[1]) - 1) / 100)), clash
    elif isinstance(rule, Memory):
        assert not feasible(job.with_limits(oom_risk=EVEN_RISK)), clash
    enough, less = relaxed(job, clash.relaxation)
    assert feasible(enough), clash
    if less is not None:
        assert not feasible(less), clash
    if isinstance(rule, NumberRule):
        name = "gpus" if enough.gpus != job.gpus else "global_batch"
        nearer = rule.others(job).tolist()
        for number in nearer[: nearer.index(getattr(enough, name))][-STEPS:]:
            assert not feasible(replace(job, **{name: number})), number


@settings(
    max_examples=cases(40, sample=4),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tight_jobs())
def test_plans_that_are_left_out_unsolved_have_no_layout_that_fits(job: Job) -> None:
    left_out = [
        plans.take(~LeastMemory().possible(job, plans))
        for plans in lattice(job, [rule for rule in structural(job) if rule.name != "bubble"])
    ]
    assume(sum(map(len, left_out)))
    assert not fits(job, left_out)


@settings(
    max_examples=cases(30, sample=2),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tight_jobs())
def test_conflicts_hold_for_every_layout(job: Job) -> None:
    possible = feasible(job)
    assert plan(job, trials=0, top=1).status == ("optimal" if possible else "infeasible")
    assume(not possible)
    clashes = conflict(job)
    assert clashes
    rules = (*structural(job), Memory())
    names = {clash.rule for clash in clashes}
    before_memory = [rule for rule in rules if not isinstance(rule, Memory)]
    background = [rule for rule in rules if not isinstance(rule, LimitRule | NumberRule)]
    facts = background if holds(job, before_memory) else []
    clashing = [rule for rule in rules if rule.name in names]
    assert not holds(job, [*facts, *clashing])
    for rule, clash in zip(clashing, clashes, strict=True):
        assert rule.name == clash.rule
        if clash.relaxation:
            check_relaxation(job, rule, clash)


def test_61_layers_that_fit_unevenly_only_need_no_more_memory() -> None:
    """The head takes more than a layer, so that the stages before it should hold more of the 61 layers."""
    model = replace(DENSE, layers=61, vocab=400_000)
    free = small_job(16, model=model, hbm=2.5e9, bubble=1.0, fixed={"pp": 16, "vpp": 1, "recompute": "none"})
    even = free.with_limits(fixed={**free.limits.fixed, "layout": "even"})
    told = [next(clash for clash in conflict(job) if clash.rule == "memory").relaxation for job in (free, even)]
    least, evenly = (float(text.split()[3]) for text in told)
    assert least < evenly
    for job, size in ((free, least), (even, evenly)):
        assert best_plan(job.with_limits(hbm=size * 1e9), Tuning(fixed=lean(job))) is not None
        assert best_plan(job.with_limits(hbm=(size - 1) * 1e9), Tuning(fixed=lean(job))) is None
