"""Where the presets lie: the repository's folder in a checkout, the copy inside the wheel otherwise."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from optimizer.base.files import read_bytes


@cache
def presets_folder() -> Path:
    """The folder with the preset files.

    The repository's own comes first, because an editable install copies the files once and goes stale.
    """
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    if (checkout / "presets").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / "presets"
    return package / "_presets"


def csv_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Rows of a CSV preset as (line number, cells by column); lines that start with "#" are comments.

    Cells are stripped. A row with too many cells keeps the rest under the key "", one with too few lacks the keys.
    """
    numbered = [
        (number, line)
        for number, line in enumerate(read_bytes(path).decode("utf-8").splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    records = csv.reader(line for _, line in numbered)
    header = next(records, [])
    rows = []
    for (number, _), cells in zip(numbered[1:], records, strict=True):
        row = dict(zip(header, map(str.strip, cells), strict=False))
        if len(cells) > len(header):
            row[""] = ",".join(cells[len(header) :])
        rows.append((number, row))
    return rows
