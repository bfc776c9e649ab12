"""A disk that is full, as a limit on the size of files: one line, exit code 2, and nothing half-written."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

JOB = ("--model", "llama3-8b", "--gpus", "8", "--trials", "0")
STUDY = 'models = "llama3-8b"\ngpus = 8\n'
LOG = Path(__file__).parents[2] / "examples" / "slow-run.log"


@contextmanager
def no_room(size: int = 0) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "words",
    [
        (*JOB, "--html", "there.html"),
        (*JOB, "--export", "there"),
        ("batch", "study.toml", "--store", "there.db", "--workers", "1"),
        ("timeline", *JOB[:4], "--html", "there.html"),
        ("trial", *JOB[:4], "--out", "there"),
        ("read", str(LOG), "--html", "there.html"),
    ],
    ids=lambda words: next(word for word in words if "there" in word or word in ("batch", "timeline", "trial", "read")),
)
def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY, encoding="utf-8")
    with no_room():
        done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2, done.output + done.stderr
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("optimize:")]
    assert "there" in message
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size] == [
        Path("study.toml").resolve()
    ]
