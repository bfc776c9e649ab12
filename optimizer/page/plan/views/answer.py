"""The answer itself: tiles, plan, charts, runners-up, how sure it is, what was assumed and where to change it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from optimizer.page.plan.engine import Answered, answered, first
from optimizer.page.plan.locks import locks
from optimizer.page.plan.question import PAGED, PlanQuestion
from optimizer.page.plan.steps import steps
from optimizer.reports.plan_charts import memory_chart, waterfall
from optimizer.reports.plan_report import plan_rows, runner_up
from optimizer.reports.plan_tiles import tiles
from optimizer.reports.plan_words import headline, pins_of_plan, stack_words, subject
from optimizer.reports.proof_lines import proof_lines
from optimizer.reports.render.html import filled

PACKAGE = "optimizer.page.plan"
# The control that changes what an option of the command line does.
CONTROLS = {field.option: field.name for field in PAGED if field.usual} | {"--device": "cluster"}
OPTION = re.compile(r"\((--[a-z-]+)(?:, --[a-z-]+)*\)$")


@dataclass(frozen=True, kw_only=True)
class ShownAssumption:
    """A sentence, and the control of the room that changes what it says, "" where only the command line can."""

    text: str
    control: str = ""


def answer_view(asked: PlanQuestion) -> dict[str, Any]:
    """What a changed question changes, as soon as the plan is found; `pending` says that its proof is still to come."""
    return _view(asked, first(asked))


def proven_view(asked: PlanQuestion) -> dict[str, Any]:
    """The same with the proof and the runners-up."""
    return _view(asked, answered(asked))


def _view(asked: PlanQuestion, found: Answered) -> dict[str, Any]:
    """The fragments, the address of the question, and the values of the controls left to us."""
    job = found.answer.job
    values = answer_values(found)
    return {
        "address": asked.address(),
        "title": values["headline"],
        "answer": filled(PACKAGE, "answer.html", asked=asked, mine=mined(asked, found), **values),
        "pending": found.answer.certificate is None,
        "locks": filled(PACKAGE, "locks.html", locks=locks(job, found.answer.plan, asked.pins)),
        "values": {"seq_len": job.seq_len, "global_batch": job.global_batch, "gpus": job.gpus},
        "steps": steps(job),
        "mine": list(asked.mine),
    }


def answer_values(found: Answered) -> dict[str, Any]:
    """What the template shows of an answer; `proof` is empty as long as nothing is proven about its plan."""
    answer, job = found.answer, found.answer.job
    shared: dict[str, Any] = {
        "answer": answer,
        "headline": headline(answer),
        "subject": subject(job),
        "stack": stack_words(job),
        "flags": answer.flags,
        "assumptions": [assumption(text) for text in found.assumed],
        "plan": answer.plan,
    }
    if answer.plan is None or answer.estimate is None:
        return shared
    plan, estimate, certificate = answer.plan, answer.estimate, answer.certificate
    ranked = enumerate(answer.alternatives, start=2)
    return shared | {
        "tiles": tiles(job, plan, estimate, found.budget),
        "plan_rows": plan_rows(answer, plan, estimate),
        "charts": (waterfall(job, estimate), memory_chart(job, plan, estimate)),
        "runners_up": [(*runner_up(job, rank, other), pins_of_plan(other.plan)) for rank, other in ranked],
        "proof": proof_lines(certificate, answer.near_ties, plan.pp) if certificate else [],
    }


def assumption(text: str) -> ShownAssumption:
    """A sentence of what was assumed, without the option, and the control for it.

    >>> assumption("cluster dgx-h100 (--cluster)"), assumption("layers=4 (--set)").control
    (ShownAssumption(text='cluster dgx-h100', control='cluster'), '')
    """
    match = OPTION.search(text)
    control = CONTROLS.get(match[1], "") if match else ""
    return ShownAssumption(text=text[: match.start()].strip() if match and control else text, control=control)


def mined(asked: PlanQuestion, found: Answered) -> dict[str, bool]:
    """Which runners-up are pinned already, by their pins."""
    return {(pins := pins_of_plan(other.plan)): pins in asked.mine for other in found.answer.alternatives}
