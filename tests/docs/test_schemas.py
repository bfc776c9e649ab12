"""The schemas accept what the readers accept, refuse what they refuse, and are those of the code."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from maintain.docs import format_page
from maintain.docs.blocks import blocks
from maintain.docs.commands import ROOT
from maintain.docs.meanings import MEANINGS, meaning
from maintain.docs.schemas import FILES, schema, text
from maintain.docs.site import DOCS, SCHEMAS
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.cli import cli
from optimizer.sweep.study_file import read_study

EXAMPLES = {
    block.title.removeprefix("my-").removesuffix(".toml"): block.text
    for block in blocks((DOCS / "file-formats.md").read_text(encoding="utf-8"))
    if block.title
}
READERS: dict[str, Any] = {
    "model": load_model,
    "cluster": load_cluster,
    "stack": lambda path: load_stack(str(path)),
    "study": read_study,
}
WRONG = {
    "model": {"layers": 0, "colour": "red"},
    "cluster": {"gpus_per_node": "eight", "host_bandwidth_one_way": 25e9},
    "stack": {"parameters": {"gemm_efficiency": 2.0}, "parameter": {}},
    "study": {"gpus": [[8]], "seed": -1},
}


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_those_of_the_code(name: str) -> None:
    assert (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8") == text(name), "python -m maintain.docs"
    Draft202012Validator.check_schema(schema(name))


def test_there_is_an_example_of_every_kind_of_file() -> None:
    assert EXAMPLES.keys() == READERS.keys()


@pytest.mark.parametrize("name", READERS)
def test_the_example_is_read_and_keeps_the_schema(name: str, tmp_path: Path) -> None:
    for other, example in EXAMPLES.items():  # the study names the model
        (tmp_path / f"my-{other}.toml").write_text(example)
    assert READERS[name](tmp_path / f"my-{name}.toml").name
    validator(name).validate(tomllib.loads(EXAMPLES[name]))


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in WRONG.items() for key in keys])
def test_what_the_reader_refuses_the_schema_refuses(name: str, key: str, tmp_path: Path) -> None:
    good = tomllib.loads(EXAMPLES[name])
    bad = good | {key: WRONG[name][key]}
    assert not validator(name).is_valid(bad)
    assert validator(name).is_valid(good)
    if isinstance(WRONG[name][key], int | str | float):
        path = tmp_path / "wrong.toml"
        path.write_text(f"{key} = {json.dumps(WRONG[name][key])}\n{_without(EXAMPLES[name], key)}")
        with pytest.raises(InputError, match=key):
            READERS[name](path)


def _without(example: str, key: str) -> str:
    return "\n".join(line for line in example.splitlines() if not line.startswith(f"{key} "))


def test_presets_and_examples_keep_their_schemas() -> None:
    for path in sorted((ROOT / "presets" / "stacks").glob("*.toml")):
        validator("stack").validate(tomllib.loads(path.read_text(encoding="utf-8")))
    validator("study").validate(tomllib.loads((ROOT / "examples" / "study.toml").read_text(encoding="utf-8")))


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--model llama3.2-1b --gpus 8 --trials 0 --set layers=4 --explain --why-not tp=8 --robust", 0),
        ("--model llama3.2-1b --gpus 8 --trials 0 --dtype bf16,fp8 --set layers=4", 0),
        ("--model gpt3 --gpus 8", 3),
    ],
)
def test_answers_keep_their_schema(words: str, code: int) -> None:
    result = CliRunner().invoke(cli, [*words.split(), "--json"])
    assert result.exit_code == code, result.stderr
    answer = json.loads(result.stdout)
    validator("answer").validate(answer)
    assert not validator("answer").is_valid(answer | {"status": "banana"})
    assert not validator("answer").is_valid(answer | {"more": 1})


def test_every_key_of_every_table_has_a_meaning() -> None:
    for name in format_page.SHOWN:
        kind = format_page.SHOWN[name]
        for key in kind.model_fields:
            assert meaning(kind.__name__, key), f"{kind.__name__}.{key}: say what it means in maintain/docs/meanings.py"


def test_no_meaning_is_of_a_key_that_is_gone() -> None:
    known = {kind.__name__: set(kind.model_fields) for kind in format_page.SHOWN.values()}
    for table, keys in MEANINGS.items():
        assert not (stale := keys.keys() - known.get(table, keys.keys())), f"{table}: {stale}"
