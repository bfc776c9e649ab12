"""What measured runs say of the errors of predictions, as `python -m maintain.belief` wrote it."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from optimizer.catalog.files import presets_folder
from optimizer.job.known import RunError

LIKENESS, RUNS, TUNING = "belief.toml", "belief.csv", "belief-tuning.csv"
SEVERAL = " "  # between the numbers of a cell


@cache
def likeness_numbers() -> Mapping[str, Mapping[str, Any]]:
    """How alike errors are, by quantity: the fields of optimizer.objectives.belief.likeness.ErrorLikeness."""
    table: Mapping[str, Mapping[str, Any]] = tomllib.loads((presets_folder() / LIKENESS).read_text(encoding="utf-8"))[
        "likeness"
    ]
    return table


@cache
def published_errors(file: str = RUNS) -> tuple[RunError, ...]:
    """Errors of the shipped stacks on published runs, like ones together; fine-tuning has a file of its own."""
    with (presets_folder() / file).open(encoding="utf-8", newline="") as lines:
        return tuple(map(known, csv.DictReader(line for line in lines if not line.startswith("#"))))


def known(row: Mapping[str, str]) -> RunError:
    """A row of the table, whose columns are the fields of RunError."""
    cells: dict[str, Any] = dict(row)
    for name in ("size", "plan"):
        cells[name] = tuple(map(float, cells[name].split(SEVERAL)))
    for name in ("hardness", "error", "spread"):
        cells[name] = float(cells[name])
    return RunError(**cells)
