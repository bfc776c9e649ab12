"""Values changed in configs: every other value and every other line stays, in each format."""

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.readers.yaml_nodes import yaml_of
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.config.yaml_edit import yaml_changed
from optimizer.frameworks.launch import FlagChange, Launch
from tests.frameworks import launches
from tests.frameworks.test_public_forms import BRIDGE, MESH, NEMO, TRAINER

ODD = """\
# anchors, blocks, quotes
%s
base: &base {lr: 1.0e-4, betas: [0.9, 0.95]}
optimizer:
    <<: *base
    name: 'adam'   # kept
    schedule:
    - warm
    -   steady

# of the data
data: !mine
    path: "a b"
    size: &size 512
    other: *size
    text: |
        first
        # no comment
    empty:
    on: yes
    Capital: True
last: {a: 1, b: {c: null}, }
"""
YAMLS = {
    "odd": ODD % "---",
    "two documents": f"{launches.MAXTEXT}---\n{launches.ACCELERATE}",
    "mesh": MESH,
    "trainer of forms": TRAINER,
    "bridge of forms": BRIDGE,
    "nemo of forms": NEMO,
    "accelerate": launches.ACCELERATE,
    "trainer": launches.TRAINER,
    "nanotron": launches.NANOTRON,
    "mpt": launches.LLM_FOUNDRY,
    "nemo": launches.NEMO,
    "bridge": launches.BRIDGE,
    "primus": launches.PRIMUS,
    "maxtext": launches.MAXTEXT,
}
CONFIGS = [
    *(ConfigFile(name, text, "yaml") for name, text in YAMLS.items()),
    ConfigFile("ds", launches.DEEPSPEED, "json"),
    ConfigFile("tabs", launches.DEEPSPEED.replace("  ", "\t"), "json"),
    ConfigFile("one line", json.dumps(json.loads(launches.DEEPSPEED)), "json"),
    ConfigFile("picotron", launches.PICOTRON, "json"),
    ConfigFile("titan", launches.TORCHTITAN, "toml"),
    ConfigFile("overrides", "model.a=4\n# b\ntrain.b='x'\n++train.c=[1, 2]\n", "overrides"),
    ConfigFile("registry", launches.REGISTRY, "python", "llama3_8b_split"),
]
VALUES = (7, 0.5, True, "full", "a: b", "1F1B", "null", "it's")


def held(config: ConfigFile, path: str) -> dict[str, Any]:
    """What is not below or above a path."""
    return {
        key: value
        for key, value in config.leaves.items()
        if not (f"{key}.".startswith(f"{path}.") or path.startswith(f"{key}."))
    }


def lines_but(config: ConfigFile, changed: ConfigFile) -> tuple[list[str], list[str]]:
    """The lines of one that the other lacks, and the other way round."""
    before, after = config.text.splitlines(), changed.text.splitlines()
    return [line for line in before if line not in after], [line for line in after if line not in before]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.kind} {config.name}")
def test_an_edit_changes_its_key_alone(config: ConfigFile) -> None:
    shared = {"base.lr", "base.betas", "data.size", "optimizer.lr", "optimizer.betas"}
    for place, path in enumerate(config.leaves):
        value = VALUES[place % len(VALUES)] if config.kind != "python" else 7
        if config.kind == "overrides" and not isinstance(value, int | float):
            value = 7
        if path in shared or (config.kind == "python" and path.startswith(("model.", "activation_checkpoint"))):
            continue
        changed = config.changed(path, value)
        assert changed.leaves[path] == value, (path, changed.text)
        assert held(changed, path) == held(config, path), (path, changed.text)
        gone, new = lines_but(config, changed)
        if config.kind != "python" and "text" not in path and not isinstance(config.leaves[path], list):
            assert len(gone) <= 1 >= len(new), (path, gone, new)
            assert all(path.rpartition(".")[2] in line for line in (*gone, *new)), (path, gone, new)


@pytest.mark.parametrize("config", CONFIGS[:-1], ids=lambda config: f"{config.kind} {config.name}")
def test_keys_come_and_go_alone(config: ConfigFile) -> None:
    sections = {path.rpartition(".")[0] for path in config.leaves} - {"base"}
    for section in {*sections, "", "fresh", "fresh.inner"}:
        path = f"{section}.brand_new".lstrip(".")
        changed = config.changed(path, 3)
        assert changed.leaves[path] == 3, changed.text
        assert held(changed, path) == held(config, path), changed.text
        if config.kind != "toml" and "\n" in config.text.strip() and section in sections:
            gone, new = lines_but(config, changed)
            assert (len(gone), len(new)) == (0, 1) or "{" in "".join(gone), (path, gone, new)
        back = changed.changed(path, None)
        assert held(back, path) == held(config, path), back.text
    for path in config.leaves:
        changed = config.changed(path, None)
        if path not in ("base.lr", "base.betas", "data.size", "optimizer.lr", "optimizer.betas"):
            assert path not in changed.leaves, (path, changed.text)
            assert held(changed, path) == held(config, path), (path, changed.text)


