"""The model catalogue: parameter counts against published ones, physical bands, provenance, names."""

import csv
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.base.errors import InputError, UnknownName
from optimizer.catalog import load_model, model_names
from optimizer.catalog import models as catalogue
from optimizer.job.model import Experts, Model, SlidingWindow
from tests.looped import looped

NAMES = model_names()
FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "models.csv"

ROUNDED = "the published size is a rounded name; the table's shapes give this count"
# models whose published total is further than 0.5 % from the count of their shapes, with our count / published - 1
TOTAL_EXCEPTIONS = {
    "gpt3-350m": (0.0168, ROUNDED),
    "gpt3-1.3b": (0.0121, ROUNDED),
    "gpt3-2.7b": (-0.0179, ROUNDED),
    "gpt3-6.7b": (-0.0062, ROUNDED),
    "gpt3-13b": (-0.0113, ROUNDED),
    "opt-350m": (0.0168, ROUNDED + "; the released OPT-350M has a narrower embedding (331 M)"),
    "opt-1.3b": (0.0121, ROUNDED),
    "opt-2.7b": (-0.0179, ROUNDED),
    "opt-6.7b": (-0.0062, ROUNDED),
    "opt-13b": (-0.0113, ROUNDED),
    "llama1-7b": (0.0057, "printed as 6.7B; 6.738B is printed as such for Llama 2, of the same shape"),
    "falcon-7b": (-0.0112, ROUNDED),
    "falcon-40b": (0.0326, ROUNDED),
    "falcon-180b": (-0.0080, ROUNDED),
    "grok-1": (0.0054, "314B by its authors; the shapes of its code give 315.7B"),
    "gpt3-5b": (0.0095, ROUNDED),
    "gpt3-20b": (0.0128, ROUNDED),
    "gpt3-40b": (-0.0228, ROUNDED),
    "nemotron-8b": (0.0675, ROUNDED + ", of which 2.1B are embedding and head"),
    "nemotron-22b": (-0.0334, ROUNDED),
    "internlm-7b": (0.0460, ROUNDED),
    "gemma4-26b-a4b": (-0.0290, ROUNDED),
    "gemma4-31b": (-0.0062, ROUNDED),
    "minimax-m2": (-0.0057, ROUNDED),
    "minimax-m2.7": (-0.0057, ROUNDED),
    "nemotron-h-56b": (0.0058, ROUNDED),
    "nemotron-3-nano-4b": (-0.0066, ROUNDED),
    "nemotron-3-nano-30b-a3b": (0.0526, ROUNDED),
    "nemotron-3-super-120b-a12b": (0.0056, ROUNDED),
    "qwen3.5-35b-a3b": (-0.0097, ROUNDED),
    "glm-4.5": (-0.0062, "355B includes the multi-token-prediction layer (4.0B), which `params` leaves out"),
}
WITHOUT_EMBEDDING = "the published count leaves out embedding (and head)"
ACTIVE_EXCEPTIONS = {
    "deepseek-v2": (0.0179, WITHOUT_EMBEDDING),
    "deepseek-v2-lite": (0.1088, WITHOUT_EMBEDDING),
    "deepseek-v3": (0.0149, WITHOUT_EMBEDDING),
    "deepseek-r1": (0.0149, WITHOUT_EMBEDDING),
    "kimi-k2": (0.0269, WITHOUT_EMBEDDING),
    "gpt-oss-20b": (0.1600, WITHOUT_EMBEDDING),
    "gpt-oss-120b": (0.1134, WITHOUT_EMBEDDING),
    "glm-4.5": (0.0510, WITHOUT_EMBEDDING),
    "glm-4.5-air": (0.1187, WITHOUT_EMBEDDING),
    "dbrx": (0.0130, ROUNDED),
    "llama4-scout": (0.0102, ROUNDED),
    "llama4-maverick": (0.0109, ROUNDED),
    "qwen2-57b-a14b": (0.0178, ROUNDED),
    "qwen3-30b-a3b": (0.0161, ROUNDED),
    "qwen3-235b-a22b": (0.0087, ROUNDED),
    "qwen3-coder-480b-a35b": (0.0136, ROUNDED),
}
# totals of the released checkpoints, language tower only, to the last parameter
CHECKPOINTS = {
    "bloom-176b": 176_247_271_424,
    "gpt-neox-20b": 20_554_567_680,
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama4-scout": 107_769_861_120,
    "llama4-maverick": 400_711_848_960,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen3-32b": 32_762_123_264,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma2-27b": 27_227_128_320,
    "gemma3-1b": 999_885_952,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "glm-4.5-air": 106_852_251_264,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "olmo2-32b": 32_234_279_936,
    "gpt2-xl": 1_557_611_200,
    "mpt-7b-alibi": 6_649_286_656,
    "codellama-34b": 33_743_970_304,
}


