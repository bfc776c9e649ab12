"""Tables of what is believed are read as they were written, and are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintain.belief import belief_csv
from optimizer.catalog import belief
from optimizer.catalog.belief import RUNS, SWEEPS, TUNING, published_errors, swept_errors
from optimizer.catalog.files import presets_folder
from optimizer.job.known import SweptError
from optimizer.sweep.work import DATA

LARGEST = 200_000  # bytes of all together


def test_a_table_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = published_errors()[:40]
    swept = [
        SweptError(software=software, device="h100", size=size, plan=(1.0, float(count)), pull=0.1)
        for software in ("one", "two")
        for size in ((1.0, 2.0), (3.0, 2.0))
        for count in range(2)
    ]
    (tmp_path / RUNS).write_text(belief_csv(errors, "Errors"), encoding="utf-8")
    (tmp_path / SWEEPS).write_text(belief_csv(swept, "Sweeps"), encoding="utf-8")
    monkeypatch.setattr(belief, "presets_folder", lambda: tmp_path)
    assert published_errors.__wrapped__(RUNS) == errors
    assert [row for software in ("one", "two") for row in swept_errors(software, "h100")] == swept
    assert not swept_errors("three", "h100")


def test_the_tables_are_small_and_each_is_in_the_version_of_the_cost_model() -> None:
    tables = {path.name: path.stat().st_size for path in presets_folder().glob("belief*")}
    assert set(tables) == {RUNS, SWEEPS, TUNING, "belief.toml"}
    assert set(tables) <= set(DATA)
    assert sum(tables.values()) <= LARGEST
