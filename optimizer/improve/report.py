"""What a launch is worth and how to better it, for people and as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optimizer.answer.answer import job_dict, plan_dict
from optimizer.answer.keys import (
    Bytes,
    Chance,
    Count,
    EstimateKeys,
    Keys,
    Kind,
    Ratio,
    Seconds,
    Share,
    SureKeys,
    key,
    plain,
)
from optimizer.base.units import DAY, GB, seconds, show
from optimizer.frameworks.launch import GROUPS, WORDS, FlagChange, Launch
from optimizer.improve.certainty import chance_to_gain
from optimizer.improve.edits import Improvement
from optimizer.improve.state import FOLLOWING, Edit, State, WholeRun, days, dollars, edit_to
from optimizer.job.plan import Plan
from optimizer.objectives.step.safe_memory import USUAL_RISK
from optimizer.reports.known_values import loader_words, price_words, step_words
from optimizer.reports.plan_report import BARS, micro_batches
from optimizer.reports.plan_words import chance_words, interval_words, job_title, layout_rows, show_gigabytes, subject
from optimizer.reports.render.json import SCHEMA_VERSION
from optimizer.reports.report import Pairs, Report, Table, columns, notes, section
from optimizer.reports.terms import label, largest_first

Flags = Mapping[int, Sequence[FlagChange]]  # what to write otherwise, by id of the edit
SHOWN = 5  # single edits
NAMED = 4  # settings without a price that a title names
BINDS = 0.02  # share of the step from which on a term is named
EDITS = "| change ~ | gain [text] | faster [text] | step [text] | memory [text] | fits [text]"
RISKIER = 2  # edits that are not sure to fit
LEAST = f"These need more memory than what runs and fit with less than {1 - USUAL_RISK:.0%}; no patch has them unasked."
TOO_LARGE = "No plan of the space fits: these edits only need less. More GPUs or another device may help."


def improve_report(improvement: Improvement, names: Sequence[str], flags: Flags, run: WholeRun | None) -> Report:
    """The whole report.

    Args:
        improvement: The launch as it is understood, and its edits.
        names: The files of the launch.
        flags: What to write otherwise, by id of the edit.
        run: The run whose days and dollars are shown, if one is known.
    """
    question, current = improvement.question, improvement.current
    launch, rows = question.launch, list(shown_edits(improvement))
    unsure = [edit for edit in improvement.edits if not edit.sure and improvement.current.fits]
    risky = [(f"risk {place}", edit) for place, edit in enumerate(unsure[:RISKIER], 1)]
    hopeless = not current.fits and not any(edit.after.fits for _, edit in rows)
    written = [(name, "\n".join(flag_text(flag) for flag in flags[id(edit)])) for name, edit in (*rows, *risky)]
    best = improvement.best if improvement.best and improvement.best not in improvement.edits else None
    after = best.after if best else None
    best_rows = [("plan", after.plan.summary()), *layout_rows(after.job, after.plan)] if after else []
    return Report(
        title=headline(improvement, names),
        subject=(subject(question.job),),
        tone="good" if current.fits else "bad",
        sections=(
            section("Understood", Pairs(understood(launch))),
            section("What it is worth", Pairs(price_rows(current, run))),
            section("What binds", binding(current)),
            section("What to change", edits_table(current, rows, run) if rows else "Nothing: no plan is faster."),
            section("Riskier", LEAST, edits_table(current, risky, run)) if risky else section(""),
            section("How to write it", Pairs(written), TOO_LARGE if hopeless else ""),
            section("The best plan", Pairs(best_rows)),
            notes("Not priced: may change the step", launch.unpriced),
            notes("Told without a patch", launch.unwritten),
            notes("Kept as it is", launch.unsearched),
            notes("Ignored: means nothing to the price", [", ".join(launch.ignored)]),
        ),
        assumed=tuple(launch.assumed),
    )


def headline(improvement: Improvement, names: Sequence[str]) -> str:
    """What runs, its price and the best that it could be, in one line."""
    job, estimate = improvement.question.job, improvement.current.estimate
    where = f"{' '.join(names)}: {job_title(job)}"
    price = price_words(improvement.current.job, improvement.current.plan, estimate)
    fits = "fits" if improvement.current.fits else "does not fit"
    could, now, best = "", improvement.current, improvement.best
    if best and best.gain > 0:
        gains = chance_words(chance_to_gain(now, best.after))
        could = f"; {best.gain:.1%} more is in reach ({gains} to gain, {chance_words(best.after.chance)} to fit)"
    return f"{where} — {price}, {fits} ({chance_words(now.chance)}){could}{lacking(improvement.question.launch)}"


def lacking(launch: Launch) -> str:
    """What of a launch is not in its price, for the end of a title; "" for nothing."""
    more = f" and {len(launch.unpriced) - NAMED} more" if len(launch.unpriced) > NAMED else ""
    guessed = f"; machine guessed: {launch.machine}" if launch.machine else ""
    guessed += f"; GPUs guessed: {launch.gpus:,}" if launch.gpus else ""
    guessed += f"; length guessed: {launch.length:,} tokens" if launch.length else ""
    guessed += f"; micro-batch guessed: {launch.guessed_micro_batch:,}" if launch.guessed_micro_batch else ""
    guessed += f"; vocabulary guessed: {launch.vocabulary:,} tokens" if launch.vocabulary else ""
    guessed += "".join(f"; {name} guessed: {value}" for name, value in [*launch.undecided.items()][:NAMED])
    return guessed + (f"; not priced: {', '.join(launch.unpriced[:NAMED])}{more}" if launch.unpriced else "")


def understood(launch: Launch) -> list[tuple[str, str]]:
    """Every setting that the files state, by what it is about."""
    stated = {name: each for name, each in launch.understood().items() if each["value"] != ""}  # Adam's is
    groups = {
        group: ", ".join(f"{WORDS[name]} {value_text(stated[name]['value'])}" for name in names if name in stated)
        for group, names in GROUPS.items()
    }
    return [(group, words) for group, words in groups.items() if words]


def value_text(value: object) -> str:
    """A setting's value for people.

    >>> value_text(True), value_text((6, 6)), value_text(160e6), value_text(0.25)
    ('on', '6 6', '160,000,000', '0.25')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "even"
    if isinstance(value, float) and value != int(value):
        return f"{value:g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def price_rows(state: State, run: WholeRun | None) -> list[tuple[str, str]]:
    """The plan as read, its rates, interval and memory."""
    estimate, plan, usable = state.estimate, state.plan, state.job.usable_memory / GB
    memory = f"{estimate.reserved / GB:.1f} of {usable:.1f} GB usable per GPU: fits with {chance_words(state.chance)}"
    rows = [
        ("plan", plan.summary()),
        micro_batches(plan),
        *layout_rows(state.job, plan),
        ("interval", interval_words(state.job, plan, estimate)),
        ("memory", memory),
    ]
    if late := loader_words(state.job, plan, estimate.step_time):
        rows.append(("data", late))
    if run:
        rows.append(("the run", f"{run.tokens:.3g} tokens: {_worth(run, state)}, failures and restarts included"))
    if run and run.offer is not None:
        offer = run.offer
        rows.append(("at", f"{offer.value * 3600:.2f} USD per GPU and hour, {offer.title()} ({offer.row})"))
    return rows


