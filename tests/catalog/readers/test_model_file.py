"""Models described in TOML."""

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.catalog import load_model
from optimizer.job.model import Experts, LatentAttention, SlidingWindow

DENSE = """
layers = 32
hidden = 4096
heads = 32
kv_heads = 8
head_dim = 128
ffn_hidden = 14336
vocab = 128256
max_seq_len = 8192
gated_mlp = true
activation = "swiglu"
norm = "rms"
"""


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_dense_model_is_counted_like_the_preset(tmp_path):
    model = load_model(written(tmp_path, DENSE))
    assert (model.name, model.params) == ("mine", load_model("llama3-8b").params)


def test_tables_become_the_parts(tmp_path):
    text = (
        'name = "small MoE"\n'
        + DENSE
        + """
[experts]
count = 16
top_k = 2
ffn_hidden = 2048
first_dense_layers = 1
[mla]
q_rank = 0
kv_rank = 512
nope_dim = 128
rope_dim = 64
v_dim = 128
[window]
size = 4096
[provenance]
source = "our own"
"""
    )
    model = load_model(written(tmp_path, text))
    assert model.name == "small MoE"
    assert model.experts == Experts(count=16, top_k=2, ffn_hidden=2048, first_dense_layers=1)
    assert model.mla == LatentAttention(q_rank=0, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
    assert model.window == SlidingWindow(size=4096)
    assert model.provenance.source == "our own"


def test_every_problem_is_reported(tmp_path):
    text = (
        DENSE.replace("layers = 32", "layer = 32").replace("kv_heads = 8", "kv_heads = 8.0") + "[experts]\ncount = 8\n"
    )
    with pytest.raises(InvalidFile) as error:
        load_model(written(tmp_path, text))
    assert set(error.value.problems) == {
        "layers: missing, expected a whole number above 0; is layer misspelled?",
        "layer: unknown key; did you mean layers or mtp_layers?",
        "kv_heads: expected a whole number above 0, but got 8.0",
        "experts.top_k: missing, expected a whole number above 0",
        "experts.ffn_hidden: missing, expected a whole number above 0",
    }


def test_a_syntax_error_gives_its_place(tmp_path):
    with pytest.raises(InvalidFile, match=r"not TOML: .*line 2, column"):
        load_model(written(tmp_path, "layers = 3\nhidden = \n"))


def test_an_impossible_model_is_refused(tmp_path):
    with pytest.raises(InvalidFile, match="layers = 2147483647 is more than 100000"):
        load_model(written(tmp_path, DENSE.replace("layers = 32", "layers = 2147483647")))
    with pytest.raises(InvalidFile, match="kv_heads = 5 does not divide heads = 32"):
        load_model(written(tmp_path, DENSE.replace("kv_heads = 8", "kv_heads = 5")))