def test_the_catalogue_has_the_93_architectures_of_the_table_and_50_more():
    assert len(NAMES) == len(set(NAMES)) == 93 + 50


@looped(name=[name for name in NAMES if name.startswith("qwen") and load_model(name).tower])
def test_a_checkpoint_of_a_model_that_sees_holds_its_tower_too(name):
    model = load_model(name)
    published = int(re.search(r"(\d+) with the tower", model.provenance.note)[1])
    assert model.tower.params + model.params == pytest.approx(published, rel=0.00005)


@looped(name=NAMES)
def test_params_reproduce_the_published_count(name):
    model = load_model(name)
    gap = model.params / model.published_params - 1
    expected, _ = TOTAL_EXCEPTIONS.get(name, (0.0, ""))
    assert gap == pytest.approx(expected, abs=0.0001 if name in TOTAL_EXCEPTIONS else 0.005)


@looped(name=[name for name in NAMES if load_model(name).published_active_params])
def test_active_params_reproduce_the_published_count(name):
    model = load_model(name)
    published = model.published_active_params
    expected, reason = ACTIVE_EXCEPTIONS.get(name, (0.0, ""))
    gap = model.active_params / published - 1
    assert gap == pytest.approx(expected, abs=0.0001 if name in ACTIVE_EXCEPTIONS else 0.005)
    if reason == WITHOUT_EMBEDDING:
        without = model.active_params - model.embedding_params
        counts = [without, without - model.head_params]
        assert min(abs(count / published - 1) for count in counts) < 0.025
    else:
        # a rounded name is off by less than half a unit of its last digit
        assert abs(model.active_params - published) < 0.5e9


@pytest.mark.parametrize(("name", "published"), CHECKPOINTS.items())
def test_params_equal_the_checkpoint_to_the_last_parameter(name, published):
    assert load_model(name).params == published


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [("deepseek-r1", 684_489_845_504), ("glm-4.5", 358_337_791_296), ("glm-4.5-air", 110_468_824_832)],
)
def test_mtp_params_complete_the_checkpoint(name, checkpoint):
    """These checkpoints hold the MTP layer with its own copies of the embedding and the output projection."""
    model = load_model(name)
    assert model.params + model.mtp_params + model.embedding_params + model.head_params == checkpoint


def test_the_mtp_layer_of_a_model_with_experts_has_them_even_where_no_other_layer_does():
    model = load_model("deepseek-v3")
    dense = replace(model, layers=3)
    assert dense.moe_layers == 0
    assert dense.mtp_params == model.mtp_params


@looped(name=NAMES)
def test_params_are_the_sum_of_their_parts(name):
    model = load_model(name)
    total = model.embedding_params + model.head_params + model.final_norm_params
    if not model.is_uniform:
        assert len(model.moe_pattern) == sum(kind.count for kind in model.kinds) == model.layers
        total += sum(kind.count * kind.model.layer_params for kind in model.kinds)
    for number in range(1, model.layers + 1 if model.is_uniform else 0):
        moe = model.experts
        first = moe.first_dense_layers if moe else 0
        if moe and number > first and (number - first) % moe.every == 0:
            total += model.moe_shared_params + moe.count * model.expert_params
        else:
            total += model.dense_layer_params
    assert model.params == total
    assert model.dense_layers + model.moe_layers == model.layers
    assert model.active_params <= model.params


