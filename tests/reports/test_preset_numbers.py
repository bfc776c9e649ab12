from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.base.errors import InvalidFile, UnknownName
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.commands.request import Request, job_of
from optimizer.reports.preset_numbers import find_preset, preset_names


def test_a_name_means_a_device_before_its_cluster() -> None:
    assert (find_preset("h100").kind, find_preset("dgx-h100").kind) == ("device", "cluster")


def test_every_preset_can_be_shown() -> None:
    for kind, names in preset_names().items():
        for name in names:
            preset = find_preset(name)
            assert f"{preset.kind}s" == kind
            assert preset.name == name
            assert preset.numbers


def test_a_models_numbers_include_its_parameter_count() -> None:
    numbers = {number.quantity: number.value for number in find_preset("llama3-8b").numbers}
    assert numbers["params"] == f"{load_model('llama3-8b').params:,}" == "8,030,261,248"


def test_unknown_names_are_answered_with_the_nearest_of_any_kind() -> None:
    with pytest.raises(UnknownName) as caught:
        find_preset("dgx-h10")
    assert "dgx-h100" in caught.value.nearest


CLUSTER = 'name = "lab"\ndevice = "h100"\n[[tiers]]\nname = "node"\nlink = "nvlink4"\nsize = 8\n'
MODEL = """layers = 2
hidden = 64
heads = 4
kv_heads = 4
head_dim = 16
ffn_hidden = 128
vocab = 100
max_seq_len = 64
"""
EXPERTS = "[experts]\ncount = 4\ntop_k = 1\nffn_hidden = 32\n"


@pytest.mark.parametrize(
    ("name", "text", "kind", "shown"),
    [
        ("lab.toml", CLUSTER, "cluster", "tiers.0.link"),
        ("new.toml", 'name = "new"\nlike = "h100"\n', "device", "like"),
        ("own.toml", 'name = "own"\n[features]\n', "stack", "name"),
        ("tiny.toml", MODEL + EXPERTS, "model", "active_params"),
    ],
)
def test_a_file_is_shown_as_it_is_read(tmp_path: Path, name: str, text: str, kind: str, shown: str) -> None:
    (tmp_path / name).write_text(text)
    preset = find_preset(str(tmp_path / name))
    assert (preset.kind, preset.name) == (kind, Path(name).stem)
    assert shown in {number.quantity for number in preset.numbers}


def test_a_model_file_is_told_as_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(MODEL + EXPERTS)
    path = str(tmp_path / "tiny.toml")
    _, assumed = job_of(Request(model=path, gpus=1, limits={}))
    model = load_model(path)
    assert any(
        f"model tiny as tiny.toml is read: 2 layers and {model.params / 1e9:.3g} billion parameters" in said
        for said in assumed
    )
    assert not any("is read" in said for said in job_of(Request(model="gpt3", gpus=8, limits={}))[1])


def test_tokens_typed_as_sequences_are_told() -> None:
    for batch, told in ((2**22, True), (2**11, False)):
        _, assumed = job_of(Request(model="gpt3", gpus=8, global_batch=batch, limits={}))
        assert any("a global batch counts sequences, not tokens" in said for said in assumed) is told


@pytest.mark.parametrize(
    ("load", "text", "said"),
    [
        (load_model, CLUSTER, "describes a cluster, not a model: give it to --cluster"),
        (load_cluster, MODEL, "describes a model, not a cluster: give it to --model"),
        (load_stack, CLUSTER, "give it to --cluster"),
        (load_cluster, 'name = "new"\nlike = "h100"\n', "name it in a cluster file"),
    ],
)
def test_a_file_of_another_kind_is_told_its_option(
    tmp_path: Path, load: Callable[[Path], object], text: str, said: str
) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InvalidFile, match=said):
        load(tmp_path / "own.toml")


def test_a_stack_of_another_vendor_is_told() -> None:
    ours, theirs = (job_of(Request(model="gpt3", gpus=64, device=name, limits={}))[1] for name in ("h100", "gaudi3"))
    assert "software stack megatron-core (--stack)" in ours
    assert any("as none that runs on devices of Intel is known" in text for text in theirs)
