"""Which model a row of measured runs means: names as tables print them, and what must stay unknown."""

import pytest

from optimizer.base.errors import InputError
from optimizer.calibration.rows.model import read_model


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("GPT-5B", "gpt3-5b"),
        ("GPT-175B", "gpt3"),
        ("GPT-3 175B (vocab 131072)", "gpt3"),
        ("GPT 530B (MT-NLG)", "mt-nlg-530b"),
        ("Nemotron-22B", "nemotron-22b"),
        ("InternLM 7B", "internlm-7b"),
        ("Llama-2-class 34B", "codellama-34b"),
        ("Qwen3_235B_a22B", "qwen3-235b-a22b"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("LLAMA3_70B", "llama3-70b"),
        ("llama31_405b", "llama3.1-405b"),
        ("Llama 3.1 405B", "llama3.1-405b"),
        ("deepseekv2", "deepseek-v2"),
        ("DeepSeek V3", "deepseek-v3"),
        ("mixtral 8x7b", "mixtral-8x7b"),
        ("Grok1", "grok-1"),
        ("Kimi K2", "kimi-k2"),
        ("GPT3_1.3B", "gpt3-1.3b"),
        ("GPT3_13B", "gpt3-13b"),
        ("Meta-Llama-3-8B", "llama3-8b"),
    ],
)
def test_printed_names_mean_their_presets(printed: str, name: str) -> None:
    assert read_model({"model": printed}, []).name == name


def test_a_row_of_other_depth_and_width_is_another_model() -> None:
    row = {"model": "GPT2-2B", "layers": "30", "hidden": "2304", "heads": "18"}
    model = read_model(row, [])
    assert (model.name, model.layers, model.ffn_hidden, model.max_seq_len) == ("GPT2-2B", 30, 4 * 2304, 1024)


def test_a_preset_of_another_width_keeps_its_proportions() -> None:
    model = read_model({"model": "llama3-8b", "hidden": "2048", "heads": "16"}, [])
    assert (model.layers, model.ffn_hidden, model.head_dim) == (32, 14336 // 2, 128)


@pytest.mark.parametrize("printed", ["GPT 1.3B", "Nemotron-H", "Qwen3-Next", "Llama-like 7B", "MaxText 32B"])
def test_other_names_are_no_preset(printed: str) -> None:
    with pytest.raises(InputError, match="is no preset and the row has no layers, hidden, heads"):
        read_model({"model": printed}, [])


@pytest.mark.parametrize("printed", ["Nemotron-H 56B", "Kimi-Linear-48B-A3B", "Mixtral-8x22B-G8T8", "OLMoE 7B"])
def test_what_columns_cannot_describe_is_refused(printed: str) -> None:
    row = {"model": printed, "layers": "48", "hidden": "2048", "heads": "16"}
    with pytest.raises(InputError, match="layers that the columns of a row cannot describe"):
        read_model(row, [])


def test_hybrids_are_presets_whose_letters_fit_their_layers() -> None:
    assert read_model({"model": "Qwen3-Next-80B-A3B", "layers": "48", "hidden": "2048"}, []).recurrence
    assert read_model({"model": "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16"}, []).mixers.count("a") == 4
    with pytest.raises(InputError, match="mixers has 42 letters for 16 layers"):
        read_model({"model": "Nemotron 3 Nano 4B", "layers": "16"}, [])


def test_a_row_changes_the_dimensions_it_gives() -> None:
    truncated = read_model({"model": "deepseekv2", "layers": "4"}, [])
    assert (truncated.layers, truncated.dense_layers, truncated.moe_layers) == (4, 1, 3)
    wider = read_model({"model": "GPT-3 175B (vocab 131072)", "vocab": "131072.0"}, [])
    assert (wider.vocab, wider.hidden) == (131072, 12288)
    fewer = read_model({"model": "GPT-5B", "heads": "16"}, [])
    assert (fewer.heads, fewer.kv_heads, fewer.head_dim) == (16, 16, 256)


def test_a_learned_table_is_as_long_as_the_sequence() -> None:
    model = read_model({"model": "MPT-125m", "seq_len": "65536.0"}, [])
    # 63488 positions more than the 125,311,488 parameters at 2048 tokens
    assert model.params == 125_311_488 + 63_488 * 768


@pytest.mark.parametrize(
    ("printed", "name", "layers"),
    [
        ("llama3-405b, layers 4", "llama3.1-405b", 4),
        ("Llama 3 70B, 4-layer proxy", "llama3-70b", 4),
        ("Llama 4 Scout, 2 layers", "llama4-scout", 2),
        ("DeepSeek-V3 (8 layers)", "deepseek-v3", 8),
    ],
)
def test_a_proxy_is_the_preset_with_fewer_layers(printed: str, name: str, layers: int) -> None:
    said: list[str] = []
    model = read_model({"model": printed}, said)
    assert (model.name, model.layers) == (name, layers)
    assert said[0].startswith(f"{name} with {layers} of its")


def test_columns_describe_a_mixture() -> None:
    row = {"model": "some MoE", "layers": "24", "hidden": "2048", "heads": "16", "ffn_hidden": "5632"}
    row |= {"experts": "64", "topk": "6", "moe_ffn_hidden": "1408", "shared_experts": "2"}
    experts = read_model(row, []).experts
    assert experts is not None
    assert (experts.count, experts.top_k, experts.ffn_hidden, experts.shared_ffn_hidden) == (64, 6, 1408, 2816)
    fewer = read_model({"model": "qwen3-30b-a3b", "experts": "64"}, []).experts
    assert fewer is not None
    assert (fewer.count, fewer.top_k) == (64, 8)
    with pytest.raises(InputError, match=r"top_k = 200 exceeds experts\.count = 128"):
        read_model({"model": "qwen3-30b-a3b", "topk": "200"}, [])


@pytest.mark.parametrize(
    ("name", "topk", "found"), [("llama3-8b", "2", None), ("mixtral-8x7b", "1", 1), ("mixtral-8x7b", "2", 2)]
)
def test_columns_of_experts_change_those_that_a_preset_has(name: str, topk: str, found: int | None) -> None:
    model = read_model({"model": name, "topk": topk}, [])
    assert (model.experts and model.experts.top_k) == found
