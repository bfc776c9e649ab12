"""Searches of the Plan tab that are remembered: the newest, with at most so many plans in all."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.page.plan import engine
from optimizer.page.plan.question import PlanQuestion
from optimizer.search.plan import unproven

FEW, MORE, MOST = (PlanQuestion(model="llama3-8b", gpus=gpus) for gpus in (8, 16, 32))


@pytest.fixture
def spaces(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Plans of a search by GPUs, in the place of the searches."""
    spaces: dict[int, int] = {}

    def search(job: Any, tuning: Any, time_limit: float) -> Any:
        assert time_limit == 60.0
        return SimpleNamespace(swept=SimpleNamespace(space=spaces[job.gpus]))

    monkeypatch.setattr(unproven, "search", search)
    monkeypatch.setattr(engine, "_searches", OrderedDict())
    return spaces


def remembered() -> list[int]:
    return [asked.gpus for asked in engine._searches]


@pytest.mark.parametrize(("last", "kept"), [(2**15, [8, 16, 32]), (2**15 + 1, [16, 32]), (2**17, [32]), (2**18, [32])])
def test_at_most_so_many_plans_are_remembered(last: int, kept: list[int], spaces: dict[int, int]) -> None:
    """2^16 + 2^15 of two searches leave room for 2^15 of the 2^17."""
    spaces |= {8: 2**16, 16: 2**15, 32: last}
    for asked in (FEW, MORE, MOST):
        engine._searched(asked)
    assert remembered() == kept


def test_a_search_that_is_asked_for_again_is_the_newest(spaces: dict[int, int]) -> None:
    spaces |= {8: 2**16, 16: 2**15, 32: 2**16}
    found = engine._searched(FEW)
    engine._searched(MORE)
    assert engine._searched(FEW) is found
    engine._searched(MOST)
    assert remembered() == [8, 32]
