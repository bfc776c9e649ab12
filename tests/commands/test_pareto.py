"""`optimize pareto` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.cli import cli

QUESTION = ["pareto", "--model", "llama3-8b", "--tokens", "1e12", "--hardware", "h100,b200", "--gpus", "64:128"]


def run(*extra: str, question: list[str] = QUESTION) -> Result:
    return CliRunner().invoke(cli, [*question, *extra])


@pytest.mark.usefixtures("planned_once")
def test_json_is_the_whole_of_stdout() -> None:
    result = run("--json", "--deadline", "2000d")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["evaluated"] == 4
    assert {row["device"] for row in found["points"]} == {"h100", "b200"}
    assert all(row["plan"] for row in found["front"])


def test_two_runs_print_the_same_bytes() -> None:
    options = ["--json", "--nic", "200:800", "--power-cap", "60%:100%", "--trials", "3", "--seed", "3"]
    question = [word.replace("64:128", "64").replace("h100,b200", "h100") for word in QUESTION]
    assert run(*options, question=question).stdout == run(*options, question=question).stdout


@pytest.mark.usefixtures("planned_once")
def test_an_impossible_deadline_exits_with_three_and_names_the_nearest() -> None:
    result = run("--deadline", "1h")
    assert result.exit_code == 3
    assert "Nearest with" in result.stdout


@pytest.mark.usefixtures("planned_once")
def test_files_and_formats(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run("--markdown", "--html", str(page), "--min-gpus-for", "100d", "--buy")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("# Which machines to take")
    assert "Fewest GPUs for 100 days" in result.stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("--csv").stdout.startswith("front,device,cluster,gpus")


@pytest.mark.usefixtures("planned_once")
def test_a_portfolio_of_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("model,tokens\nllama3-8b,1e12\nllama2-7b,2e12\n", encoding="utf-8")
    question = ["pareto", "--portfolio", str(runs), "--hardware", "h100", "--gpus", "64"]
    found = json.loads(run("--json", question=question).stdout)
    assert found["front"][0]["tokens"] == pytest.approx(3e12)
    assert len(found["front"][0]["plan_detail"]) == 2
    first, last = found["front"][0]["ends_days"]
    assert 0 < first < last == pytest.approx(found["front"][0]["time_to_train_days"])
    text = run(question=question).stdout
    assert "64 H100, Llama-3 8B: TP" in text
    assert "64 H100, Llama-2 7B: TP" in text
    assert "One after the other: Llama-3 8B from day 0 to day" in " ".join(text.split())


@pytest.mark.usefixtures("planned_once")
def test_each_run_of_a_portfolio_may_have_its_own_date(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    question = ["pareto", "--portfolio", str(runs), "--hardware", "h100", "--gpus", "64"]
    runs.write_text("model,tokens,by\nllama3-8b,1T,100d\nllama2-7b,2T,\n", encoding="utf-8")
    assert run(question=question).exit_code == 0
    runs.write_text("model,tokens,by\nllama3-8b,1T,2d\nllama2-7b,2T,\n", encoding="utf-8")
    late = run(question=question)
    assert late.exit_code == 3
    assert "Date of Llama-3 8B: 1 of 1 designs miss it" in late.stdout
    runs.write_text("model,tokens,by\nllama3-8b,1T,20\nllama2-7b,many,\n", encoding="utf-8")
    wrong = run(question=question)
    assert wrong.exit_code == 2
    assert "by '20' has no unit" in wrong.output
    assert "tokens: 'many' is no number" in wrong.output


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--deadline", "90"], "90d"),
        (["--budget", "much"], "no amount of money"),
        (["--rent", "tpu=1"], "not in --hardware"),
        (["--rent", "h100=2,10"], "--rent h100=2,10: '2,10' is no amount of money; write dollars"),
        (["--rent", "h100=2EUR"], "'2EUR' is no amount of money; write dollars"),
        (["--rent", "h100=1e999"], "above 0 and below 1e+15"),
        (["--rent", "h100=0"], "above 0"),
        (["--assume", "pue=1,2"], "'1,2' is not a quantity"),
        (["--assume", "pue"], "name=value"),
        (["--assume", "puey=2"], "did you mean pue"),
        (["--nic", "800:200"], "rising range"),
        (["--power-cap", "30%"], "between 50% and 100%"),
        (["--power-cap", "30%:90%"], "between 50% and 100%"),
        (["--json", "--csv"], "choose one"),
        (["--hardware", "h1000"], "Did you mean"),
        (["--on-hand", "h100=many"], "number of GPUs"),
        (["--tokens", "10"], "counts the whole run"),
    ],
)
def test_wrong_input_exits_with_two(extra: list[str], message: str) -> None:
    result = run(*extra)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
