"""The README says what the program does: its Python runs, its options exist, its folders are there."""

import re
from pathlib import Path
from typing import Any

import click
import pytest

from optimizer.cli import cli
from optimizer.reports.glossary import GLOSSARY

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_first_two_commands_install_and_run() -> None:
    first, second = blocks("bash")[:2]
    assert first == "python -m pip install . && optimize --model gpt3 --gpus 1024\n"
    assert second == "python -m pip install '.[dev]' && python -m pytest\n"


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    assert "optimal TP" in capsys.readouterr().out


def test_every_option_is_documented_and_every_documented_option_exists() -> None:
    documented = set(re.findall(r"^\| `(--[a-z-]+)", TEXT, re.MULTILINE))
    existing = {parameter.opts[0] for parameter in cli.params if isinstance(parameter, click.Option)}
    assert documented == existing - {"--version"}


def test_every_option_used_in_an_example_exists() -> None:
    for line in re.sub(r"\\\n\s*", "", "".join(blocks("bash"))).splitlines():
        for call in re.findall(r"optimize [^|#]*", line):
            command: click.Command = cli
            for word in call.split()[1:]:
                if isinstance(command, click.Group):
                    # What is no command of `batch` goes to its `run`, of `measure` to its `write`.
                    usual = command.commands.get("run") or command.commands.get("write") or command
                    command = command.commands.get(word, usual)
            known = {name for parameter in command.params for name in parameter.opts}
            assert set(re.findall(r"--[a-z-]+", call)) <= known, call


def test_every_folder_in_the_picture_exists() -> None:
    picture = next(block for block in blocks("text") if "presets/  " in block)
    for line in picture.splitlines():
        indent = "optimizer" if line.startswith("  ") else ""
        for name in re.findall(r"\b[a-z]+(?:/|\.py)", line[:28]):
            assert (ROOT / indent / name).exists(), name


def test_the_words_are_those_of_the_reports() -> None:
    words = re.search(r"^## Words\n\n\| word .*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert words is not None
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", words[0], re.MULTILINE)
    assert dict(rows[1:]) == dict(GLOSSARY)
