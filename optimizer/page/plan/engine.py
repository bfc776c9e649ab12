"""The engine behind the room: one search for a question, kept for every view that needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from optimizer.answer import Answer
from optimizer.page.plan.question import HOUR, Asked
from optimizer.reports.answer_page.words import Budget

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
    return Answered(answer=answer, assumed=assumed, budget=Budget(tokens=asked.tokens, rent=_rent(asked, answer)))


@lru_cache(maxsize=KEPT)
def _planned(asked: Asked, whole: bool) -> tuple[Answer, tuple[str, ...]]:
    from optimizer.search.plan.planner import plan

    job, assumed = asked.job()
    return plan(job, trials=0, time_limit=PATIENCE, priced_risk=whole), assumed


def _rent(asked: Asked, answer: Answer) -> float | None:
    """The rent of one GPU [USD/s]: as asked, else the median offer for its kind."""
    from optimizer.sweep.money import rent

    return asked.price / HOUR if asked.price else rent(answer.job.cluster.device.name, {})
