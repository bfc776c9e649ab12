"""What every view says, to the last word: `said/` holds the texts of its markup and of its drawings, one file a view.

A wanted change, such as other measured rates: `python -m tests.page.test_what_views_say`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from optimizer.page.improve.question import LaunchQuestion
from optimizer.page.improve.view import improve_view
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.panel import panel_view, reveal_view
from optimizer.page.learn.priced import CONTEXTS
from optimizer.page.learn.question import LearnQuestion, controls, written
from optimizer.page.learn.question import asked as learn_asked
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.answer import proven_view
from optimizer.page.plan.views.compared import mine_view, runs_view
from optimizer.page.plan.views.map import map_view
from optimizer.page.plan.views.studies import pipeline_view, scaling_view, sensitivity_view
from optimizer.page.studies.question import asked as study_asked
from optimizer.page.studies.view import buy_view, fits_view

FOLDER = Path(__file__).parent / "said"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLANNED = {
    "dense": PlanQuestion(model="llama3-8b", gpus=64, mine=("tp=2,pp=2,micro_batch=1",)),
    "mixture": PlanQuestion(model="mixtral-8x7b", cluster="dgx-a100-80", gpus=48, seq_len=8192),
    "none": PlanQuestion(gpus=8),
}
WIDEST = 9  # the act that draws 2,048 boxes at the ends of its controls
LONG = ("sensitivity-mixture", "scaling-mixture", "scaling-none")  # which take half of the time of all
VIEWS = (proven_view, mine_view, map_view, pipeline_view, scaling_view, sensitivity_view, runs_view)
BOUGHT = [("model", "llama3-8b"), ("tokens", "1e12"), ("hardware", "h100,gb200-nvl72"), ("gpus", "64,72")]
TUNED = [("model", "llama3-8b"), ("cluster", "h100"), ("context", "2048")]


def _launch(*names: str) -> dict[str, Any]:
    """What is said of examples that are pasted."""
    texts = [[name, (EXAMPLES / name).read_text(encoding="utf-8")] for name in names]
    return improve_view(LaunchQuestion(model="" if "llama3-8b.sh" in names else "llama3-8b"), _body(texts))


class Day(date):
    """A calendar that stands still: a report says how old its prices are."""

    @classmethod
    def today(cls) -> date:
        return date(2026, 11, 29)


def _bought(*more: tuple[str, str]) -> dict[str, Any]:
    """What is said of a purchase."""
    with patch("optimizer.page.studies.view.date", Day):
        return buy_view(study_asked("buy", [*BOUGHT, *more]))


def _body(texts: list[list[str]]) -> bytes:
    return json.dumps({"pasted": texts}).encode()


def _acts(number: int, last: bool) -> list[Any]:
    """An act in each context, its controls as they are first, or each at its last value, and what choices reveal."""
    said: list[Any] = []
    for context in CONTEXTS:
        asks = LearnQuestion(act=number, context=context)
        if last:
            ends = [(name, written(_end(each))) for name, each in controls(asks, "").items() if _end(each) is not None]
            asks = learn_asked("", [("act", str(number)), ("context", context), *ends])
        said.append(panel_view(asks))
    for question in ACTS[number].questions:
        said += [
            reveal_view(LearnQuestion(act=number, question=question.name, key=each.key)) for each in question.choices
        ]
    return said


def _end(control: Any) -> Any:
    """The last value that a control may have, None where any text may stand."""
    match control["kind"]:
        case "switch":
            return True
        case "dropdown":
            return [*control["options"].values()][-1]
        case "steps":
            return control["steps"][-1]
        case "slider":
            return control["range"][1]
    return None


CASES: dict[str, Callable[[], Any]] = {
    **{
        f"{view.__name__.removesuffix('_view')}-{name}": lambda view=view, asks=asks: view(asks)
        for name, asks in PLANNED.items()
        for view in VIEWS
        if f"{view.__name__.removesuffix('_view')}-{name}" not in LONG
    },
    "improve-script": lambda: _launch("llama3-8b.sh"),
    "improve-log": lambda: _launch("slow-run.log"),
    "improve-both": lambda: _launch("llama3-8b.sh", "slow-run.log"),
    "buy": _bought,
    "buy-own": lambda: _bought(("buy", "yes"), ("purchase.h100", "1000")),
    "fits": lambda: fits_view(study_asked("fits", TUNED)),
    **{f"act-{number}": lambda number=number: _acts(number, False) for number in ACTS},
    **{
        f"act-{number}-ends": lambda number=number: _acts(number, True) for number in ACTS if number != 9
    },  # of 2,048 boxes
}


def said(view: Any) -> Iterator[str]:
    """The texts of a view, a line each; what is only drawn is left out."""
    if isinstance(view, str):
        for text in re.split(r"<[^>]*>", re.sub(r"(?s)<(style|script)\b.*?</\1>", "", view)):
            if words := " ".join(html.unescape(text).split()):
                yield words
    elif isinstance(view, dict):
        for name, each in view.items():
            yield from (f"{name}: {text}" for text in said(each))
    elif isinstance(view, list | tuple):
        for each in view:
            yield from said(each)
    elif view is not None:
        yield str(view)


@pytest.mark.parametrize("name", CASES)
def test_a_view_says_what_it_said(name: str) -> None:
    assert [*said(CASES[name]())] == (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case, view in CASES.items():
        (FOLDER / f"{case}.txt").write_text("".join(f"{line}\n" for line in said(view())), encoding="utf-8")
