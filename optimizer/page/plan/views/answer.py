"""The answer itself: tiles, plan, charts, runners-up, how sure it is, what was assumed and where to change it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from optimizer.answer.answer import Answer
from optimizer.job.fields import EXPECTED
from optimizer.job.job import TIME
from optimizer.job.plan import Plan
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.estimate import Estimate
from optimizer.page.plan.controls import locks, steps
from optimizer.page.plan.engine import Answered, answered, first
from optimizer.page.plan.own_files import name_of
from optimizer.page.plan.question import PAGED, PlanQuestion
from optimizer.page.plan.views.shown import fragment
from optimizer.reports.known_values import runs_words
from optimizer.reports.plan_brief import warnings
from optimizer.reports.plan_charts import memory_chart, waterfall
from optimizer.reports.plan_report import minimised, plan_rows, runner_up
from optimizer.reports.plan_tiles import tiles
from optimizer.reports.plan_words import headline, pins_of_plan, stack_words, subject
from optimizer.reports.proof_lines import proof_lines

# The control that changes what an option of the command line does.
CONTROLS = {field.option: field.name for field in PAGED if field.usual} | {"--device": "cluster"}
OPTION = re.compile(r"\((--[a-z-]+)(?:, --[a-z-]+)*\)$")


@dataclass(frozen=True, kw_only=True)
class ShownAssumption:
    """A sentence about what was assumed."""

    text: str
    control: str = ""  # that changes it, "" where only the command line can


def answer_view(asked: PlanQuestion) -> dict[str, Any]:
    """What a changed question changes, as soon as there is a plan; `pending` says that its proof is still to come."""
    return _view(asked, first(asked))


def proven_view(asked: PlanQuestion) -> dict[str, Any]:
    """The same with the proof and the runners-up."""
    return _view(asked, answered(asked))


def _view(asked: PlanQuestion, one: Answered) -> dict[str, Any]:
    """The fragments, the address of the question, and the values of the controls left to us."""
    answer, job, title = one.answer, one.answer.job, headline(one.answer)
    values: dict[str, Any] = {"answer": answer, "headline": title, "subject": subject(job), "stack": stack_words(job)}
    values |= {"flags": (*warnings(answer), *answer.flags), "plan": answer.plan}
    values |= {"assumptions": [assumption(text) for text in one.assumed]}
    values |= {"own_files": [(name_of(kind, text), text) for kind, text in asked.files.items()]}
    values |= {"minimised": minimised(answer.certificate), "words": objective_of(job)}
    if answer.plan and answer.estimate:
        values |= _of_plan(one, answer.plan, answer.estimate)
    mine = {(pins := pins_of_plan(other.plan)): pins in asked.mine for other in answer.alternatives}
    return {
        "address": asked.address(),
        "title": title,
        "answer": fragment("answer.html", asked=asked, mine=mine, **values),
        "pending": answer.certificate is None,
        "put": {"locks": fragment("locks.html", locks=locks(job, answer.plan, asked.pins))},
        "values": {"seq_len": job.seq_len, "global_batch": job.global_batch, "gpus": job.gpus},
        "steps": steps(job),
        "mine": list(asked.mine),
    }


def _of_plan(one: Answered, plan: Plan, estimate: Estimate) -> dict[str, Any]:
    """What the template shows of a plan; `proof` is empty as long as nothing is proven about it."""
    answer, job, certificate = one.answer, one.answer.job, one.answer.certificate
    ranked = enumerate(answer.alternatives, start=2)
    return {
        "tiles": tiles(job, plan, estimate, one.budget),
        "own": runs_words(job, plan, estimate.step_time),
        "plan_rows": plan_rows(answer, plan, estimate),
        "charts": (waterfall(job, estimate), memory_chart(job, plan, estimate)),
        "runners_up": [(*runner_up(job, rank, other), pins_of_plan(other.plan)) for rank, other in ranked],
        "proof": proof_lines(certificate, answer.near_ties, plan.pp, answer.run_bound) if certificate else [],
        "surcharge": surcharge(answer, estimate),
    }


def surcharge(answer: Answer, estimate: Estimate) -> str:
    """By which share the expected step time is more than the step's, "" where that rounds to nothing."""
    certificate = answer.certificate
    if certificate is None or (certificate.minimize, certificate.prefer) != (TIME, EXPECTED):
        return ""
    share = f"{certificate.best / estimate.step_time - 1:.1%}"
    return share if share != "0.0%" else ""


def assumption(text: str) -> ShownAssumption:
    """A sentence of what was assumed, without the option, and the control for it.

    >>> assumption("cluster dgx-h100 (--cluster)"), assumption("layers=4 (--set)").control
    (ShownAssumption(text='cluster dgx-h100', control='cluster'), '')
    """
    match = OPTION.search(text)
    control = CONTROLS.get(match[1], "") if match else ""
    return ShownAssumption(text=text[: match.start()].strip() if match and control else text, control=control)
