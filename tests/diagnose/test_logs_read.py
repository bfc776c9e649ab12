"""Logs of every program, read to the last digit: `logs_read.json` holds logs and all that `optimize read --json` says.

What the other tests read, as few of it as run every line of the readers. A wanted change:
`python -m tests.diagnose.test_logs_read`.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.diagnose.measured import read_runs_of
from optimizer.diagnose.report import logs_json, logs_report
from optimizer.reports.render.markdown import markdown_text

PLACE = Path(__file__).with_name("logs_read.json")
LOGS: list[dict[str, Any]] = json.loads(PLACE.read_text(encoding="utf-8"))
DIGITS = 9  # of a number, the last ones of which hang on the processor
NAME = "train.log"


def read(log: str, folder: Path) -> list[str]:
    """What is said of a log, as a program and as a person reads it; or why nothing is."""
    path = folder / NAME
    path.write_bytes(log.encode("latin-1"))
    try:
        runs = read_runs_of([path], {})
    except InvalidFile as error:
        return str(error).replace(str(path), NAME).splitlines()
    said = json.loads(logs_json(runs, [None] * len(runs)).replace(str(path), NAME))
    shown = markdown_text(logs_report(runs, [None] * len(runs))).replace(str(path), NAME)
    return [*(json.dumps(_rounded(run)) for run in said["runs"]), *shown.splitlines()]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


@pytest.mark.parametrize("number", range(len(LOGS)))
def test_a_log_is_read_to_the_last_digit(number: int, tmp_path: Path) -> None:
    assert read(LOGS[number]["log"], tmp_path) == LOGS[number]["read"]


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        rows = [{"log": each["log"], "read": read(each["log"], Path(place))} for each in LOGS]
    PLACE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
