"""The answer in twenty-five lines of a terminal: what one would launch, what it rests on, and what comes next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import shorten

from optimizer.answer.answer import Alternative, Answer, Certificate
from optimizer.base.content import in_words
from optimizer.base.units import GB, seconds
from optimizer.catalog.targets import launchers, without_files
from optimizer.frameworks.megatron.layout import stage_layers
from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.belief.order import order_factor
from optimizer.objectives.expected import risk_to_accept
from optimizer.objectives.minimised.registry import objective, objective_of
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import LEVEL, interval
from optimizer.objectives.step.safe_memory import USUAL_RISK, chance_to_fit
from optimizer.reports.known_values import learning_words, loader_words, runs_words
from optimizer.reports.plan_tiles import Budget, count
from optimizer.reports.plan_words import chance, moving_parts
from optimizer.reports.proof_lines import shown
from optimizer.reports.report import Pairs, Section, Table, columns, section
from optimizer.reports.terms import label, largest_first, runs

LINE = 66  # characters that a row of pairs holds at 80 columns
SEEN = ("cluster", "seq-len", "global-batch", "stack")  # guesses whose values the line of the subject has
PARTS = 3  # of a bar that are named
RUNNERS_UP = 3
GUESSES = 3  # lines on warnings and guesses
WIDE = 2.0  # high over low of an interval that the head warns of
# Parts of a step that more sequences do not lengthen, and the share of it from which on the batch is called small.
FIXED = ("dp_communication", "bubble", "optimizer", "overhead")
SMALL_BATCH = 0.25
NEARLY_CERTAIN = 0.99
NOTICEABLE = 1.005  # by how much longer runs like the fastest plan took than those like this one, before it is said
# Moving parts that a cautious engineer would rather do without.
HANDMADE = {"uneven stages", "stages that recompute unlike", "activations on the host", "optimizer on the host"}
OPTION = re.compile(r" \(--([a-z-]+)(?:, --[a-z-]+)*\)$")
BARS = columns(" | [bar] | ~")
OTHERS = columns("[text] | ~ | [text] | [text]")


def head_line(answer: Answer, assumed: Sequence[str]) -> str:
    """The chance to fit, what the user's own runs changed, and the options that were guessed."""
    guessed = dict.fromkeys(option[1] for text in assumed if (option := OPTION.search(text)))
    fits = f"fits with {chance(answer.job, answer.estimate)}" if answer.estimate else ""
    own = runs_words(answer.job, answer.plan, answer.estimate.step_time) if answer.plan and answer.estimate else ""
    return "; ".join(part for part in (fits, own, f"guessed: {', '.join(guessed)}" if guessed else "") if part)


def warnings(answer: Answer) -> list[str]:
    """What makes the head doubtful: a wide interval, a batch too small for its GPUs, GPUs left idle, data that may be
    late.
    """
    job, plan, estimate = answer.job, answer.plan, answer.estimate
    if plan is None or estimate is None:
        return []
    time = interval(job, plan, estimate.step_time)
    fixed = sum(estimate.time.get(name, 0.0) for name in FIXED) / estimate.step_time
    idle = -job.gpus % job.cluster.gpus_per_node if job.gpus > job.cluster.gpus_per_node else 0
    lines = {
        f"the step is known within a factor of {time.high / time.low:.2g} only": time.high > WIDE * time.low,
        f"a small batch for {job.gpus:,} GPUs: {fixed:.0%} of the step does not grow with it": fixed > SMALL_BATCH
        and job.gpus > 1,
        f"{idle} of the {job.gpus + idle:,} GPUs of these nodes idle": idle > 0,
    }
    late = loader_words(job, plan, time.middle)
    return [*(line for line, holds in lines.items() if holds), *([late] if late else ())]


