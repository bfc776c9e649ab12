"""A plan in words: what it is and needs, how sure its figures are, what it would cost to have another; and as pins."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.answer.answer import Answer, Safety
from optimizer.base.content import content
from optimizer.base.units import GB, seconds, show
from optimizer.frameworks.megatron.layout import plan_layout, stage_layers
from optimizer.job.fields import FAST
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.minimised.registry import objective
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import ALL_SCORES, PARAMETERS
from optimizer.objectives.step.interval import LEVEL, interval, mfu
from optimizer.objectives.step.safe_memory import USUAL_RISK, chance_to_fit
from optimizer.reports.known_values import mfu_words, price_words, runs_words, step_words
from optimizer.reports.terms import runs

PLAIN = ("1f1b", "interleaved")  # schedules that every launcher has; vpp tells the second
DEGREES = ("tp", "cp", "ep", "etp", "pp", "vpp", "micro_batch")
SURE, NEARLY = 0.999, 0.99  # chances shown as more than this, and to a tenth of a percent
MANY_STAGES = 40


def plan_words(plan: Plan) -> str:
    """The parallelism of a plan in words.

    >>> plan_words(Plan(tp=4, pp=8, dp=32, vpp=6, sequence_parallel=True))
    'a matrix product on 4 GPUs (TP), the rest of a layer there along the sequence (SP); 8 pipeline stages (PP) of 6 \
virtual stages (VPP); 32 replicas (DP), which share the optimizer state (ZeRO-1)'
    >>> plan_words(Plan(dp=64, zero_stage=3))
    '64 replicas (DP), which share the optimizer state, the gradients and the weights (ZeRO-3)'
    >>> plan_words(Plan(dp=64, zero_stage=1, shard=8))
    '64 replicas (DP), which share the optimizer state in groups of 8 GPUs (ZeRO-1)'
    """
    shared = content("optimizer.reports", "words.toml")["shared"]
    layer = [f"a matrix product on {plan.tp} GPUs (TP)"] * (plan.tp > 1)
    layer += ["the rest of a layer there along the sequence (SP)"] * (plan.tp > 1 and plan.sequence_parallel)
    layer += [f"a sequence on {plan.cp} (CP)"] * (plan.cp > 1)
    layer += [f"the experts on {plan.ep} (EP)"] * (plan.ep > 1)
    layer += [f"each expert on {plan.etp} (ETP)"] * (plan.etp > 1)
    stages = f"{plan.pp} pipeline stages (PP)" + (f" of {plan.vpp} virtual stages (VPP)" if plan.vpp > 1 else "")
    groups = f" in groups of {plan.shard} GPUs" if plan.shard else ""
    copies = f"{plan.dp} replicas (DP), {shared[str(plan.zero_stage)]}{groups} (ZeRO-{plan.zero_stage})"
    parts = [", ".join(layer)] * bool(layer) + [stages] * (plan.pp > 1) + [copies] * (plan.dp > 1)
    return "; ".join(parts) or "one GPU does everything"


def pins_of_plan(plan: Plan) -> str:
    """The degrees of a plan as pins; those of one are left out, but for tp and pp.

    >>> pins_of_plan(Plan(tp=8, pp=4, vpp=12, dp=32, micro_batch=3))
    'tp=8,pp=4,vpp=12,micro_batch=3'
    """
    values = ((name, getattr(plan, name)) for name in DEGREES)
    return ",".join(f"{name}={value}" for name, value in values if value > 1 or name in ("tp", "pp"))


def stack_words(job: Job) -> str:
    """How well the software's own runs are predicted."""
    stack = job.stack
    if not stack.runs:
        return f"{stack.name} is not fitted to measured runs; the intervals are those of the other stacks."
    left = stack.residuals.get("left_out_median")
    error = f"; step times of runs left out of the fit are missed by {left:.1%} at the median" if left else ""
    return f"{stack.name} is fitted to {stack.runs:,} measured runs on {', '.join(stack.devices)}{error}."


def job_title(job: Job) -> str:
    """The model and its GPUs."""
    return f"{job.model.title or job.model.name} on {job.gpus:,} × {job.cluster.device.name}"


def headline(answer: Answer) -> str:
    """The answer in one line."""
    job = answer.job
    where = job_title(job)
    if answer.plan and answer.estimate:
        doubtful = round(chance_to_fit(job, answer.estimate.reserved), 2) < 1.0 - USUAL_RISK
        fits = f"fits with {chance(job, answer.estimate)} only, " if doubtful else ""
        if not interval(job, answer.plan, answer.estimate.step_time).known:
            return f"{where} — {fits}{price_words(job, answer.plan, answer.estimate)}"
        words = mfu_words(job, answer.plan, answer.estimate), step_words(job, answer.plan, answer.estimate.step_time)
        return f"{where} — {fits}MFU {words[0]} ({mfu_span(job, answer.plan, answer.estimate)}), {words[1]} per step"
    if answer.status == "infeasible":
        return f"{where} — no plan of {job.training} satisfies every rule (proven)"
    return f"{where} — no plan found within the time limit"


