"""What logs say, on the screen: the steady part, what to mind, and why it is slower than the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds
from optimizer.diagnose.diagnosis import ABOVE, ALIKE, BELOW, Diagnosis, Explanation
from optimizer.diagnose.measured import Measured
from optimizer.objectives.step.interval import LEVEL
from optimizer.reports.plan_report import grid, notes, title

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.diagnose.held_to import HeldTo

TOLD = (2.0, 0.5)  # signs that are told: so many times likelier under a cause, or less likely


def logs_report(runs: Sequence[Measured], diagnoses: Sequence[Diagnosis | None], held: HeldTo | None = None) -> Group:
    """Every run, one after the other, and last what was assumed of the launch that they are held to."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for number, (run, diagnosis) in enumerate(zip(runs, diagnoses, strict=True), start=1):
        if number > 1:
            parts.append(Text(""))
        place = f"Run {number} of {len(runs)}: " if len(runs) > 1 else ""
        parts += [Text(f"{place}{headline(run)}", style="bold"), *_measured(run)]
        if diagnosis:
            parts += _diagnosed(diagnosis)
        parts += notes("Mind", run.warnings)
    if held and held.assumed:
        parts += notes("Assumed of the launch", held.assumed)
    if held and held.ignored:
        parts += notes("Ignored in the launch: means nothing to the price", [", ".join(held.ignored)])
    return Group(*parts)


def headline(run: Measured) -> str:
    """The run in one line."""
    name = ", ".join(run.files[:3]) + (f" and {len(run.files) - 3} more" if len(run.files) > 3 else "")
    program = run.program or "a run without steps"
    if run.steady is None:
        rate = f", {run.tokens_rate:,.0f} tokens/s per GPU" if run.tokens_rate else ""
        failed = {"oom": ", out of memory", "crashed": ", failed"}.get(run.status, "")
        return f"{name}: {program}{rate}{failed}, no step time"
    return f"{name}: {program}, {seconds(run.steady.seconds)} per step ± {run.steady.spread:.1%}"


def _measured(run: Measured) -> list[RenderableType]:
    steady = run.steady
    if steady is None:
        return [_pairs([("ended", run.failure)])] if run.failure else []
    used = f"{steady.steps_used:,} steps, {steady.first:,} to {steady.last:,} of {run.first:,} to {run.last:,}"
    rows = [("steady part", f"{used}; {steady.warm_up} line{'s' * (steady.warm_up != 1)} of warm-up left out")]
    if steady.stalls:
        each = f", every {steady.period} steps" if steady.period else ""
        rows.append(("stalls", f"{len(steady.stalls)}{each}, {steady.stalled:.1%} of the time"))
    if steady.trend:
        rows.append(("trend", f"{steady.trend:+.1%} over the steady part"))
    if run.memory is not None:
        rows.append(("memory", f"{run.memory / GB:.1f} GB {run.memory_kind} on the fullest rank that says"))
    if run.tokens_rate:
        rows.append(("tokens", f"{run.tokens_rate:,.0f} per second and GPU"))
    if run.loss is not None:
        rows.append(("last loss", f"{run.loss:.4g}"))
    bad = [(run.nans, "not a number"), (run.skipped, "skipped"), (run.restarts, "restarts")]
    if found := [f"{count} {name}" for count, name in bad if count]:
        rows.append(("steps", ", ".join(found)))
    if run.failure:
        rows.append(("ended", run.failure))
    return [_pairs(rows)]


def _diagnosed(diagnosis: Diagnosis) -> list[RenderableType]:
    from rich.text import Text

    around = diagnosis.interval
    parts: list[RenderableType] = [
        title("Measured against predicted"),
        Text(
            f" {seconds(diagnosis.measured)} measured, {seconds(diagnosis.predicted)} predicted "
            f"({seconds(around.low)} to {seconds(around.high)} at {LEVEL:.0%}): {diagnosis.gap:+.1%}"
        ),
        Text(f" {verdict(diagnosis)}"),
    ]
    if diagnosis.unlike:
        return parts
    if diagnosis.explanations:
        parts += [title("What alone would explain it"), _table(diagnosis.explanations)]
        parts += notes("Why", _reasons(diagnosis))
    if diagnosis.excluded:
        parts += notes("Cannot be", [f"{cause.label}: {reason}" for cause, reason in diagnosis.excluded])
    return parts


def verdict(diagnosis: Diagnosis) -> str:
    """What the gap means, in a sentence."""
    if diagnosis.unlike:
        return f"The log is of another run ({'; '.join(diagnosis.unlike)}): no cause of the gap is sought."
    if diagnosis.verdict == BELOW:
        return "Slower than the interval: something takes time that the model does not know of."
    if diagnosis.verdict == ABOVE:
        return "Faster than the interval: the model is wrong here; optimize calibrate fits it to your runs."
    return "Within the interval: the error of the model alone may be the whole difference."


def _table(explanations: Sequence[Explanation]) -> Table:
    from rich.table import Table

    drawn = Table(box=None, pad_edge=True, padding=(0, 1, 0, 0), header_style="dim")
    drawn.add_column("likely", justify="right", no_wrap=True)
    drawn.add_column("the whole gap, if")
    drawn.add_column("so bad", justify="right", no_wrap=True)
    for found in explanations:
        rarer = f"{found.rarer:.0%}" if found.setting is not None else "—"
        drawn.add_row(f"{found.share:.0%}", found.says, rarer)
    return drawn


def _reasons(diagnosis: Diagnosis) -> list[str]:
    """How sure the order is, what the log shows, where the priors are from, and the cheapest test."""
    alike = diagnosis.alike
    lines = []
    if len(alike) > 1:
        names = ", ".join(found.cause.label for found in alike)
        lines.append(f"These fit alike, within a factor of {ALIKE:.0f}: {names}. Several at once fit as well.")
    for found in diagnosis.explanations[:2]:
        told = [_sign(sign.text, weight) for sign, weight in found.signs if not TOLD[1] < weight < TOLD[0]]
        if told:
            lines.append(f"{found.cause.label}: {'; '.join(told)}")
        lines.append(f"{found.cause.label}, how bad such faults are: {found.cause.why}")
    if diagnosis.tested and (test := diagnosis.test):
        other = next((one for one in diagnosis.explanations[:2] if one is not diagnosis.tested), None)
        setting = diagnosis.tested.setting
        shows = test.shows(setting) if setting is not None else "it at its worst"
        rest = f", else {other.cause.label} is left" if other else ""
        whose = diagnosis.tested.cause.label
        lines.append(f"Cheapest test, {test.minutes:g} min: {test.what}. If it is {whose}: {shows}{rest}.")
    lines.append('"likely" counts these causes alone, one at a time; "so bad" is the share of faults at least so bad')
    return lines


def _sign(text: str, weight: float) -> str:
    return f"{text} ({weight:.1f} x as likely)" if weight >= 1 else f"{text} ({1 / weight:.1f} x less likely)"


def _pairs(rows: Sequence[tuple[str, str]]) -> Table:
    drawn = grid("left", "left", expand="1")
    for name, value in rows:
        drawn.add_row(name, value)
    return drawn