def binding(state: State) -> Table:
    """Where the time goes besides products of matrices, largest first, and the memory."""
    estimate, usable = state.estimate, state.job.usable_memory
    terms, _ = largest_first(estimate.time)
    shares = [(label(name), seconds(value), value / estimate.step_time) for name, value in terms]
    shares = [row for row in shares if row[2] >= BINDS]
    shares.append(("memory", show_gigabytes(estimate.reserved), estimate.reserved / usable))
    return Table(BARS, [(name, value, f"{share:.1%}", share) for name, value, share in shares])


def shown_edits(improvement: Improvement) -> Iterable[tuple[str, Edit]]:
    """The edits that a report shows, each with its name there."""
    sure = [edit for edit in improvement.edits if edit.sure or not improvement.current.fits][:SHOWN]
    for place, edit in enumerate(sure, 1):
        yield f"one {place}", edit
    if improvement.pair:
        yield "two", improvement.pair
    if improvement.best and improvement.best not in (*sure, improvement.pair):
        yield "all", improvement.best


def edits_table(current: State, rows: Sequence[tuple[str, Edit]], run: WholeRun | None) -> Table:
    """Every edit with what it gains; the days and dollars of the run last, where it is known."""
    states = [("now", "", "", "", current)]
    for name, edit in rows:
        sure = chance_words(chance_to_gain(current, edit.after))
        states.append((name, changes_text(edit), f"{edit.gain:+.1%}", sure, edit.after))
    heads = columns(EDITS + (" | the run" if run else ""))
    cells = []
    for name, change, gain, sure, state in states:
        step = step_words(state.job, state.plan, state.estimate.step_time)
        memory = show_gigabytes(state.estimate.reserved)
        worth = [_worth(run, state)] if run else []
        cells.append((name, change, gain, sure, step, memory, chance_words(state.chance), *worth))
    return Table(heads, cells)


def changes_text(edit: Edit) -> str:
    """The settings that a person changes, before and after."""
    own = [change for change in edit.changes if change.name not in FOLLOWING and change.name != "layers_per_stage"]
    return ", ".join(
        f"{change.name.replace('_', ' ')} {named_text(change.name, change.before)} → "
        f"{named_text(change.name, change.after)}"
        for change in own
    )


def named_text(name: str, value: object) -> str:
    """A setting's value for people, a bucket in bytes.

    >>> named_text("bucket", 160e6), named_text("micro_batch", 4)
    ('160 MB', '4')
    """
    return show(value, "B") if name == "bucket" and isinstance(value, float) else value_text(value)


