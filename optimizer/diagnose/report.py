"""What logs say: the steady part, what to mind, and why it is slower than the plan; for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.answer.answer import job_dict, plan_dict
from optimizer.base.units import GB, seconds
from optimizer.diagnose.diagnosis import ABOVE, ALIKE, BELOW, Diagnosis
from optimizer.diagnose.measured import Measured
from optimizer.diagnose.reference import Reference
from optimizer.diagnose.steady import Steady
from optimizer.objectives.step.interval import LEVEL
from optimizer.reports.render.json import as_json, json_text
from optimizer.reports.report import Pairs, Report, Section, Table, columns, notes, section

SPEAKING = (2.0, 0.5)  # signs that are shown: so many times likelier under a cause, or less likely
CAUSES = columns("likely [text] | the whole gap, if ~ | so bad [text]")


def logs_report(
    runs: Sequence[Measured], diagnoses: Sequence[Diagnosis | None], reference: Reference | None = None
) -> Report:
    """Every run, one after the other, and last what was assumed of the launch that they are held to."""
    sections: list[Section] = []
    for number, (run, diagnosis) in enumerate(zip(runs, diagnoses, strict=True), start=1):
        heading = f"Run {number} of {len(runs)}: {headline(run)}" if len(runs) > 1 else "What was measured"
        sections.append(section(heading, Pairs(_measured(run)), "" if run.steady or run.failure else "Nothing else."))
        sections += _diagnosed(diagnosis) if diagnosis else []
        sections.append(notes("Mind", run.warnings))
    ignored = ", ".join(reference.ignored) if reference else ""
    return Report(
        title=headline(runs[0]) if len(runs) == 1 else f"{len(runs)} runs",
        sections=(
            *sections,
            notes("Not priced of the launch: may change the step", reference.unpriced if reference else ()),
            notes("Assumed of the launch", reference.assumed if reference else ()),
            notes("Ignored in the launch: means nothing to the price", [ignored]),
        ),
        note="Measured as the log has it; predicted by mfu-optimizer where it is held to a plan.",
    )


def headline(run: Measured) -> str:
    """The run in one line."""
    name = ", ".join(run.files[:3]) + (f" and {len(run.files) - 3} more" if len(run.files) > 3 else "")
    program = run.program or "a run without steps"
    if run.steady is None:
        rate = f", {run.tokens_rate:,.0f} tokens/s per GPU" if run.tokens_rate else ""
        failed = {"oom": ", out of memory", "crashed": ", failed"}.get(run.status, "")
        return f"{name}: {program}{rate}{failed}, no step time"
    return f"{name}: {program}, {seconds(run.steady.seconds)} per step ± {run.steady.spread:.1%}"


def _measured(run: Measured) -> list[tuple[str, str]]:
    """The steady part, and what else of the run tells how it went."""
    steady = run.steady
    if steady is None:
        return [("ended", run.failure)] if run.failure else []
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
    if run.flops_rate:
        rows.append(("operations", f"{run.flops_rate / 1e12:,.4g} TFLOP/s per GPU, as its program counts them"))
    if run.loss is not None:
        rows.append(("last loss", f"{run.loss:.4g}"))
    bad = [(run.nans, "not a number"), (run.skipped, "skipped"), (run.restarts, "restarts")]
    if faults := [f"{count} {name}" for count, name in bad if count]:
        rows.append(("steps", ", ".join(faults)))
    if run.failure:
        rows.append(("ended", run.failure))
    return rows


def _diagnosed(diagnosis: Diagnosis) -> list[Section]:
    around = diagnosis.interval
    gap = (
        f"{seconds(diagnosis.measured)} measured, {seconds(diagnosis.predicted)} predicted "
        f"({seconds(around.low)} to {seconds(around.high)} at {LEVEL:.0%}): {diagnosis.gap:+.1%}"
    )
    compared = section("Measured against predicted", gap, verdict(diagnosis), diagnosis.counted)
    if diagnosis.unlike:
        return [compared]
    rows = [
        (f"{one.share:.0%}", one.says, "—" if one.setting is None else f"{one.rarer:.0%}")
        for one in diagnosis.explanations
    ]
    return [
        compared,
        section("What alone would explain it", Table(CAUSES, rows)),
        notes("Why", _reasons(diagnosis) if diagnosis.explanations else ()),
        notes("Cannot be", [f"{cause.label}: {reason}" for cause, reason in diagnosis.excluded]),
    ]


def verdict(diagnosis: Diagnosis) -> str:
    """What the gap means, in a sentence."""
    if diagnosis.unlike:
        return f"The log is of another run ({'; '.join(diagnosis.unlike)}): no cause of the gap is sought."
    if diagnosis.verdict == BELOW:
        return "Slower than the interval: something takes time that the model does not know of."
    if diagnosis.verdict == ABOVE:
        return "Faster than the interval: the model is wrong here; optimize calibrate fits it to your runs."
    return "Within the interval: the error of the model alone may be the whole difference."


def _reasons(diagnosis: Diagnosis) -> list[str]:
    """How sure the order is, what the log shows, where the priors are from, and the cheapest test."""
    alike = diagnosis.alike
    lines = []
    if len(alike) > 1:
        names = ", ".join(explanation.cause.label for explanation in alike)
        lines.append(f"These fit alike, within a factor of {ALIKE:.0f}: {names}. Several at once fit as well.")
    for explanation in diagnosis.explanations[:2]:
        speaking = [(sign, weight) for sign, weight in explanation.signs if not SPEAKING[1] < weight < SPEAKING[0]]
        shown = [_sign(sign.text, weight) for sign, weight in speaking]
        if shown:
            lines.append(f"{explanation.cause.label}: {'; '.join(shown)}")
        lines.append(f"{explanation.cause.label}, how bad such faults are: {explanation.cause.words['why']}")
    if diagnosis.tested and (test := diagnosis.test):
        other = next((one for one in diagnosis.explanations if one is not diagnosis.tested), None)
        setting = diagnosis.tested.setting
        shows = diagnosis.tested.cause.shows(setting) if setting is not None else "it at its worst"
        rest = f", else {other.cause.label} is left" if other else ""
        whose = diagnosis.tested.cause.label
        lines.append(f"Cheapest test, {test.minutes:g} min: {test.what}. If it is {whose}: {shows}{rest}.")
    lines.append('"likely" counts these causes alone, one at a time; "so bad" is the share of faults at least so bad')
    return lines


def _sign(text: str, weight: float) -> str:
    return f"{text} ({weight:.1f} x as likely)" if weight >= 1 else f"{text} ({1 / weight:.1f} x less likely)"


def logs_json(
    runs: Sequence[Measured], diagnoses: Sequence[Diagnosis | None], reference: Reference | None = None
) -> str:
    """Strict JSON; the first run's fields are also at the top, for who reads one log; `held_to` is what they are held
    to.
    """
    rows = [run_dict(run, diagnosis) for run, diagnosis in zip(runs, diagnoses, strict=True)]
    return json_text({**rows[0], **({"held_to": reference_dict(reference)} if reference else {}), "runs": rows})


def reference_dict(reference: Reference) -> dict[str, Any]:
    """The job and plan of a launch or an answer, and what was assumed of them or ignored."""
    notes_of = {"assumed": reference.assumed, "ignored": reference.ignored}
    return {"job": job_dict(reference.job), "plan": plan_dict(reference.plan), **notes_of}


def run_dict(run: Measured, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
    """One run as plain values; times in seconds, memory in bytes, shares of one."""
    steady = run.steady
    return {
        "files": run.files,
        "program": run.program or None,
        "status": run.status,
        "step_time_s": run.step_time,
        "spread": steady.spread if steady else None,
        "steps_used": steady.steps_used if steady else 0,
        "memory_bytes": run.memory,
        "memory_kind": run.memory_kind or None,
        "basis": run.basis or None,
        "tokens_per_s_per_gpu": run.tokens_rate,
        "flop_per_s_per_gpu": run.flops_rate,
        "first_step": run.first,
        "last_step": run.last,
        "steady": _steady(run.steady) if run.steady else None,
        "loss": run.loss,
        "nans": run.nans,
        "skipped": run.skipped,
        "restarts": run.restarts,
        "ranks": run.ranks,
        "failure": run.failure or None,
        "facts": run.facts,
        "warnings": run.warnings,
        "diagnosis": diagnosis_dict(diagnosis) if diagnosis else None,
    }


def _steady(steady: Steady) -> dict[str, Any]:
    keys = {"first": "first_step", "last": "last_step", "seconds": "step_time_s"}
    return {
        "first_step": steady.first,
        "last_step": steady.last,
        "lines": len(steady.times),
        "steps_each": steady.steps_each,
        "warm_up_lines": steady.warm_up,
        "stalls": steady.stalls,
        "stalled": steady.stalled,
        "stall_period": steady.period,
        "trend": steady.trend,
        "correlation": steady.wander,
        "tail": steady.tail,
        "levels": [as_json(level, **keys) for level in steady.levels],
    }


def diagnosis_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Measured against predicted, and the causes."""
    around = diagnosis.interval
    return {
        "measured_s": diagnosis.measured,
        "predicted_s": diagnosis.predicted,
        "interval_s": [around.low, around.high],
        "interval_kind": around.kind,
        "gap": diagnosis.gap,
        "verdict": diagnosis.verdict,
        "unlike": diagnosis.unlike,
        "causes": [
            {
                "name": one.cause.name,
                "says": one.says,
                "setting": one.setting,
                "share": one.share,
                "as_bad_or_worse": one.rarer,
                "worst_step_time_s": one.at_worst,
                "prior": one.cause.words["why"],
                "signs": [{**as_json(sign), "weight": weight} for sign, weight in one.signs],
                "test": one.cause.test.what,
                "test_minutes": one.cause.test.minutes,
            }
            for one in diagnosis.explanations
        ],
        "fit_alike": [one.cause.name for one in diagnosis.alike],
        "excluded": {cause.name: reason for cause, reason in diagnosis.excluded},
        "cheapest_test": diagnosis.test.what if diagnosis.test else None,
        "signs": diagnosis.signs,
    }
