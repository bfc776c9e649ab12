"""What keeps a run going, in sentences: checkpoints, spare nodes, and deliveries one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.units import DAY
from optimizer.purchase.staged import totals
from optimizer.purchase.units import between, days, dollars, gigabytes, quantity

if TYPE_CHECKING:
    from optimizer.purchase.campaign import Campaign
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.staged import Staged


def checkpoint_sentence(point: Point) -> str:
    """How often the advised design writes a checkpoint, and whether its storage keeps up."""
    found = point.figures
    written = found.checkpoint
    bound = " (no slower storage would do)" if found.storage_share > 0.99 else ""
    return (
        f"A checkpoint of {written.size / 1e12:.3g} TB every {quantity(found.checkpoint_interval, 's')}; storage that "
        f"takes {gigabytes(written.bandwidth)} a second has it after {quantity(written.write, 's')}, and is busy with "
        f"it for {found.storage_share:.0%} of the time{bound}."
    )


def spares_sentence(dossier: Dossier) -> str:
    """How many spare nodes pay, and what they save."""
    if dossier.advised is None or not dossier.standby:
        return ""
    best = next(item for item in dossier.standby if item.pays)
    none = dossier.standby[0]
    own = dossier.advised.design.spares
    size = dossier.advised.design.cluster.gpus_per_node
    decided = _repair_words(dossier)
    if not best.spares:
        over = none.figures.lot.spare // size
        stand = f"What is sold whole leaves {over:,} nodes over, which stand by; more" if over else "Spare nodes"
        return f"{stand} of your own do not pay for themselves.{decided}"
    saved = none.figures.cost - best.figures.cost
    words = (
        f"{best.spares:,} spare node{'s' * (best.spares != 1)} of {size} GPUs pay{'s' * (best.spares == 1)}: without "
        f"them the run would wait for repairs {none.figures.waiting:.1%} of the time and cost {dollars(saved)} more"
    )
    if own is None:
        return f"Spares: the provider's are taken to stand in. If you keep your own, {words} (--spares auto).{decided}"
    asked = f" The figures are those with {own:,}, as asked." if own != best.spares else ""
    return f"Spares: {words}.{asked}{decided}"


def _repair_words(dossier: Dossier) -> str:
    """What decides the number of spare nodes: the time of a repair, and how many pay at either end of it."""
    if len(dossier.repairs) < 2:
        return ""
    item = next(item for item in dossier.purchase.campaign.assumptions if item.name == "repair")
    span = f"{quantity(item.value.low, 's')} to {quantity(item.value.high, 's')}"
    if len({count for _, count in dossier.repairs}) == 1:
        return f" That holds for any time of a repair from {span} (assumed)."
    ends = [(time, count) for time, count in dossier.repairs if time != item.value.mid]
    others = ", ".join(f"at {quantity(time, 's')} it is {count:,}" for time, count in ends)
    known = "given" if item.grade == "user" else "assumed: have it guaranteed"
    return f" The time of a repair decides that: {quantity(item.value.mid, 's')} here ({known}); {others}."


def staged_sentences(dossier: Dossier) -> list[str]:
    """The advice where machines come in deliveries, and each kind of machine; empty where they do not."""
    if not dossier.staged:
        return []
    best, campaign = dossier.staged[0], dossier.purchase.campaign
    first = f"In deliveries take {best.points[-1].design.title}: {_outcome(campaign, best)}"
    if not best.in_limits:
        first = f"No machine meets every limit in these deliveries. Nearest in cost is {best.points[-1].design.title}: "
        first += _outcome(campaign, best)
    others = [f"{item.points[-1].design.title}: {_outcome(campaign, item)}" for item in dossier.staged[1:]]
    return [first, *others, "Below, the GPUs of each stage as if all were there from the first day."]


def _outcome(campaign: Campaign, item: Staged) -> str:
    start, *later = item.deliveries
    come = f"{start.gpus:,} GPUs now" + "".join(f", {each.gpus:,} more after {days(each.at)}" for each in later)
    alone, whole = item.points[0].figures, item.points[-1].figures
    runs = campaign.runs
    ends = {each.run: each.end for each in item.course.stretches}
    dates = ""
    if len(runs) > 1:
        named = (f"{run.model.title or run.model.name} by day {ends[i] / DAY:,.0f}" for i, run in enumerate(runs))
        dates = f" ({', '.join(named)})"
    needless = "" if item.course.stretches[-1].gpus == totals(item.deliveries)[-1] else "; the last comes too late"
    limits = "" if item.in_limits else "; it misses a limit"
    return (
        f"{come}. Training ends after {between(item.ranges['time_to_train'], days)}{dates} and costs "
        f"{between(item.ranges['cost'], dollars)}{needless}{limits}. All at once would end after "
        f"{days(whole.time_to_train)} for {dollars(whole.cost)}, the first delivery alone after "
        f"{days(alone.time_to_train)} for {dollars(alone.cost)}."
    )
