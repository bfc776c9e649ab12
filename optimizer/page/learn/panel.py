"""The acts as markup: what opens each, what it shows once its prediction is locked, and what a choice reveals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.base.content import Values
from optimizer.page.learn.act import PLAIN, PREDICTION, Act, ActQuestion, Shown
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.content_files import piece, table, texts
from optimizer.page.learn.ledger import COLUMNS, SHOWN_COLUMNS
from optimizer.page.learn.priced import CONTEXTS, title
from optimizer.page.learn.question import LearnQuestion, controls
from optimizer.reports.render.html import marked_up

DESIGNING = {"design": "Design", "mfu": "MFU by rules of thumb", "memory": "Out of memory"}  # of Act II, once locked


def page_values(sheet: str = "") -> dict[str, Any]:
    """What learn.html shows before anything is locked: no number of any act; `sheet` gathers answers."""
    lab = table("lab.toml")
    acts = {act.questions[0].name: f"Act {act.content['roman']}" for act in ACTS.values()}
    return {
        **{"script": "learn.js", "sheet": sheet, "columns": COLUMNS, "shown_columns": SHOWN_COLUMNS},
        "stands": {"context": "Context", **DESIGNING, **acts, "saved": "Designs saved", "tier": "Tier"},
        "header": marked_up(texts("lab.md")["header"]),
        "reading": piece("titled", [(each["title"], each["text"]) for each in lab["reading"]], "reading"),
        "lab": lab,
        "contexts": [(name, title(name)) for name in CONTEXTS],
        "ledger": marked_up(texts("lab.md")["ledger"]),
        "locked": piece("banner", PLAIN, "Locked.", "Lock your prediction above to see what comes here."),
        "acts": [
            (number, act.text("opening").partition("\n")[0].lstrip("# "), "".join(_blocks(act, "opening", None, {})))
            for number, act in ACTS.items()
        ],
    }


def panel_view(asks: LearnQuestion, body: bytes = b"") -> dict[str, Any]:
    """What an act shows with the values of its controls; `body` is a text that the reader pasted."""
    return {"html": "".join(panel_blocks(asks, controls(asks, body.decode("utf-8", "replace"))))}


def panel_blocks(asks: LearnQuestion, set_to: Mapping[str, Values]) -> list[str]:
    """What an act shows with its controls set so, block by block."""
    shown = ACTS[asks.act].shown({**{name: each["value"] for name, each in set_to.items()}, "context": asks.context})
    return _blocks(ACTS[asks.act], "panel", shown, set_to)


def reveal_view(asks: LearnQuestion) -> dict[str, Any]:
    """What a locked choice reveals, and below it the others."""
    question = ACTS[asks.act].question(asks.question)
    right, choice = question.is_right(asks.key), question.choice(asks.key)
    heading = f"{asks.key} is right." if right else f"{asks.key} is not it; {question.right} is."
    others = [(each.label.rstrip("."), each.reveal()) for each in question.choices if each.key != asks.key]
    return {"html": piece("reveal", "fine" if right else "warned", heading, choice.reveal(), question.name, others)}


def _blocks(act: Act, part: str, shown: Shown | None, set_to: Values) -> list[str]:
    """The blocks of a part of the act's file, each with a name by which it is replaced."""
    return [
        piece("block", f"{part}-{act.number}-{at}", words.split()[0], _block(act, words.split(), shown, set_to))
        for at, words in enumerate(act.content[part])
    ]


def _block(act: Act, words: list[str], shown: Shown | None, set_to: Values) -> str:
    """A block: its kind, and what it names."""
    kind, *names = words
    match kind:
        case "when":
            return _block(act, names[1:], shown, set_to) if set_to[names[0]]["value"] else ""
        case "controls" | "control":
            return piece("controls", [set_to.get(name, {"name": name, "kind": name}) for name in names], act.number)
        case "html" if shown:
            return "".join(act.html(name, shown) for name in names)
        case "chart" if shown:
            return piece("chart", act.chart(names[0], shown))
        case "ask":
            return ask(act.question(names[0]), act.number)
        case "reveal":
            return piece("place", names[0], act.number)
        case "slips":
            return piece("titled", act.slips, names[0])
        case "message":
            return piece("message", **act.content["message"])
        case _:
            return marked_up(act.text(names[0]))


def ask(question: ActQuestion, act: int) -> str:
    """A question with its choices, and the button that locks one."""
    word = "prediction" if question.kind == PREDICTION else "answer"
    return piece("ask", question, word, act)
