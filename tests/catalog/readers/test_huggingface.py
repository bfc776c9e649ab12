"""Published config.json files of 29 families: parameter counts, agreement with the presets, and refusals."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.catalog import load_model, model_names
from optimizer.catalog.readers.huggingface import architectures, read_config
from optimizer.job.model import Experts, SlidingWindow

DATA = Path(__file__).parent / "data"

# parameters of the released checkpoints; language tower without MTP layers for those that hold more
PUBLISHED = {
    "bloom-176b": 176_247_271_424,
    "dbrx": 131.6e9,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "gemma-7b": 8_537_680_896,
    "gemma2-9b": 9_241_705_984,
    "gemma3-1b": 999_885_952,
    "gemma3-27b": 27_009_346_304,
    "glm-4-9b": 9_399_951_360,
    "glm-4.5-air": 106_852_251_264,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "kimi-k2": 1026.4e9,
    "llama3-8b": 8_030_261_248,
    "llama3.2-1b": 1_235_814_400,
    "llama4-scout": 107_769_861_120,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "olmo-1b": 1_176_764_416,
    "olmo2-7b": 7_298_617_344,
    "opt-6.7b": 6_658_473_984,
    "phi-2": 2_779_683_840,
    "phi-4": 14_659_507_200,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-8b": 8_190_735_360,
}
FILES = sorted(path.stem for path in DATA.glob("*.json") if not path.stem.startswith("nccl_"))
NOT_ARCHITECTURE = {"name", "title", "family", "provenance", "published_params", "published_active_params", "tower"}


def architecture(model):
    return {field.name: getattr(model, field.name) for field in fields(model) if field.name not in NOT_ARCHITECTURE}


def changed(tmp_path, name, remove=(), **values):
    """A copy of a published file with some keys changed."""
    data = json.loads((DATA / f"{name}.json").read_text()) | values
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in data.items() if key not in remove}))
    return path


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_params_reproduce_the_checkpoint(name, published):
    params = read_config(DATA / f"{name}.json").params
    assert params == published if isinstance(published, int) else params == pytest.approx(published, rel=5e-4)


@pytest.mark.parametrize("name", [name for name in FILES if name in model_names()])
def test_file_and_preset_are_the_same_architecture(name):
    read, preset = architecture(read_config(DATA / f"{name}.json")), architecture(load_model(name))
    if name == "gemma3-27b":
        # the multimodal model's vocabulary has 64 more rows than that of the text models
        assert read.pop("vocab") == preset.pop("vocab") + 64
    if name == "grok-1":
        # its config.json leaves the order of choice and softmax to its code
        read["experts"] = replace(read["experts"], router=preset["experts"].router)
    assert read == preset


def test_families_of_published_files_are_known():
    assert {read_config(DATA / f"{name}.json").family for name in FILES} <= architectures().keys()


def test_a_folder_is_read_through_load_model(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text((DATA / "llama3-8b.json").read_text())
    model = load_model(folder)
    assert (model.name, model.family, model.params) == ("my-llama", "llama", 8_030_261_248)


def test_architectures_stand_in_for_a_missing_model_type(tmp_path):
    path = changed(tmp_path, "llama3-8b", remove=["model_type"])
    assert read_config(path).family == "llama"


def test_text_part_alone_is_read_like_the_multimodal_file(tmp_path):
    whole = json.loads((DATA / "llama4-scout.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(whole["text_config"]))
    assert architecture(read_config(path)) == architecture(read_config(DATA / "llama4-scout.json"))


def test_glm4_has_four_norms(tmp_path):
    """40 more layers' pairs of norms of 4096 than GLM-4 9B."""
    model = read_config(changed(tmp_path, "glm-4-9b", model_type="glm4"))
    assert model.params - 9_399_951_360 == 40 * 2 * 4096


