"""The engine behind the room: one search for a question, kept for every view that needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from optimizer.answer import Answer
from optimizer.page.plan.question import HOUR, Asked
from optimizer.reports.answer_page.words import Budget

if TYPE_CHECKING:
    from optimizer.presets.offers import Offer

KEPT = 64  # answers
PATIENCE = 60.0  # that a search takes at most [s]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer to a question, what was assumed for it, and the run that days and dollars are about."""

    answer: Answer
    assumed: tuple[str, ...]
    budget: Budget


def answered(asked: Asked, *, whole: bool = False) -> Answered:
    """The best plan, its proof and its runners-up: what `optimize --trials 0` says.

    What its safety costs takes a search of its own, and is left out unless the `whole` answer is wanted. Raises
    InputError as the command line does.
    """
    answer, assumed = _planned(replace(asked, mine=(), tokens=1.0, price=None), whole)
    return Answered(answer=answer, assumed=assumed, budget=_budget(asked, answer))


@lru_cache(maxsize=KEPT)
def _planned(asked: Asked, whole: bool) -> tuple[Answer, tuple[str, ...]]:
    from optimizer.search.plan.planner import plan

    job, assumed = asked.job()
    return plan(job, trials=0, time_limit=PATIENCE, priced_risk=whole), assumed


def _budget(asked: Asked, answer: Answer) -> Budget:
    """The run that the visitor asks about, with failures and whole nodes as every command counts them."""
    from optimizer.purchase.run_cost import rental, usual_reliability, wall_time

    offer, gpus, cluster = offer_of(asked, answer), answer.job.gpus, answer.job.cluster
    node, params = cluster.gpus_per_node, answer.job.model.params

    def charged(training: float) -> tuple[float, float | None]:
        wall = wall_time(training, gpus, usual_reliability(cluster.device.name, cluster.name), params=params).wall
        return wall, rental(training, gpus, node, offer, params=params, cluster=cluster.name).cost if offer else None

    return Budget(tokens=asked.tokens, price=offer.title() if offer else "", charged=charged)


def offer_of(asked: Asked, answer: Answer) -> Offer | None:
    """By what the GPUs are rented: the price as asked, else what the price book holds for their kind."""
    from optimizer.presets.offers import book_of, quote

    cluster = answer.job.cluster
    if asked.price:
        return quote(cluster.device.name, "on_demand", asked.price / HOUR, row=f"{asked.price:g} USD")
    return book_of().rent(cluster.device.name, cluster.name)