@given(st.data())
def test_what_is_edited_is_yaml_that_others_read_alike(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from([c for c in CONFIGS if c.kind == "yaml" and "document" not in c.name]))
    path = data.draw(st.sampled_from([path for path in config.leaves if not path.startswith(("base", "optimizer"))]))
    changed = config.changed(path, data.draw(st.integers() | st.booleans() | st.text("ab -_#:{'\"", min_size=1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = YAML(typ="safe", pure=True).load(changed.text.replace("!mine", ""))
    for key in path.split("."):
        theirs = theirs[key]
    assert theirs == changed.leaves[path]


def test_a_section_of_tables_alone_stays_the_only_one() -> None:
    text = launches.NANOTRON.replace("  accumulate_grad_in_fp32: true\n  zero_stage: 1\n", "  adam:\n    lr: 3.0e-4\n")
    config = ConfigFile("nanotron.yaml", text, "yaml")
    changed = config.changed("optimizer.zero_stage", 1)
    assert changed.text == text.replace("    lr: 3.0e-4\n", "    lr: 3.0e-4\n  zero_stage: 1\n")
    assert (changed.values["optimizer.adam.lr"], changed.values["optimizer.zero_stage"]) == (3e-4, 1)


def test_an_edit_keeps_quotes_anchors_and_the_ends_of_lines() -> None:
    assert yaml_changed("a: &x 'b'  # c\nd: e\n", "a", "f") == "a: &x 'f'  # c\nd: e\n"
    assert yaml_changed("a: &x 1\nb: *x # c\n", "b", 2) == "a: &x 1\nb: 2 # c\n"
    assert yaml_changed("a: False\n", "a", True) == "a: True\n"
    assert yaml_changed("a:\n    - 1\n    # of a\n\n# of b\nb: 2\n", "a", 3) == "a: 3\n    # of a\n\n# of b\nb: 2\n"
    data = b"a: 1\r\nb: 2\r\n"
    assert ConfigFile("x", "a: 1\nb: 2\n", "yaml", data=data).changed("b", 3).bytes == b"a: 1\r\nb: 3\r\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [("a: 5\n", "a.b"), ("a: [1]\n", "a.b"), ("? a\n: 1\n? b\n: 2\n", "c")],
    ids=["scalar", "list", "odd"],
)
def test_a_key_without_a_place_is_refused(text: str, path: str) -> None:
    with pytest.raises(InputError, match=r"is no section|on a line of its own"):
        yaml_changed(text, path, 1)
    with pytest.raises(InputError, match="is no table"):
        ConfigFile("x", "a = 5\n", "toml").changed("a.b", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'a: &a ["x","x","x","x","x","x","x","x","x"]\n'
            + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
            "holds more than 100,000 values, every alias spelt out",
        ),
        ("a: &a {x: 1}\n" + "".join(f"k{n}: &k{n} {{<<: [*a, *a]}}\n" for n in range(40)) + "b: &b [*b]", "nested"),
        ("a: &a [*a]", "nested more than 60 deep"),
        ("[" * 1000, "nested too deeply"),
        ("? [a]\n: 1", "a name must be text"),
        ("a: !!int x", "not YAML"),
        ("a: !!bool x", "not YAML"),
    ],
)
def test_documents_that_would_take_all_memory_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        yaml_of(text, "mine")
    with pytest.raises(InvalidFile, match=message):
        _ = ConfigFile("mine", text, "yaml").values


def test_references_that_would_grow_without_end_are_left() -> None:
    lines = [f"{name}: {f'${{{before}}}' * 9}" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    values = ConfigFile("mine", "\n".join(["a: xxxxxxxxxx", *lines]), "yaml").values
    assert values["b"] == 9 * "xxxxxxxxxx"
    assert max(len(str(value)) for value in values.values()) < 200_000


@pytest.mark.parametrize(
    ("first", "second", "path", "place"),
    [
        ("a: {x: 1}", "a: {y: auto}", "a.y", 1),  # where it is left open
        ("a: {y: 2}", "a: {y: auto}", "a.y", 0),  # where it is said
        ("a: {x: 1}", "b: {x: 1}", "a.y", 0),  # where its section is
        ("b: {x: 1}", "a: {x: 1}", "a.y", 1),
        ("b: {x: 1}", "c: {x: 1}", "y", 0),
        ("zero_optimization: {stage: 3}\ny: auto", "x: 1", "y", 1),  # the engine leaves it to the trainer
        ("zero_optimization: {stage: 3, y: auto}", "x: 1", "zero_optimization.y", 0),
    ],
)
def test_a_key_goes_where_it_is(first: str, second: str, path: str, place: int) -> None:
    configs = tuple(ConfigFile(str(number), f"{text}\n", "yaml") for number, text in enumerate((first, second)))
    source = ConfigLaunch(configs=configs, launch=Launch(program="any"), write=lambda *_: {})
    (texts,) = source.edited((FlagChange(flag=path, before=None, after="8"),))
    assert [texts[name] != config.bytes for name, config in zip("01", configs, strict=True)] == [place == 0, place == 1]