def brief(
    answer: Answer,
    plan: Plan,
    estimate: Estimate,
    assumed: Sequence[str],
    binding: Sequence[str],
    warned: int = 0,
    budget: Budget | None = None,
) -> Section:
    """The plan and what is known of it, a line or two each.

    Args:
        answer: An answer with a plan.
        plan: Its plan.
        estimate: What that takes.
        assumed: What nobody said and was assumed.
        binding: The limits that bind, in words.
        warned: Lines that the head has for warnings; they take the place of those on guesses, which it names too.
        budget: A run whose hours and dollars are asked for.
    """
    job, share = answer.job, answer.knobs.offload
    cautious = job.prefer == EXPECTED and chance_to_fit(job, estimate.reserved) >= 1.0 - USUAL_RISK
    safer = () if cautious else _safer(answer, plan, estimate)
    tuned = _tuned(answer, plan, estimate) if job.tunes or budget else ()
    hosted = [("host", f"{share:.0%} of the optimizer state lies in its memory, updated there")] * (share > 0)
    plans = (("plan", plan.summary()), *tuned, *_layers(job, plan), *hosted, *safer, *_on_paper(answer, plan))
    unseen = (text for text in assumed if not ((option := OPTION.search(text)) and option[1] in SEEN))
    guessed = [cut(text, LINE) for text in unseen][: max(0, GUESSES - warned)]
    after = (
        *(_run(answer, plan, estimate, budget) if budget else ()),
        *_formats(answer),
        *([("proof", proof_sentence(answer.certificate, answer.run_bound))] if answer.certificate else []),
        *([("to learn", cut(learning, 2 * LINE))] if (learning := learning_words(answer, always=False)) else []),
        *(("guessed", text) for text in guessed),
        ("next", f"{_launching(job, estimate.reserved)}--why-not VAR=VALUE; all: --explain"),
    )
    bars = [
        ("time", *_bar(estimate.time, estimate.step_time, estimate.step_time)),
        (f"{estimate.reserved / GB:.1f} GB", *_bar(estimate.memory, job.usable_memory, estimate.reserved)),
    ]
    worse = objective_of(job).worse
    rows = [
        (str(rank), differing(plan, other.plan), f"+{other.slower:.1%} {worse}", chance(job, other.estimate))
        for rank, other in enumerate(answer.alternatives[: RUNNERS_UP - (warned > GUESSES)], start=2)
    ]
    return section(
        "",
        Pairs(plans),
        Table(BARS, bars),
        Pairs([("binds", in_words(binding) or "nothing")]),
        Table(OTHERS, rows),
        Pairs(after),
    )


def _tuned(answer: Answer, plan: Plan, estimate: Estimate) -> Iterator[tuple[str, str]]:
    """What people set and look at who fine-tune: accumulation, checkpointing, offload; tokens a second, peak memory."""
    job, time = answer.job, interval(answer.job, plan, estimate.step_time)
    few = f"{sum(plan.recompute_layers)} layers" if plan.recompute_layers else "all layers"
    some = few if plan.recompute == "full" else plan.recompute
    parts = {
        f"micro-batch {plan.micro_batch} x {plan.num_microbatches} accumulated": True,
        "no checkpointing" if plan.recompute == "none" else f"checkpointing of {some}": True,
        f"{plan.activation_offload}% of activations on the host": plan.activation_offload > 0,
    }
    yield "step", cut(", ".join(part for part, holds in parts.items() if holds), LINE)
    rate, low, high = (job.tokens / value for value in (time.middle, time.high, time.low))
    yield "rate", f"{rate:,.0f} tokens/s ({low:,.0f} to {high:,.0f} at {LEVEL:.0%})"
    memory = interval(job, plan, estimate.reserved, "memory")
    peak = f"{memory.middle / GB:.1f} GB ({memory.low / GB:.1f} to {memory.high / GB:.1f} at {LEVEL:.0%})"
    yield "peak", f"{peak} of {job.usable_memory / GB:.1f}, fits with {chance(job, estimate)}"


def _run(answer: Answer, plan: Plan, estimate: Estimate, budget: Budget) -> Iterator[tuple[str, str]]:
    """Hours and dollars of a whole run, failures included."""
    time = interval(answer.job, plan, estimate.step_time)
    middle, low, high = (
        budget.charged(budget.tokens * step / answer.job.tokens) for step in (time.middle, time.low, time.high)
    )
    yield "run", f"{count(budget.tokens)} tokens: {seconds(middle[0])} ({seconds(low[0])} to {seconds(high[0])})"
    if middle[1] is not None and low[1] is not None and high[1] is not None:
        yield "rent", cut(f"{middle[1]:,.2f} USD ({low[1]:,.2f} to {high[1]:,.2f}), {budget.price}", LINE)
    else:
        yield "rent", "no price is known"


def _launching(job: Job, reserved: float) -> str:
    """How to have the plan launched or tried, with the risk to be accepted; a program without launch files takes those
    of another by name, if any runs on the device.
    """
    if not without_files(job.stack):
        risk = risk_to_accept(job, reserved)
        return f"--oom-risk {risk}% --export DIR, " if risk else "--export DIR, `optimize trial`, "
    runs_there = any(job.cluster.device.vendor in launcher.vendors for launcher in launchers().values())
    return "--target NAME --export DIR, " if runs_there else ""


def proof_sentence(certificate: Certificate, of_run: float | None) -> str:
    """What was proven, with the bound, and with what a run may take at best where the model errs [s]."""
    words, expected = certificate.objective, " expected" if certificate.prefer == EXPECTED else ""
    run = f", run {seconds(of_run)}" if of_run else ""
    bound = f"{shown(certificate.lower_bound, words.unit)}{expected}{run}"
    if certificate.proven:
        return f"no plan of {certificate.space:,} is {words.better} in this model (bound {bound})"
    return f"not proven: in this model a plan may be {certificate.gap:.2%} {words.better} (bound {bound})"


