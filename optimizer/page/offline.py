"""Learn and the answers to a grid of questions as files that open without a server, such as on the site of a course.

Each act's answers are one file, which the page opens once something is locked there; equal versions give equal bytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from optimizer.base.content import Values, content
from optimizer.base.errors import InputError, nearest
from optimizer.page.learn.act import Act
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.ledger import DEGREES, Visitor, answered, cells_of, designed, takeaways_view
from optimizer.page.learn.panel import page_values, panel_blocks, reveal_view
from optimizer.page.learn.priced import CONTEXTS
from optimizer.page.learn.question import SLIDER, STEPS, TEXT, LearnQuestion, allowed, controls, written
from optimizer.page.plan import engine
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import linked
from optimizer.page.routes import PACKAGE
from optimizer.page.views import report
from optimizer.reports.render.html import filled
from optimizer.studies.textbook import LabDesign

SCRIPTS = ("tab.js", "learn.js", "page.css")
NOBODY = Visitor(key="")
TABS = (
    {"name": "learn", "title": "Learn", "place": "index.html", "about": "the parallelism paradox: predict, then see"},
    {"name": "answers", "title": "Answers", "place": "answers.html", "about": "the proven best plans of some jobs"},
)


def write_offline(folder: Path, grid: Sequence[PlanQuestion] | None = None) -> int:
    """Write the copy, with the answers to a grid of questions, the usual one without it; its size [B].

    Raises InputError for a folder with other files in it, and where it cannot be written.
    """
    grid = questions() if grid is None else grid
    names = {*SCRIPTS, *(tab["place"] for tab in TABS)}
    names |= {f"act-{number}.js" for number in ACTS} | {f"{asked.name}.html" for asked in grid}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if others := sorted(each.name for each in folder.iterdir() if each.name not in names):
            raise InputError(f"--static {folder}: {others[0]} is there already; name a new folder, or an earlier copy")
        size = 0
        for name, text in files(grid).items():
            size += (folder / name).write_bytes(text)
    except OSError as error:
        raise InputError(f"--static {folder} cannot be written: {error.strerror}") from error
    return size


def files(grid: Sequence[PlanQuestion]) -> dict[str, bytes]:
    """Every file by its name."""
    pages = {f"{asked.name}.html": report(asked) for asked in grid}
    learn, answers = (
        filled(package, template, home="", tab=tab, tabs=TABS, answer={}, problem="", **values).encode()
        for tab, package, template, values in (
            (TABS[0], "optimizer.page.learn", "learn.html", page_values()),
            (TABS[1], PACKAGE, "answers.html", {"script": "", **answers_values(grid)}),
        )
    )
    return {
        **{name: filled(PACKAGE, name).encode() for name in SCRIPTS},
        **{"index.html": learn, "answers.html": answers},
        **{f"act-{number}.js": f'packed({number}, "{packed(pack(act))}");\n'.encode() for number, act in ACTS.items()},
        **pages,
    }


def offline() -> Values:
    """What offline.toml says."""
    return content(PACKAGE, "offline.toml")


def questions(models: Sequence[str] = (), gpus: Sequence[int] = ()) -> list[PlanQuestion]:
    """The grid of these models and counts, or those of offline.toml; raises InputError for a model that is none."""
    from optimizer.catalog import model_names

    grid = offline()["questions"]
    for model in models:
        if model not in model_names():
            meant = "; did you mean ".join(("", *nearest(model, model_names())[:1]))
            raise InputError(f"--static-models: {model!r} is no preset of a model{meant}: `optimize presets` has them")
    return [
        PlanQuestion(model=model, gpus=count, cluster=grid["cluster"])
        for model in dict.fromkeys(models or grid["model"])
        for count in dict.fromkeys(gpus or grid["gpus"])
    ]


def answers_values(grid: Sequence[PlanQuestion]) -> dict[str, Any]:
    """The table of the answers; each has a report, which its first cell names."""
    from optimizer.base.units import seconds

    rows = []
    for asked in grid:
        answer = engine.answered(asked, whole=True).answer
        job, plan, estimate = answer.job, answer.plan, answer.estimate
        cells = ("no plan fits", "", "", "")
        if plan and estimate:
            reserved = f"{estimate.reserved / 1e9:.1f} GB"
            cells = (plan.summary(), seconds(estimate.step_time), f"{estimate.mfu:.1%}", reserved)
        rows.append((linked(f"{asked.name}.html", job.model.title or job.model.name), f"{job.gpus:,}", *cells))
    return {"columns": ("model", "GPUs", "plan", "step", "MFU", "memory"), "rows": rows, "cluster": job.cluster.name}


def packed(values: Any) -> str:
    """Values as text of a script."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def pack(act: Act) -> dict[str, Any]:
    """All answers of an act: what every setting shows, each different block once; reveals; entries of the ledger."""
    of_context = act.number in offline()["of_context"]
    blocks: dict[str, int] = {}
    panels: dict[str, Any] = {}
    usual = {}
    for context in CONTEXTS:
        offered = offered_by(act, context)
        usual[context] = {name: written(each["value"]) for name, each in offered.items()}
        if of_context or context == CONTEXTS[0]:
            for setting in product(*(each["steps"] for each in offered.values())):
                texts = [context] * of_context + list(map(written, setting))
                panels[",".join(texts)] = _panel(act, context, offered, setting, blocks)
    shown = {
        "names": ["context"] * of_context + list(offered),
        "usual": usual,
        "panels": panels,
        "blocks": list(blocks),
    }
    return {**shown, **_locked(act), "entry": _entries(act, offered)}


