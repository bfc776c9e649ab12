"""What measured runs say of the errors of predictions, as `python -m maintain.belief` wrote it.

In its tables a cell is empty where it is that of the row above, but for the first LEADING of a row.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from optimizer.catalog.files import presets_folder
from optimizer.job.known import RunError, SweptError

LIKENESS, RUNS, TUNING, SWEEPS = "belief.toml", "belief.csv", "belief-tuning.csv", "belief-sweeps.csv"
SEVERAL = " "  # between the numbers of a cell
LEADING = 2


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
    return tuple(map(known, _rows(file)))


def swept_errors(software: str, device: str) -> tuple[SweptError, ...]:
    """What a sweep of published runs of a software on a device says of plans among each other; nothing without one."""
    rows = _rows(SWEEPS, f"{software},{device},")
    return tuple(SweptError(**_numbers(row, pull=float(row["pull"]))) for row in rows)


def _rows(file: str, begins: str = "") -> Iterator[dict[str, str]]:
    """Rows of a table under its head, those alone that begin so."""
    lines = (presets_folder() / file).read_text(encoding="utf-8").splitlines()
    head, *rows = (line for line in lines if not line.startswith("#"))
    above: dict[str, str] = {}
    for row in csv.DictReader([head, *(row for row in rows if row.startswith(begins))]):
        above = {name: cell or above[name] for name, cell in row.items()}
        yield above


def known(row: Mapping[str, str]) -> RunError:
    """A row of the table, whose columns are the fields of RunError."""
    return RunError(**_numbers(row, **{name: float(row[name]) for name in ("hardness", "error", "spread")}))


def _numbers(row: Mapping[str, str], **numbers: float) -> dict[str, Any]:
    """Cells with the places of a row and these as numbers."""
    return {**row, **{name: tuple(map(float, row[name].split(SEVERAL))) for name in ("size", "plan")}, **numbers}