@looped(name=NAMES)
def test_preset_is_physically_plausible(name):
    model = load_model(name)
    assert model.heads % model.kv_heads == 0
    assert model.head_dim in (64, 80, 96, 128, 145, 160, 192, 256, 512)
    assert 0.6 <= model.v_dim / model.hidden <= 3.5
    assert 30_000 <= model.vocab <= 300_000
    assert 12 <= model.layers <= 130
    assert 512 <= model.hidden <= 32_768
    assert (1.0 if model.mlp_layers else 0.5) <= model.ffn_hidden / model.hidden <= 8.0
    assert 1024 <= model.max_seq_len <= 10_485_760
    assert model.norms_per_layer in (1, 2, 4)
    assert model.norm in ("layer", "layer1p", "rms")
    assert model.position in ("learned", "rope", "alibi")
    assert model.activation in ("gelu", "relu", "relu2", "swiglu", "clamped-swiglu", "geglu")
    assert model.gated_mlp == (model.activation in ("swiglu", "clamped-swiglu", "geglu"))
    assert model.qk_norm or not model.qk_norm_full
    if model.mla:
        assert model.kv_heads == model.heads
        assert model.head_dim == model.mla.v_dim
    if model.experts:
        assert 1 <= model.experts.top_k <= model.experts.count <= 512
        assert model.experts.count % 8 == 0
        assert model.moe_layers >= model.layers * (0.5 if model.is_uniform else 0.4) - 0.5
    if model.window:
        assert 128 <= model.window.size <= model.max_seq_len


@looped(name=NAMES)
def test_preset_has_provenance(name):
    model = load_model(name)
    assert model.title
    assert model.provenance.source
    assert re.fullmatch(r"20\d\d-[01]\d", model.provenance.date)
    assert model.provenance.grade in ("A", "B")
    assert model.provenance.note.startswith("count: ")


def test_special_blocks_are_represented():
    assert load_model("gemma2-27b").window == SlidingWindow(size=4096, global_every=2)
    assert load_model("gemma3-1b").window == SlidingWindow(size=512, global_every=6)
    assert load_model("mistral-7b").window == SlidingWindow(size=4096)
    assert load_model("gpt-oss-120b").window == SlidingWindow(size=128, global_every=2)
    assert load_model("gemma3-27b").norms_per_layer == load_model("grok-1").norms_per_layer == 4
    assert load_model("falcon-7b").norms_per_layer == load_model("palm-540b").norms_per_layer == 1
    assert load_model("falcon-180b").parallel_block
    assert load_model("bloom-176b").embedding_norm
    assert load_model("nemotron4-340b").norm == "layer1p"
    assert load_model("olmo2-32b").qk_norm_full
    maverick = load_model("llama4-maverick")
    assert (maverick.moe_layers, maverick.dense_layers) == (24, 24)
    assert load_model("deepseek-v3").moe_layers == 58
    assert load_model("gpt-oss-20b").experts == Experts(count=32, top_k=4, ffn_hidden=2880, router_bias=True)


def test_bloom_counted_by_hand():
    """14336 wide: 4 h^2 + 4 h of attention, 8 h^2 + 5 h of MLP, 4 h of norms in each of 70 layers."""
    hidden = 14336
    layers = 70 * (12 * hidden**2 + 13 * hidden)
    assert load_model("bloom").params == layers + 250880 * hidden + 2 * hidden + 2 * hidden


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("gpt3", "gpt3"),
        ("gpt3-175b", "gpt3"),
        ("GPT-3 175B", "gpt3"),
        ("Llama-3-8B", "llama3-8b"),
        ("llama_3.1_405b", "llama3.1-405b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("Qwen/Qwen2.5-72B", "qwen2.5-72b"),
        ("phi4", "phi-4"),
        ("GPT-5B", "gpt3-5b"),
        ("Nemotron-3 8B", "nemotron-8b"),
        ("Nemotron_3_Super", "nemotron-3-super-120b-a12b"),
        ("Llama-2-class 34B", "codellama-34b"),
        ("mosaicml/mpt-7b", "mpt-7b-alibi"),
    ],
)
def test_names_in_the_ways_people_write_them(given, name):
    assert load_model(given).name == name


