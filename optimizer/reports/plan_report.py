"""The report on one answer: plan, time, memory, runners-up, what binds, proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds, show
from optimizer.constraints.rules.memory import percent
from optimizer.exports.layout import plan_layout, stage_layers
from optimizer.job.job import EVEN_RISK, TIME
from optimizer.objectives.minimised.registry import objective, objective_of
from optimizer.objectives.step.flops import ALL_SCORES, PARAMETERS
from optimizer.objectives.step.interval import LEVEL, interval, mfu
from optimizer.objectives.step.safe_memory import chance_to_fit, risk_of, safe_memory
from optimizer.reports.conflict_report import conflict_sections
from optimizer.reports.plan_words import plan_words
from optimizer.reports.proof_lines import proof_lines, shown, timings
from optimizer.reports.terms import bar, label, largest_first, runs
from optimizer.search.plan.simplicity import moving_parts

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.answer.answer import Alternative, Answer, Certificate, Format, Safety
    from optimizer.job.job import Job
    from optimizer.job.plan import Knobs, Plan
    from optimizer.objectives.step.estimate import Estimate

BAR = 36
AT_LIMIT = 0.95
SURE, NEARLY = 0.999, 0.99  # chances told as more than this, and to a tenth of a percent
MANY_STAGES = 40
COLOURS = {"optimal": "green", "feasible": "yellow", "infeasible": "red", "unknown": "red"}


def plan_report(answer: Answer, assumed: Sequence[str] = ()) -> Group:
    """The whole report, for a plan as for the proof that there is none."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(headline(answer), style=f"bold {COLOURS[answer.status]}"),
        Text(subject(answer.job)),
    ]
    if answer.certificate and answer.job.minimize != TIME:
        parts.append(Text(minimised(answer.certificate)))
    if answer.plan and answer.simpler:
        parts.append(Text(simpler_hint(answer.job, answer.plan, answer.knobs, answer.simpler)))
    if answer.plan and answer.estimate:
        parts += _sections(answer, answer.plan, answer.estimate)
    else:
        parts += conflict_sections(answer)
    parts += notes("Flags", answer.flags) + notes("Assumed", assumed)
    return Group(*parts)


def headline(answer: Answer) -> str:
    """The answer in one line."""
    job = answer.job
    where = f"{job.model.title or job.model.name} on {job.gpus:,} × {job.cluster.device.name}"
    if answer.plan and answer.estimate:
        mfu, span = answer.estimate.mfu, mfu_span(job, answer.plan, answer.estimate)
        return f"{where} — MFU {mfu:.1%} ({span}), {seconds(answer.estimate.step_time)} per step"
    if answer.status == "infeasible":
        return f"{where} — no plan satisfies every rule (proven)"
    return f"{where} — no plan found within the time limit"


def minimised(certificate: Certificate) -> str:
    """What the plan is best by, in one line; the head line has the seconds."""
    words = objective(certificate.minimize)
    value = f": {shown(certificate.best, words.unit)} per step" if certificate.best < float("inf") else ""
    return f"minimises {words.label}{value} ({words.about})"


def mfu_span(job: Job, plan: Plan, estimate: Estimate) -> str:
    """Between which MFUs the truth lies with 90 % probability."""
    found = interval(job, plan, estimate.step_time)
    low, high = (min(1.0, estimate.mfu * estimate.step_time / time) for time in (found.high, found.low))
    return f"{100 * low:.1f}-{100 * high:.1f} at {LEVEL:.0%}"


def subject(job: Job) -> str:
    """What was asked, in one line."""
    return (
        f"{job.dtype}, {job.global_batch:,} sequences of {job.seq_len:,} tokens per step, "
        f"{job.cluster.name}, {job.stack.name}"
    )


