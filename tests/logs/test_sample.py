"""The sample of `optimize read` in the README is what the command prints, but for its numbers."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "<!-- output of: optimize read examples/slow-run.log --plan answer.json -->\n```text\n"


def words(text: str) -> list[str]:
    """The words of a text; the order of its lines and its numbers follow the cost model."""
    return sorted(set(re.findall(r"[A-Za-z]{4,}", text)))


def test_the_sample_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(CliRunner().invoke(cli, ["--model", "llama3-8b", "--gpus", "64", "--json"]).stdout)
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, ["read", "examples/slow-run.log", "--plan", str(answer)])
    assert done.exit_code == 0, done.output
    sample = (ROOT / "README.md").read_text(encoding="utf-8").split(COMMAND)[1].split("```")[0]
    assert words(sample) == words(done.stdout)
    first = "the network between nodes runs at"
    assert sample.index(first) < sample.index("of the clocks")
    assert done.stdout.index(first) < done.stdout.index("of the clocks")
