"""The tabs, in the order of the header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.job.fields import FIELDS
from optimizer.page.improve.question import LaunchQuestion
from optimizer.page.improve.question import asked as launch_asked
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.panel import page_values
from optimizer.page.learn.question import LearnQuestion
from optimizer.page.learn.question import asked as learn_asked
from optimizer.page.plan.controls import control, form_values
from optimizer.page.plan.question import PlanQuestion, asked
from optimizer.page.routes import Pairs, Tab
from optimizer.page.studies.question import asked as study_asked
from optimizer.page.studies.question import form_values as study_values
from optimizer.page.task import PageTask

AS_STATED = "as the files say"
LATER = {
    "mine": "Mine against the best, term by term",
    "map": "TP × PP: the best plan of each cell",
    "pipeline": "The pipeline, pass by pass",
    "scaling": "MFU against GPUs",
    "sensitivity": "What more of each input buys",
    "runs": "The nearest measured runs",
}


def _plan(pairs: Pairs, question: PlanQuestion, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The controls of the Plan tab, and which of its views are open."""
    shown = [value for name, value in pairs if name == "show"]
    return {
        "later": {name: (title, name in shown) for name, title in LATER.items()},
        "form": form_values(question, answer.get("values"), answer.get("steps")),
    }


def _improve(pairs: Pairs, question: LaunchQuestion, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What may be said besides the files."""
    machine = replace(
        control(FIELDS["cluster"], PlanQuestion(cluster=question.cluster)), label="Machine", usual=AS_STATED
    )
    model = replace(control(FIELDS["model"], PlanQuestion(model=question.model)), usual=AS_STATED)
    return {"controls": (machine, model)}


def tabs_of(sheet: Path | None, store: str = "") -> tuple[Tab, ...]:
    """Every tab; `sheet` gathers what students answer, the jobs of a `store` of batches are a tab of their own."""
    plan = Tab(
        name="plan",
        title="Plan",
        about="the proven best plan of a model on a cluster",
        package="optimizer.page.plan",
        asked=asked,
        shown=_plan,
        opening=("answer", "proven"),
        later=tuple(LATER),
        taken=("answer.json", "report.html", "launch.zip"),
    )
    improve = Tab(
        name="improve",
        title="Improve",
        about="what to change in a launch, and why a run is slow",
        package="optimizer.page.improve",
        asked=launch_asked,
        shown=_improve,
        opening=("improve",),
    )
    learn = Tab(
        name="learn",
        title="Learn",
        about="the parallelism paradox: predict, then see",
        package="optimizer.page.learn",
        asked=partial(learn_asked, f"{sheet or ''}"),
        shown=lambda _pairs, _question, _answer: page_values(f"{sheet or ''}"),
        later=("panel", "reveal", "entry", "takeaways"),
        taken=("class.html",),
        ahead=tuple(PageTask(view="panel", asked=LearnQuestion(act=act, sheet=f"{sheet or ''}")) for act in ACTS),
    )
    fits, buy, *batch = (
        Tab(
            name=name,
            title=name.capitalize(),
            about=about,
            package="optimizer.page.studies",
            template="form.html",
            asked=partial(study_asked, name, store=store if name == "batch" else ""),
            shown=study_values,
            opening=(name,),
            taken=taken,
        )
        for name, about, *taken in (
            ("fits", "which ways of training fit a card, by length of context"),
            ("buy", "which machines to take, and how many", "board.html", "designs.json", "designs.csv"),
            *([("batch", "the jobs of a store")] if store else []),
        )
    )
    return (plan, fits, improve, buy, *batch, learn)