def _sections(answer: Answer, plan: Plan, estimate: Estimate) -> list[RenderableType]:
    job = answer.job
    parts = [
        title("Plan"),
        plan_table(answer, plan, estimate),
        title(f"Where the time goes — {seconds(estimate.step_time)}"),
        bars(estimate.time, estimate.step_time, seconds),
        title(
            f"Where the memory goes — {estimate.reserved / GB:.1f} of {job.usable_memory / GB:.1f} GB usable per GPU"
        ),
        bars(estimate.memory, job.usable_memory, show_gigabytes),
        title("What binds"),
        limits_table(job, plan, estimate),
    ]
    if answer.alternatives:
        parts += [title("Runners-up of another structure"), runners_up(job, answer.alternatives)]
    if answer.formats:
        parts += [title("Other number formats"), formats_table(answer.formats)]
    if answer.certificate:
        lines = proof_lines(answer.certificate, answer.near_ties, plan.pp)
        parts += notes("Proof", [*lines, timings(answer.search_s)])
    return parts


def title(text: str) -> RenderableType:
    """Heading of a section."""
    from rich.text import Text

    return Text(f"\n{text}", style="bold")


def grid(*justify: str, expand: str = "") -> Table:
    """A table without lines, indented by two, whose column named in `expand` wraps."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=True, padding=(0, 1, 0, 1))
    for position, side in enumerate(justify):
        table.add_column(justify="right" if side == "right" else "left", no_wrap=str(position) != expand)
    return table


def knobs_text(job: Job, knobs: Knobs) -> str:
    """The continuous settings that the software has, in words."""
    words = {
        "bucket": f"gradient bucket {show(knobs.bucket, 'B')}",
        "comm_sm_share": f"{knobs.comm_sm_share:.0%} of the SMs (the GPU's processors) to communication",
        "offload": f"{knobs.offload:.0%} of the optimizer on the host",
    }
    settable = job.stack.features.settable
    return ", ".join(text for name, text in words.items() if name in settable) or "none that the software can set"


def plan_table(answer: Answer, plan: Plan, estimate: Estimate) -> Table:
    """The plan in words, its knobs and its rates."""
    job, knobs = answer.job, answer.knobs
    table = grid("left", "left", expand="1")
    table.add_row("parallelism", plan.summary())
    table.add_row("in words", plan_words(plan))
    table.add_row(
        "micro-batches", f"{plan.num_microbatches:,} of {plan.micro_batch} per step, {plan.schedule} schedule"
    )
    for name, words in layout_rows(job, plan):
        table.add_row(name, words)
    table.add_row(
        "knobs",
        knobs_text(job, knobs),
    )
    table.add_row(
        "rates",
        f"{show(estimate.flops_per_gpu, 'FLOP/s')} and {estimate.tokens_per_s_per_gpu:,.0f} tokens/s per GPU, "
        f"HFU {estimate.hfu:.1%} (MFU with what is recomputed)",
    )
    table.add_row("MFU counts", convention_words(job, estimate))
    table.add_row("interval", interval_words(job, plan, estimate))
    table.add_row("safety", safety_words(job, estimate, answer.safety))
    if answer.simpler:
        table.add_row("simpler", simpler_words(job, plan, knobs, estimate, answer.simpler))
    table.add_row(
        "bracket",
        f"{seconds(estimate.all_hidden)} if all overlappable communication hides, "
        f"{seconds(estimate.none_hidden)} if none does",
    )
    return table


def layout_rows(job: Job, plan: Plan) -> list[tuple[str, str]]:
    """Layers on the stages, those recomputed, and Megatron's notation where the virtual stages are not all alike."""
    rows = []
    if plan.pp > 1 and plan.layers_per_stage:
        rows.append(("layers per stage", listed(stage_layers(plan, job.model.layers))))
    if sum(plan.recompute_layers) and len(set(plan.recompute_layers)) > 1:
        rows.append(("recomputed layers", listed(plan.recompute_layers)))
    elif sum(plan.recompute_layers):
        rows.append(("recomputed layers", f"{plan.recompute_layers[0]} on every stage"))
    elif plan.recompute_first:
        where = "virtual stage" if plan.vpp > 1 else "stage"
        rows.append(("recomputed layers", f"the first {plan.recompute_first} of every {where}"))
    if len(plan.layers_per_stage) > plan.pp or plan.mtp_ahead:
        rows.append(("layout", plan_layout(plan, job.model).replace("|", "| ").replace("  ", " ")))
    return rows


