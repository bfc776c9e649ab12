"""What a launch is worth and how to better it, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds, show
from optimizer.frameworks.launch import JOB, MACHINES, PLAN, SHAPE, SOFTWARE, WORDS
from optimizer.improve.as_json import Flags
from optimizer.improve.edit import FOLLOWING, Edit
from optimizer.improve.edits import Improvement
from optimizer.improve.state import State
from optimizer.improve.worth import Run, days, dollars
from optimizer.objectives.step.safe_memory import USUAL_RISK
from optimizer.reports.plan_report import grid, interval_words, layout_rows, notes, show_gigabytes, subject, title
from optimizer.reports.terms import bar, label, largest_first

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.frameworks.launch import Launch
    from optimizer.frameworks.source import FlagChange

SHOWN = 5  # single edits
BINDS = 0.02  # share of the step from which on a term is named
BAR = 24
GROUPS = {"machines": MACHINES, "job": JOB, "plan": PLAN, "software": SOFTWARE, "model": SHAPE}


def improve_report(found: Improvement, names: Sequence[str], flags: Flags, run: Run | None) -> Group:
    """The whole report."""
    from rich.console import Group
    from rich.text import Text

    question, current = found.question, found.current
    launch = question.launch
    colour = "green" if current.fits else "red"
    parts: list[RenderableType] = [
        Text(headline(found, names), style=f"bold {colour}"),
        Text(subject(question.job)),
        title("Understood"),
        understood(launch),
        title("What it is worth"),
        price_table(current, run),
        title("What binds"),
        binding(current),
        title("What to change"),
    ]
    rows = list(_rows(found))
    if rows:
        parts += [edits_table(current, rows, run), title("How to write it"), flags_table(rows, flags)]
    else:
        parts.append(Text(" Nothing: no plan of the space is faster."))
    if any(edit.after.fits and edit.after.chance < 1 - USUAL_RISK for _, edit in rows):
        least = f"{1 - USUAL_RISK:.0%}"
        parts.append(
            Text(f" `optimize` itself takes no plan that fits with a chance below {least}; edits are listed anyhow.")
        )
    if not current.fits and not any(edit.after.fits for _, edit in rows):
        parts.append(
            Text(" No plan of the space fits: these edits only need less. More GPUs or another device may help.")
        )
    if found.best and found.best not in found.edits:
        parts += [title("The best plan"), *_best(found.best)]
    parts += notes("Kept as it is", launch.kept) + notes("Assumed", launch.assumed)
    parts += notes("Ignored: means nothing to the price", [", ".join(launch.ignored)])
    return Group(*parts)


def headline(found: Improvement, names: Sequence[str]) -> str:
    """What runs, its price and the best that it could be, in one line."""
    job, estimate = found.question.job, found.current.estimate
    where = f"{' '.join(names)}: {job.model.title or job.model.name} on {job.gpus:,} × {job.cluster.device.name}"
    price = f"MFU {estimate.mfu:.1%}, {seconds(estimate.step_time)} per step"
    fits = "fits" if found.current.fits else "does not fit"
    could = ""
    if found.best and found.best.gain > 0:
        could = f"; {found.best.gain:.1%} more is in reach"
    return f"{where} — {price}, {fits} ({found.current.chance:.0%}){could}"


def understood(launch: Launch) -> Table:
    """Every setting that the files state, by what it is about."""
    table = grid("left", "left", expand="1")
    found = launch.understood()
    for group, names in GROUPS.items():
        said = [f"{WORDS[name]} {value_text(found[name]['value'])}" for name in names if name in found]
        if said:
            table.add_row(group, ", ".join(said))
    return table


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


def price_table(state: State, run: Run | None) -> Table:
    """The plan as read, its rates, interval and memory."""
    table = grid("left", "left", expand="1")
    estimate, plan = state.estimate, state.plan
    table.add_row("plan", plan.summary())
    table.add_row(
        "micro-batches", f"{plan.num_microbatches:,} of {plan.micro_batch} per step, {plan.schedule} schedule"
    )
    for name, words in layout_rows(state.job, plan):
        table.add_row(name, words)
    table.add_row("interval", interval_words(state.job, plan, estimate))
    usable = state.job.usable_memory / GB
    table.add_row(
        "memory",
        f"{estimate.reserved / GB:.1f} of {usable:.1f} GB usable per GPU: fits with a chance of {state.chance:.0%}",
    )
    if run:
        table.add_row("the run", f"{run.tokens:.3g} tokens: {_worth(run, state)}, failures and restarts included")
        if run.offer is not None:
            table.add_row(
                "at",
                f"{run.offer.value * 3600:.2f} USD per GPU and hour, {run.offer.title()} ({run.offer.row})",
            )
    return table


def binding(state: State) -> Table:
    """Where the time goes besides products of matrices, largest first, and the memory."""
    table = grid("left", "right", "right", "left")
    terms, _ = largest_first(state.estimate.time)
    for name, value in terms:
        share = value / state.estimate.step_time
        if share >= BINDS:
            table.add_row(label(name), seconds(value), f"{share:.1%}", bar(share, BAR))
    share = state.estimate.reserved / state.job.usable_memory
    table.add_row("memory", show_gigabytes(state.estimate.reserved), f"{share:.1%}", bar(share, BAR))
    return table


def _rows(found: Improvement) -> Iterable[tuple[str, Edit]]:
    for place, edit in enumerate(found.edits[:SHOWN], 1):
        yield f"one {place}", edit
    if found.pair:
        yield "two", found.pair
    if found.best and found.best not in (*found.edits[:SHOWN], found.pair):
        yield "all", found.best


def edits_table(current: State, rows: Sequence[tuple[str, Edit]], run: Run | None) -> Table:
    """Every edit with what it gains."""
    table = grid("left", "left", "right", "right", "right", "right", "left", expand="1")
    head = ["", "change", "step", "gain", "memory", "fits", "the run" if run else ""]
    table.add_row(*head, style="dim")
    now = current.estimate
    table.add_row(
        "now",
        "",
        seconds(now.step_time),
        "",
        show_gigabytes(now.reserved),
        f"{current.chance:.0%}",
        _worth(run, current),
    )
    for name, edit in rows:
        after = edit.after.estimate
        table.add_row(
            name,
            changes_text(edit),
            seconds(after.step_time),
            f"{edit.gain:+.1%}",
            show_gigabytes(after.reserved),
            f"{edit.after.chance:.0%}",
            _worth(run, edit.after),
        )
    return table


def flags_table(rows: Sequence[tuple[str, Edit]], flags: Flags) -> Table:
    """What to write otherwise in the files, edit by edit."""
    table = grid("left", "left", expand="1")
    for name, edit in rows:
        table.add_row(name, "\n".join(flag_text(flag) for flag in flags[id(edit)]))
    return table


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

    >>> from optimizer.frameworks.source import FlagChange
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


def _best(edit: Edit) -> list[RenderableType]:
    table = grid("left", "left", expand="1")
    table.add_row("plan", edit.after.plan.summary())
    for name, words in layout_rows(edit.after.job, edit.after.plan):
        table.add_row(name, words)
    return [table]


def _worth(run: Run | None, state: State) -> str:
    if run is None:
        return ""
    cost = dollars(run, state)
    return f"{days(run, state):,.1f} days" + ("" if cost is None else f", {cost:,.0f} USD")
