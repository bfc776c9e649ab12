"""The page's pieces as marimo shows them: questions that lock, what they reveal, charts with their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import marimo as mo

from optimizer.page.learn import markup
from optimizer.page.learn.act_six import Curve
from optimizer.page.learn.act_two import Design
from optimizer.page.learn.chart import Chart
from optimizer.page.learn.desk import Desk
from optimizer.page.learn.ledger import Entry, as_csv, as_json, sheet_named
from optimizer.page.learn.question import PREDICTION, Question
from optimizer.page.learn.texts import GATHERED
from optimizer.reports.charts.drawing import drawing
from optimizer.reports.render.html import filled


def sheet() -> Path | None:
    """The instructor's sheet that the server was started with, None where there is none."""
    request = mo.app_meta().request
    told = request.meta if request else {}
    return sheet_named(told if isinstance(told, Mapping) else {})


def html(text: str) -> Any:
    """Markup of this package as marimo shows it."""
    return mo.Html(text)


def look() -> Any:
    """The look of charts, which reports have too."""
    return html(f"<style>{filled('optimizer.reports', 'drawn.css')}</style>")


@dataclass(frozen=True, kw_only=True)
class Form:
    """The choices of a question, and the button that makes the picked one final; without a choice it does nothing."""

    picked: Any
    button: Any


def form(question: Question, desk: Desk) -> Form:
    """The choices and the button, as elements that answer for as long as somebody holds them."""
    word = "prediction" if question.kind == PREDICTION else "answer"
    picked = mo.ui.radio(options=dict(question.options), label=question.text)

    def take(_: Any) -> None:
        if picked.value is not None:
            desk.answer(question, picked.value)

    return Form(picked=picked, button=mo.ui.button(label=f"Lock my {word}", on_click=take))


def saving(desk: Desk, tp: Any, pp: Any, microbatches: Any) -> Any:
    """The button that saves the design that three sliders show."""

    def save(_: Any) -> None:
        desk.save(Design(tp=tp.value, pp=pp.value, microbatches=microbatches.value))

    return mo.ui.button(label="Save this design", on_click=save)


def asked(question: Question, answer: str, form: Form) -> Any:
    """The question while it is open; once it is locked, what was chosen."""
    if answer:
        choice = question.choice(answer)
        return html(markup.banner(markup.PLAIN, "Locked in:", choice.label, f"{question.name}-locked"))
    return mo.vstack([form.picked, form.button])


def waiting(question: Question, answer: str) -> Any | None:
    """What stands in place of what the question hides; None once it is locked."""
    if answer:
        return None
    what = "a prediction" if question.kind == PREDICTION else "an answer"
    return html(markup.banner(markup.PLAIN, "Locked.", f"Lock {what} above to see what comes here."))


def reveal(question: Question, key: str) -> Any:
    """What the chosen answer reveals, and below it the others; nothing before it is locked."""
    if not key:
        return html("")
    right = question.is_right(key)
    chosen = question.choice(key)
    title = f"{key} is right." if right else f"{key} is not it; {question.right} is."
    others = [(choice.label.rstrip("."), choice.revealed) for choice in question.choices if choice.key != key]
    state = markup.FINE if right else markup.WARNED
    return html(
        markup.banner(state, title, chosen.revealed, f"{question.name}-reveal")
        + markup.details("What the other choices reveal", markup.listed(others, f"{question.name}-others"))
    )


def chart(shown: Chart) -> tuple[Any, ...]:
    """A chart, and below it what it says with its numbers as a table.

    As markup that no program draws it changes in place when a slider moves, at any width.
    """
    title = f"<figcaption>{escape(shown.title)}</figcaption>"
    return (
        html(f'<figure class="learn-chart" id="{shown.name}">{title}{drawing(shown.figure.data, shown.name)}</figure>'),
        html(
            markup.paragraph(shown.words, f"{shown.name}-words")
            + markup.details("The same as a table", markup.table(shown.title, shown.columns, shown.rows))
        ),
    )


def when(asked_for: bool, shown: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """These pieces where they are asked for; nothing is worked out otherwise."""
    return shown() if asked_for else ()


def line_of(curve: Curve) -> Any:
    """A slider over the lines of a table; at first the last but one."""
    last = len(curve.readings)
    return mo.ui.slider(1, last, 1, value=last - 1, label="Line of the table", include_input=True)


def controls(*elements: Any) -> Any:
    """Sliders and the like, wrapping where the page is narrow."""
    return mo.hstack(list(elements), wrap=True, justify="start", gap=1.5)


def rightness(answers: Mapping[Question, str]) -> Mapping[str, bool]:
    """Whether each locked answer is right, by question; open ones are left out."""
    return {question.name: question.is_right(key) for question, key in answers.items() if key}


def ledger(entries: Sequence[Entry], *, gathered: bool, trouble: str) -> Any:
    """The ledger as a table, and what becomes of it."""
    shown = ("time", "act", "kind", "answer", "right", "tp", "pp", "dp", "microbatches", "memory_gb", "mfu_percent")
    rows = [[getattr(entry, column) for column in shown] for entry in entries]
    columns = [column.replace("_", " ") for column in shown]
    parts = [
        markup.banner(markup.FAILED, "Not gathered.", trouble, "ledger-trouble") if trouble else "",
        markup.paragraph(GATHERED, "ledger-gathered") if gathered else "",
        markup.table(f"{len(entries)} entries", columns, rows)
        if rows
        else markup.paragraph("Nothing yet.", "ledger-empty"),
    ]
    return html(f'<div id="ledger-entries">{"".join(parts)}</div>')


def downloads(entries: Sequence[Entry]) -> Any:
    """The ledger to take away, as CSV and as JSON."""
    files = (("CSV", "text/csv", as_csv(entries)), ("JSON", "application/json", as_json(entries)))
    return controls(
        *(
            mo.download(text.encode(), f"ledger.{kind.lower()}", mimetype=mimetype, label=f"Ledger as {kind}")
            for kind, mimetype, text in files
        )
    )
