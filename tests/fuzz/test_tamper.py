"""A few of the changes of `python -m tests.fuzz.tamper 2000`, and what once passed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

import pytest

from optimizer.answer.reading import read_answer
from optimizer.base.errors import InputError
from optimizer.search.check.verification import verify
from optimizer.sweep.owner import myself
from optimizer.sweep.store import FAILED, PLACED, SUMMED, Store, checksum
from optimizer.sweep.tables import SUMS
from optimizer.sweep.task import JobOutcome
from tests.fuzz.tamper import damages, tried, typed
from tests.sweep.fakes import tasks
from tests.sweep.test_damage import exported, filled
from tests.thorough import cases


def test_no_change_of_an_answer_passes_unsaid() -> None:
    document = typed("at most")
    assert document is not None
    counts, wrong = tried({"at most": document}, cases(30, sample=10), 1)
    assert wrong == []
    assert counts["found"] > cases(15, sample=5)


@pytest.mark.usefixtures("few_draws")
def test_layers_that_cannot_lie_so_are_found_where_more_than_a_price_hangs_on_them() -> None:
    document = typed("at most")
    assert document is not None
    asked = {**deepcopy(document), "robust": {}, "explain": []}
    for plan in (asked["alternatives"][0]["plan"], asked["plan"]):
        plan["layers_per_stage"] = [1, 2, 3]
        broken = {finding.name for finding in verify(read_answer(json.dumps(asked))).broken}
        assert "layers per stage" in broken or any("alternatives[0]" in name for name in broken)


def test_no_damage_of_a_store_changes_an_export_in_silence(tmp_path: Path) -> None:
    counts, wrong = damages(tmp_path, 80, 1)
    assert wrong == []
    assert counts["found"] > 20


@pytest.mark.parametrize(
    "change",
    ["position = 7", "scenario = 'x'", "status = 'pending'", "model = x'ff', error = x'ff'", "result = ''"],
)
def test_every_column_that_is_told_is_under_the_checksum(tmp_path: Path, change: str) -> None:
    place = filled(tmp_path / "s.db")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(f"UPDATE batch_jobs SET {change} WHERE key = 'job-0003'")
    with pytest.raises(InputError, match="damaged"):
        exported(place)


def test_a_checksum_that_is_none_is_damage(tmp_path: Path) -> None:
    place = filled(tmp_path / "s.db")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE batch_sums SET checksum = NULL WHERE key = 'job-0003'")
    with pytest.raises(InputError, match=r"damaged .*job-0003"):
        exported(place)


def test_checksums_of_the_first_version_are_still_read(tmp_path: Path) -> None:
    """They left out place and scenario, and have no number of columns in front."""
    place = filled(tmp_path / "s.db")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.row_factory = sqlite3.Row
        for row in connection.execute("SELECT * FROM batch_jobs").fetchall():
            text = "\0".join(f"{row[name]!r}" for name in SUMMED)
            connection.execute(
                "UPDATE batch_sums SET checksum = ? WHERE key = ?", (sha256(text.encode()).hexdigest(), row["key"])
            )
    assert "optimal" in exported(place)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE batch_jobs SET result = '{}' WHERE key = 'job-0003'")
    with pytest.raises(InputError, match=r"damaged .*job-0003"):
        exported(place)


def test_a_failure_that_is_tried_again_is_no_damage(tmp_path: Path) -> None:
    store, owner = Store(str(tmp_path / "s.db")), myself()
    store.register(tasks(2))
    store.claim(["job-0000"], owner)
    store.save([JobOutcome(key="job-0000", status=FAILED, error="bad luck")], owner)
    store.register(tasks(2))
    assert [row.status for row in store.rows()] == ["pending", "pending"]
    store.close()


def test_the_checksum_fits_its_column() -> None:
    assert len(checksum(dict.fromkeys((*SUMMED, *PLACED), ""))) <= SUMS.c.checksum.type.length
