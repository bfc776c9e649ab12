"""Models made of the shapes that launches state: what is taken where a size is left out, and presets of a shape."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.catalog import load_model
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.config.launch import take, whole
from optimizer.frameworks.launch import LARGEST_COUNT, Launch
from optimizer.frameworks.shape import built, filled, model_of

SHAPE = {"layers": 4, "hidden": 1000, "heads": 8}


@pytest.mark.parametrize(
    ("said", "sizes"),
    [
        ({}, {"ffn_hidden": 4000, "kv_heads": 8, "head_dim": 125, "vocab": 50257, "max_seq_len": 2048}),
        ({"gated_mlp": True}, {"ffn_hidden": 2624}),  # 2,666 down to a multiple of 64
        (
            {"ffn_hidden": 7, "kv_heads": 2, "head_dim": 64, "vocab": 5},
            {"ffn_hidden": 7, "kv_heads": 2, "head_dim": 64},
        ),
        ({"seq_len": 512}, {"max_seq_len": 512}),
        ({"seq_len": 512, "max_seq_len": 4096}, {"max_seq_len": 4096}),
    ],
)
def test_sizes_that_are_left_out(said: dict[str, Any], sizes: dict[str, int]) -> None:
    found = filled({**SHAPE, **said})
    assert {name: found[name] for name in sizes} == sizes


def model(**said: Any) -> Any:
    return built(filled({**SHAPE, **said}))


def test_a_model_of_a_shape() -> None:
    plain = model()
    assert (plain.experts, plain.mla, plain.window, plain.norm_bias) == (None, None, None, plain.norm != "rms")
    assert not model(norm="rms").norm_bias
    latent = model(kv_rank=512).mla
    assert (latent.q_rank, latent.kv_rank, latent.nope_dim, latent.rope_dim, latent.v_dim) == (0, 512, 128, 64, 128)
    stated = model(kv_rank=8, q_rank=1, nope_dim=2, rope_dim=3, v_dim=4).mla
    assert (stated.q_rank, stated.nope_dim, stated.rope_dim, stated.v_dim) == (1, 2, 3, 4)
    assert (model(window=128).window.size, model(window=128).window.global_every) == (128, 0)
    assert model(window=128, window_every=4).window.global_every == 4
    assert model(window=0).window is None


def test_experts_of_a_shape() -> None:
    assert model(experts=1).experts is None
    two = model(experts=2).experts
    assert (two.count, two.top_k, two.ffn_hidden, two.shared_ffn_hidden) == (2, 2, 4000, 0)
    assert (two.first_dense_layers, two.every) == (0, 1)
    own = model(experts=8, top_k=1, expert_ffn=5, shared_ffn=6, first_dense=1, every=2, router="sigmoid").experts
    assert (own.top_k, own.ffn_hidden, own.shared_ffn_hidden) == (1, 5, 6)
    assert (own.first_dense_layers, own.every, own.router) == (1, 2, "sigmoid")


LLAMA = {
    **{"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "gated_mlp": True},
    **{"activation": "swiglu", "norm": "rms", "position": "rope", "tied_embeddings": False},
}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"vocab": 128256}, "llama3"),
        ({"layers": 31}, "as-launched"),
        ({"kv_heads": 4}, "as-launched"),
        ({"position": "learned"}, "as-launched"),
        ({"norm": "layer"}, "as-launched"),
        ({"experts": 8, "top_k": 2}, "mixtral-8x7b"),
        ({"experts": 8}, "mixtral-8x7b"),
        ({"experts": 8, "top_k": 1}, "as-launched"),
        ({"experts": 16}, "as-launched"),
        ({"experts": 8, "expert_ffn": 512}, "as-launched"),
        ({"experts": 1, "vocab": 128256}, "llama3"),
    ],
)
def test_a_preset_has_every_size_that_is_stated(said: dict[str, Any], name: str) -> None:
    found = model_of(Launch(program="any", settings={**LLAMA, **said}))
    assert found is not None
    assert found.name.startswith(name)


def test_shapes_that_say_too_little_are_no_model() -> None:
    for missing in SHAPE:
        said = {name: size for name, size in SHAPE.items() if name != missing}
        assert model_of(Launch(program="any", settings=said)) is None
    assert model_of(Launch(program="any", settings={}), "llama3-8b") == load_model("llama3-8b")


@pytest.mark.parametrize(
    ("value", "least", "number", "problem"),
    [
        (8, 1, 8, ""),
        (8.0, 1, 8, ""),
        (None, 1, None, ""),
        ("auto", 1, None, ""),
        (8.5, 1, None, "x must be a whole number, but got 8.5"),
        (True, 1, None, "x must be a whole number, but got True"),
        ("8", 1, None, "x must be a whole number, but got '8'"),
        (0, 1, None, "x must be from 1 to 1,000,000,000, but got 0"),
        (0, 0, 0, ""),
        (LARGEST_COUNT, 1, LARGEST_COUNT, ""),
        (LARGEST_COUNT + 1, 1, None, "x must be from 1 to 1,000,000,000, but got 1000000001"),
    ],
)
def test_whole_numbers_of_configs(value: Any, least: int, number: int | None, problem: str) -> None:
    launch = Launch(program="any")
    assert whole(launch, {"x": value}, "x", least) == number
    assert launch.problems == ([problem] if problem else [])


@pytest.mark.parametrize("name", ["zero_stage", "shard", "shared_ffn", "first_dense", "etp", "experts", "top_k"])
def test_counts_that_may_be_nothing(name: str) -> None:
    launch = Launch(program="any")
    take(launch, {"x": 0, "y": 0}, {name: "x", "tp": "y"})
    assert (launch.settings, launch.written) == ({name: 0}, {name: "x"})
    assert launch.problems == ["y must be from 1 to 1,000,000,000, but got 0"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8", 8),
        ("-8", -8),
        ("2 * 3 + 1", 7),
        ("7 // 2", 3),
        ("7 / 2", 3.5),
        ("8 - 3", 5),
        ("(1 + 2) * 4", 12),
        ("10 ** 2", None),
        ("8 // 0", None),
        ("8 / 0", None),
        ("10000000 * 100000000", 10**15),
        ("10000000 * 100000000 + 1", None),
        ("0 - 10000000 * 100000000", -(10**15)),
        ("True + 1", None),
        ("'a' + 'b'", None),
        ("~8", None),
        ("[1, [2, 3], 'a']", [1, [2, 3], "a"]),
        ("TP * 2", 8),
        ("nobody", None),
        ("helper(3)", 6),
        ("helper(nobody)", None),
    ],
)
def test_values_of_python_configs(text: str, said: Any) -> None:
    source = f"""TP = 4


def helper(n):
    return n * 2


def own() -> Trainer.Config:
    return Trainer.Config(training=TrainingConfig(seq_len={text}))
"""
    values = ConfigFile("x.py", source, "python", "own").values
    assert values.get("training.seq_len") == said
