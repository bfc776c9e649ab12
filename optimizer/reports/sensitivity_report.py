"""What binds a plan: a tornado of what more of each thing buys, the basin around the plan, and losses of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.job.job import TIME
from optimizer.objectives.minimised.registry import objective_of
from optimizer.reports.known_values import price_words
from optimizer.reports.plan_words import job_title, knobs_text, subject
from optimizer.reports.report import Report, Table, columns, notes, section
from optimizer.search.plan.best import Best
from optimizer.search.why.resilience import Loss
from optimizer.search.why.what_binds import Basin, Effect, Sensitivity

SMALLEST = 5e-5  # gains that print as 0.00 %
EFFECTS = columns(" | ~ | [text] | [bar]")
RINGS = columns("within | plans [1] | other structures [1] | values taken ~")
LOSSES = "lost |  | GPUs used [1] | batch [1] | MFU [%] | {} [text] | plan ~"


def sensitivity_report(sensitivity: Sensitivity, losses: Sequence[Loss] = (), assumed: Sequence[str] = ()) -> Report:
    """The plan, the tornado, the basin, the losses."""
    base = sensitivity.base
    plan = f"{base.plan.summary()}: {price_words(base.job, base.plan, base.estimate)}, "
    return Report(
        title=job_title(base.job),
        subject=(subject(base.job), plan + knobs_text(base.job, base.knobs)),
        sections=(
            section(
                f"What more of each buys, in tokens per {objective_of(base.job).per}, planned again",
                tornado(sensitivity.effects),
            ),
            notes("How the plan moves", moves(sensitivity.effects)),
            section(f"Around the best plan: a {sensitivity.basin.shape}", rings(sensitivity.basin)),
            section("After losing nodes", loss_table(losses)),
        ),
        assumed=tuple(assumed),
    )


def tornado(effects: Sequence[Effect]) -> Table:
    """One row per variation, largest effect first, with its bar."""
    largest = max((abs(effect.gain) for effect in effects), default=0.0)
    shares = [abs(effect.gain) / largest if abs(effect.gain) >= SMALLEST else 0.0 for effect in effects]
    changes = [(effect.variation.name, effect.variation.change, gain(effect)) for effect in effects]
    return Table(EFFECTS, [(*change, share) for change, share in zip(changes, shares, strict=True)])


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
    values = ["; ".join(f"{name} {', '.join(taken)}" for name, taken in ring.values.items()) for ring in basin.rings]
    counts = [(f"{ring.share:.0%}", ring.plans, ring.structures) for ring in basin.rings]
    return Table(RINGS, [(*count, value) for count, value in zip(counts, values, strict=True)])


def loss_table(losses: Sequence[Loss]) -> Table:
    """For each loss: the plan of the same shape and the best one, GPUs used, and tokens lost for a unit of what is
    minimised.
    """
    jobs = [loss.before.job for loss in losses]
    counted = f"tokens per {objective_of(jobs[0]).per}" if jobs and jobs[0].minimize != TIME else "throughput"
    rows: list[tuple[float | str, ...]] = []
    for loss in losses:
        nodes = f"{loss.nodes} node{'s' * (loss.nodes > 1)}, {loss.gpus:,} left"
        if loss.best is None:
            rows.append((nodes, *[""] * 5, "no plan found"))
            continue
        alike = _option(loss, loss.same_shape) if loss.same_shape else (*[""] * 4, "cannot be kept")
        rows.append((nodes, "same tp, cp, pp", *alike))
        best = (*[""] * 4, "the same") if loss.best is loss.same_shape else _option(loss, loss.best)
        rows.append(("", "best found", *best))
    return Table(columns(LOSSES.format(counted)), rows)


def _option(loss: Loss, after: Best) -> tuple[float | str, ...]:
    job, mfu = after.job, after.estimate.mfu
    return job.gpus, job.global_batch, mfu, f"{-loss.loss(after):+.1%}", after.plan.summary()
