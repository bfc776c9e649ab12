"""Trials: what is to be run and what it costs, and what came of it; for people and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from shlex import quote
from typing import Any

import numpy as np

from optimizer.answer.answer import job_dict, plan_dict
from optimizer.base.units import GB, seconds
from optimizer.catalog.offers import Offer
from optimizer.diagnose.failures import CRASHED, OK, OOM
from optimizer.reports.known_values import hours
from optimizer.reports.plan_words import job_title, subject
from optimizer.reports.report import Pairs, Report, Table, Text, columns, notes, section
from optimizer.search.why.next_run import gpu_hours
from optimizer.trial.belief import Belief
from optimizer.trial.choice import expected_gain
from optimizer.trial.folder import SCHEMA_VERSION, Trials
from optimizer.trial.launch import RUNNER
from optimizer.trial.local_stack import LocalStack
from optimizer.trial.verdict import Verdict

RESULTS = {OK: "ran", OOM: "out of memory", CRASHED: "failed", "unfinished": "unfinished", "waiting": "not run yet"}
MOST = 1e15  # tokens beyond which no run is
PARAMETERS = 6  # moved the most, that are shown
PLANNED = columns("| plan ~ | step [text] | memory [text] | fits [text] | cost [text]")
OUTCOMES = columns("| plan ~ | predicted [text] | measured [text] | memory [text] | result")


def started_report(trials: Trials, belief: Belief, assumed: Sequence[str], rent: Offer | None) -> Report:
    """What was written: the plans to try, their cost, and what they may win.

    Args:
        trials: The folder of launch files, and the candidates they are chosen from.
        belief: What is thought of the candidates before any trial.
        assumed: What nobody said and was assumed.
        rent: The price of the machines, if one is known.
    """
    program = "/path/to/Megatron-LM" if trials.launches else "--with YOUR_COMMAND"
    run = f"bash {quote(str(trials.folder / RUNNER))} {program}      # or sbatch; start it again to go on"
    return Report(
        title=f"{job_title(trials.job)}: {len(trials.chosen)} trials of {trials.steps} steps",
        subject=(subject(trials.job),),
        sections=(
            section("Trials", trials_table(trials, belief)),
            section("What they cost, and may win", Pairs(money_rows(trials, belief, rent))),
            section("How to run them", Text(f"{run}\noptimize trial read {quote(str(trials.folder))}", block=True)),
        ),
        assumed=(*assumed, "a trial takes 5 minutes to start"),
    )


def verdict_report(verdict: Verdict, local: LocalStack | None, written: str) -> Report:
    """What came of the trials, the winner, and whether another one pays; `written`: the file of the local stack."""
    minded = [f"{outcome.name}: {word}" for outcome in verdict.outcomes for word in outcome.words]
    if verdict.assumed_tokens:
        minded.append(f"a run of {verdict.tokens:.2g} tokens, 20 per parameter (--tokens)")
    return Report(
        title=f"{job_title(verdict.trials.job)}: {headline(verdict)}",
        subject=(subject(verdict.trials.job),),
        tone="open" if verdict.winner is None else "good",
        sections=(
            section("Trials", outcomes_table(verdict)),
            section("What they decide", Pairs(decision_rows(verdict))),
            section("The stack after them", Pairs(local_rows(local, written) if local else ())),
            notes("Mind", minded),
        ),
        note="Predicted by mfu-optimizer, and measured by the trials.",
    )


def plural(count: int, word: str) -> str:
    """A count and its word.

    >>> plural(1, "plan"), plural(3, "plan")
    ('1 plan', '3 plans')
    """
    return f"{count} {word}{'s' * (count != 1)}"


def trials_table(trials: Trials, belief: Belief) -> Table:
    """The plans to try, as they are predicted."""
    costs, rows = trials.candidates.costs, []
    for place, index in enumerate(trials.chosen):
        step, plan = float(costs.step_time[index]), trials.candidates.plans[index].summary()
        memory, fits = f"{costs.reserved[index] / GB:.1f} GB", f"{belief.chance[index]:.0%}"
        cost = hours(gpu_hours(trials.job, step, trials.steps))
        rows.append((trials.trial(place).name, plan, seconds(step), memory, fits, cost))
    return Table(PLANNED, rows)


def money_rows(trials: Trials, belief: Belief, rent: Offer | None) -> list[tuple[str, str]]:
    """Cost of all trials, and the expected win over the plan that is ranked first, untried."""
    costs = trials.candidates.costs
    cost = sum(gpu_hours(trials.job, float(costs.step_time[index]), trials.steps) for index in trials.chosen)
    dollars = f", {cost * 3600 * rent.value:,.0f} USD at the price of {rent.title()} ({rent.row})" if rent else ""
    wins = ", ".join(f"{win:.1%} with {count}" for count, win in enumerate(expected_wins(trials, belief), 1))
    among = plural(len(trials.candidates), "plan")
    spread = float(np.median(belief.seconds.spread))
    return [
        ("cost", f"{hours(cost)}{dollars}"),
        ("shorter steps", f"{wins}: expected, over the plan that is ranked first and not tried"),
        ("chosen among", f"{among} of the lattice; errors of like plans are alike"),
        ("unsure by", f"{spread:.1%} of a step, by what is believed of errors"),
    ]


def expected_wins(trials: Trials, belief: Belief) -> list[float]:
    """How much shorter steps are expected to get with the first trial, the first two, and so on [1]."""
    chosen = trials.chosen
    return [max(0.0, expected_gain(belief, [0], chosen[: count + 1])) for count in range(len(chosen))]


def headline(verdict: Verdict) -> str:
    """The winner in one line, or that there is none."""
    if verdict.winner is None:
        return "no trial has trained yet"
    name, step = _winner(verdict)
    return f"{name} wins, {seconds(step)} per step, {verdict.loss or 0.0:.1%} may be left"


def outcomes_table(verdict: Verdict) -> Table:
    """Every trial: predicted and measured."""
    candidates, rows = verdict.trials.candidates, []
    for outcome in verdict.outcomes:
        predicted = float(candidates.costs.step_time[outcome.index])
        memory = f"{outcome.memory_bytes / GB:.1f} GB" if outcome.memory_bytes else "—"
        plan, result = candidates.plans[outcome.index].summary(), RESULTS[outcome.status]
        step = outcome.seconds
        measured = "—" if step is None else f"{seconds(step)} ({step / predicted - 1:+.1%})"
        rows.append((outcome.name, plan, seconds(predicted), measured, memory, result))
    return Table(OUTCOMES, rows)


def decision_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """Winner, expected loss, the next trial."""
    candidates, rows = verdict.trials.candidates, []
    if verdict.winner is not None:
        name, step = _winner(verdict)
        among = plural(len(candidates), "plan")
        rows.append(("winner", f"{name}: {candidates.plans[verdict.winner].summary()}, {seconds(step)} per step"))
        rows.append(("still lost", f"{verdict.loss or 0.0:.1%} of a step, expected over {among}"))
    if verdict.open:
        waiting = ", ".join(outcome.name for outcome in verdict.open)
        rows.append(("not yet", f"{waiting}: bash {quote(str(verdict.trials.folder / RUNNER))} goes on"))
    if verdict.next is not None:
        plan, chance = candidates.plans[verdict.next.index], float(verdict.belief.chance[verdict.next.index])
        shorter = f"{verdict.next.gain:.1%} shorter expected"
        rows.append(("next", f"{plan.summary()}: fits with {chance:.0%}, {shorter}"))
        rows.append(("pays", pays_words(verdict)))
    elif any(outcome.done for outcome in verdict.outcomes):
        rows.append(("next", "every candidate was tried"))
    return rows


def pays_words(verdict: Verdict) -> str:
    """Whether another trial pays, by its cost, its expected win, and the run from which on it does."""
    words = f"{hours(verdict.cost)} for {hours(verdict.win)} expected over {verdict.tokens:.2g} tokens"
    even = verdict.breaks_even
    if verdict.pays:
        return f"yes: {words}; `optimize trial next {quote(str(verdict.trials.folder))}` writes it"
    return f"no: {words}" + (f"; it would from {even:.2g} tokens on" if even < MOST else "")


def local_rows(local: LocalStack, written: str) -> list[tuple[str, str]]:
    """What moved in the stack."""
    rows = [
        ("file", f"--stack {quote(written)}"),
        ("error", f"{local.before:.1%} of the trials' steps before, {local.after:.1%} after"),
    ]
    if not local.moved:
        return [*rows, ("moved", "nothing: the trials are within what no parameter explains")]
    changes = {name: abs(new - old) / max(abs(old), abs(new), 1e-30) for name, (old, new) in local.moved.items()}
    far = sorted(local.moved.items(), key=lambda item: -changes[item[0]])[:PARAMETERS]
    moved = ", ".join(f"{name} {old:.3g} → {new:.3g}" for name, (old, new) in far)
    prior = f"as strong as {local.prior:g} run{'s' * (local.prior != 1)} for each parameter"
    return [*rows, ("prior", prior), ("moved", moved)]


def _winner(verdict: Verdict) -> tuple[str, float]:
    """Name and measured step [s] of the winner."""
    outcome = next(item for item in verdict.outcomes if item.index == verdict.winner)
    return outcome.name, outcome.seconds or 0.0


def started_dict(trials: Trials, belief: Belief, assumed: Sequence[str]) -> dict[str, Any]:
    """The trials that were written, what they cost and may win."""
    rows = [candidate_dict(trials, belief, index) for index in trials.chosen]
    return {
        "schema_version": SCHEMA_VERSION,
        "job": job_dict(trials.job),
        "folder": str(trials.folder),
        "steps": trials.steps,
        "candidates": len(trials.candidates),
        "trials": [{"name": trials.trial(place).name, **row} for place, row in enumerate(rows)],
        "cost_gpu_hours": sum(row["cost_gpu_hours"] for row in rows),
        "expected_gain": expected_wins(trials, belief),
        "assumptions": list(assumed),
    }


def candidate_dict(trials: Trials, belief: Belief, index: int) -> dict[str, Any]:
    """One candidate as it is predicted."""
    verdict, step = trials.candidates, float(trials.candidates.costs.step_time[index])
    return {
        "plan": plan_dict(verdict.plans[index]),
        "knobs": asdict(verdict.knobs[index]),
        "predicted_step_time_s": step,
        "predicted_memory_bytes": float(verdict.costs.reserved[index]),
        "chance_to_fit": float(belief.chance[index]),
        "cost_gpu_hours": gpu_hours(trials.job, step, trials.steps),
    }


def verdict_dict(verdict: Verdict, local: LocalStack | None, written: str) -> dict[str, Any]:
    """What came of the trials and what they decide."""
    trials, before = verdict.trials, verdict.trials.candidates.belief()
    rows = [
        {
            "name": outcome.name,
            "status": outcome.status,
            "step_time_s": outcome.seconds,
            "spread": outcome.spread,
            "steps_used": outcome.steps,
            "memory_bytes": outcome.memory_bytes,
            "exit_code": outcome.exit_code,
            "remarks": list(outcome.words),
            **candidate_dict(trials, before, outcome.index),
        }
        for outcome in verdict.outcomes
    ]
    best = next(
        (row for outcome, row in zip(verdict.outcomes, rows, strict=True) if outcome.index == verdict.winner), None
    )
    following = None
    if verdict.next is not None:
        following = {
            **candidate_dict(trials, verdict.belief, verdict.next.index),
            "expected_gain": verdict.next.gain,
            "win_gpu_hours": verdict.win,
            "pays": verdict.pays,
        }
    return {
        "schema_version": SCHEMA_VERSION,
        "job": job_dict(trials.job),
        "trials": rows,
        "winner": best,
        "expected_loss": verdict.loss,
        "next": following,
        "tokens": verdict.tokens,
        "tokens_assumed": verdict.assumed_tokens,
        "stack": _stack(local, written) if local else None,
    }


def _stack(local: LocalStack, written: str) -> dict[str, Any]:
    return {
        "file": written,
        "name": local.stack.name,
        "prior_runs": local.prior,
        "error_before": local.before,
        "error_after": local.after,
        "moved": {name: {"before": before, "after": after} for name, (before, after) in local.moved.items()},
    }