def listed(counts: Sequence[int]) -> str:
    """Layers stage by stage; of many stages, runs of equal ones as stages × layers."""
    return " ".join(map(str, counts)) if len(counts) <= MANY_STAGES else f"{runs(counts)} (stages×layers)"


def convention_words(job: Job, estimate: Estimate) -> str:
    """What is counted as useful operations, and the MFU when it is counted otherwise."""
    predicting = " and prediction layers" if job.model.mtp_layers else ""
    whole, plain = (mfu(job, estimate.step_time, name) for name in (ALL_SCORES, PARAMETERS))
    # No device exceeds its peak: counts of what the mask leaves out are no rates.
    masked = "" if whole < 1 else ", most of which the mask leaves out"
    return (
        f"the attention scores that the mask leaves{predicting}; {whole:.1%} with all scores (Narayanan et al. 2021)"
        f"{masked}, {plain:.1%} as 6 x active parameters"
    )


def interval_words(job: Job, plan: Plan, estimate: Estimate) -> str:
    """The 90 % intervals of step time and memory, and whether they are extrapolated."""
    time = interval(job, plan, estimate.step_time)
    memory = interval(job, plan, estimate.reserved, "memory")
    why = f"extrapolated: {'; '.join(time.reasons)}" if time.reasons else "interpolated between measured runs"
    return (
        f"{seconds(time.low)} to {seconds(time.high)}, {memory.low / GB:.1f} to {memory.high / GB:.1f} GB "
        f"at {LEVEL:.0%}; {why}"
    )


def safety_words(job: Job, estimate: Estimate, safety: Safety | None) -> str:
    """The chance that the plan fits, and what it costs that it is so high."""
    fits = f"{show_gigabytes(estimate.reserved)}, fits with {chance(job, estimate)}"
    if safety is None:
        return fits
    words = objective_of(job)
    if safety.fastest is None:
        return f"{fits}; no plan that is predicted to fit is {words.better}"
    bold = safety.fastest
    return (
        f"{fits}, {safety.cost:.1%} {words.worse} than the {words.best} plan that is predicted to fit: "
        f"{bold.plan.summary()}, "
        f"{show_gigabytes(bold.estimate.reserved)}, {chance(job, bold.estimate)}"
    )


def simpler_words(job: Job, plan: Plan, knobs: Knobs, estimate: Estimate, other: Alternative) -> str:
    """A plan that is as fast with fewer moving parts: what it spares, and what else it differs in."""
    room = (estimate.reserved - other.estimate.reserved) / GB
    memory = f"{abs(room):.1f} GB {'less' if room > 0 else 'more'} memory, fits with {chance(job, other.estimate)}"
    spared = spared_words(plan, knobs, other)
    return f"{other.plan.summary()}: {other.slower:.1%} {objective_of(job).worse} {spared}; {memory} (--prefer simple)"


def simpler_hint(job: Job, plan: Plan, knobs: Knobs, other: Alternative) -> str:
    """The same in one line for the top of the report."""
    return (
        f"{other.slower:.1%} {objective_of(job).worse}, less than runs tell apart, is a simpler plan "
        f"{spared_words(plan, knobs, other)}: --prefer simple"
    )


def spared_words(plan: Plan, knobs: Knobs, other: Alternative) -> str:
    """The moving parts that another plan spares, and those that only it has."""
    own, its = moving_parts(plan, knobs), moving_parts(other.plan, other.knobs)
    spared = " or ".join(part for part in own if part not in its)
    added = " and ".join(part for part in its if part not in own)
    return f"without {spared}{f' but with {added}' if added else ''}"


