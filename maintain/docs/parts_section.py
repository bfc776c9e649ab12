"""What moving parts of a plan cost, as a table of the page on the search."""

from __future__ import annotations

from optimizer.objectives.expected import PARTS, TABLE

PAGE = "search.md"


def sections() -> list[str]:
    """The rows, between the lines that mark them."""
    parts = (*TABLE["layout"].values(), *PARTS.values())
    rows = [f"| {part['about']} | {part['cost']:.1%} | {part['why']} |" for part in parts]
    head = ["", "| what | costs | because |", "|---|---:|---|"]
    return ["\n".join(["<!-- moving parts: start -->", *head, *rows, "", "<!-- moving parts: end -->"])]
