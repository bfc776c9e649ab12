"""What a shell offers after Tab, and how soon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from optimizer.catalog import names_of
from optimizer.cli import cli

ROOT = Path(__file__).resolve().parents[1]


def offered(line: str) -> list[str]:
    """What completes the last word of a line."""
    *words, begun = line.split(" ")[1:]
    return [
        item.value for item in ShellComplete(cli, {}, "optimize", "_OPTIMIZE_COMPLETE").get_completions(words, begun)
    ]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("optimize --model llama3.1-", ["llama3.1-8b", "llama3.1-70b", "llama3.1-405b"]),
        ("optimize --device h2", ["h200"]),
        ("optimize --cluster dgx-h1", ["dgx-h100"]),
        ("optimize scaling --stack megatron-c", ["megatron-core"]),
        ("optimize presets show infiniband-n", ["infiniband-ndr"]),
        ("optimize topology node.txt --link nvlink4", ["nvlink4"]),
        ("optimize pareto --hardware h100,h2", ["h100,h200"]),
        ("optimize --model gpt3 --fix micro", ["micro-batch="]),
        ("optimize --prefer e", ["expected"]),
        ("optimize --target meg", ["megatron-lm", "megatron-bridge"]),
        ("optimize communication --network infiniband-n", ["infiniband-ndr"]),
        ("optimize sens", ["sensitivity"]),
    ],
)
def test_names_are_completed(line: str, some: list[str]) -> None:
    assert set(some) <= set(offered(line))


def test_every_preset_of_an_option_is_offered() -> None:
    assert offered("optimize --model ") == list(names_of("model"))
    assert offered("optimize --stack ") == list(names_of("stack"))
    assert offered("optimize --cluster ") == [*names_of("cluster"), *names_of("device")]


@pytest.mark.parametrize(
    "line",
    [
        *("--model ./", "--model my-conf", "--study s", "improve tr", "check an", "read log --plan a"),
        *("batch st", "batch st.toml --store s", "batch merge a", "batch merge a b", "trial --cluster my-"),
    ],
)
def test_files_are_left_to_the_shell(line: str) -> None:
    complete = ShellComplete(cli, {}, "optimize", "_OPTIMIZE_COMPLETE")
    *words, begun = line.split(" ")
    assert "file" in [item.type for item in complete.get_completions(words, begun)]


def test_a_command_without_a_name_has_its_options_completed() -> None:
    assert offered("optimize batch sh") == ["sh", "show"]  # a file, or the command
    assert offered("optimize batch --dry") == offered("optimize batch study.toml --dry") == ["--dry-run"]
    assert offered("optimize measure --sec") == ["--seconds"]


def test_own_presets_are_offered_and_a_broken_folder_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "house-7b.toml").write_text("")
    monkeypatch.setenv("OPTIMIZE_PRESETS", str(tmp_path))
    assert offered("optimize --model house") == ["house-7b"]
    monkeypatch.setenv("OPTIMIZE_PRESETS", str(tmp_path / "gone"))
    assert offered("optimize --model house") == []


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom optimizer.cli import cli\n"
        "try:\n    cli(prog_name='optimize')\n"
        "finally:\n    print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'rich', 'pydantic', 'pandas'}))"
    )
    words = {"_OPTIMIZE_COMPLETE": "zsh_complete", "COMP_WORDS": "optimize --model gpt3", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gpt3" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_reads_its_script(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed here")
    words = {**os.environ, "_OPTIMIZE_COMPLETE": f"{shell}_source", "PYTHONPATH": str(ROOT)}
    script = subprocess.run(
        [sys.executable, "-m", "optimizer"], env=words, capture_output=True, text=True, check=True
    ).stdout
    path = tmp_path / "completion"
    path.write_text(script)
    assert "_OPTIMIZE_COMPLETE" in script
    subprocess.run([shell, "-n", str(path)], check=True)