def chance(job: Job, estimate: Estimate) -> str:
    """The chance that a plan fits, never told as certain."""
    share = chance_to_fit(job, estimate.reserved)
    return ">99.9%" if share > SURE else f"{share:.1%}" if share > NEARLY else f"{share:.0%}"


def show_gigabytes(value: float) -> str:
    """A term of the memory.

    >>> show_gigabytes(12.34e9)
    '12.3 GB'
    """
    return f"{value / GB:.1f} GB" if value >= 0.05 * GB else f"{value / 1e6:.0f} MB"


def bars(terms: Mapping[str, float], whole: float, write: Callable[[float], str]) -> Table:
    """One row per term: name, value, share of `whole`, bar."""
    table = grid("left", "right", "right", "left")
    shown, rest = largest_first(terms)
    for name, value in [*((label(name), value) for name, value in shown), *([("the rest", rest)] if rest else [])]:
        table.add_row(name, write(value), f"{value / whole:.1%}", bar(value / whole, BAR))
    return table


def risk_words(job: Job) -> str:
    """Of which memory the margin leaves so much, and at which risk."""
    if risk_of(job) == EVEN_RISK:
        return ""
    return f", of {job.usable_memory / GB:.1f} GB at a risk of {percent(risk_of(job))} (--oom-risk)"


def limits_table(job: Job, plan: Plan, estimate: Estimate) -> Table:
    """Each limit, how much of it the plan uses, and whether it binds."""
    table = grid("left", "left", "left")
    largest_tp = job.limits.max_tp or job.cluster.scale_up_size
    rows = [
        (
            "memory",
            f"{estimate.reserved / GB:.1f} of {safe_memory(job) / GB:.1f} GB" + risk_words(job),
            estimate.reserved / safe_memory(job),
        ),
        (
            "bubble",
            f"{estimate.bubble_fraction:.1%} of {job.limits.bubble:.1%}",
            estimate.bubble_fraction / job.limits.bubble,
        ),
        ("tp", f"{plan.tp} of {largest_tp}", plan.tp / largest_tp),
    ]
    for name, use, share in rows:
        table.add_row(name, use, "binds" if share >= AT_LIMIT else "")
    if job.limits.fixed:
        table.add_row("pinned", ", ".join(f"{name} = {value}" for name, value in job.limits.fixed.items()), "binds")
    return table


def runners_up(job: Job, alternatives: Iterable[Alternative]) -> Table:
    """The next plans of another structure, best first."""
    table = grid("right", "left", "right", "right", "right", "right", "right", expand="1")
    table.add_row("", "plan", "step", "MFU", "memory", "fits", objective_of(job).worse, style="dim")
    for rank, other in enumerate(alternatives, start=2):
        table.add_row(
            str(rank),
            other.plan.summary(),
            seconds(other.estimate.step_time),
            f"{other.estimate.mfu:.1%}",
            show_gigabytes(other.estimate.reserved),
            chance(job, other.estimate),
            f"+{other.slower:.1%}",
        )
    return table


def formats_table(formats: Iterable[Format]) -> Table:
    """The best plan in each other number format."""
    table = grid("left", "left", "right", "right", "right", expand="1")
    for other in formats:
        if other.plan is None or other.estimate is None:
            table.add_row(other.dtype, f"no plan: {other.status}", "", "", "")
            continue
        step, mfu = seconds(other.estimate.step_time), f"{other.estimate.mfu:.1%}"
        table.add_row(other.dtype, other.plan.summary(), step, mfu, f"{other.slower:+.1%}")
    return table


def notes(heading: str, lines: Iterable[str]) -> list[RenderableType]:
    """A heading and its bullet points; nothing without points."""
    table = grid("left", "left", expand="1")
    for line in lines:
        if line:
            table.add_row("•", line)
    return [title(heading), table] if table.row_count else []