def differing(plan: Plan, other: Plan) -> str:
    """In what another plan differs, in a line.

    >>> differing(Plan(tp=2, cp=2, dp=4), Plan(tp=2, dp=8, micro_batch=2))
    'DP 8, micro-batch 2, without CP 2'
    >>> differing(Plan(dp=8), Plan(dp=8, zero_stage=3, shard=4))
    'ZeRO-3 over 4'
    """
    mine, its = (one.summary().split(", ") for one in (plan, other))
    kinds = {_kind(part) for part in its}
    lacking = [f"without {part}" for part in mine if _kind(part) not in kinds]
    return cut(", ".join([*(part for part in its if part not in mine), *lacking]), LINE - 14)


def _kind(part: str) -> str:
    """What a part of a summary is about: its words without numbers."""
    return re.sub(r"[\d-]+", "", re.split(" x | by | over | SP", part)[0]).strip()


def _layers(job: Job, plan: Plan) -> Iterator[tuple[str, str]]:
    """The layers of each stage, where they are uneven."""
    layers = stage_layers(plan, job.model.layers) if plan.pp > 1 else ()
    if len(set(layers)) > 1:
        yield "layers", cut(runs(layers), LINE)


def _safer(answer: Answer, plan: Plan, estimate: Estimate) -> Iterator[tuple[str, str]]:
    """The nearest runner-up that fits with 90 % at least, even, with nothing on the host; else one that is more so.

    Nothing where the best plan is all of that, or no runner-up is.
    """
    job, own = answer.job, set(moving_parts(plan, answer.knobs))
    sure = chance_to_fit(job, estimate.reserved) >= NEARLY_CERTAIN
    nearest: list[tuple[bool, bool, int, Alternative, set[str]]] = []
    for rank, other in enumerate(answer.alternatives, start=2):
        handmade = HANDMADE & set(moving_parts(other.plan, other.knobs))
        likely = chance_to_fit(job, other.estimate.reserved)
        fits = likely >= NEARLY_CERTAIN
        if fits >= sure and handmade <= own and (fits > sure or handmade < HANDMADE & own):
            nearest.append(
                (likely < 1.0 - USUAL_RISK, bool(handmade) or not fits, rank, other, (HANDMADE & own) - handmade)
            )
    if nearest:
        *_, rank, other, spared = min(nearest, key=lambda item: item[:3])
        without = f" without {in_words(sorted(spared))}" if spared else ""
        words = f"+{other.slower:.1%} {objective_of(job).worse}{without}, fits with {chance(job, other.estimate)}"
        yield "safer", f"runner-up {rank}: {words}"


def _on_paper(answer: Answer, plan: Plan) -> Iterator[tuple[str, str]]:
    """What the best plan on paper would gain on one that was chosen with what may go wrong, and what it would risk."""
    best = answer.safety.fastest if answer.safety and answer.job.prefer == EXPECTED else None
    if best:
        words, parts = objective(answer.job.minimize), set(moving_parts(best.plan, best.knobs)) & HANDMADE
        what = ", ".join(sorted(parts - set(moving_parts(plan, answer.knobs)))) or differing(plan, best.plan)
        what = what or f"{best.knobs.offload:.0%} of states on host"
        ours, theirs = order_factor(answer.job, Plans.of([plan, best.plan]))
        if theirs > NOTICEABLE * ours:
            what = f"runs like it took {theirs / ours - 1.0:.0%} longer than priced, beside this; {what}"
        gain = f"{-best.slower:.1%} {words.better} on paper, fits with {chance(answer.job, best.estimate)}"
        yield words.best, cut(f"{gain}: {what}", LINE)


def _formats(answer: Answer) -> Iterator[tuple[str, str]]:
    """The best plans in other number formats, each in a few words."""
    worse = objective_of(answer.job).worse
    others = [
        f"{other.dtype} {other.slower:+.1%} {worse}" if other.plan else f"{other.dtype} {other.status}"
        for other in answer.formats
    ]
    if others:
        yield "formats", ", ".join(others)


def _bar(terms: Mapping[str, float], whole: float, used: float) -> tuple[tuple[float, ...], str]:
    """The shares of a bar, the largest three and the rest, and the three in words."""
    largest = largest_first(terms)[0][:PARTS]
    shares = [value / whole for _, value in largest]
    words = ", ".join(f"{label(name)} {share:.0%}" for (name, _), share in zip(largest, shares, strict=True))
    return (*shares, max(0.0, used / whole - sum(shares))), words


def cut(text: str, most: float) -> str:
    """A text of at most so many characters.

    >>> cut("one two three", 9), cut("one", 9)
    ('one two …', 'one')
    """
    return text if len(text) <= most else shorten(text, int(most), placeholder=" …")
