"""Records as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from optimizer.base.names import csv_cell
from optimizer.reports.render.json import finite

if TYPE_CHECKING:
    from optimizer.reports.report import Record


def csv_text(records: Sequence[Record]) -> str:
    r"""Records as CSV; the columns are those of all records, in order of appearance.

    >>> csv_text([{"gpus": 8, "mfu": 0.5}, {"gpus": 16, "note": "no plan"}])
    'gpus,mfu,note\n8,0.5,\n16,,no plan\n'
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    if not columns:
        return ""
    target = StringIO()
    writer = csv.DictWriter(target, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(finite(value)) for name, value in record.items()} for record in records)
    return target.getvalue()
