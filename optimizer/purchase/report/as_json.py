"""A purchase as JSON and as CSV, the contract with other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from optimizer.purchase.report.rows import point_row, range_row
from optimizer.purchase.report.units import J_PER_MWH
from optimizer.reports.table import csv_text
from optimizer.units import DAY

if TYPE_CHECKING:
    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.points import Point

SCHEMA_VERSION = 1


def purchase_json(dossier: Dossier, command: str = "", notes: Sequence[str] = ()) -> str:
    """Front, evaluated points, hypervolume and every assumption, indented; strict JSON without NaN or Infinity."""
    return json.dumps(purchase_dict(dossier, command, notes), indent=2, allow_nan=False)


def purchase_dict(dossier: Dossier, command: str = "", notes: Sequence[str] = ()) -> dict[str, Any]:
    """The same as plain values."""
    purchase = dossier.purchase
    front = [
        point_row(point)
        | {
            "ranges": range_row(ranges),
            "plan_detail": [asdict(answer.plan) for answer in point.answers if answer.plan],
        }
        for point, ranges in zip(purchase.front, dossier.ranges, strict=True)
    ]
    time, cost, energy = purchase.reference
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "feasible" if purchase.front else "infeasible",
        "front": front,
        "evaluated": len(purchase.points) + len(purchase.rejected),
        "hypervolume": purchase.hypervolume,
        "hypervolume_reference": {
            "time_to_train_days": time / DAY,
            "cost_usd": cost,
            "energy_mwh": energy / J_PER_MWH,
        },
        "hypervolume_by_trial": list(purchase.trace),
        "advised": point_row(dossier.advised) if dossier.advised else None,
        "nearest": [_nearest(point) for point in purchase.nearest],
        "points": [point_row(point) for point in purchase.points],
        "rejected": [{"design": item.design.label(), "reason": item.reason} for item in purchase.rejected],
        "min_gpus": [
            {
                "device": item.kind,
                "deadline_days": item.deadline / DAY,
                "gpus": item.point.design.gpus if item.point else None,
                "tried": item.tried,
            }
            for item in dossier.fewest
        ],
        "parity": [
            {
                "device": item.device.design.kind,
                "rival": item.rival.design.kind,
                "rent_usd_per_gpu_hour": item.price * 3600,
                "rent_now_usd_per_gpu_hour": item.now * 3600,
            }
            for item in dossier.parities
        ],
        "rent_or_buy": [
            {
                "device": item.point.design.kind,
                "gpus": item.point.design.gpus,
                "capex_usd": item.capex,
                "break_even_days": item.time / DAY if item.time < float("inf") else None,
            }
            for item in dossier.rent_or_buy
        ],
        "assumptions": [asdict(item) for item in purchase.campaign.assumptions],
        "quotes": [asdict(quote) for quote in dossier.quotes],
        "notes": list(notes),
        "seed": purchase.seed,
        "command": command,
    }


def purchase_csv(dossier: Dossier) -> str:
    """Every evaluated point, one line each, with whether it is on the front."""
    purchase = dossier.purchase
    front = {id(point) for point in purchase.front}
    rows = [
        {"front": id(point) in front, **point_row(point), "limits_broken": "; ".join(e.limit for e in point.excesses)}
        for point in purchase.points
    ]
    return csv_text(rows)


def _nearest(point: Point) -> dict[str, Any]:
    broken = [{"limit": e.limit, "value": e.value, "allowed": e.allowed, "excess": e.share} for e in point.excesses]
    return point_row(point) | {"excesses": broken}
