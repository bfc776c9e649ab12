"""A table of measured runs with its notes as columns: `python -m maintain.clean_runs IN.csv OUT.csv`.

The columns are those of docs/file-formats.md. A clean table is read as it is, without the rules of
presets/run_notes.toml.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path

import click

from optimizer.base.files import replace_file
from optimizer.calibration.rows.notes import ASSUMED, CLEAN, SEPARATOR, clean_columns
from optimizer.calibration.runs import rows_of


@click.command()
@click.argument("table", type=click.Path(path_type=Path), metavar="IN.csv")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT.csv")
def main(table: Path, out: Path) -> None:
    """Write the table with what its notes say in columns."""
    replace_file(out, clean_table(rows_of(table)))


def clean_table(rows: Iterable[Mapping[str, str]]) -> str:
    """The rows as CSV: their own columns as they are or as the rules correct them, then those that the rules fill.

    >>> print(clean_table([{"model": "mixtral-8x7b", "notes": "experts force-balanced"}]))
    model,notes,stack.balanced_experts,clean,assumed
    mixtral-8x7b,experts force-balanced,yes,yes,
    <BLANKLINE>
    """
    cleaned = []
    for row in rows:
        assumed: list[str] = []
        columns = clean_columns(row, assumed)
        cleaned.append({**columns, CLEAN: "yes", ASSUMED: SEPARATOR.join(assumed)})
    names = dict.fromkeys(name for row in cleaned for name in row if name not in (CLEAN, ASSUMED))
    out = StringIO()
    writer = csv.DictWriter(out, [*names, CLEAN, ASSUMED], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cleaned)
    return out.getvalue()


if __name__ == "__main__":
    main()
