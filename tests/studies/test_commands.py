"""`optimize communication` and `optimize scaling` as a person runs them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from optimizer.answer.answer import Answer
from optimizer.cli import cli

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ("--model", "llama3-8b", "--seq-len", "2048", "--global-batch", "64")
COMMUNICATION = ("communication", *LLAMA, "--gpus", "16")
SCALING = ("scaling", *LLAMA, "--gpus", "16,64")
Install = Callable[[Answer | BaseException], list[dict[str, Any]]]


def run(*arguments: str, columns: int = 80) -> Result:
    """The command in a terminal of so many columns."""
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize", env={"COLUMNS": str(columns)})


def rows(text: str) -> list[dict[str, str]]:
    """Parse CSV."""
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "more", [(), ("--fix", "tp=8", "--fix", "sp=on"), ("--fix", "dp=16", "--network", "infiniband-hdr:0.125")]
)
def test_tables_fit_the_terminal_and_nothing_is_cut(more: tuple[str, ...], columns: int) -> None:
    result = run(*COMMUNICATION, *more, columns=columns)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= columns
    assert "…" not in result.stdout


def test_strategies_side_by_side() -> None:
    result = run(*COMMUNICATION)
    for heading in ("Per layer", "Per step", "Roofline of a layer", "Remarks"):
        assert heading in result.stdout
    found = rows(run(*COMMUNICATION, "--csv").stdout)
    assert [row["strategy"] for row in found] == ["dp", "fsdp", "tp", "pp"]
    assert float(found[2]["layer_messages"]) == 4
    assert float(found[2]["step_messages"]) == 4 * 32 * 64


def test_a_choice_of_strategies() -> None:
    found = json.loads(run(*COMMUNICATION, "--strategy", "pp", "--strategy", "DP", "--json").stdout)
    assert [each["strategy"] for each in found["strategies"]] == ["pp", "dp"]
    assert found["schema_version"] == 1
    assert found["job"]["gpus"] == 16
    assert any("dgx-h100" in line for line in found["assumptions"])


def test_a_plan_as_json_and_csv() -> None:
    plan = ("--fix", "tp=8", "--fix", "pp=2")
    found = json.loads(run(*COMMUNICATION, *plan, "--json").stdout)
    reduce, send = found["collectives"]
    assert (reduce["parallelism"], reduce["messages_per_layer"], send["collective"]) == ("tp", 4, "point_to_point")
    assert send["rail_hops"] == 1
    assert send["scale_up_hops"] == 2
    assert found["layer_roofline"]["bound"] in ("compute", "memory", "network")
    assert found["communication_s"] == pytest.approx(sum(row["step_time_s"] for row in found["collectives"]))
    assert len(rows(run(*COMMUNICATION, *plan, "--csv").stdout)) == 2


def test_the_best_plan(with_answer: Install, gpt3_answer: Answer) -> None:
    asked = with_answer(gpt3_answer)
    result = run("communication", "--model", "gpt3", "--gpus", "1024", "--best", "--fix", "tp=8")
    assert result.exit_code == 0, result.output
    assert "TP 8 SP, PP 8 x VPP 6, DP 16" in result.stdout
    assert asked[0]["trials"] == 0
    assert asked[0]["job"].limits.fixed == {"tp": 8}


def test_no_best_plan(with_answer: Install, infeasible_answer: Answer) -> None:
    with_answer(infeasible_answer)
    result = run(*COMMUNICATION, "--best")
    assert result.exit_code == 3
    assert "no plan satisfies every rule" in result.stderr


def test_networks() -> None:
    found = json.loads(run(*COMMUNICATION, "--network", "10Gb/s", "--network", "infiniband-ndr", "--json").stdout)
    slow, fast = found["networks"]
    assert (slow["bottleneck"], fast["bottleneck"]) == (True, False)
    assert slow["bandwidth_bytes_per_s"] == 1.25e9
    assert slow["needed_bytes_per_s"] > slow["bandwidth_bytes_per_s"]
    assert found["plan"]["dp"] == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fix", "tp=3"), "tp x cp x pp x dp must be exactly 16 GPUs"),
        (("--fix", "tp=2..8"), "a study needs one plan"),
        (("--strategy", "zero"), "use one of dp, fsdp, tp, pp"),
        (("--strategy", "dp", "--fix", "tp=2"), "leave out --fix and --best"),
        (("--json", "--csv"), "exclude each other"),
        (("--network", "infiniband-nrd"), "Did you mean"),
        (("--html", "/no/such/folder/page.html"), "cannot be written"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(arguments: tuple[str, ...], message: str) -> None:
    result = run(*COMMUNICATION, *arguments)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "more", [(), ("--fix", "tp=8", "--fix", "pp=2"), ("--network", "infiniband-edr", "--network", "100Gb/s")]
)
def test_pages_need_nothing_else(tmp_path: Path, more: tuple[str, ...]) -> None:
    target = tmp_path / "page.html"
    result = run(*COMMUNICATION, *more, "--html", str(target))
    assert result.exit_code == 0, result.output
    assert f"wrote {target}" in result.stderr
    page = target.read_text(encoding="utf-8")
    assert "Llama-3 8B on" in page
    assert "<script src=" not in page


def test_scaling_table_csv_json_and_page(with_answer: Install, gpt3_answer: Answer, tmp_path: Path) -> None:
    with_answer(gpt3_answer)
    target = tmp_path / "page.html"
    screen = run(*SCALING, "--html", str(target), "--measured", "64=38%")
    assert screen.exit_code == 0, screen.output
    assert max(map(len, screen.stdout.splitlines())) <= 80
    assert "strong scaling" in screen.stdout
    assert "measured" in target.read_text(encoding="utf-8")
    found = rows(run(*SCALING, "--csv").stdout)
    assert [(row["series"], row["gpus"]) for row in found] == [
        ("data parallel", "16"),
        ("best plan", "16"),
        ("data parallel", "64"),
        ("best plan", "64"),
    ]
    weak = json.loads(run(*SCALING, "--weak", "--json").stdout)
    assert [point["global_batch"] for point in weak["points"]] == [64, 64, 256, 256]
    assert weak["points"][3]["mfu"] == pytest.approx(0.482)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "8,x"), "no list of whole numbers above zero"),
        (("--gpus", "0"), "no list of whole numbers above zero"),
        (("--gpus", "16..8"), "no list of whole numbers above zero"),
        (("--gpus", "8.."), "no list of whole numbers above zero"),
        (("--gpus", "1..1000000"), "1,000,000 numbers are more than the 200"),
        (("--gpus", "8", "--measured", "8"), "write GPUs=MFU"),
        (("--gpus", "8", "--measured", "8=52"), "write GPUs=MFU"),
        (("--gpus", "7,16", "--weak"), "no whole number of sequences"),
    ],
)
def test_bad_scaling_questions(arguments: tuple[str, ...], message: str) -> None:
    result = run("scaling", *LLAMA, *arguments)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["communication", "scaling"])
def test_help_imports_nothing_heavy(command: str) -> None:
    heavy = {"numpy", "ortools", "pandas", "optuna", "scipy", "pydantic", "rich", "jinja2"}
    code = (
        f"import sys; from optimizer.cli import cli; cli(['{command}', '--help'], standalone_mode=False); "
        f"sys.exit(bool({{m.split('.')[0] for m in sys.modules}} & {heavy!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
