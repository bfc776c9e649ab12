"""Results for other programs: JSON with everything, CSV and Parquet with one flat record per job."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optimizer.base.errors import InputError
from optimizer.reports.render.csv import csv_text as table_text
from optimizer.sweep.results import flat, records


def exported(wholes: Sequence[Mapping[str, Any]], form: str) -> bytes:
    """The results as csv, parquet or json; equal results give equal bytes."""
    if form == "json":
        return (json.dumps(list(wholes), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    if form == "csv":
        return csv_text(wholes).encode()
    return _parquet(wholes)


def csv_text(wholes: Iterable[Mapping[str, Any]]) -> str:
    """Comma-separated records with a header, an empty cell for a figure that is missing."""
    return table_text(list(records(wholes)))


def _parquet(wholes: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(
            "--export parquet needs pyarrow; pip install 'mfu-optimizer[parquet]', or export csv"
        ) from None
    rows = [flat(whole) for whole in wholes]
    names = list(rows[0]) if rows else []
    columns = {name: _column([row[name] for row in rows]) for name in names}
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), target)
    return target.getvalue()


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: a column that holds numbers and words becomes words."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and len(kinds) == 2:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]
