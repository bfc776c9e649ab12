"""The engine behind the room: one search for a question, kept for every view that needs it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from optimizer.answer.answer import Answer
from optimizer.page.plan.question import HOUR, PlanQuestion
from optimizer.reports.plan_tiles import Budget

if TYPE_CHECKING:
    from optimizer.catalog.offers import Offer
    from optimizer.search.plan.unproven import Unproven

KEPT = 64  # answers
HELD = 2**17  # plans of the searches that are kept: some 600 bytes each
PATIENCE = 60.0  # that a search takes at most [s]


_kept: OrderedDict[PlanQuestion, tuple[Unproven, tuple[str, ...]]] = OrderedDict()


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer to a question, what was assumed for it, and the run that days and dollars are about."""

    answer: Answer
    assumed: tuple[str, ...]
    budget: Budget


def first(asked: PlanQuestion) -> Answered:
    """The best plan as soon as it is found: an answer that claims no proof yet, and names no runners-up.

    Where there is no plan it is the whole answer. Raises InputError as the command line does.
    """
    found, assumed = _found(asked.searched)
    answer = found.answer() if found.plan else _planned(asked.searched, False)[0]
    return Answered(answer=answer, assumed=assumed, budget=_budget(asked, answer))


def answered(asked: PlanQuestion, *, whole: bool = False) -> Answered:
    """The best plan, its proof and its runners-up: what `optimize --trials 0` says.

    What its safety costs takes a search of its own, and is left out unless the `whole` answer is wanted. Raises
    InputError as the command line does.
    """
    answer, assumed = _planned(asked.searched, whole)
    return Answered(answer=answer, assumed=assumed, budget=_budget(asked, answer))


@lru_cache(maxsize=KEPT)
def _planned(asked: PlanQuestion, whole: bool) -> tuple[Answer, tuple[str, ...]]:
    from optimizer.search.plan.planner import proven

    found, assumed = _found(asked)
    return proven(found, priced_risk=whole), assumed


def _found(asked: PlanQuestion) -> tuple[Unproven, tuple[str, ...]]:
    """What a search found, kept for its proof: the newest searches, as many as hold HELD plans in all."""
    from optimizer.search.lattice.oracle import Tuning
    from optimizer.search.plan.unproven import search

    if asked in _kept:
        _kept.move_to_end(asked)
        return _kept[asked]
    job, assumed = asked.job()
    found = search(job, Tuning(), time_limit=PATIENCE)
    _kept[asked] = found, assumed
    while len(_kept) > 1 and sum(each.swept.space for each, _ in _kept.values()) > HELD:
        _kept.popitem(last=False)
    return found, assumed


def _budget(asked: PlanQuestion, answer: Answer) -> Budget:
    """The run that the visitor asks about, with failures and whole nodes as every command counts them."""
    from optimizer.purchase.price.run_cost import rental, usual_reliability, wall_time

    offer, gpus, cluster = offer_of(asked, answer), answer.job.gpus, answer.job.cluster
    node, params = cluster.gpus_per_node, answer.job.model.params

    def charged(training: float) -> tuple[float, float | None]:
        wall = wall_time(training, gpus, usual_reliability(cluster.device.name, cluster.name), params=params).wall
        return wall, rental(training, gpus, node, offer, params=params, cluster=cluster.name).cost if offer else None

    return Budget(tokens=asked.tokens, price=offer.title() if offer else "", charged=charged)


def offer_of(asked: PlanQuestion, answer: Answer) -> Offer | None:
    """By what the GPUs are rented: the price as asked, else what the price book holds for their kind."""
    from optimizer.catalog.offers import book_of, quote

    cluster = answer.job.cluster
    if asked.price:
        return quote(cluster.device.name, "on_demand", asked.price / HOUR, row=f"{asked.price:g} USD")
    return book_of().rent(cluster.device.name, cluster.name)