def flag_text(flag: FlagChange) -> str:
    """A flag before and after.

    >>> from optimizer.frameworks.launch import FlagChange
    >>> flag_text(FlagChange(flag="--micro-batch-size", before="1", after="4"))
    '--micro-batch-size 1 → 4'
    >>> flag_text(FlagChange(flag="--sequence-parallel", before=None, after=""))
    'add --sequence-parallel'
    """
    if flag.after is None:
        return f"remove {flag.flag}"
    if flag.before is None:
        return f"add {flag.flag} {flag.after}".rstrip()
    return f"{flag.flag} {flag.before} → {flag.after}"


def _worth(run: WholeRun, state: State) -> str:
    cost, long = dollars(run, state), days(run, state)
    length = f"{long:,.1f} days" if long >= 3 else seconds(long * DAY)
    return length + ("" if cost is None else f", {cost:,.0f} USD" if cost >= 100 else f", {cost:,.2f} USD")


class StateKeys(EstimateKeys):
    """A priced plan: of its estimate, and of the state that it belongs to."""

    interval_s: tuple[Seconds, Seconds] = SureKeys.interval_s
    interval_known: bool = SureKeys.interval_known
    interval_kind: Kind = SureKeys.interval_kind
    interval_reasons: tuple[str, ...] = SureKeys.interval_reasons
    memory_interval_bytes: tuple[Bytes, Bytes] = SureKeys.memory_interval_bytes
    usable_memory_bytes: Bytes = key("memory that a plan may reserve", lambda _, state: state.job.usable_memory)
    fits: bool = key("whether it stays within that", lambda _, state: state.fits)
    chance_to_fit: Chance = SureKeys.chance_to_fit


class EditKeys(Keys):
    """One edit: settings and flags before and after, and where they lead; of an edit, its flags, and what runs."""

    changes: dict[str, Any] = key(
        "settings before and after, by name",
        lambda edit, *_: {change.name: {"before": change.before, "after": change.after} for change in edit.changes},
    )
    flags: tuple[FlagChange, ...] = key(
        "flags or keys of the files before and after", lambda _, flags, __: tuple(flags)
    )
    step_time_s: Seconds = key("time of a step", lambda edit, *_: edit.after.estimate.step_time)
    gain: Ratio = key("tokens trained on per second over those of today, minus one")
    chance_to_gain: Chance = key(
        "chance that it trains on more tokens per second than what runs, once both are measured",
        lambda edit, _, now: chance_to_gain(now, edit.after),
    )
    expected: Ratio = key("the gain with what new moving parts and a larger chance to run out of memory cost")
    sure: bool = key("whether it fits with 90 % at least, or needs no more memory than what runs")
    fits: bool = key("whether it stays within the memory usable", lambda edit, *_: edit.after.fits)
    chance_to_fit: Chance = key("chance of that", lambda edit, *_: edit.after.chance)
    memory_bytes: Bytes = key("reserved memory of the fullest GPU", lambda edit, *_: edit.after.estimate.reserved)
    mfu: Share = key("model FLOPs utilisation", lambda edit, *_: edit.after.estimate.mfu)
    plan: Plan = key("the variables of its plan", lambda edit, *_: edit.after.plan)
    global_batch: Count = key("sequences of a step", lambda edit, *_: edit.after.job.global_batch)


def improvement_dict(improvement: Improvement, flags: Flags, run: WholeRun | None) -> dict[str, Any]:
    """Everything: the launch as read, its price, every edit with its flags."""
    question, launch, now = improvement.question, improvement.question.launch, improvement.current
    # The plan that runs, where nothing is better.
    best = improvement.best or edit_to(now, now)

    def edited(edit: Edit) -> dict[str, Any]:
        return EditKeys.of(edit, flags.get(id(edit), ()), now) | _worth_dict(edit.after, run)

    return {
        "schema_version": SCHEMA_VERSION,
        "program": launch.program,
        "job": job_dict(question.job),
        "plan": plan_dict(question.plan),
        "knobs": plain(question.knobs),
        "understood": launch.understood(),
        "assumed": list(launch.assumed),
        "ignored": list(launch.ignored),
        "kept": list(launch.unsearched),
        **({"not_priced": list(launch.unpriced)} if launch.unpriced else {}),
        **({"unwritten": list(launch.unwritten)} if launch.unwritten else {}),
        "estimate": StateKeys.of(now.estimate, now) | _worth_dict(now, run),
        "edits": [edited(edit) for edit in improvement.edits],
        "best_two": edited(improvement.pair) if improvement.pair else None,
        "best": edited(best),
    }


def _worth_dict(state: State, run: WholeRun | None) -> dict[str, Any]:
    if run is None:
        return {}
    row = run.offer.row if run.offer else None
    return {"days": days(run, state), "cost_usd": dollars(run, state), "price_row": row}
