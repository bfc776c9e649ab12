"""What binds a plan: a tornado of what more of each thing buys, the basin around the plan, and losses of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.units import seconds
from optimizer.objectives.minimised.registry import objective_of
from optimizer.reports.plan_report import grid, knobs_text, notes, subject, title
from optimizer.reports.terms import bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.search.plan.best import Best
    from optimizer.search.why.basin import Basin
    from optimizer.search.why.resilience import Loss
    from optimizer.search.why.what_binds import Effect, Sensitivity

BAR = 24
SMALLEST = 5e-5  # gains that print as 0.00 %


def sensitivity_report(found: Sensitivity, losses: Sequence[Loss] = (), assumed: Sequence[str] = ()) -> Group:
    """The plan, the tornado, the basin, the losses."""
    from rich.console import Group
    from rich.text import Text

    job, base = found.base.job, found.base
    parts: list[RenderableType] = [
        Text(f"{job.model.title or job.model.name} on {job.gpus:,} × {job.cluster.device.name}", style="bold"),
        Text(subject(job)),
        Text(
            f"{base.plan.summary()}: MFU {base.estimate.mfu:.1%}, {seconds(base.estimate.step_time)} per step, "
            f"{knobs_text(job, base.knobs)}"
        ),
        title(f"What more of each buys, in tokens per {objective_of(job).per}, planned again"),
        tornado(found.effects),
        *notes("How the plan moves", moves(found.effects)),
        title(f"Around the best plan: a {found.basin.shape}"),
        rings(found.basin),
    ]
    if losses:
        parts += [title("After losing nodes"), loss_table(losses)]
    return Group(*parts, *notes("Assumed", assumed))


def tornado(effects: Sequence[Effect]) -> Table:
    """One row per variation, largest effect first, with its bar."""
    table = grid("left", "left", "right", "left", expand="1")
    largest = max((abs(effect.gain) for effect in effects), default=0.0)
    for effect in effects:
        share = abs(effect.gain) / largest if abs(effect.gain) >= SMALLEST else 0.0
        table.add_row(effect.variation.name, effect.variation.change, gain(effect), bar(share, BAR))
    return table


def moves(effects: Sequence[Effect]) -> list[str]:
    """For each variation under which the best plan is another one: how it moves."""
    lines = []
    for effect in effects:
        if effect.best is None:
            lines.append(f"{effect.variation.name}: no plan fits")
        elif effect.changed:
            lines.append(f"{effect.variation.name}: {', '.join(effect.changed)}")
    return lines


def gain(effect: Effect) -> str:
    """The relative change of the tokens for a unit of what is minimised, with its sign."""
    return f"{effect.gain:+.2%}" if abs(effect.gain) >= SMALLEST else "0.00%"


def rings(basin: Basin) -> Table:
    """How many plans come within each share, of how many other structures, and in which variables they differ."""
    table = grid("left", "right", "right", "left", expand="3")
    table.add_row("within", "plans", "other structures", "values taken", style="dim")
    for ring in basin.rings:
        values = "; ".join(f"{name} {', '.join(taken)}" for name, taken in ring.values.items())
        table.add_row(f"{ring.share:.0%}", f"{ring.plans:,}", f"{ring.structures:,}", values)
    return table


def loss_table(losses: Sequence[Loss]) -> Table:
    """For each loss: the plan of the same shape and the best one, GPUs used and throughput lost."""
    table = grid("left", "left", "right", "right", "right", "right", "left", expand="6")
    table.add_row("lost", "", "GPUs used", "batch", "MFU", "throughput", "plan", style="dim")
    for loss in losses:
        nodes = f"{loss.nodes} node{'s' * (loss.nodes > 1)}, {loss.gpus:,} left"
        if loss.best is None:
            table.add_row(nodes, "", "", "", "", "", "no plan found")
            continue
        if loss.kept is None:
            table.add_row(nodes, "same tp, cp, pp", "", "", "", "", "cannot be kept")
        else:
            table.add_row(nodes, "same tp, cp, pp", *_option(loss, loss.kept))
        if loss.best is loss.kept:
            table.add_row("", "best found", "", "", "", "", "the same")
        else:
            table.add_row("", "best found", *_option(loss, loss.best))
    return table


def _option(loss: Loss, after: Best) -> tuple[str, ...]:
    return (
        f"{after.job.gpus:,}",
        f"{after.job.global_batch:,}",
        f"{after.estimate.mfu:.1%}",
        f"{-loss.loss(after):+.1%}",
        after.plan.summary(),
    )
