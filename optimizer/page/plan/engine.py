"""The engine behind the tab: one search for a question, remembered for every view that needs it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from optimizer.answer.answer import Answer
from optimizer.page.plan.question import HOUR, PlanQuestion
from optimizer.reports.plan_tiles import Budget

if TYPE_CHECKING:
    from optimizer.catalog.offers import Offer
    from optimizer.search.plan.unproven import Unproven

MOST_PLANS = 2**17  # of the searches that are remembered: some 600 bytes each
PATIENCE = 60.0  # that a search takes at most [s]
_searches: OrderedDict[PlanQuestion, tuple[Unproven, tuple[str, ...]]] = OrderedDict()


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer to a question."""

    answer: Answer
    assumed: tuple[str, ...]  # for it
    budget: Budget  # the run that days and dollars are about


def first(asked: PlanQuestion) -> Answered:
    """The best plan as soon as it is found: an answer that claims no proof yet, and names no runners-up.

    Where there is no plan it is the whole answer. Raises InputError as the command line does.
    """
    search, assumed = _searched(asked.searched)
    answer = search.answer() if search.plan else _planned(asked.searched, False)[0]
    return Answered(answer=answer, assumed=assumed, budget=_budget(asked, answer))


def answered(asked: PlanQuestion, *, whole: bool = False) -> Answered:
    """The best plan, its proof and its runners-up: what `optimize --trials 0` says.

    What its safety costs takes a search of its own, and is left out unless the `whole` answer is wanted. Raises
    InputError as the command line does.
    """
    answer, assumed = _planned(asked.searched, whole)
    return Answered(answer=answer, assumed=assumed, budget=_budget(asked, answer))


@lru_cache(maxsize=64)
def _planned(asked: PlanQuestion, whole: bool) -> tuple[Answer, tuple[str, ...]]:
    from optimizer.search.plan.planner import proven

    search, assumed = _searched(asked)
    return proven(search, priced_risk=whole), assumed


def _searched(asked: PlanQuestion) -> tuple[Unproven, tuple[str, ...]]:
    """The search of a question, remembered for its proof: the newest ones, with at most MOST_PLANS plans in all."""
    from optimizer.search.lattice.oracle import Tuning
    from optimizer.search.plan.unproven import search

    if asked not in _searches:
        job, assumed = asked.job()
        _searches[asked] = search(job, Tuning(), time_limit=PATIENCE), assumed
        while len(_searches) > 1 and sum(each.swept.space for each, _ in _searches.values()) > MOST_PLANS:
            _searches.popitem(last=False)
    _searches.move_to_end(asked)
    return _searches[asked]


def _budget(asked: PlanQuestion, answer: Answer) -> Budget:
    """The run that the visitor asks about, with failures and whole nodes as every command counts them."""
    from optimizer.purchase.price.run_cost import charged

    offer = offer_of(asked, answer)
    price = offer.title() if offer else ""
    return Budget(tokens=asked.tokens, price=price, charged=partial(charged, answer.job, offer=offer))


def offer_of(asked: PlanQuestion, answer: Answer) -> Offer | None:
    """By what the GPUs are rented: the price as asked, else the price book's for their kind."""
    from optimizer.catalog.offers import book_of, quote

    cluster = answer.job.cluster
    if asked.price:
        return quote(cluster.device.name, "on_demand", asked.price / HOUR, row=f"{asked.price:g} USD")
    return book_of().rent(cluster.device.name, cluster.name)
