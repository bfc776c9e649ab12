"""The report on one answer: plan, time, memory, alternatives, what binds, proof; or why there is no plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from optimizer.answer.answer import Alternative, Answer, Certificate, Format
from optimizer.base.units import GB, seconds, show
from optimizer.catalog.targets import of_target
from optimizer.constraints.rules.memory import percent
from optimizer.constraints.rules.tp_scale_up import ceiling
from optimizer.job.fields import LIMITS
from optimizer.job.job import EVEN_RISK, TIME, Job
from optimizer.job.plan import Plan
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.safe_memory import risk_of, safe_memory
from optimizer.reports.known_values import learning_words, mfu_words, step_words
from optimizer.reports.plan_brief import LINE, brief, cut, head_line, warnings
from optimizer.reports.plan_charts import memory_chart, waterfall
from optimizer.reports.plan_tiles import Budget, tiles
from optimizer.reports.plan_words import (
    chance,
    convention_words,
    headline,
    interval_words,
    knobs_text,
    layout_rows,
    plan_words,
    safety_words,
    show_gigabytes,
    stack_words,
    subject,
)
from optimizer.reports.proof_lines import proof_lines, shown, timings
from optimizer.reports.report import Pairs, Report, Section, Table, Tiles, Tone, columns, notes, section
from optimizer.reports.terms import label, largest_first

AT_LIMIT = 0.95
CONFLICT_LINES = 20  # of the rules of a conflict and their remedies in a short answer
NOTE = "Predicted by mfu-optimizer; figures in brackets are 90 % intervals, not guarantees."
TONES: Mapping[str, Tone] = {"optimal": "good", "feasible": "open"}
BARS = columns(" | [text] | [text] | [bar]")
RUNNERS_UP = "[text] | plan ~ | step [text] | MFU [text] | memory [text] | fits [text]"
FORMATS = columns(" | ~ | [text] | [text] | [text]")


def plan_report(
    answer: Answer,
    assumed: Sequence[str] = (),
    budget: Budget | None = None,
    command: str = "",
    *,
    whole: bool = True,
) -> Report:
    """The report, for a plan as for the proof that there is none.

    Args:
        answer: The plan with its proof, or the rules that conflict.
        assumed: What nobody said and was assumed.
        budget: A run whose days and dollars the page shows.
        command: What prints the same answer.
        whole: Whether a plan is printed with all that is known of it, or in twenty-five lines.
    """
    plan, estimate, job = answer.plan, answer.estimate, answer.job
    head = [*warnings(answer), *(() if whole else (cut(flag, LINE + 9) for flag in answer.flags))]
    least = minimised(answer.certificate)
    lines = None
    if plan and estimate and not whole:
        least = tuple(line.partition(" (")[0] for line in least)
        lines = brief(answer, plan, estimate, assumed, binding(job, plan, estimate), len(head), budget)
    return Report(
        title=headline(answer),
        subject=(subject(job), *least, head_line(answer, assumed)),
        conclusion=tuple(head),
        sections=(lines,)
        if lines
        else (
            *(_planned(answer, plan, estimate, budget) if plan and estimate else (_conflict(answer, whole=whole),)),
            section("How sure this is", stack_words(job), on="page"),
            notes("Flags", answer.flags),
        ),
        assumed=tuple(assumed) if whole else (),
        command=command,
        note=NOTE,
        tone=TONES.get(answer.status, "bad"),
    )


def minimised(certificate: Certificate | None) -> tuple[str, ...]:
    """What the plan is best by, in one line; nothing where it is the seconds, which the head line has."""
    if certificate is None or certificate.minimize == TIME:
        return ()
    words = certificate.objective
    value = f": {shown(certificate.best, words.unit)} per step" if certificate.best < float("inf") else ""
    return (f"minimises {words.label}{value} ({words.about})",)


def _planned(answer: Answer, plan: Plan, estimate: Estimate, budget: Budget | None) -> list[Section]:
    job = answer.job
    proof = proof_lines(answer.certificate, answer.near_ties, plan.pp, answer.run_bound) if answer.certificate else []
    memory = f"{estimate.reserved / GB:.1f} of {job.usable_memory / GB:.1f} GB usable per GPU"
    charts = (waterfall(job, estimate), memory_chart(job, plan, estimate))
    return [
        section("", Tiles(tiles(job, plan, estimate, budget)), *proof[:1], on="page"),
        section("Plan", Pairs(plan_rows(answer, plan, estimate))),
        section("Where the time and the memory go", *charts, on="page"),
        section(
            f"Where the time goes — {step_words(job, plan, estimate.step_time)}",
            term_bars(estimate.time, estimate.step_time, seconds),
            on="screen",
        ),
        section(
            f"Where the memory goes — {memory}",
            term_bars(estimate.memory, job.usable_memory, show_gigabytes),
            on="screen",
        ),
        section("What binds", Table(columns(" | ~ | "), limits(job, plan, estimate))),
        section(
            "Runners-up of another structure",
            Table(
                columns(f"{RUNNERS_UP} | {objective_of(job).worse} [text]"),
                [runner_up(job, *ranked) for ranked in enumerate(answer.alternatives, start=2)],
            ),
        ),
        section("Other number formats", Table(FORMATS, [_format(job, other) for other in answer.formats])),
        notes("Proof", proof, on="page"),
        notes("Proof", [*proof, timings(answer.search_s)] if proof else [], on="screen"),
    ]


def _conflict(answer: Answer, *, whole: bool) -> Section:
    """The rules of an infeasible job that cannot hold together, or advice when the time ran out."""
    if answer.status != "infeasible":
        return section("What to do", "Give the search more time (--time-limit), or pin variables (--fix).")
    heading = "This rule alone cannot hold" if len(answer.conflict) == 1 else "These rules cannot all hold"
    remedies = {clash.remedy for clash in answer.conflict}
    shared = remedies.pop() if len(answer.conflict) > 1 and len(remedies) == 1 else ""
    rows = []
    most = inf if whole else (LINE - 10) * max(1, CONFLICT_LINES // (2 * len(answer.conflict)))
    for clash in answer.conflict:
        remedy = () if shared or not clash.remedy else (("", clash.remedy),)
        rows += [(name, cut(text, most)) for name, text in ((clash.rule, clash.reason), *remedy)]
    return section(heading, Pairs(rows), f"{shared[:1].upper()}{shared[1:]}." if shared else "")


def plan_rows(answer: Answer, plan: Plan, estimate: Estimate) -> list[tuple[str, str]]:
    """The plan: parallelism, micro-batches, layers, knobs, rates, what MFU counts, interval, safety, the next run."""
    job = answer.job
    rates = f"{show(estimate.flops_per_gpu, 'FLOP/s')} and {estimate.tokens_per_s_per_gpu:,.0f} tokens/s per GPU, "
    learning = learning_words(answer) if answer.certificate else ""  # what is on its way to a proof is not kept waiting
    bracket = f"{seconds(estimate.all_hidden)} if all overlappable communication hides, "
    return [
        ("parallelism", plan.summary()),
        ("in words", plan_words(plan)),
        micro_batches(plan),
        *layout_rows(job, plan),
        ("knobs", knobs_text(job, answer.knobs)),
        ("rates", f"{rates}HFU {estimate.hfu:.1%} (MFU with what is recomputed)"),
        ("MFU counts", convention_words(job, estimate)),
        ("interval", interval_words(job, plan, estimate)),
        ("safety", safety_words(job, estimate, answer.safety)),
        *([("next run", learning)] if learning else []),
        ("bracket", f"{bracket}{seconds(estimate.none_hidden)} if none does"),
    ]


def micro_batches(plan: Plan) -> tuple[str, str]:
    """How many micro-batches of which size a step has."""
    return "micro-batches", f"{plan.num_microbatches:,} of {plan.micro_batch} per step, {plan.schedule} schedule"


def term_bars(terms: Mapping[str, float], whole: float, write: Callable[[float], str]) -> Table:
    """One row per term: name, value, share of `whole`, bar."""
    shown, rest = largest_first(terms)
    named = [*((label(name), value) for name, value in shown), *([("the rest", rest)] if rest else [])]
    return Table(BARS, [(name, write(value), f"{value / whole:.1%}", value / whole) for name, value in named])


def limits(job: Job, plan: Plan, estimate: Estimate) -> list[tuple[str, str, str]]:
    """Each limit, how much of it the plan uses, and "binds" where it does."""
    memory = f"{estimate.reserved / GB:.1f} of {safe_memory(job) / GB:.1f} GB"
    if risk_of(job) != EVEN_RISK:
        memory += f", of {job.usable_memory / GB:.1f} GB at a risk of {percent(risk_of(job))} (--oom-risk)"
    bubble = f"{estimate.bubble_fraction:.1%} of {job.limits.bubble:.1%}"
    uses = [
        ("memory", memory, estimate.reserved / safe_memory(job)),
        ("bubble", bubble, estimate.bubble_fraction / job.limits.bubble),
    ]
    for name, field in LIMITS.items():
        if field.of:
            most = {"tp": ceiling(job), "micro_batch": job.largest_micro_batch}.get(field.of) or getattr(
                job.limits, name
            )
            share = getattr(plan, field.of) / most
            if share >= AT_LIMIT or not field.default:  # of a fixed limit only where it binds
                uses.append((field.of.replace("_", "-"), f"{getattr(plan, field.of)} of {most}", share))
    rows = [(name, use, "binds" if share >= AT_LIMIT else "") for name, use, share in uses]
    if pinned := {name: value for name, value in job.limits.fixed.items() if name not in of_target(job.stack)}:
        rows.append(("pinned", ", ".join(f"{name} = {value}" for name, value in pinned.items()), "binds"))
    return rows


def binding(job: Job, plan: Plan, estimate: Estimate) -> list[str]:
    """The limits that bind."""
    return [f"{name} ({use})" for name, use, binds in limits(job, plan, estimate) if binds]


def runner_up(job: Job, rank: int, other: Alternative) -> tuple[str, ...]:
    """The next plan of another structure, as a row of RUNNERS_UP."""
    estimate = other.estimate
    step, memory = step_words(job, other.plan, estimate.step_time), show_gigabytes(estimate.reserved)
    fits, mfu = chance(job, estimate), mfu_words(job, other.plan, estimate)
    return str(rank), other.plan.summary(), step, mfu, memory, fits, f"+{other.slower:.1%}"


def _format(job: Job, other: Format) -> tuple[str, ...]:
    """The best plan in another number format."""
    if other.plan is None or other.estimate is None:
        return other.dtype, f"no plan: {other.status}", "", "", ""
    there, estimate = replace(job, dtype=other.dtype), other.estimate
    step, mfu = step_words(there, other.plan, estimate.step_time), mfu_words(there, other.plan, estimate)
    return other.dtype, other.plan.summary(), step, mfu, f"{other.slower:+.1%}"
