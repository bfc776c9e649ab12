"""The line at the foot of the page: where a student stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from optimizer.page.learn.ledger import tier
from optimizer.page.learn.textbook.design import Design

ACTS = {f"act-{at}": f"Act {roman}" for at, roman in enumerate(("I", "II", "III", "IV", "V", "VI"), 1)}


def footer(context: str, right: Mapping[str, bool], design: Design, saved: Sequence[Design]) -> str:
    """Context, design, MFU, the predictions of every act, memory and tier, as a description list."""
    shown = {act: "open" if act not in right else "right" if right[act] else "review" for act in ACTS}
    entries = {
        "lab": ("Lab", "The Parallelism Paradox"),
        "context": ("Context", context),
        "design": ("Design", f"TP {design.tp} x PP {design.pp} x DP {design.dp if design.divides else '-'}"),
        "mfu": ("MFU by rules of thumb", f"{100 * design.mfu:.2f} %"),
        **{act.replace("-", ""): (title, shown[act]) for act, title in ACTS.items()},
        "memory": ("Out of memory", "no" if design.fits else "yes"),
        "saved": ("Designs saved", f"{len(saved)}"),
        "tier": ("Tier", tier(right, saved)),
    }
    items = "".join(
        f'<div><dt>{escape(title)}</dt><dd id="footer-{name}">{escape(value)}</dd></div>'
        for name, (title, value) in entries.items()
    )
    return f'<dl class="learn-footer">{items}</dl>'
