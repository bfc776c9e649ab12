"""Files and presets of one name: what is meant is what is taken, everywhere, and a clash is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.answer.reading import read_answer
from optimizer.base.errors import InputError, UnknownName
from optimizer.catalog import load_cluster, load_model, load_stack, preset_cluster, preset_model, preset_stack
from optimizer.catalog.files import presets_folder
from optimizer.catalog.places import file_of
from optimizer.cli import cli
from optimizer.commands.study.batch import make_job
from optimizer.sweep.expansion import tasks_of
from optimizer.sweep.study_file import read_study

MODEL = "layers = 4\nhidden = 512\nheads = 8\nkv_heads = 8\nhead_dim = 64\nffn_hidden = 2048\nvocab = 32000\n"
MODEL += "max_seq_len = 2048\n"
CLUSTER = """name = "dgx-h100"
device = "a100-80"
gpus_per_node = 4
[[tiers]]
name = "node"
link = "nvlink3"
size = 4
[[tiers]]
name = "network"
bandwidth_one_way = "100 Gb/s"
"""
STACK = '[features]\nattention = "unfused"\n[parameters]\ngemm_efficiency = 0.5\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files have the names of presets, and that is the one that commands run in."""
    (tmp_path / "gpt3.toml").write_text(f'name = "gpt3"\n{MODEL}')
    (tmp_path / "dgx-h100.toml").write_text(CLUSTER)
    (tmp_path / "megatron-core.toml").write_text(STACK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize")


@pytest.mark.parametrize("place", ["", "other"])
def test_a_study_takes_the_files_that_it_names_from_any_folder(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'models = ["gpt3.toml", "gpt3"]\nclusters = ["dgx-h100.toml"]\nstacks = ["megatron-core.toml"]\ngpus = 8\n'
    (folder / "study.toml").write_text(text)
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / place)
    study = Path("study.toml") if not place else folder / "study.toml"
    own, preset = tasks_of(read_study(study), make_job, "v1")
    assert own.job is not None
    assert preset.job is not None
    assert (own.job.model.layers, preset.job.model.layers) == (4, 96)
    assert own.job.cluster.device.name == "a100-80"
    assert own.job.stack["gemm_efficiency"] == 0.5


def test_a_clash_is_said(folder: Path) -> None:
    small = ("--gpus", "8", "--global-batch", "64", "--trials", "0", "--json", "--fix", "pp=1")
    both = json.loads(run("--model", "./gpt3.toml", "--cluster", "dgx-h100", *small).stdout)["assumptions"]
    assert any("model gpt3 of the file ./gpt3.toml, not the preset of that name" in said for said in both)
    assert any("the preset dgx-h100, not the file dgx-h100.toml" in said for said in both)
    assert not any("clash" in said or "megatron-core.toml" in said for said in both)


def test_a_name_of_the_hub_is_no_file(folder: Path) -> None:
    small = ("--gpus", "8", "--global-batch", "64", "--trials", "0", "--json", "--fix", "pp=1")
    said = json.loads(run("--model", "unsloth/llama-3.1-8b", "--cluster", "dgx-h100", *small).stdout)["assumptions"]
    assert any("has the architecture of llama3.1-8b" in line for line in said)
    assert not any("of the file" in line and "unsloth" in line for line in said)


def test_the_published_batch_is_of_the_preset_alone(folder: Path) -> None:
    own = run("--model", "./gpt3.toml", "--gpus", "8", "--trials", "0", "--json", "--fix", "pp=1")
    assert "about 4Mi tokens" in own.stdout


def test_pareto_keeps_the_file_that_it_was_given(folder: Path) -> None:
    (folder / "mine.toml").write_text(CLUSTER.replace('"dgx-h100"', '"/etc/passwd"'))
    found = run(
        *("pareto", "--model", "llama3-8b", "--tokens", "1e12", "--hardware", "./mine.toml", "--gpus", "8"),
        *("--rent", "./mine.toml=2", "--json"),
    )
    assert "passwd" not in found.stderr
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize("name", ["./gpt3.toml", "gpt3.toml", "/etc/passwd", "~/x.toml", "../x"])
def test_names_in_files_never_open_other_files(folder: Path, name: str) -> None:
    for preset in (preset_model, preset_cluster, preset_stack):
        with pytest.raises(UnknownName):
            preset(name)
    limits = json.loads(json.dumps({"job": {"model": name}}))
    with pytest.raises(InputError) as caught:
        read_answer(json.dumps({"schema_version": 1, "status": "infeasible", **limits}))
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize("load", [load_model, load_cluster, load_stack])
@pytest.mark.parametrize("name", ["./absent.toml", "absent.json", "/absent/x.toml", "~nobody/x.toml", "a\0.toml", "/"])
def test_a_path_to_nothing_is_said(load: object, name: str) -> None:
    with pytest.raises(InputError):
        load(name)  # type: ignore[operator]


def test_a_stack_s_folder_may_have_the_sign_of_a_target(tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    shutil.copy(presets_folder() / "stacks" / "megatron-core.toml", tmp_path / "a@b" / "own.toml")
    assert load_stack(str(tmp_path / "a@b" / "own.toml")).name == "megatron-core"
    assert load_stack(f"{tmp_path}/a@b/own.toml@any").name == "megatron-core@any"


def test_one_rule() -> None:
    assert [file_of(name) is None for name in ("gpt3", "GPT-3 175B", "h100", "x@any", "", "gpt3.csv")] == [True] * 6
    assert all(file_of(name) for name in ("a/b", "./a", "~/a", "a.toml", "a.JSON", ".."))
