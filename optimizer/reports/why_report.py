"""Why this plan and not another one: compared with yours, how sure it is the fastest, and every term's formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds, show
from optimizer.objectives.minimised.registry import objective
from optimizer.reports.known_values import mfu_words, step_words
from optimizer.reports.plan_words import show_gigabytes
from optimizer.reports.report import Heading, Pairs, Section, Table, Text, columns, section
from optimizer.reports.terms import label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.objectives.step.explain import TermExplanation
    from optimizer.search.why.comparison import Comparison, Difference
    from optimizer.search.why.robustness import Robustness

NOTICEABLE = 0.0005  # share of the whole below which a difference is left out
PLANS = columns(" | plan ~ | step [text] | MFU [text] | memory [text]")
DIFFERENCES = columns(" | [text] | [text] | [text] | [bar]")
STANDINGS = columns("[text] | plan ~ | fastest [text] | expected regret [text]")


def comparison_section(job: Job, comparison: Comparison) -> Section:
    """The verdict in a sentence, then the terms or the rules."""
    ours, theirs = comparison.our_estimate, comparison.estimate
    rules = [
        row
        for clash in comparison.broken
        for row in ((clash.rule, clash.reason), *([("", clash.remedy)] if clash.remedy else []))
    ]
    heading = f"Why not {comparison.pins}?"
    if comparison.plan is None or theirs is None:
        return section(heading, verdict(comparison), Pairs(rules))
    return section(
        heading,
        verdict(comparison),
        Pairs(rules),
        Table(PLANS, plans(job, comparison)),
        Heading("seconds per step, ours against yours"),
        differences(comparison.time, ours.step_time, theirs.step_time, seconds),
        Heading("memory of the fullest GPU, ours against yours"),
        differences(comparison.memory, ours.reserved, theirs.reserved, show_gigabytes),
    )


def verdict(comparison: Comparison) -> str:
    """The comparison in one sentence: what it costs most, what it gains most, or what it breaks."""
    words = objective(comparison.minimize, comparison.prefer)
    if comparison.verdict == "infeasible":
        names = ", ".join(clash.rule for clash in comparison.broken)
        least = comparison.estimate
        tail = f"; such a plan of least memory reserves {least.reserved / GB:.1f} GB and is shown" if least else ""
        return f"No plan with these pins satisfies every rule ({names}){tail}."
    if comparison.verdict == "same":
        return f"The best plan with these pins is as {words.good} as ours."
    more = [item for item in comparison.time if item.more > 0]
    less = [item for item in comparison.time if item.more < 0]
    costs = f"costs {_worst(more)}" if more else ""
    gains = f"saves {_worst(less)}" if less else ""
    why = " and ".join(part for part in (costs, gains) if part)
    if comparison.verdict == "faster":
        return (
            f"The best plan with these pins is {-comparison.slower:.2%} {words.better}: it {why}. "
            "The pins reach where the search did not look, or undo a pin of the job."
        )
    return f"The best plan with these pins is {comparison.slower:.2%} {words.worse}: it {why}."


def plans(job: Job, comparison: Comparison) -> list[tuple[str, ...]]:
    """Both plans with step time, MFU and memory, under PLANS."""
    both = (
        ("ours", comparison.ours, comparison.our_estimate),
        ("yours", comparison.plan, comparison.estimate),
    )
    return [
        (
            name,
            plan.summary(),
            step_words(job, plan, one.step_time),
            mfu_words(job, plan, one),
            show_gigabytes(one.reserved),
        )
        for name, plan, one in both
        if plan and one
    ]


def differences(terms: Sequence[Difference], ours: float, theirs: float, write: Callable[[float], str]) -> Table:
    """One row per term that differs: both values, the difference and its bar; the last row adds up."""
    largest = max((abs(item.more) for item in terms), default=0.0)
    rows = [
        (label(item.term), write(item.ours), write(item.theirs), signed(item.more, write), abs(item.more) / largest)
        for item in terms
        if abs(item.more) > NOTICEABLE * ours
    ]
    whole = ("all terms", write(ours), write(theirs), signed(theirs - ours, write), None)
    return Table(DIFFERENCES, [*rows, whole], strong=[len(rows)])


def signed(value: float, write: Callable[[float], str]) -> str:
    """A difference with its sign.

    >>> signed(-0.25, seconds), signed(0.5, seconds)
    ('-250 ms', '+500 ms')
    """
    return f"{'-' if value < 0 else '+'}{write(abs(value))}"


def _worst(items: Sequence[Difference], count: int = 2) -> str:
    return ", ".join(f"{seconds(abs(item.more))} of {label(item.term)}" for item in items[:count])


def robustness_section(answer: Answer, robustness: Robustness, *, whole: bool = True) -> Section:
    """The verdict; of the whole, then every plan with its chance of being the fastest and its expected regret."""
    if not whole:
        return section("", Pairs([("robust", standing_words(robustness))]))
    plans = [answer.plan, *(other.plan for other in answer.alternatives)]
    rows = [
        (str(rank), plan.summary() if plan else "", f"{standing.chance:.0%}", f"{standing.regret:.2%}")
        for rank, (plan, standing) in enumerate(zip(plans, robustness.standings, strict=True), start=1)
    ]
    return section("Brittle or broad", robustness_words(answer, robustness), Table(STANDINGS, rows))


def standing_words(robustness: Robustness) -> str:
    """How often the best plan is the fastest, and which is expected to lose least where that is another, in a line."""
    best, place = robustness.standings[0], robustness.steadiest
    other = f"; least regret: runner-up {place + 1}" if place else ""
    return f"{robustness.shape}: fastest in {best.chance:.0%} of {robustness.draws} draws{other}"


def robustness_words(answer: Answer, robustness: Robustness) -> str:
    """Whether the best plan stays the fastest, and which plan is expected to lose least where that is another one."""
    best = robustness.standings[0]
    stated = (
        f"{robustness.shape.capitalize()}: of {robustness.draws} draws of the stack's parameters, as far apart "
        f"as its errors, the best plan is the fastest in {best.chance:.0%}."
    )
    place = robustness.steadiest
    if not place:
        return f"{stated} No plan listed has less expected regret than its {best.regret:.2%}."
    other = answer.alternatives[place - 1]
    return (
        f"{stated} Least expected regret: number {place + 1}, {other.plan.summary()}, with "
        f"{robustness.standings[place].regret:.2%} against {best.regret:.2%}."
    )


def explain_sections(terms: Sequence[TermExplanation]) -> list[Section]:
    """Terms by unit, largest first: value, formula, inputs with their origin, source and label."""
    return [
        section(
            f"{title}, term by term",
            *(
                Text("\n".join(_lines(term)), block=True)
                for term in sorted((term for term in terms if term.unit == unit), key=lambda term: -term.value)
            ),
        )
        for unit, title in (("s", "Seconds"), ("B", "Bytes"))
    ]


def _lines(term: TermExplanation) -> Iterator[str]:
    yield f"{label(term.name)}: {show(term.value, term.unit)} [{term.label}]"
    yield f"  = {term.formula}"
    yield f"  {', '.join(f'{name} = {_shown(value)}' for name, value in term.values.items())}"
    yield f"  {term.about}"
    yield from (f"  {name}: {text}" for name, text in term.kernels.items())
    if term.inputs:
        yield f"  inputs: {', '.join(f'{name} = {value}' for name, value in term.inputs.items())}"
    if term.source:
        yield f"  source: {term.source}"


def _shown(value: float | tuple[float, ...]) -> str:
    """A number, or one for each kind of layer (embedding, dense, MoE, MTP, head, as the model has them)."""
    return f"{value:.6g}" if isinstance(value, float) else f"({', '.join(f'{number:.6g}' for number in value)})"
