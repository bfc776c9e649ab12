"""Trials for people: what is to be run and what it costs, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from optimizer.base.units import GB, seconds
from optimizer.diagnose.failures import CRASHED, OK, OOM
from optimizer.reports.plan_report import grid, notes, subject, title
from optimizer.trial.choice import expected_gain
from optimizer.trial.launch import RUNNER, gpu_hours
from optimizer.trial.local_stack import LocalStack
from optimizer.trial.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.catalog.offers import Offer
    from optimizer.trial.belief import Belief
    from optimizer.trial.folder import Trials
    from optimizer.trial.verdict import Verdict

RESULTS = {OK: "ran", OOM: "out of memory", CRASHED: "failed", "unfinished": "unfinished", "waiting": "not run yet"}
MOST = 1e15  # tokens beyond which no run is
PARAMETERS = 6  # moved the most, that are shown


def started_report(trials: Trials, belief: Belief, assumed: Sequence[str], rent: Offer | None) -> Group:
    """What was written: the plans to try, their cost, and what they may win."""
    from rich.console import Group
    from rich.text import Text

    job, count = trials.job, len(trials.chosen)
    program = "/path/to/Megatron-LM" if trials.launches else "--with YOUR_COMMAND"
    name = job.model.title or job.model.name
    parts: list[RenderableType] = [
        Text(
            f"{name} on {job.gpus:,} × {job.cluster.device.name}: {count} trials of {trials.steps} steps", style="bold"
        ),
        Text(subject(job)),
        title("Trials"),
        trials_table(trials, belief),
        title("What they cost, and may win"),
        money_table(trials, belief, rent),
        title("How to run them"),
        Text(f" bash {quote(str(trials.folder / RUNNER))} {program}      # or sbatch; start it again to go on"),
        Text(f" optimize trial read {quote(str(trials.folder))}"),
    ]
    return Group(*parts, *notes("Assumed", [*assumed, "a trial takes 5 minutes to start"]))


def plural(count: int, word: str) -> str:
    """A count and its word.

    >>> plural(1, "plan"), plural(3, "plan")
    ('1 plan', '3 plans')
    """
    return f"{count} {word}{'s' * (count != 1)}"


def trials_table(trials: Trials, belief: Belief) -> Table:
    """The plans to try, as they are predicted."""
    table = grid("left", "left", "right", "right", "right", "right", expand="1")
    table.add_row("", "plan", "step", "memory", "fits", "cost", style="dim")
    costs, chance = trials.candidates.costs, belief.chance
    for place, index in enumerate(trials.chosen):
        step = float(costs.step_time[index])
        table.add_row(
            trials.trial(place).name,
            trials.candidates.plans[index].summary(),
            seconds(step),
            f"{costs.reserved[index] / GB:.1f} GB",
            f"{chance[index]:.0%}",
            hours(gpu_hours(trials.job, step, trials.steps)),
        )
    return table


def money_table(trials: Trials, belief: Belief, rent: Offer | None) -> Table:
    """Cost of all trials, and the expected win over the plan that is ranked first, untried."""
    table = grid("left", "left", expand="1")
    costs = trials.candidates.costs
    cost = sum(gpu_hours(trials.job, float(costs.step_time[index]), trials.steps) for index in trials.chosen)
    dollars = f", {cost * 3600 * rent.value:,.0f} USD at the price of {rent.title()} ({rent.row})" if rent else ""
    table.add_row("cost", f"{hours(cost)}{dollars}")
    wins = [expected_gain(belief, [0], trials.chosen[: count + 1]) for count in range(len(trials.chosen))]
    words = ", ".join(f"{max(0.0, win):.1%} with {count}" for count, win in enumerate(wins, 1))
    table.add_row("shorter steps", f"{words}: expected, over the plan that is ranked first and not tried")
    table.add_row(
        "chosen among", f"{plural(len(trials.candidates), 'plan')} of the lattice; errors of like plans are alike"
    )
    spread = float(np.median(belief.seconds.spread))
    table.add_row("unsure by", f"{spread:.1%} of a step, the residuals of {trials.job.stack.name}")
    return table


def verdict_report(verdict: Verdict, local: LocalStack | None, written: str) -> Group:
    """What came of the trials, the winner, and whether another one pays."""
    from rich.console import Group
    from rich.text import Text

    job = verdict.trials.job
    name = job.model.title or job.model.name
    colour = "yellow" if verdict.winner is None else "green"
    parts: list[RenderableType] = [
        Text(f"{name} on {job.gpus:,} × {job.cluster.device.name}: {headline(verdict)}", style=f"bold {colour}"),
        Text(subject(job)),
        title("Trials"),
        outcomes_table(verdict),
        title("What they decide"),
        decision_table(verdict),
    ]
    if local is not None:
        parts += [title("The stack after them"), local_table(local, written)]
    remarks = [f"{outcome.name}: {word}" for outcome in verdict.outcomes for word in outcome.words]
    if verdict.assumed_tokens:
        remarks.append(f"a run of {verdict.tokens:.2g} tokens, 20 per parameter (--tokens)")
    return Group(*parts, *notes("Mind", remarks))


def headline(verdict: Verdict) -> str:
    """The winner in one line, or that there is none."""
    if verdict.winner is None:
        return "no trial has trained yet"
    name, step = _winner(verdict)
    return f"{name} wins, {seconds(step)} per step, {verdict.loss or 0.0:.1%} may be left"


def outcomes_table(verdict: Verdict) -> Table:
    """Every trial: predicted and measured."""
    table = grid("left", "left", "right", "right", "right", "left", expand="1")
    table.add_row("", "plan", "predicted", "measured", "memory", "result", style="dim")
    candidates = verdict.trials.candidates
    for outcome in verdict.outcomes:
        predicted = float(candidates.costs.step_time[outcome.index])
        table.add_row(
            outcome.name,
            candidates.plans[outcome.index].summary(),
            seconds(predicted),
            _measured(outcome, predicted),
            f"{outcome.memory_bytes / GB:.1f} GB" if outcome.memory_bytes else "—",
            RESULTS[outcome.status],
        )
    return table


def decision_table(verdict: Verdict) -> Table:
    """Winner, expected loss, the next trial."""
    table = grid("left", "left", expand="1")
    candidates = verdict.trials.candidates
    if verdict.winner is not None:
        name, step = _winner(verdict)
        table.add_row("winner", f"{name}: {candidates.plans[verdict.winner].summary()}, {seconds(step)} per step")
        table.add_row(
            "still lost", f"{verdict.loss or 0.0:.1%} of a step, expected over {plural(len(candidates), 'plan')}"
        )
    if verdict.open:
        waiting = ", ".join(outcome.name for outcome in verdict.open)
        table.add_row("not yet", f"{waiting}: bash {quote(str(verdict.trials.folder / RUNNER))} goes on")
    if verdict.next is not None:
        plan = candidates.plans[verdict.next.index]
        chance = float(verdict.belief.chance[verdict.next.index])
        table.add_row("next", f"{plan.summary()}: fits with {chance:.0%}, {verdict.next.gain:.1%} shorter expected")
        table.add_row("pays", pays_words(verdict))
    elif any(outcome.done for outcome in verdict.outcomes):
        table.add_row("next", "every candidate was tried")
    return table


def pays_words(verdict: Verdict) -> str:
    """Whether another trial pays, by its cost, its expected win, and the run from which on it does."""
    words = f"{hours(verdict.cost)} for {hours(verdict.win)} expected over {verdict.tokens:.2g} tokens"
    even = verdict.breaks_even
    if verdict.pays:
        return f"yes: {words}; `optimize trial next {quote(str(verdict.trials.folder))}` writes it"
    return f"no: {words}" + (f"; it would from {even:.2g} tokens on" if even < MOST else "")


def local_table(local: LocalStack, written: str) -> Table:
    """What moved in the stack."""
    table = grid("left", "left", expand="1")
    table.add_row("file", f"--stack {quote(written)}")
    table.add_row("error", f"{local.before:.1%} of the trials' steps before, {local.after:.1%} after")
    if not local.moved:
        table.add_row("moved", "nothing: the trials are within what no parameter explains")
        return table
    table.add_row("prior", f"as strong as {local.prior:g} run{'s' * (local.prior != 1)} for each parameter")
    far = sorted(local.moved.items(), key=lambda item: -_change(*item[1]))[:PARAMETERS]
    table.add_row("moved", ", ".join(f"{name} {old:.3g} → {new:.3g}" for name, (old, new) in far))
    return table


def hours(value: float) -> str:
    """GPU-hours for people.

    >>> hours(0.456), hours(123.4), hours(45678.9)
    ('0.46 GPU-hours', '123 GPU-hours', '45,679 GPU-hours')
    """
    return f"{value:,.0f} GPU-hours" if value >= 100 else f"{value:.2g} GPU-hours"


def _change(before: float, after: float) -> float:
    return abs(after - before) / max(abs(before), abs(after), 1e-30)


def _winner(verdict: Verdict) -> tuple[str, float]:
    """Name and measured step [s] of the winner."""
    outcome = next(item for item in verdict.outcomes if item.index == verdict.winner)
    return outcome.name, outcome.seconds or 0.0


def _measured(outcome: Outcome, predicted: float) -> str:
    if outcome.seconds is None:
        return "—"
    return f"{seconds(outcome.seconds)} ({outcome.seconds / predicted - 1:+.1%})"