def test_no_name_or_alias_means_two_models():
    spellings = [(catalogue.spelling(alias), name) for alias, name in catalogue._aliases().items()]
    spellings += [(catalogue.spelling(name), name) for name in NAMES]
    assert len(dict(spellings)) == len(spellings)


def test_spellings_are_names_aliases_and_titles():
    spellings = catalogue.model_spellings()
    assert {spellings[text] for text in ("gpt-oss-20b", "deepseek-v3-671b", "DeepSeek-V3 671B-A37B")} == {
        "gpt-oss-20b",
        "deepseek-v3",
    }
    assert set(spellings.values()) == set(NAMES)


def test_mpt_of_the_benchmarks_has_learned_positions_and_the_released_one_alibi():
    benchmark, released = load_model("mpt-7b"), load_model("mpt-7b-alibi")
    # 64 fewer rows of embedding, 2048 positions; per layer 9 h of biases and 2 h of those of the norms; h at the end
    assert benchmark.params - released.params == (2048 - 64) * 4096 + 32 * 11 * 4096 + 4096


def test_typo_names_the_nearest():
    with pytest.raises(UnknownName, match=r"lama3-8b.*Did you mean llama3-8b"):
        load_model("lama3-8b")


def test_missing_file_is_said_so():
    with pytest.raises(InputError, match=r"no model file 'nowhere/config.json'"):
        load_model("./nowhere/config.json")


def test_every_problem_of_a_row_is_reported(tmp_path):
    header = "name,layers,hidden,heads,kv_heads,head_dim,ffn_hidden,vocab,gated_mlp,max_seq_length\n"
    (tmp_path / "mine.csv").write_text("# comment\n" + header + "a,2,x,4,4,16,256,1000,yes,128\n")
    row = catalogue._rows_in(tmp_path)["a"]
    with pytest.raises(catalogue.InvalidFile) as error:
        catalogue._model(row)
    assert error.value.problems == (
        "line 3 (a): hidden: expected a whole number, got 'x'",
        "line 3 (a): max_seq_len: missing, expected a whole number",
        "line 3 (a): gated_mlp: expected true or false, got 'yes'",
        "line 3 (a): unknown column 'max_seq_length'; nearest: max_seq_len",
    )


def test_reading_the_catalogue_imports_nothing_heavy():
    code = "import sys; from optimizer.catalog import load_model; load_model('deepseek-v3'); print(*sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert not set(done.stdout.split()) & {"pydantic", "pandas", "numpy", "scipy", "ortools", "optuna", "rich"}


@pytest.mark.skipif(not FACTS.exists(), reason="the table that the catalogue was made from is not here")
def test_counts_agree_with_the_table_of_facts():
    table = {row["name"]: row for row in csv.DictReader(FACTS.read_text().splitlines())}
    models = {model.title: model for model in map(load_model, NAMES)}
    assert table.keys() <= models.keys()
    for title in table:
        model = models[title]
        # four decimals of 1e9 parameters
        assert model.params == pytest.approx(float(table[title]["derived_total_B"]) * 1e9, rel=1e-4, abs=1e5)
        if table[title]["derived_active_B"]:
            active = float(table[title]["derived_active_B"]) * 1e9
            assert model.active_params == pytest.approx(active, rel=1e-4, abs=1e5)


def test_variants_of_a_preset_are_made_with_replace():
    model = load_model("gpt3")
    wider = replace(model, vocab=51200)
    assert isinstance(wider, Model)
    assert wider.params - model.params == (51200 - 50257) * 12288


@pytest.mark.parametrize("name", ["Qwen/Qwen2-VL-7B-Instruct", "nobody/nothing-7b"])
def test_a_hubs_name_that_nothing_has_is_refused_with_what_does(name: str) -> None:
    with pytest.raises(InputError, match=f"model {name} is neither a preset nor a file here: .*config.json"):
        load_model(name)
