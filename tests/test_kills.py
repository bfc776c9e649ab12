"""A few of the kills of `python -m tests.kills 100`, on jobs that cost nothing."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from tests.kills import disturbed, half_written, python


def test_a_batch_that_is_killed_goes_on_to_the_same_export(tmp_path: Path) -> None:
    def start(store: Path) -> subprocess.Popen[str]:
        return python("-m", "tests.sweep.fakes", str(store), "60", "0.02", str(tmp_path / "log"))

    found = disturbed(start, tmp_path, 3, random.Random(3), (0.8, 1.3))
    assert found.kills >= 3
    assert found.starts == found.batches + found.commands
    assert found.differing == []


def test_launch_files_are_whole_or_not_there_after_a_kill(tmp_path: Path) -> None:
    assert half_written(tmp_path, 3, random.Random(1)) == []
