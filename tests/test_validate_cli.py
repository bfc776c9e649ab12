"""The commands validate and calibrate from end to end."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.catalog import load_stack
from optimizer.cli import cli
from optimizer.job.stack import PARAMETERS

ROOT = Path(__file__).resolve().parents[1]
HEADER = "id,model,gpu,gpus,tp,micro_batch,global_batch,step_time_s,stack,quality,status\n"
ROWS = (
    "a,llama3-8b,H100,64,1,1,256,6.0,nemo-2024,,ok\n"
    "b,llama3-8b,H100,64,2,1,256,6.6,nemo-2024,,ok\n"
    "c,llama3-8b,H100,64,1,1,256,99,nemo-2024,suspect,ok\n"
    "d,unheard-of,H100,64,1,1,256,6.0,nemo-2024,,ok\n"
    "e,llama3-70b,H100,8,1,4,64,,nemo-2024,,oom\n"
)
ROW_KEYS = {
    "id",
    "predicted_step_time_s",
    "low_s",
    "high_s",
    "predicted_reserved_bytes",
    "predicted_allocated_bytes",
    "fits",
    "refused",
}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="optimize")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + ROWS, encoding="utf-8")
    return path


def test_json_has_one_entry_per_row_in_order(runs: Path) -> None:
    result = run("validate", "--runs", runs, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert set(found) == {"schema_version", "groups", "rows"}
    assert found["schema_version"] == 1
    assert [row["id"] for row in found["rows"]] == list("abcde")
    assert all(set(row) == ROW_KEYS for row in found["rows"])
    a, b, _, d, e = found["rows"]
    assert a["low_s"] < a["predicted_step_time_s"] < a["high_s"]
    assert a["predicted_allocated_bytes"] <= a["predicted_reserved_bytes"]
    assert b["refused"] is None
    assert all(d[key] is None for key in ROW_KEYS - {"id", "refused"})
    assert "no preset" in d["refused"]
    assert e["fits"] is False  # 70 billion parameters and their optimizer state on 8 x 80 GB


def test_json_groups_count_clean_rows_only(runs: Path) -> None:
    groups = json.loads(run("validate", "--runs", runs, "--json").stdout)["groups"]
    overall = groups[0]
    assert (overall["by"], overall["rows"], overall["time"]["runs"]) == ("all", 3, 2)
    assert overall["choice"]["groups"] == 1
    assert overall["verdicts"]["oom_predicted_oom"] == 1
    assert {group["by"] for group in groups} == {"all", "source", "stack", "device", "model", "method"}


def test_the_report(runs: Path) -> None:
    text = " ".join(run("validate", "--runs", runs).stdout.split())
    assert "Step time of 2 runs: MAPE" in text
    assert "1 rows that their source doubts (column quality) or that name no micro_batch are priced" in text
    assert "are priced but not counted; 1 rows cannot be priced" in text
    for heading in ("By source", "By software stack", "By device", "By model", "Memory", "Choice of plans"):
        assert heading in text
    assert "Farthest from their measurement" in text


def test_html_is_one_page_of_its_own(runs: Path, tmp_path: Path) -> None:
    page, table = tmp_path / "v.html", tmp_path / "v.csv"
    result = run("validate", "--runs", runs, "--html", page, "--csv", table)
    assert result.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "Predicted against measured" in text
    assert "<script src=" not in text
    assert "<link" not in text
    assert "By software stack" in text
    with table.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == list("abcde")
    assert float(rows[0]["error"]) == pytest.approx(float(rows[0]["predicted_step_time_s"]) / 6.0 - 1.0)


def test_a_name_with_markup_stays_text_in_html(tmp_path: Path) -> None:
    path, page = tmp_path / "runs.csv", tmp_path / "v.html"
    path.write_text(HEADER + "<b>x</b>,llama3-8b,H100,64,1,1,256,6.0,nemo-2024,,ok\n", encoding="utf-8")
    assert run("validate", "--runs", path, "--html", page).exit_code == 0
    assert "&lt;b&gt;x&lt;/b&gt;</th>" in page.read_text(encoding="utf-8")


def test_without_a_file_the_published_runs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = run("validate")
    assert result.exit_code == 0
    assert "Narayanan et al. 2021" in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "column gpu is missing"),
        ("model,step_time_s\nx,1\n", "column gpus is missing"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_a_file_without_the_columns_is_bad_input(tmp_path: Path, content: str, message: str, command: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(content, encoding="utf-8")
    result = run(command, "--runs", path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_absent_files_and_folders_are_bad_input(runs: Path, tmp_path: Path) -> None:
    for arguments in (
        ("validate", "--runs", tmp_path / "absent.csv"),
        ("validate", "--runs", runs, "--html", tmp_path / "no" / "v.html"),
        ("calibrate", "--runs", runs, "--out", tmp_path / "no" / "s.toml"),
        ("calibrate", "--runs", runs, "--stack", "nemo-2042"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert result.stderr.startswith("optimize: ")


def test_a_file_with_a_header_alone_has_nothing_to_say(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(HEADER, encoding="utf-8")
    shown = run("validate", "--runs", path)
    assert shown.exit_code == 0
    assert "No clean row has a measured step time" in shown.stdout
    assert json.loads(run("validate", "--runs", path, "--json").stdout) == {
        "schema_version": 1,
        "groups": [],
        "rows": [],
    }
    assert run("calibrate", "--runs", path).exit_code == 2


def test_calibrate_writes_a_stack_that_loads(tmp_path: Path) -> None:
    path, out = tmp_path / "runs.csv", tmp_path / "mine.toml"
    rows = [
        f"r{gpus}-{tp}-{mb},llama3-8b,H100,{gpus},{tp},{mb},{4 * gpus},{1.9 + 0.05 * tp},,,ok\n"
        for gpus in (16, 32, 64)
        for tp in (1, 2, 4)
        for mb in (1, 2)
    ]
    path.write_text(HEADER + "".join(rows), encoding="utf-8")
    result = run("calibrate", "--runs", path, "--stack", "nemo-2024", "--out", out, "--evaluations", 2)
    assert result.exit_code == 0, result.stderr
    stack = load_stack(str(out))
    assert (stack.name, stack.runs, stack.devices) == ("mine", 18, ("h100",))
    assert stack.features == load_stack("nemo-2024").features
    assert stack.ranges["gpus"] == (16, 64)
    assert {(row.quantity, row.software) for row in stack.known} == {("time", "mine")}
    assert {"mape", "median", "p90", "bias"} <= set(stack.residuals)
    assert stack.provenance.date
    assert "calibrate: times" in result.stderr
    for part in ("gemm_efficiency", "Residuals by source", "Residuals by model"):
        assert part in result.stdout
    for name in stack.parameters:
        assert f"{name} " in result.stdout
        assert f"{PARAMETERS[name].low:g} to {PARAMETERS[name].high:g}" in result.stdout


def test_runs_slower_than_any_of_the_start_still_move_the_stack(tmp_path: Path) -> None:
    """Four times as slow as the stack to start from: all are outliers, and something is told all the same."""
    path, out = tmp_path / "runs.csv", tmp_path / "mine.toml"
    rows = [
        f"r{gpus}-{tp},llama3-8b,H100,{gpus},{tp},1,{4 * gpus},{6.2 + 0.05 * tp},,,ok\n"
        for gpus in (16, 32, 64)
        for tp in (1, 2, 4)
    ]
    path.write_text(HEADER + "".join(rows), encoding="utf-8")
    result = run("calibrate", "--runs", path, "--stack", "nemo-2024", "--out", out, "--evaluations", 8)
    assert result.exit_code == 0, result.stderr
    assert load_stack(str(out)).residuals["mape"] < 0.1


def test_calibrate_asks_which_of_several_stacks(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        HEADER + "a,llama3-8b,H100,8,1,1,64,6,nemo-2024,,ok\nb,llama3-8b,H100,8,1,1,64,6,maxtext,,ok\n",
        encoding="utf-8",
    )
    result = run("calibrate", "--runs", path)
    assert result.exit_code == 2
    assert "nemo-2024 (1 rows), maxtext (1 rows). Choose one with --stack NAME" in result.stderr
    kept = run("calibrate", "--runs", path, "--stack", "nemo-2024", "--keep", "all", "--json")
    assert kept.exit_code == 0
    assert json.loads(kept.stdout)["stack"]["runs"] == 1
