"""`optimize check`, `--why-not`, `--within` and `optimize sensitivity` from the outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.cli import cli

pytestmark = pytest.mark.usefixtures("planned_once")
SMALL = ("--model", "llama3-8b", "--gpus", "8", "--global-batch", "64")
PLAN = (*SMALL, "--trials", "0")


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(cli, list(arguments), input=text, prog_name="optimize")


@pytest.fixture(scope="module")
def answer() -> str:
    result = run(*PLAN, "--json")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_answer_from_stdin_or_a_file_holds(answer: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(answer)
    for arguments in (("check", "-"), ("check", str(path))):
        result = run(*arguments, text=answer)
        assert result.exit_code == 0, result.output
        assert "The plan holds" in result.stdout
        assert "Not checked" in result.stdout
    document = json.loads(run("check", "-", "--json", text=answer).stdout)
    assert document["holds"] is True
    assert document["broken"] == []


def test_an_answer_for_a_model_of_a_file_says_how_to_name_the_file(answer: str) -> None:
    document = json.loads(answer)
    document["job"]["model"] = "mine"
    result = run("check", "-", text=json.dumps(document))
    assert result.exit_code == 2
    assert "say where it is with --model FILE" in result.stderr


def test_a_tampered_answer_exits_3_and_names_the_rule(answer: str) -> None:
    document = json.loads(answer)
    document["plan"]["num_microbatches"] += 1
    result = run("check", "-", text=json.dumps(document))
    assert result.exit_code == 3
    assert "The plan does not hold: batch" in result.stdout
    assert "global batch of 64 sequences" in " ".join(result.stdout.split())
    result = run("check", "-", "--json", text=json.dumps(document))
    assert result.exit_code == 3
    assert "batch" in json.loads(result.stdout)["broken"]


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (("check", "-"), "no json", "stdin: 1 problem"),
        (("check", "nothing.json"), "", "cannot be read"),
        (("check",), "", "give one plan"),
        (("check", "-", "--megatron-args", "launch.sh"), "", "give one plan"),
        (("check", "-", "--gpus", "8"), "{}", "--gpus"),
        (("check", "--megatron-args", "launch.sh"), "", "missing --model"),
        ((*SMALL, "--why-not", "tp"), "", "not of the form variable=value"),
        ((*SMALL, "--why-not", ","), "", "names no variable"),
        ((*SMALL, "--why-not", "tp=2,tp=4"), "", "contradicts"),
        ((*SMALL, "--within", "3"), "", "did you mean 3%?"),
        ((*SMALL, "--oom-risk", "60%"), "", "must be above 0 and at most 50%"),
        ((*SMALL, "--oom-risk", "0"), "", "is not in (0, 1]"),
        (("sensitivity", "--model", "gpt3"), "", "missing --gpus"),
        (("sensitivity", *SMALL, "--lost-nodes", "one"), "", "no list of whole numbers"),
        (("sensitivity", *SMALL, "--lost-nodes", "1"), "", "cannot lose 1 node of 8 GPUs"),
    ],
)
def test_bad_input_exits_2_with_one_message(arguments: tuple[str, ...], text: str, message: str) -> None:
    result = run(*arguments, text=text)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_exported_arguments_hold_and_another_model_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "launch"
    assert run(*PLAN, "--export", str(folder)).exit_code == 0
    arguments = ("check", "--megatron-args", str(folder / "megatron.args"), "--gpus", "8")
    result = run(*arguments, "--model", "llama3-8b")
    assert result.exit_code == 0, result.output
    assert "The plan holds" in result.stdout
    result = run(*arguments, "--model", "llama3-70b")
    assert result.exit_code == 2
    assert "has layers = 32, but llama3-70b has 80" in result.stderr


def test_a_launch_that_may_run_already_is_ruled_out_only_by_a_risk_that_was_asked_for(tmp_path: Path) -> None:
    """What just fits by prediction, planned at even risk, has its chance told; at 10 % it breaks the rule of memory."""
    folder, small = tmp_path / "launch", ("--hbm-limit", "40GB", "--fix", "micro_batch=2")
    assert run(*PLAN, *small, "--oom-risk", "50%", "--export", str(folder)).exit_code == 0
    found = ("check", "--megatron-args", str(folder / "megatron.args"), "--gpus", "8", "--model", "llama3-8b")
    told = json.loads(run(*found, "--json").stdout)
    reserved = told["estimate"]["memory_bytes"]["peak_reserved"]
    tight = ("--hbm-limit", f"{reserved / 1e9 + 2.5:.2f}GB")
    plain = run(*found, *tight)
    assert plain.exit_code == 0, plain.output
    assert re.search(r"fits with [56]\d%", plain.stdout)
    risky = run(*found, *tight, "--oom-risk", "10%")
    assert risky.exit_code == 3
    assert "does not hold: memory" in risky.stdout


@pytest.mark.usefixtures("few_draws")
def test_robust_is_checked_with_the_rest() -> None:
    text = run(*PLAN, "--robust", "--top", "2", "--json").stdout
    document = json.loads(text)
    assert len(document["robust"]["plans"]) == 1 + len(document["alternatives"])
    assert run("check", "-", text=text).exit_code == 0
    document["robust"]["plans"][0]["chance"] /= 2
    wrong = run("check", "-", text=json.dumps(document))
    assert wrong.exit_code == 3
    assert "robust.plans[0].chance" in wrong.stdout
    assert "Brittle or broad" in run(*PLAN, "--robust", "--top", "2", "--explain").stdout


def test_why_not_prints_the_terms_or_the_rules() -> None:
    result = run(*PLAN, "--why-not", "tp=8")
    assert result.exit_code == 0, result.output
    assert "Why not tp=8?" in result.stdout
    assert "worse: it costs" in result.stdout
    assert "all terms" in result.stdout
    several = json.loads(run(*PLAN, "--why-not", "tp=4,8,pp=1", "--json").stdout)["why_not"]
    assert several["pins"] == "tp=4,8,pp=1"
    assert several["plan"]["tp"] in (4, 8)
    document = json.loads(run(*PLAN, "--why-not", "tp=16", "--json").stdout)
    assert document["why_not"]["verdict"] == "infeasible"
    assert "tp-scale-up" in {clash["rule"] for clash in document["why_not"]["broken"]}


def test_within_keeps_the_close_runners_up() -> None:
    every = json.loads(run(*PLAN, "--top", "50", "--json").stdout)["alternatives"]
    close = json.loads(run(*PLAN, "--within", "10%", "--json").stdout)["alternatives"]
    assert close == [other for other in every if other["slower"] <= 0.10]
    assert json.loads(run(*PLAN, "--top", "0", "--json").stdout)["alternatives"] == []


def test_sensitivity_prints_a_tornado_and_json() -> None:
    job = ("sensitivity", "--model", "llama3.2-1b", "--gpus", "16", "--global-batch", "64", "--fix", "cp=1")
    result = run(*job, "--lost-nodes", "1")
    assert result.exit_code == 0, result.output
    for part in ("What more of each buys", "HBM +10 %", "NIC x2", "Around the best plan", "1 node, 8 left"):
        assert part in result.stdout
    document = json.loads(run(*job, "--lost-nodes", "1", "--json").stdout)
    assert document["losses"][0]["gpus_left"] == 8
    assert document["basin"]["shape"] in ("sharp peak", "narrow ridge", "broad basin")
    assert run("sensitivity", "--model", "gpt3", "--gpus", "8").exit_code == 3


def test_what_a_script_switches_changes_the_price(tmp_path: Path) -> None:
    from tests.frameworks.launches import MIXTURE

    seconds = []
    for number, text in enumerate((MIXTURE, MIXTURE.replace("--overlap-grad-reduce --overlap-param-gather", ""))):
        path = tmp_path / f"train{number}.sh"
        path.write_text(text)
        result = run("check", "--megatron-args", str(path), "--model", "mixtral-8x7b", "--json")
        assert result.exit_code in (0, 3), result.output
        seconds.append(json.loads(result.stdout)["estimate"]["step_time_s"])
    assert seconds[1] > seconds[0] * 1.001


def test_a_larger_bucket_changes_the_price(tmp_path: Path) -> None:
    from tests.frameworks.launches import MIXTURE

    seconds = []
    for size in ("10000000", "200000000"):
        path = tmp_path / f"train{size}.sh"
        path.write_text(MIXTURE.replace("--ddp-bucket-size 50000000", f"--ddp-bucket-size {size}"))
        document = json.loads(run("check", "--megatron-args", str(path), "--model", "mixtral-8x7b", "--json").stdout)
        seconds.append(document["estimate"]["step_time_s"])
    assert seconds[0] != seconds[1]
