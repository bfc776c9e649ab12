"""A purchase as JSON and as CSV, the contract with other programs; keys.toml says where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from optimizer.base.content import content
from optimizer.purchase.alternatives import AlternativeDesign
from optimizer.purchase.designs.points import Point, bottleneck
from optimizer.purchase.dossier import Dossier, Quote
from optimizer.purchase.ranges import Range
from optimizer.purchase.staged import Staged
from optimizer.purchase.uncertainty.inputs import own_assumptions, untested
from optimizer.reports import listed
from optimizer.reports.render.csv import csv_text
from optimizer.reports.render.json import json_text


def purchase_json(dossier: Dossier, command: str = "", notes: Sequence[str] = ()) -> str:
    """Front, evaluated points, hypervolume and every assumption, indented; strict JSON without NaN or Infinity."""
    purchase, decision, changes = dossier.purchase, dossier.decision, dossier.break_evens
    return json_text(
        {
            "status": "feasible" if purchase.front else "infeasible",
            "front": [
                point_row(point)
                | {
                    "ranges": range_row(ranges),
                    "plan_detail": [asdict(answer.plan) for answer in point.answers if answer.plan],
                }
                for point, ranges in zip(purchase.front, dossier.ranges, strict=True)
            ],
            "evaluated": len(purchase.points) + len(purchase.rejected),
            "hypervolume": purchase.hypervolume,
            "hypervolume_reference": record("reference", reference=purchase.reference),
            "hypervolume_by_trial": purchase.trace,
            "advised": point_row(dossier.advised) if dossier.advised else None,
            "tie": point_row(dossier.tie) if dossier.tie else None,
            "nearest": [
                point_row(point) | {"excesses": _records("excess", point.excesses)} for point in purchase.nearest
            ],
            "points": [point_row(point) for point in purchase.points],
            "rejected": [{"design": item.design.label(), "reason": item.reason} for item in purchase.rejected],
            "min_gpus": [
                record("fewest", item=item, gpus=item.point.design.gpus if item.point else None)
                for item in dossier.fewest
            ],
            "parity": _records("parity", dossier.parities),
            "machines": machine_rows(dossier),
            "find_out_first": [
                asdict(item) | {"turns": _records("break_even", [each for each in changes if each.question is item])}
                for item in decision.questions
            ],
            "draws": decision.draws,
            "spares_by_repair": [{"repair_hours": time / 3600, "nodes": count} for time, count in dossier.repairs],
            "staged": [_staged(item) for item in dossier.staged],
            "spares": _records("spares", dossier.standby),
            "resale": _records("resale", dossier.resale),
            "rent_or_buy": _records("rent_or_buy", dossier.rent_or_buy),
            "assumptions": purchase.campaign.assumptions,
            "quotes": [_quote(quote) for quote in dossier.quotes],
            "notes": notes,
            "seed": purchase.seed,
            "command": command,
        }
    )


def purchase_csv(dossier: Dossier) -> str:
    """Every evaluated point, one line each, with whether it is on the front."""
    purchase = dossier.purchase
    front = {id(point) for point in purchase.front}
    rows = [
        {"front": id(point) in front, **point_row(point), "limits_broken": "; ".join(e.limit for e in point.excesses)}
        for point in purchase.points
    ]
    return csv_text(rows)


def record(kind: str, **values: Any) -> dict[str, Any]:
    """The keys of one kind with their values, in the units of the contract: days, USD, MWh, tonnes, MW."""
    return listed.record(content("optimizer.purchase", "keys.toml")[kind], **values)


def _records(kind: str, items: Iterable[Any]) -> list[dict[str, Any]]:
    return [record(kind, item=item) for item in items]


def point_row(point: Point) -> dict[str, Any]:
    """A point as one flat row: what JSON, CSV and tables share."""
    design, first = point.design, point.answers[0]
    return record(
        "point",
        point=point,
        design=design,
        f=point.figures,
        job=first.job,
        domain=design.domain,
        memory=design.hbm or design.cluster.device.memory,
        order=point.figures.lot.words(),
        limits_broken=[excess.limit for excess in point.excesses],
        bottleneck=bottleneck(point),
        plan=first.plan.summary() if first.plan else "",
    )


def range_row(ranges: Mapping[str, Range]) -> dict[str, list[float]]:
    """Low and high end of the results of one point, in the units of the contract."""
    ends = {name: (value.low, value.high) for name, value in ranges.items()}
    scaled = record("range", **{"co2": None, **ends})
    return {name: list(value) for name, value in scaled.items() if value is not None}


def machine_rows(dossier: Dossier) -> list[dict[str, Any]]:
    """The best design of each machine."""
    return [_machine(machine, dossier) for machine in dossier.alternatives]


def _machine(machine: AlternativeDesign, dossier: Dossier) -> dict[str, Any]:
    """The best design of a machine: how it ranks and what it would take to be the cheapest."""
    point, campaign = machine.point, dossier.purchase.campaign
    size = 1.0 if campaign.buy else 3600.0
    failures = next(item for item in own_assumptions(campaign, point) if item.name == "failure_rate")
    return record(
        "machine",
        machine=machine,
        point=point,
        win=next((item for item in dossier.decision.probabilities if item.point is point), None),
        limits_broken=[excess.limit for excess in point.excesses],
        software=point.answers[0].job.stack.name,
        extrapolated=untested(point),
        failures=record("failures", item=failures),
        price_now=machine.price_now * size,
        price_to_win=machine.price * size if machine.price else None,
    )


def _staged(item: Staged) -> dict[str, Any]:
    """One kind of machine in deliveries."""
    return record(
        "staged",
        item=item,
        device=item.points[-1].design.kind,
        deliveries=_records("delivery", item.deliveries),
        ranges=range_row(item.ranges),
        stretches=_records("stretch", item.course.stretches),
    )


def _quote(quote: Quote) -> dict[str, Any]:
    """One price with the row that it stands in; `price` in SI."""
    others = zip(("low", "high"), quote.others or (), strict=False)
    named = {end: {"value": offer.value, "row": offer.row} for end, offer in others}
    return record("quote", item=quote, offer=quote.offer.title(), others=named)
