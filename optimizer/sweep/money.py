"""What renting the machines of a plan costs, by the one price book and the one sum that every command uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from optimizer.base.errors import InputError
from optimizer.base.units import DAY
from optimizer.catalog import load_cluster
from optimizer.catalog.offers import Offer, PriceBook, quote
from optimizer.job.hardware import Cluster

COSTS = (
    *("usd_per_gpu_hour", "usd_per_mtoken", "train_days", "gpu_hours", "train_usd", "goodput", "tokens_per_usd"),
    *("tokens_per_joule", "price_offer", "price_row"),
)
MTOKEN = 1e6


def _per_joule(whole: Mapping[str, Any], offer: Offer, cluster: Cluster | None, goodput: float) -> float | None:
    """Tokens for one joule of the site; None where the cluster, its power or the parts of the step are not known."""
    from optimizer.objectives.power import BusySeconds
    from optimizer.purchase.campaign import Design
    from optimizer.purchase.designs.figures import usual_tokens_per_joule

    job, estimate, mean_gpu = whole["job"], whole["estimate"], whole.get("mean_gpu")
    if cluster is None or not mean_gpu or not {"time_s", "step_time_s"} <= set(estimate):
        return None
    design = Design(kind=cluster.name, cluster=cluster, gpus=job["gpus"], dtype=job.get("dtype") or "bf16")
    busy = BusySeconds(compute=mean_gpu["compute_s"], stream=mean_gpu["stream_s"], utilisation=mean_gpu["utilisation"])
    tokens = estimate["tokens_per_s_per_gpu"] * estimate["step_time_s"]
    try:
        return usual_tokens_per_joule(design, offer, estimate["time_s"], busy, tokens, goodput)
    except InputError:
        return None


def with_own(book: PriceBook, prices: Mapping[str, float]) -> PriceBook:
    """The book behind the prices that a study names [USD/s per GPU, by device]."""
    own = {device: f"the study's prices, {device}" for device in prices}
    return book.with_quotes([quote(name, book.term or "on_demand", prices[name], row=row) for name, row in own.items()])


@cache
def known_cluster(name: str) -> Cluster | None:
    """The cluster preset of this name; None where a study described its own."""
    try:
        return load_cluster(name)
    except InputError:
        return None


def costs(whole: Mapping[str, Any], token_budget: float, book: PriceBook) -> dict[str, Any]:
    """Rent of a job's plan per million tokens and for the whole run, failures and whole nodes included.

    The same sum as that of a purchase: optimizer.purchase.price.run_cost.rental, at the middle of its assumptions. None
    where a figure is missing. price_row: the row of the price book.
    """
    from optimizer.purchase.price.run_cost import rental

    figures: dict[str, Any] = dict.fromkeys(COSTS)
    job = whole["job"]
    offer = book.rent(job["device"], job.get("cluster") or "")
    if offer is not None:
        figures["usd_per_gpu_hour"] = round(offer.value * 3600, 6)
        figures["price_offer"], figures["price_row"] = offer.title(), offer.row
    if not whole["estimate"]:
        return figures
    rate, gpus = whole["estimate"]["tokens_per_s_per_gpu"], job["gpus"]
    cluster = known_cluster(job.get("cluster") or "")
    node = cluster.gpus_per_node if cluster else 1
    # Without an offer only time is asked for.
    free = offer or quote(job["device"], "on_demand", 0.0, row="")
    training, params = (token_budget or MTOKEN) / (rate * gpus), job.get("params") or 0.0
    run = rental(training, gpus, node, free, params=params, cluster=job.get("cluster") or "")
    figures["goodput"] = run.time.goodput
    if offer is not None:
        figures["usd_per_mtoken"] = run.cost / (token_budget or MTOKEN) * MTOKEN
        figures["tokens_per_usd"] = (token_budget or MTOKEN) / run.cost
        figures["tokens_per_joule"] = _per_joule(whole, offer, cluster, run.time.goodput)
    if token_budget:
        figures["train_days"] = run.time.wall / DAY
        figures["gpu_hours"] = gpus * run.time.wall / 3600
        figures["train_usd"] = run.cost if offer is not None else None
    return figures
