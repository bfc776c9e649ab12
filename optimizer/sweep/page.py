"""A batch as one HTML page that opens offline, and the same records as CSV beside it.

Whatever a study says reaches the page as text only: escaped by the template, or as JSON in a block that is not run.
The page's own script chooses among the jobs and draws them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optimizer.base.files import CSV, HTML, replace_file
from optimizer.reports.charts.marks import OUTLINES
from optimizer.reports.render.html import rendered
from optimizer.sweep.report import FAMILIES, family_rows, plan_text, summary
from optimizer.sweep.results import DEFAULTS, LIMITS, PLAN, exported, flat

TEXTS = (
    *("status", "scenario", "family", "model", "cluster", "device", "dtype", "stack", "summary", "reason"),
    *(name for name, default in DEFAULTS.items() if type(default) not in (int, float)),
)
NUMBERS = (
    *("gpus", "seq_len", "global_batch", "mfu", "step_time_s", "tokens_per_s_per_gpu", "tokens_per_usd"),
    *("tokens_per_joule", "usd_per_mtoken", "train_days", "train_usd", "peak_reserved_bytes"),
    *(name for name in DEFAULTS if name not in TEXTS),
)
DIGITS = 5  # of a figure on the page; the CSV has them all
PEAKS = ("peak_reserved", "peak_allocated")  # sums beside the terms of the memory


def write_page(name: str, wholes: Sequence[Mapping[str, Any]], path: Path) -> tuple[Path, Path]:
    """Write the page and the CSV beside it; their paths. Raises InputError when they cannot be written."""
    table = path.with_suffix(".csv")
    replace_file(table, exported(wholes, "csv"), CSV)
    replace_file(path, page(name, wholes), HTML)
    return path, table


def page(name: str, wholes: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    from markupsafe import Markup

    prices = {
        (whole["job"]["device"], whole["costs"]["price_row"]): whole["costs"]
        for whole in wholes
        if whole["costs"]["price_row"]
    }
    outcome = summary(name, wholes)
    return rendered(
        "optimizer.sweep",
        "batch.html.j2",
        name=name,
        summary=outcome,
        conclusion=conclusion(outcome),
        family_columns=[column.label for column in FAMILIES],
        family_rows=family_rows(outcome["families"]),
        prices=[(device, costs) for (device, _), costs in prices.items()],
        versions=sorted({whole["cost_model"] for whole in wholes}),
        data=Markup(embedded(_data(wholes))),  # text that cannot end the element it stands in
    )


def conclusion(outcome: Mapping[str, Any]) -> list[str]:
    """What a batch found, in sentences: most tokens a dollar, highest MFU, and what has no plan."""
    families = outcome["families"].values()
    thrifty = max(families, key=lambda f: f["most_tokens_per_usd"] or 0.0, default=None)
    best = max(families, key=lambda f: f["best_mfu"] or 0.0, default=None)
    lines = []
    if thrifty and thrifty["most_tokens_per_usd"]:
        lines.append(f"Most tokens per dollar: {thrifty['most_tokens_per_usd']:,.0f} with {thrifty['most_tokens_at']}.")
    if best and best["best_mfu"]:
        lines.append(f"Highest MFU, of the device's own peak: {best['best_mfu']:.1%} with {best['best_at']}.")
    without = sum(f["jobs"] - f["planned"] for f in families)
    lines = lines or ["No job has a plan."]
    return [*lines, f"{without:,} of {outcome['jobs']:,} jobs have no plan."] if without else lines


def embedded(value: Any) -> str:
    r"""JSON that no HTML parser takes for markup.

    >>> embedded("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _data(wholes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The jobs by column, which is a third of the size of records."""
    rows = [{**flat(whole), "summary": plan_text(whole["plan"]) if whole["plan"] else ""} for whole in wholes]
    columns: dict[str, Any] = {name: _coded([row[name] for row in rows]) for name in TEXTS}
    columns |= {name: [_rounded(row[name]) for row in rows] for name in NUMBERS}
    return {
        "count": len(rows),
        "columns": columns,
        "limits": list(LIMITS),
        "plan": list(PLAN),
        "outlines": list(OUTLINES.values()),
        "time": _terms(wholes, "time_s", ()),
        "memory": _terms(wholes, "memory_bytes", PEAKS),
    }


def _coded(values: Sequence[Any]) -> dict[str, Any]:
    """Words by number: each different one once."""
    numbers: dict[str, int] = {}
    words = ["" if value is None else str(value) for value in values]
    codes = [numbers.setdefault(word, len(numbers)) for word in words]
    return {"values": list(numbers), "codes": codes}


def _terms(wholes: Sequence[Mapping[str, Any]], part: str, without: Sequence[str]) -> dict[str, list[Any]]:
    """The terms of a breakdown, a column each."""
    each = [whole["estimate"][part] if whole["estimate"] else {} for whole in wholes]
    names = dict.fromkeys(name for terms in each for name in terms if name not in without)
    return {name: [_rounded(terms.get(name)) for terms in each] for name in names}


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short