def test_nemotron_reproduces_the_15b_preset(tmp_path):
    data = {
        "model_type": "nemotron",
        "vocab_size": 256000,
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_hidden_layers": 32,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "hidden_act": "relu2",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data))
    assert architecture(read_config(path)) == architecture(load_model("nemotron4-15b"))


def test_llama4_maverick_has_experts_in_every_other_layer(tmp_path):
    text = json.loads((DATA / "llama4-scout.json").read_text())["text_config"]
    text |= {"num_local_experts": 128, "interleave_moe_layer_step": 2, "max_position_embeddings": 1048576}
    path = changed(tmp_path, "llama4-scout", text_config=text)
    assert architecture(read_config(path)) == architecture(load_model("llama4-maverick"))


def test_windows_by_layer_types(tmp_path):
    types = (["sliding_attention"] * 3 + ["full_attention"]) * 8
    path = changed(tmp_path, "mistral-7b", layer_types=types)
    assert read_config(path).window == SlidingWindow(size=4096, global_every=4)
    path = changed(tmp_path, "mistral-7b", layer_types=["full_attention"] * 32)
    assert read_config(path).window is None


def test_window_in_use_by_qwen(tmp_path):
    path = changed(tmp_path, "qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=0)
    assert read_config(path).window == SlidingWindow(size=4096)
    assert read_config(DATA / "qwen2.5-7b.json").window is None


def test_qwen_experts_after_dense_layers(tmp_path):
    model = read_config(changed(tmp_path, "qwen3-235b-a22b", mlp_only_layers=[0, 1]))
    assert model.experts == Experts(count=128, top_k=8, ffn_hidden=1536, first_dense_layers=2)


def test_an_unknown_architecture_is_read_by_its_keys(tmp_path):
    """Llama's keys under another name are Llama, and the model says so."""
    model = read_config(changed(tmp_path, "llama3-8b", model_type="new-llama", architectures=["NewLlamaForCausalLM"]))
    assert architecture(model) == architecture(read_config(DATA / "llama3-8b.json"))
    assert model.provenance.note == "model_type 'new-llama' is not known: read by its keys alone"


def test_layers_that_do_not_recur_evenly_have_a_letter_each(tmp_path):
    model = read_config(changed(tmp_path, "gpt-oss-20b", layer_types=["full_attention", "sliding_attention"] * 12))
    assert (model.mixers, model.window) == ("aw", SlidingWindow(size=128))
    assert model.params == PUBLISHED["gpt-oss-20b"]
    first = read_config(
        changed(tmp_path, "qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=21)
    )
    assert [(kind.count, kind.model.window) for kind in first.kinds] == [(21, None), (7, SlidingWindow(size=4096))]


def test_experts_in_other_layers_have_a_letter_each(tmp_path):
    model = read_config(changed(tmp_path, "qwen3-235b-a22b", mlp_only_layers=[3]))
    assert [at for at, moe in enumerate(model.moe_pattern) if not moe] == [3]
    every_other = read_config(changed(tmp_path, "deepseek-v3", moe_layer_freq=2))
    assert every_other.moe_pattern[:8] == (False, False, False, False, True, False, True, False)


def test_all_problems_at_once_with_expected_type_and_nearest_key(tmp_path):
    path = changed(
        tmp_path,
        "llama3-8b",
        remove=["hidden_size", "num_key_value_heads"],
        hidden_sizes=4096,
        num_key_values_heads=8,
        num_hidden_layers="32",
        vocab_size=-1,
        tie_word_embeddings=1,
    )
    with pytest.raises(InvalidFile) as error:
        read_config(path)
    assert error.value.path == str(path)
    assert set(error.value.problems) == {
        "vocab_size: expected a whole number above 0, but got -1",
        "hidden_size (or n_embd, n_embed, d_model): missing, expected a whole number above 0; "
        "is hidden_sizes misspelled?",
        'num_hidden_layers: expected a whole number above 0, but got "32"',
        "tie_word_embeddings: expected true or false, but got 1",
        "num_key_values_heads: unknown key; did you mean num_key_value_heads?",
    }


def test_nested_problems_carry_the_whole_path(tmp_path):
    with pytest.raises(InvalidFile, match=r"text_config\.hidden_size \(or n_embd, .*\): missing"):
        read_config(changed(tmp_path, "gemma3-27b", text_config={"intermediate_size": 21504, "num_hidden_layers": 62}))
    with pytest.raises(InvalidFile, match=r"text_config: expected an object with the text model, but got null"):
        read_config(changed(tmp_path, "gemma3-27b", remove=["text_config"]))
    with pytest.raises(InvalidFile, match=r"ffn_config\.moe_top_k: missing, expected a whole number above 0"):
        read_config(changed(tmp_path, "dbrx", ffn_config={"ffn_hidden_size": 10752, "moe_num_experts": 16}))


def test_other_spellings_of_a_key_are_named_when_all_are_missing(tmp_path):
    with pytest.raises(InvalidFile, match=r"num_hidden_layers \(or n_layer, n_layers, num_layers\): missing"):
        read_config(changed(tmp_path, "bloom-176b", remove=["n_layer"]))
    with pytest.raises(InvalidFile, match=r'n_layer: expected a whole number above 0, but got "70"'):
        read_config(changed(tmp_path, "bloom-176b", n_layer="70"))


def test_corrupt_json_gives_line_and_column(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{\n  "model_type": "llama",\n  "hidden_size": \n}\n')
    with pytest.raises(InvalidFile, match=r"line 4, column 1: not JSON"):
        read_config(path)


@pytest.mark.parametrize("text", ["[]", "3", '"llama"'])
def test_json_without_an_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InvalidFile, match="expected an object"):
        read_config(path)


def test_binary_and_absent_files_are_refused(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_config(path)
    path.write_bytes(b"\x80\xfe\x00")
    with pytest.raises(InvalidFile, match="byte 0: not UTF-8"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "mamba2"}, r"conv_kernel: missing, expected a whole number above 0"),
        ({"model_type": "qwen3_mo", "hidden_act": "gelu"}, r"'qwen3_mo' is not known \(nearest: qwen3_moe\), and hidd"),
        ({"model_type": "new", "rms_norm_eps": None}, r"'new' is not known.*does not say whether its MLP has a gate"),
        ({"model_type": 7}, r"model_type: expected a text, but got 7"),
        ({"model_type": None, "architectures": ["T5ForConditionalGeneration"]}, r"'T5ForConditionalGeneration' is not"),
        ({"model_type": None, "architectures": None}, r"neither model_type nor architectures"),
    ],
)
def test_unknown_families_are_refused_by_name(tmp_path, values, message):
    with pytest.raises(InvalidFile, match=message):
        read_config(changed(tmp_path, "llama3-8b", **values))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("llama3-8b", {"num_attention_heads": 33}, r"33 attention heads do not divide the hidden size 4096"),
        ("llama3-8b", {"num_key_value_heads": 5}, r"kv_heads = 5 does not divide heads = 32"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, r"experts.top_k = 9 exceeds experts.count = 8"),
        ("opt-6.7b", {"word_embed_proj_dim": 512}, r"word_embed_proj_dim = 512 differs from hidden_size = 4096"),
        ("opt-6.7b", {"do_layer_norm_before": False}, r"do_layer_norm_before = false"),
        ("deepseek-v3", {"first_k_dense_replace": 61}, r"leave no MoE layer among 61"),
        ("phi-2", {"qk_layernorm": True}, r"qk_layernorm = true"),
    ],
)
def test_what_cannot_be_expressed_is_refused(tmp_path, name, values, message):
    with pytest.raises(InvalidFile, match=message):
        read_config(changed(tmp_path, name, **values))


QWEN_VL = {
    **{"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28},
    **{"num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 128000, "rms_norm_eps": 1e-6},
    **{"hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 1e6, "vision_token_id": 151654},
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16},
}


@pytest.mark.parametrize("nested", [False, True])
def test_the_language_model_behind_a_vision_tower_is_read_alone(tmp_path, nested):
    """As it lies in Qwen2.5-VL's file, flat or under text_config: that of Qwen2.5 7B."""
    whole = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
    text = {key: value for key, value in QWEN_VL.items() if key != "vision_config"}
    if nested:
        whole |= {"text_config": text | {"model_type": "qwen2_5_vl_text"}, "vision_config": QWEN_VL["vision_config"]}
    path = tmp_path / "vl.json"
    path.write_text(json.dumps(whole if nested else whole | QWEN_VL))
    model = read_config(path)
    assert model.params == load_model("qwen2.5-7b").params
    assert "the text model alone" in model.provenance.note
