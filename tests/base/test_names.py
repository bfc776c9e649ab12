"""Hostile names: refused where a file brings them, harmless wherever they are written all the same."""

from __future__ import annotations

import json
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.base.names import one_line, toml_string
from optimizer.calibration.stack_file import stack_toml
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.frameworks.export_folder import exported
from optimizer.job.stack import Stack
from optimizer.reports.render.screen import screen_text
from optimizer.reports.report import Report, Table, columns, section
from tests.catalog.readers.test_damage import CLUSTER, MODEL, STACK, written

HOSTILE = (
    "x\ntouch PWNED",
    "$(touch PWNED)",
    "`touch PWNED`",
    "';touch PWNED;'",
    '";touch PWNED;"',
    "x\r#SBATCH --wrap=touch",
    "\x1b]0;title\x07",
    "[/]",
    "[bold red]",
    "\ud800",
    "a\u202eb",
)
UNPRINTABLE = [name for name in HOSTILE if not name.isprintable()]


def config(folder: Path, name: str) -> Path:
    values = {
        "model_type": "llama",
        **{"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024},
        **{"vocab_size": 32000, "max_position_embeddings": 2048, "_name_or_path": name},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("name", UNPRINTABLE)
def test_no_reader_takes_a_name_of_several_lines_or_with_control_characters(tmp_path: Path, name: str) -> None:
    readers: list[tuple[Any, str, dict[str, Any]]] = [
        (load_model, "model.toml", MODEL),
        (lambda path: load_cluster(str(path)), "cluster.toml", CLUSTER),
        (lambda path: load_stack(str(path)), "stack.toml", STACK),
    ]
    with pytest.raises(InputError, match="printable"):
        load_model(config(tmp_path, name))
    for read, file, document in readers:
        path = tmp_path / file
        try:
            path.write_text(written(file, {**document, "name": name}), encoding="utf-8", errors="surrogatepass")
        except UnicodeEncodeError:
            continue
        with pytest.raises(InputError):
            read(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_export_runs_a_name(gpt3_answer: Answer, name: str, tmp_path: Path) -> None:
    """The Slurm script is run: it ends at its own usage, and a name in it did nothing."""
    job = gpt3_answer.job
    named = replace(gpt3_answer, job=replace(job, model=replace(job.model, name=name, title=name)))
    texts = exported(named).texts
    assert texts
    for text in texts.values():
        assert "\ntouch" not in text
        assert "\x1b" not in text
        assert "\r" not in text
    script = tmp_path / "megatron.sbatch"
    script.write_text(texts["megatron.sbatch"], encoding="utf-8")
    subprocess.run(["bash", str(script)], cwd=tmp_path, check=False, capture_output=True, timeout=20)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_written_toml_says_the_same_again(name: str) -> None:
    read = tomllib.loads(f"name = {toml_string(name)}")["name"]
    assert read == name.encode("utf-8", "replace").decode()
    assert tomllib.loads(stack_toml(Stack(name=name)))["name"] == read
    assert "\n" not in one_line(name)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("colour", [False, True])
def test_a_terminal_is_shown_names_as_texts(name: str, colour: bool) -> None:
    table = Table(columns("name"), [[name]])
    shown = screen_text(Report(title=name, sections=(section("t", table),)), colour=colour)
    assert "\x1b]" not in shown
    assert "\x07" not in shown
    if name.startswith("["):
        assert shown.count(name) == 2