def mfu_span(job: Job, plan: Plan, estimate: Estimate) -> str:
    """Between which MFUs the truth lies with 90 % probability."""
    span = interval(job, plan, estimate.step_time)
    low, high = (min(1.0, estimate.mfu * estimate.step_time / time) for time in (span.high, span.low))
    return f"{100 * low:.1f}-{100 * high:.1f} at {LEVEL:.0%}"


def subject(job: Job) -> str:
    """What was asked, in one line."""
    return (
        f"{job.dtype}, {job.global_batch:,} sequences of {job.seq_len:,} tokens per step, "
        f"{job.cluster.name}, {job.stack.name}"
    )


def knobs_text(job: Job, knobs: Knobs) -> str:
    """The continuous settings that the software has, in words."""
    words = {
        "bucket": f"gradient bucket {show(knobs.bucket, 'B')}",
        "comm_sm_share": f"{knobs.comm_sm_share:.0%} of the SMs (the GPU's processors) to communication",
        "offload": f"{knobs.offload:.0%} of the optimizer on the host",
    }
    settable = job.stack.features.settable
    return ", ".join(text for name, text in words.items() if name in settable) or "none that the software can set"


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
    mtp = " and MTP layers" if job.model.mtp_layers else ""
    whole, plain = (mfu(job, estimate.step_time, name) for name in (ALL_SCORES, PARAMETERS))
    # No device exceeds its peak: counts of what the mask leaves out are no rates.
    masked = "" if whole < 1 else ", most of which the mask leaves out"
    return (
        f"the attention scores that the mask leaves{mtp}; {whole:.1%} with all scores (Narayanan et al. 2021)"
        f"{masked}, {plain:.1%} as 6 x active parameters"
    )


def interval_words(job: Job, plan: Plan, estimate: Estimate) -> str:
    """The 90 % intervals of step time and memory, and whether they are extrapolated."""
    time = interval(job, plan, estimate.step_time)
    memory = interval(job, plan, estimate.reserved, "memory")
    why = f"extrapolated: {'; '.join(time.reasons)}" if time.reasons else "interpolated between measured runs"
    return (
        f"{seconds(time.low)} to {seconds(time.high)}, {memory.low / GB:.1f} to {memory.high / GB:.1f} GB "
        f"at {LEVEL:.0%}; {'; '.join(filter(None, (why, runs_words(job, plan, estimate.step_time))))}"
    )


def safety_words(job: Job, estimate: Estimate, safety: Safety | None) -> str:
    """The chance that the plan fits, and what it costs that it is so high."""
    fits = f"{show_gigabytes(estimate.reserved)}, fits with {chance(job, estimate)}"
    if safety is None:
        return fits
    words = objective(job.minimize)
    others = "that is predicted to fit" if job.prefer == FAST else "on paper"
    if safety.fastest is None:
        return f"{fits}; no plan {others} is {words.better}"
    bold = safety.fastest
    return (
        f"{fits}, {safety.cost:.1%} {words.worse} than the {words.best} plan {others}: "
        f"{bold.plan.summary()}, {show_gigabytes(bold.estimate.reserved)}, {chance(job, bold.estimate)}"
    )


def chance(job: Job, estimate: Estimate) -> str:
    """The chance that a plan fits."""
    return chance_words(chance_to_fit(job, estimate.reserved))


def chance_words(share: float) -> str:
    """A chance, never told as certain.

    >>> chance_words(0.62), chance_words(0.9949), chance_words(1.0)
    ('62%', '99.5%', '>99.9%')
    """
    return ">99.9%" if share > SURE else f"{share:.1%}" if share > NEARLY else f"{share:.0%}"


def show_gigabytes(value: float) -> str:
    """A term of the memory.

    >>> show_gigabytes(12.34e9)
    '12.3 GB'
    """
    return f"{value / GB:.1f} GB" if value >= 0.05 * GB else f"{value / 1e6:.0f} MB"


def moving_parts(plan: Plan, knobs: Knobs) -> tuple[str, ...]:
    """What a plan needs beyond data parallelism, the shards of ZeRO-1 and layers in even parts.

    >>> moving_parts(Plan(tp=8, pp=4, vpp=2, dp=4, layers_per_stage=(7, 8, 8, 7)), Knobs(offload=0.5))
    ('tensor parallelism', 'pipeline', 'virtual stages', 'uneven stages', 'optimizer on the host')
    """
    parts = {
        "tensor parallelism": plan.tp > 1,
        "context parallelism": plan.cp > 1,
        "expert parallelism": plan.ep > 1,
        "tensor parallelism of experts": plan.etp > 1,
        "pipeline": plan.pp > 1,
        "virtual stages": plan.vpp > 1,
        f"{plan.schedule} schedule": plan.schedule not in PLAIN,
        f"ZeRO-{plan.zero_stage}": plan.zero_stage > 1,
        "shards of some replicas": plan.shard > 0,
        "recomputation": plan.recompute != RECOMPUTE[0],
        "overlap of the exchange": plan.overlap_exchange,
        "uneven stages": len(set(plan.layers_per_stage)) > 1,
        "stages that recompute unlike": len(set(plan.recompute_layers)) > 1,
        "prediction layers before the head": plan.mtp_ahead > 0,
        "activations on the host": plan.activation_offload > 0,
        "optimizer on the host": knobs.offload > 0,
    }
    return tuple(name for name, moves in parts.items() if moves)
