"""The user's defaults: they fill what is not typed, are told in the answer, and never fight what is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import optimizer
from optimizer.cli import cli
from optimizer.commands import options
from optimizer.commands.defaults import ALLOWED, Usual
from optimizer.job.fields import FIELDS

WORDS = ("--model", "llama3-8b", "--gpus", "8", "--trials", "0", "--json")


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "mfu-optimizer").mkdir()
    path = tmp_path / "mfu-optimizer" / "defaults.toml"
    path.write_text('cluster = "dgx-h200"\noom-risk = "5%"\nfix = ["pp=1", "tp=1,2"]\nseq_len = 4096\n')
    return path


def planned(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [*WORDS, *words])
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_they_fill_what_is_not_typed_and_are_told(defaults: Path) -> None:
    answer = planned()
    assert (answer["job"]["cluster"], answer["job"]["seq_len"]) == ("dgx-h200", 4096)
    assert answer["job"]["limits"]["oom_risk"] == 0.05
    assert answer["job"]["limits"]["fixed"] == {"pp": 1}
    told = [text.partition(", of your ")[0] for text in answer["assumptions"] if "defaults.toml" in text]
    assert told == ["--cluster dgx-h200", "--seq-len 4096", "--oom-risk 5%", "--fix pp=1 --fix tp=1,2"]


def test_a_colleague_reproduces_the_answer_by_typing_what_is_told(
    defaults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = planned()
    told = [text.partition(", of your ")[0] for text in mine["assumptions"] if "defaults.toml" in text]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(defaults.parent / "elsewhere"))
    assert planned(*" ".join(told).split()) | {"search_s": 0, "assumptions": 0} == mine | {
        "search_s": 0,
        "assumptions": 0,
    }


def test_what_is_typed_counts(defaults: Path) -> None:
    answer = planned("--device", "a100-80", "--oom-risk", "2%", "--fix", "tp=4", "--seq-len", "2k")
    assert answer["job"]["device"] == "a100-80"
    assert answer["job"]["limits"]["fixed"] == {"tp": 4}
    assert not [text for text in answer["assumptions"] if "defaults.toml" in text]


def test_python_and_studies_have_them_too(defaults: Path) -> None:
    answer = optimizer.plan(model="llama3-8b", gpus=8, trials=0)
    assert answer.job.cluster.name == "dgx-h200"
    done = CliRunner().invoke(cli, ["scaling", "--model", "llama3-8b", "--gpus", "8", "--json"])
    assert done.exit_code == 0, done.stderr
    assert any("--cluster dgx-h200, of your" in text for text in json.loads(done.stdout)["assumptions"])


def test_an_answer_is_checked_as_it_was_made(defaults: Path, tmp_path: Path) -> None:
    defaults.rename(tmp_path / "away")
    text = json.dumps(planned())
    (tmp_path / "away").rename(defaults)
    assert CliRunner().invoke(cli, ["check", "-"], input=text).exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('clustr = "x"', "nearest: cluster"),
        ("as_json = true", "no option that has a default"),
        ("html = 'x.html'", "no option that has a default"),
        ('oom_risk = "7x"', "defaults.toml: oom_risk: '7x' is not a share"),
        ("seq_len = true", "expected a number, a text"),
        ("a = = 2", "not TOML"),
        ('cluster = "nowhere"', "unknown cluster 'nowhere'"),
    ],
)
def test_what_is_wrong_is_one_message(defaults: Path, text: str, message: str) -> None:
    defaults.write_text(text)
    done = CliRunner().invoke(cli, [*WORDS])
    assert done.exit_code == 2
    assert message in done.stderr


def test_every_option_that_decides_an_answer_may_have_a_default() -> None:
    params = click.command(options.given(options.ANSWER)(lambda: None)).params
    usual = {option.opts[0][2:].replace("-", "_") for option in params if isinstance(option, Usual)}
    assert usual == set(ALLOWED)
    assert {option.opts[0][2:] for option in params} - {name.replace("_", "-") for name in ALLOWED} == {
        "model",
        "gpus",
        "study",
    }
    assert all(FIELDS[field.instead].instead == field.name for field in FIELDS.values() if field.instead)
