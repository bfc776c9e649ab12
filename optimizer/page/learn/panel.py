"""The acts as markup: what opens each, what it shows once its prediction is locked, and what a choice reveals."""

from __future__ import annotations

from typing import Any

from optimizer.base.content import Values
from optimizer.page.learn.act import PLAIN, PREDICTION, Act, ActQuestion, Shown
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.content_files import piece, table, texts
from optimizer.page.learn.priced import CONTEXTS, title
from optimizer.page.learn.question import LearnQuestion, controls
from optimizer.reports.render.html import marked_up


def page_values() -> dict[str, Any]:
    """What learn.html shows before anything is locked: no number of any act."""
    lab = table("lab.toml")
    return {
        "header": marked_up(texts("lab.md")["header"]),
        "reading": piece("titled", [(each["title"], each["text"]) for each in lab["reading"]], "reading"),
        "lab": lab,
        "contexts": [(name, title(name)) for name in CONTEXTS],
        "ledger": marked_up(texts("lab.md")["ledger"]),
        "locked": locked_banner(),
        "acts": [(number, _blocks(act, "opening", None, {})) for number, act in ACTS.items()],
    }


def panel_view(asks: LearnQuestion, body: bytes = b"") -> dict[str, Any]:
    """What an act shows with the values of its controls, in blocks; `body` is a text that the reader pasted."""
    act, set_to = ACTS[asks.act], controls(asks, body.decode("utf-8", "replace"))
    shown = act.shown({**{name: each["value"] for name, each in set_to.items()}, "context": asks.context})
    return {"html": _blocks(act, "panel", shown, set_to)}


def reveal_view(asks: LearnQuestion) -> dict[str, Any]:
    """What a locked choice reveals, and below it the others."""
    question = ACTS[asks.act].question(asks.question)
    right, choice = question.is_right(asks.key), question.choice(asks.key)
    heading = f"{asks.key} is right." if right else f"{asks.key} is not it; {question.right} is."
    others = [(each.label.rstrip("."), each.reveal()) for each in question.choices if each.key != asks.key]
    return {"html": piece("reveal", "fine" if right else "warned", heading, choice.reveal(), question.name, others)}


def _blocks(act: Act, part: str, shown: Shown | None, set_to: Values) -> str:
    """The blocks of a part of the act's file below each other, each with a name by which it is replaced."""
    blocks = ((block.split()[0], _block(act, block.split(), shown, set_to)) for block in act.content[part])
    return piece("blocks", [(f"{part}-{act.number}-{at}", kind, html) for at, (kind, html) in enumerate(blocks)])


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


def locked_banner() -> str:
    """What stands where an act goes on, until its prediction is locked."""
    return piece("banner", PLAIN, "Locked.", "Lock your prediction above to see what comes here.")
