"""The file that users run: whole by itself, and right on the processor with gloo where PyTorch is installed."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

# An interpreter with PyTorch, where this one has none.
TORCH = os.environ.get("OPTIMIZE_TEST_TORCH") or (sys.executable if importlib.util.find_spec("torch") else "")


def written(path: Path, *arguments: str) -> Path:
    done = CliRunner().invoke(
        cli, ["measure", "--model", "gpt2-xl", "--seq-len", "256", "--out", str(path), *arguments]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert "run it where you train: torchrun" in done.stderr
    return path


def request_of(path: Path) -> dict[str, Any]:
    """The literal in the program, read without running it."""
    tree = ast.parse(path.read_text())
    found: dict[str, Any] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "REQUEST"
        if node.value is not None
    )
    return found


def test_it_imports_torch_and_the_standard_library_alone(tmp_path: Path) -> None:
    tree = ast.parse(written(tmp_path / "measure.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"torch"}


def test_the_shapes_are_those_of_the_job(tmp_path: Path) -> None:
    request = request_of(written(tmp_path / "measure.py"))
    products = {tuple(shape) for shape in request["products"]}
    # GPT-2 XL: 1,600 wide, an MLP of 6,400; one sequence of 256 tokens, and two with half of the MLP's columns... TP 2
    # does not divide its 25 heads.
    assert {(256, 6400, 1600), (256, 1600, 6400), (512, 6400, 1600)} <= products
    assert (6400, 1600, 256) in products  # the weight gradient of the first
    assert (16384, 16384, 16384) in products
    assert {shape["heads"] for shape in request["attention"]} == {25, 50}
    assert len(request["messages"]) == 20
    assert request["seconds"] == 480.0


def test_budgets_leave_time_to_start_up() -> None:
    from optimizer.measure.node_program import SHARES

    assert 0.9 < sum(SHARES.values()) < 1.0


def test_no_file_is_overwritten_unasked(tmp_path: Path) -> None:
    path = written(tmp_path / "measure.py")
    again = CliRunner().invoke(cli, ["measure", "--model", "gpt2-xl", "--out", str(path)])
    assert again.exit_code == 2
    assert "--force" in again.stderr
    written(path, "--force", "--seconds", "60")
    assert request_of(path)["seconds"] == 60.0


@pytest.mark.skipif(not TORCH, reason="no PyTorch here: install it, or set OPTIMIZE_TEST_TORCH to a Python that has it")
def test_two_ranks_on_the_processor(tmp_path: Path) -> None:
    path = written(tmp_path / "measure.py", "--seconds", "12")
    launch = [TORCH, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*launch, "--out", str(tmp_path / "measure.json")],
        env={**environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "measure.json").read_text())
    assert (found["machine"]["ranks"], found["machine"]["backend"]) == (2, "gloo")
    assert {row["kind"] for row in found["collectives"]} >= {"all_reduce", "all_gather", "all_to_all"}
    assert len(found["ranks"]) == 2
    assert found["products"]
    assert found["memory"]
    assert sum(found["seconds"].values()) < 60
    read = CliRunner().invoke(cli, ["measure", "read", str(tmp_path / "measure.json"), "--json"])
    assert read.exit_code == 0, read.output