def _locked(act: Act) -> dict[str, Any]:
    """What each locked choice reveals, by question and key; with the design of Act II what there is to take away."""
    reveals = {
        f"{asked.name},{choice.key}": reveal_view(LearnQuestion(act=act.number, question=asked.name, key=choice.key))
        for asked in act.questions
        for choice in asked.choices
    }
    return {"reveal": reveals, "takeaways": {"takeaways,": takeaways_view(LearnQuestion())} if act.number == 2 else {}}


def _entries(act: Act, offered: Mapping[str, Values]) -> dict[str, Any]:
    """The ledger's entry of every choice, by question and key, and of every design; whose and when is the page's."""
    entries = {
        f"{asked.name},{choice.key}": answered(NOBODY, asked, choice.key)
        for asked in act.questions
        for choice in asked.choices
    }
    if set(DEGREES) <= offered.keys():
        for degrees in product(*(offered[name]["steps"] for name in DEGREES)):
            design = LabDesign(**dict(zip(DEGREES, degrees, strict=True)))
            entries[",".join(map(str, degrees))] = designed(NOBODY, design)
    return {
        key: {"entry": {name: cell for name, cell in cells_of(entry).items() if name != "time"}}
        for key, entry in entries.items()
    }


def offered_by(act: Act, context: str) -> dict[str, Values]:
    """The controls of an act with the few values of each, `steps`; a text of the reader's own is no such control."""
    stops = offline()["stops"].get(f"{act.number}", {})
    offered: dict[str, Values] = {}
    for name, each in controls(LearnQuestion(act=act.number, context=context), "").items():
        if each["kind"] != TEXT:
            kind = STEPS if each["kind"] == SLIDER else each["kind"]
            offered[name] = {**each, "kind": kind, "steps": stops.get(name, allowed(each))}
    return offered


def _panel(
    act: Act, context: str, offered: Mapping[str, Values], setting: Sequence[Any], blocks: dict[str, int]
) -> list[int] | str:
    """The numbers of the blocks that an act shows with its controls set so, or why it cannot be."""
    set_to = {name: {**each, "value": value} for (name, each), value in zip(offered.items(), setting, strict=True)}
    absent = {
        each["name"]: {**each, "kind": "absent", "value": ""}
        for each in act.content["control"]
        if each["name"] not in offered
    }
    try:
        shown = panel_blocks(LearnQuestion(act=act.number, context=context), {**set_to, **absent})
    except InputError as error:
        return str(error)
    return [blocks.setdefault(each, len(blocks)) for each in shown]
