"""A purchase as JSON and as CSV, the contract with other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from optimizer.base.units import DAY
from optimizer.purchase.rows import point_row, range_row
from optimizer.purchase.uncertainty.inputs import own_assumptions, untested
from optimizer.purchase.units import J_PER_MWH
from optimizer.reports.render.csv import csv_text

if TYPE_CHECKING:
    from optimizer.purchase.alternatives import AlternativeDesign
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier, Quote
    from optimizer.purchase.staged import Staged
    from optimizer.purchase.uncertainty.break_even import BreakEven

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
                "rival": item.alternative.design.kind,
                "rent_usd_per_gpu_hour": item.price * 3600,
                "rent_now_usd_per_gpu_hour": item.now * 3600,
            }
            for item in dossier.parities
        ],
        "machines": [_machine(machine, dossier) for machine in dossier.alternatives],
        "find_out_first": [
            asdict(item) | {"turns": [_break_even(change) for change in dossier.break_evens if change.question is item]}
            for item in dossier.decision.questions
        ],
        "draws": dossier.decision.draws,
        "spares_by_repair": [{"repair_hours": time / 3600, "nodes": count} for time, count in dossier.repairs],
        "staged": [_staged(item) for item in dossier.staged],
        "spares": [
            {
                "nodes": item.spares,
                "pays": item.pays,
                "goodput": item.figures.goodput,
                "waiting": item.figures.waiting,
                "time_to_train_days": item.figures.time_to_train / DAY,
                "cost_usd": item.figures.cost,
            }
            for item in dossier.standby
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
        "quotes": [_quote(quote) for quote in dossier.quotes],
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


def _machine(machine: AlternativeDesign, dossier: Dossier) -> dict[str, Any]:
    """The best design of a machine: how it ranks and what it would take to be the cheapest."""
    found = next((item for item in dossier.decision.probabilities if item.point is machine.point), None)
    size = 1.0 if dossier.purchase.campaign.buy else 3600.0
    return {
        "device": machine.point.design.kind,
        "vendor": machine.vendor,
        "gpus": machine.point.design.gpus,
        "tokens_per_usd": machine.point.figures.tokens_per_dollar,
        "tokens_per_joule": machine.point.figures.tokens_per_joule,
        "winner": machine.winner,
        "chance": found.chance if found else None,
        "chance_within_limits": found.in_limits if found else None,
        "expected_regret_usd": found.regret if found else None,
        "limits_broken": [excess.limit for excess in machine.point.excesses],
        "software": machine.point.answers[0].job.stack.name,
        "extrapolated": list(untested(machine.point)),
        "failures": _failures(dossier, machine.point),
        "price_now": machine.price_now * size,
        "price_to_win": machine.price * size if machine.price else None,
        "mfu_to_win": machine.mfu,
        "nic_gbit_per_s_to_win": machine.bandwidth * 8e-9 if machine.bandwidth else None,
    }


def _failures(dossier: Dossier, point: Point) -> dict[str, Any]:
    """The failure rate of a machine, interruptions of 8 GPUs a day, and where it comes from."""
    item = next(item for item in own_assumptions(dossier.purchase.campaign, point) if item.name == "failure_rate")
    ends = {name: getattr(item.value, name) * DAY for name in ("low", "mid", "high")}
    return {**ends, "source": item.source, "date": item.date, "grade": item.grade}


def _break_even(change: BreakEven) -> dict[str, Any]:
    """Where the choice changes; `value` in SI, prices and rates as a share of what is assumed."""
    side = "below" if change.end < change.value else "above"
    return {"side": side, "value": change.value, "now": change.now.design.kind, "then": change.then.design.kind}


def _staged(item: Staged) -> dict[str, Any]:
    """One kind of machine in deliveries."""
    found = item.course
    return {
        "device": item.points[-1].design.kind,
        "deliveries": [{"gpus": each.gpus, "after_days": each.at / DAY} for each in item.deliveries],
        "within_limits": item.in_limits,
        "time_to_train_days": found.time_to_train / DAY,
        "cost_usd": found.cost,
        "energy_mwh": found.energy / J_PER_MWH,
        "ranges": range_row(item.ranges),
        "stretches": [
            {"run": each.run, "gpus": each.gpus, "start_days": each.start / DAY, "end_days": each.end / DAY}
            for each in found.stretches
        ],
    }


def _quote(quote: Quote) -> dict[str, Any]:
    """One price with the row that it stands in; `price` in SI."""
    offers = {"low": quote.others[0], "high": quote.others[1]} if quote.others else {}
    return {
        "kind": quote.kind,
        "title": quote.title,
        "price": quote.price,
        "offer": quote.offer.title(),
        "row": quote.offer.row,
        "term": quote.offer.term,
        "source": quote.offer.source,
        "date": quote.offer.date,
        "grade": quote.offer.grade,
        "commitment_days": quote.offer.commitment / DAY,
        "others": {end: {"value": offer.value, "row": offer.row} for end, offer in offers.items()},
        "power_limit": quote.power_limit,
        "power_measured": quote.power_measured,
    }


def _nearest(point: Point) -> dict[str, Any]:
    broken = [{"limit": e.limit, "value": e.value, "allowed": e.allowed, "excess": e.share} for e in point.excesses]
    return point_row(point) | {"excesses": broken}
