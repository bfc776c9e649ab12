"""The figures of README.md: `python -m bench.planners.figures` rewrites them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.planners.baselines import BASELINES
from bench.planners.baselines import predictions as baseline
from bench.planners.ours import predictions
from bench.planners.score import HERE, Score, read, score

README = HERE / "README.md"
START, END = "<!-- figures: start -->", "<!-- figures: end -->"
COLUMNS = ("mape", "median", "bias", "scaled", "kendall", "spearman", "regret_first", "regret_two", "oom_false")
ORDERS = ("kendall", "spearman")


def figures() -> Iterator[tuple[str, Score]]:
    """Our planner and the baselines."""
    jobs, measured = read(HERE / "jobs.json", "jobs"), read(HERE / "measured.json", "runs")
    for document in (predictions(), *map(baseline, BASELINES)):
        said: dict[str, Any] = {each["id"]: each for each in document["predictions"]}
        yield document["planner"], score(jobs, measured, said)


def section() -> str:
    """The table between its markers."""
    rows = list(figures())
    first = rows[0][1]
    lines = [f"{first.of} jobs, {first.groups} groups with more than one run.", ""]
    lines += [f"| planner | answered | {' | '.join(COLUMNS)} |", f"|---|{'---|' * (len(COLUMNS) + 1)}"]
    for name, found in rows:
        cells = [_cell(column, getattr(found, column)) for column in COLUMNS]
        lines.append(f"| {name} | {found.answered} | {' | '.join(cells)} |")
    return "\n".join([START, "", *lines, "", END])


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if column in ORDERS else f"{value:.1%}"


def rewritten(text: str) -> str:
    """The page with its figures."""
    return text[: text.index(START)] + section() + text[text.index(END) + len(END) :]


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
