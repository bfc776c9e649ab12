"""Default configurations of transformers' causal language models: counted right, or refused by what is not understood.

The table is made anew by `python -m maintain.huggingface_models --save tests/catalog/readers/data/architectures.jsonl`
from an installed transformers (5.23): facts alone, keys with their values and a count.
"""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.huggingface import architectures, is_neutral, read_config
from optimizer.catalog.readers.huggingface_fields import names

LINES = (Path(__file__).parent / "data" / "architectures.jsonl").read_text(encoding="utf-8").splitlines()
TABLE = {row["name"]: row for row in map(json.loads, LINES)}
RIGHT = [name for name, row in TABLE.items() if row["verdict"] == "right"]
REFUSED = [name for name, row in TABLE.items() if row["verdict"] == "refused"]
NOT_IN_TABLE = {"grok-1", "kimi_k2"}  # no classes of transformers
UNCOUNTED = {"dbrx", "dots1", "hunyuan_v1_dense", "lfm2_moe", "nemotron"}  # their defaults make no model


def written(folder, name, **changes):
    """A config.json with some keys changed."""
    path = folder / "config.json"
    path.write_text(json.dumps(TABLE[name]["config"] | changes))
    return path


def test_most_architectures_are_right_and_none_is_wrong():
    assert len(RIGHT) >= 100
    assert len(RIGHT) + len(REFUSED) == len(TABLE)


@pytest.mark.parametrize("name", RIGHT)
def test_parameters_are_those_of_the_class(tmp_path, name):
    assert read_config(written(tmp_path, name)).params == pytest.approx(TABLE[name]["params"], rel=0.005)


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(tmp_path, name):
    with pytest.raises(InvalidFile):
        read_config(written(tmp_path, name))


@pytest.mark.parametrize("name", TABLE)
def test_an_architecture_that_is_not_known_is_right_or_refused(tmp_path, name):
    try:
        counted = read_config(written(tmp_path, name, model_type="unheard-of")).params
    except InvalidFile:
        return
    assert counted == pytest.approx(TABLE[name]["params"], rel=0.005)


def test_the_table_covers_what_architectures_toml_states():
    text_parts = {row["config"].get("text_config", row["config"])["model_type"] for row in TABLE.values()}
    assert architectures().keys() - text_parts == NOT_IN_TABLE | UNCOUNTED


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from([name for name in RIGHT if "text_config" not in TABLE[name]["config"]]),
    key=st.from_regex(r"[a-z]{3,8}(_[a-z]{3,8}){0,3}", fullmatch=True),
    value=st.one_of(st.integers(1, 10**6), st.just(True), st.lists(st.integers(1, 9), min_size=1), st.text(min_size=1)),
)
def test_a_key_that_is_not_understood_refuses_by_name(tmp_path, name, key, value):
    """Whatever it holds, unless it is known to change no shape."""
    known = architectures().get(TABLE[name]["config"]["model_type"])
    renamed = known.facts.get("renamed", {}) if known else {}
    if key in names() or is_neutral(key) or key in renamed:
        return
    with pytest.raises(InvalidFile, match=key):
        read_config(written(tmp_path, name, **{key: value}))


@pytest.mark.parametrize("value", [0, False, None, [], 0.5])
def test_a_switch_that_is_off_is_passed_over(tmp_path, value):
    assert read_config(written(tmp_path, "llama", wholly_new=value)).params == TABLE["llama"]["params"]
