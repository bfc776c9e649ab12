"""What changed since an earlier report on the same purchase, as its JSON has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.text import readable
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.units import dollars, hourly, percent
from optimizer.purchase.wording import say

SAME = 0.005  # of a price or a cost, and of a chance: less is no change
NEEDED = ("device", "gpus", "price_now", "chance", "cost_usd")


def earlier_report(path: Path) -> dict[str, Any]:
    """The JSON that `optimize pareto --json` printed. Raises InvalidFile for a file that is none."""
    try:
        report = json.loads(readable(path, "give what `optimize pareto --json` printed"))
        whole = all(set(NEEDED) <= machine.keys() for machine in report["machines"])
        if not whole or "device" not in (report["advised"] or {"device": ""}):
            raise KeyError("machines")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidFile(str(path), ["is no report: --since reads what `optimize pareto --json` printed"]) from None
    return dict(report)


def changes(dossier: Dossier, before: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> list[str]:
    """What changed, in sentences: the advice, then price, cost and chance of each machine, then what came or went.

    Args:
        dossier: of today.
        before: as earlier_report has it.
        machines: as the JSON of today has them.
    """
    then, now = ({each["device"]: each for each in every} for every in (before["machines"], machines))
    old = before["advised"] or {"device": "", "gpus": 0}
    new = dossier.advised.design if dossier.advised else None
    lines = []
    if (old["device"], old["gpus"]) != ((new.kind, new.gpus) if new else ("", 0)):
        names = (_name(old["device"], old["gpus"]), _name(new.kind, new.gpus) if new else "none")
        lines.append(say("advice_changed", old=names[0], new=names[1]))
    show = dollars if dossier.purchase.campaign.buy else hourly
    size = 1.0 if dossier.purchase.campaign.buy else 3600.0
    for device in (name for name in now if name in then):
        parts = [
            f"{what} {write(now[device][key] / each)} (was {write(then[device][key] / each)})"
            for what, key, write, each in (("price", "price_now", show, size), ("cost", "cost_usd", dollars, 1.0))
            if abs(now[device][key] - then[device][key]) > SAME * then[device][key]
        ]
        chances = [every[device]["chance"] for every in (now, then)]
        if None not in chances and abs(chances[0] - chances[1]) > SAME:
            parts.append(f"chance to be the cheapest {percent(chances[0])} (was {percent(chances[1])})")
        if parts:
            lines.append(f"{_name(device)}: {'; '.join(parts)}.")
    lines += [f"{_name(device)} is new." for device in now if device not in then]
    lines += [f"{_name(device)} is gone." for device in then if device not in now]
    return lines or ["Nothing has changed."]


def _name(device: str, gpus: int = 0) -> str:
    """A machine as people write it, with how many."""
    return f"{gpus:,} × {device.upper().replace('-', ' ')}" if gpus else device.upper().replace("-", " ") or "none"
