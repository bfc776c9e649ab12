"""An answer as one offline HTML page that can be mailed and printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.answer.answer import Answer
from optimizer.reports.answer_page.charts import memory_chart, waterfall
from optimizer.reports.answer_page.words import Budget, plan_rows, runner_up, stack_words, tiles
from optimizer.reports.page import rendered
from optimizer.reports.pages.chart import numeric
from optimizer.reports.plan_report import headline, subject
from optimizer.reports.proof_lines import proof_lines


def plan_html(answer: Answer, command: str, assumed: Sequence[str] = (), budget: Budget | None = None) -> str:
    """The whole page; nothing in it is fetched from elsewhere. `command` is what prints the same answer."""
    return rendered(
        "optimizer.reports",
        "plan.html",
        command=command,
        **answer_values(answer, assumed, budget),
    )


def answer_values(answer: Answer, assumed: Sequence[str], budget: Budget | None = None) -> dict[str, Any]:
    """What the templates show of an answer; `proof` is empty as long as nothing is proven about its plan."""
    job = answer.job
    shared: dict[str, Any] = {
        "answer": answer,
        "headline": headline(answer),
        "subject": subject(job),
        "stack": stack_words(job),
        "flags": answer.flags,
        "assumed": assumed,
        "plan": answer.plan,
        "numeric": numeric,
    }
    if answer.plan is None or answer.estimate is None:
        return shared
    plan, estimate, certificate = answer.plan, answer.estimate, answer.certificate
    return shared | {
        "tiles": tiles(job, plan, estimate, budget),
        "plan_rows": plan_rows(answer, plan, estimate),
        "charts": (waterfall(job, estimate), memory_chart(job, plan, estimate)),
        "runners_up": [runner_up(job, rank, other) for rank, other in enumerate(answer.alternatives, start=2)],
        "proof": proof_lines(certificate, answer.near_ties, plan.pp) if certificate else [],
    }
