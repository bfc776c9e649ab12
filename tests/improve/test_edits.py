"""Edits: what they are priced at, and how they are written into the files that they come from."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.improve.patch import patched, unified
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price
from tests.frameworks import launches
from tests.frameworks.launches import SAMPLES
from tests.improve.improvements import FILES, improved, read


@pytest.mark.parametrize("name", SAMPLES)
def test_an_edit_is_priced_as_its_plan(name: str) -> None:
    _, question, improvement = improved(name)
    now = improvement.current.estimate.step_time
    for edit in [*improvement.edits, *filter(None, (improvement.pair, improvement.best))]:
        after = edit.after
        seconds = float(price(after.job, Plans.of([after.plan]), after.knobs).step_time[0])
        assert after.estimate.step_time == pytest.approx(seconds)
        assert edit.gain == pytest.approx(now / seconds - 1)
        assert after.plan.gpus == question.job.gpus
        assert after.plan.dp * after.plan.micro_batch * after.plan.num_microbatches == question.job.global_batch
        assert edit.changes


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@pytest.mark.parametrize("name", ["arrays", "mixture", "DeepSpeed", "torchtitan"])
def test_patch_accepts_the_patch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, (source, question, improvement) = FILES[name], improved(name)
    assert improvement.best is not None
    monkeypatch.chdir(tmp_path)
    for file in files:
        Path(file.name).write_bytes(file.data)
    texts = patched(source, question, improvement.best, files, lambda written: read(name, written)[1])
    done = subprocess.run(["patch", "-p0"], input=unified(files, texts).encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert {file.name: Path(file.name).read_bytes() for file in files} == dict(texts)


def test_a_config_without_compile_is_priced_so_and_told_to_compile() -> None:
    files, (source, question, improvement) = FILES["torchtitan"], improved("torchtitan")
    features = question.job.stack.features
    assert (features.fused_norm, features.compiled_loss, features.loss_chunks) == (False, False, 1)
    edit = next(each for each in improvement.edits if [change.name for change in each.changes] == ["compiled"])
    assert edit.gain > 0.005
    texts = patched(source, question, edit, files, lambda written: read("torchtitan", written)[1])
    assert b"[compile]\nenable = true\n" in texts["llama3.toml"]


def test_what_is_not_asked_for_stays() -> None:
    files, (source, question, improvement) = FILES["arrays"], improved("arrays")
    assert improvement.best is not None
    texts = patched(source, question, improvement.best, files, lambda written: read("arrays", written)[1])
    lines = unified(files, texts).splitlines()
    touched = [line[1:].split("#")[0].strip() for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    free = ("TP=", "--micro-batch", "--pipeline", "--num-layers-per", "--overlap", "--context", "--sequence", "--use")
    free = (*free, "--cuda-graph-impl", "--ddp-bucket", "--data-parallel-sharding")
    assert touched
    assert all(line.startswith((*free, "--recompute", "--decoder", "--tensor")) for line in touched), touched


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["improve", *arguments])


@pytest.fixture
def train(tmp_path: Path) -> str:
    path = tmp_path / "train.sh"
    path.write_text(launches.ARRAYS)
    return str(path)


def test_the_report_says_all(train: str) -> None:
    result = run(train, "--tokens", "1e12", "--price", "2.5")
    assert result.exit_code == 0, result.output
    for part in (
        "Understood",
        "What it is worth",
        "What binds",
        "What to change",
        "Assumed",
        "Ignored",
        "--lr",
        "days",
    ):
        assert part in result.stdout
    assert "--micro-batch-size 1 → 2" in result.stdout


def test_json_holds_everything(train: str) -> None:
    document = json.loads(run(train, "--json", "--tokens", "1e12", "--price", "2").stdout)
    keys = {"plan", "understood", "assumed", "ignored", "kept", "estimate", "best", "best_two", "edits"}
    assert keys <= document.keys()
    assert document["plan"]["tp"] == 8
    assert document["understood"]["tp"] == {"value": 8, "written": "--tensor-model-parallel-size"}
    first = document["edits"][0]
    assert {"changes", "flags", "step_time_s", "gain", "fits"} <= first.keys()
    assert document["best"]["gain"] >= first["gain"] > 0
    hours = first["days"] * 24
    assert first["cost_usd"] == pytest.approx(hours * 256 * 2)
    assert document["estimate"]["interval_s"][0] < document["estimate"]["step_time_s"]


def test_the_batch_may_change_when_it_is_flexible(train: str) -> None:
    held = json.loads(run(train, "--json").stdout)
    flexible = json.loads(run(train, "--json", "--flex", "batch").stdout)
    assert all("global_batch" not in edit["changes"] for edit in [*held["edits"], held["best"]])
    batches = [edit for edit in flexible["edits"] if "global_batch" in edit["changes"]]
    assert batches
    assert flexible["best"]["gain"] >= held["best"]["gain"]
    assert any(flag["flag"] == "--global-batch-size" for flag in batches[0]["flags"])


def test_diff_takes_one_or_all(train: str) -> None:
    one, whole = run(train, "--diff", "--take", "one").stdout, run(train, "--diff").stdout
    assert one.startswith("--- train.sh\n+++ train.sh\n")
    assert one != whole


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x7fELF\x00\x01\x02", "a binary file"),
        (b"\xff\xfe\xfa\x80" * 7 + b"\x80", "UTF-8"),
        (b"#" * 10_000_000, "more than the 2 MB that are read of such a file"),
        (b"echo hi\n", "no command that is known to train"),
        (b'A="--num-layers 2\n', "is a quote or a bracket left open"),
    ],
)
def test_bad_files_give_one_message(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.sh"
    path.write_bytes(data)
    result = run(str(path))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_said() -> None:
    result = run("nowhere.sh")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_what_cannot_fit_is_said(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    text = launches.ARRAYS.replace("NUM_NODES:-32", "NUM_NODES:-1").replace(
        "model-parallel-size 4", "model-parallel-size 1"
    )
    path.write_text(text.replace("    --num-layers-per-virtual-pipeline-stage 5\n", ""))
    result = run(str(path), "--hbm-limit", "30GB")
    assert result.exit_code == 0, result.output
    assert "does not fit" in result.stdout
    assert "No plan of the space fits" in result.stdout


def test_a_patch_for_gpus_that_were_assumed_asks_for_their_number(tmp_path: Path) -> None:
    script = Path("examples/llama3-8b.sh").read_text()
    script = script.replace("--nodes=8", "--nodes=1").replace("TP:-2", "TP:-8")
    path = tmp_path / "train.sh"
    path.write_text(script.replace("--bf16", "--bf16 --pipeline-model-parallel-size 2"))
    refused = CliRunner().invoke(cli, ["improve", str(path), "--diff", "--take", "one"])
    assert (refused.exit_code, "give --gpus 16" in refused.output) == (2, True), refused.output
    assert CliRunner().invoke(cli, ["improve", str(path), "--gpus", "16", "--diff", "--take", "one"]).exit_code == 0


def test_an_edit_that_may_not_fit_is_told(tmp_path: Path) -> None:
    ask = ["improve", "examples/llama3-8b.sh", "--hbm-limit"]
    for limit, risky in (("60GB", True), ("80GB", False)):
        screen = CliRunner().invoke(cli, [*ask, limit]).output
        assert ("fit with less than 90%" in screen) is risky, screen

    told = json.loads(CliRunner().invoke(cli, [*ask, "60GB", "--json"]).stdout)
    now, edits = told["estimate"]["memory_bytes"]["peak_reserved"], told["edits"]
    assert all(edit["sure"] is (edit["chance_to_fit"] >= 0.9 or edit["memory_bytes"] <= now) for edit in edits)
    assert [edit["sure"] for edit in edits] == sorted((edit["sure"] for edit in edits), reverse=True)
    assert not all(edit["sure"] for edit in edits)
    assert told["best"]["sure"]
    assert all(edit["expected"] <= edit["gain"] for edit in edits)
