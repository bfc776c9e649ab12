"""What has changed since an earlier report: what moved is said, what stays is not, files that are none are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

ASKED = ["pareto", "--model", "llama3-8b", "--tokens", "15T", "--gpus", "64"]


def said(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [*ASKED, *options])
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("since") / "before.json"
    result = CliRunner().invoke(
        cli, [*ASKED, "--hardware", "h100,b200", "--rent", "h100=3", "--rent", "b200=9", "--json"]
    )
    assert result.exit_code == 0, result.output
    path.write_text(result.stdout, encoding="utf-8")
    return path


def test_a_price_that_moved_and_what_it_moved_are_said(before: Path) -> None:
    code, text = said("--hardware", "b200,h200", "--rent", "b200=3", "--since", str(before))
    assert code == 0
    assert "The advice was 64 × H100; now it is 64 × B200." in text
    assert "B200: price $3.00/h (was $9.00/h); cost " in text
    assert "H200 is new." in text
    assert "H100 is gone." in text


def test_the_same_report_again_has_no_change(before: Path) -> None:
    _, text = said("--hardware", "h100,b200", "--rent", "h100=3", "--rent", "b200=9", "--since", str(before))
    assert "Since the report before • Nothing has changed." in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machines": 3}', '{"machines": [{"device": 1}], "advised": null}'])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "none.json"
    path.write_text(text, encoding="utf-8")
    code, words = said("--hardware", "h100", "--since", str(path))
    assert code == 2
    assert "is no report" in words


@pytest.mark.parametrize("data", [None, b"\xff\xfe\xff"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "none.json"
    if data is not None:
        path.write_bytes(data)
    code, words = said("--hardware", "h100", "--since", str(path))
    assert code == 2
    assert "optimize pareto --json" in words
    assert "internal error" not in words


def test_a_report_without_advice_is_one(before: Path, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text(json.dumps(json.loads(before.read_text()) | {"advised": None}), encoding="utf-8")
    code, text = said("--hardware", "h100,b200", "--rent", "h100=3", "--rent", "b200=9", "--since", str(path))
    assert code == 0
    assert "The advice was none; now it is 64 × H100." in text
