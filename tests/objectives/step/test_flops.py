"""Operations of a step against a count written down layer by layer, prediction layers included."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.catalog import load_model
from optimizer.objectives.step.flops import CONVENTIONS, attending, causal_score_flops, model_flops, score_flops


def megatron_count(*, mtp: int) -> float:
    """DeepSeek-V3 as Megatron-LM counts it at 4,096 tokens, per token, without norms but with routers [FLOP].

    Source: Megatron-LM, megatron/training/training.py, num_floating_point_operations.
    """
    hidden, heads, vocab, seq_len = 7168, 128, 129_280, 4096
    query, keys, value = 128 + 64, 128, 128
    attention = hidden * 1536 + 1536 * heads * query + hidden * (512 + 64) + 512 * heads * (keys + value)
    attention += heads * value * hidden + seq_len * heads * (query + value) / 2
    mlp = 3 * hidden * (18_432 * 3 + (2048 * 8 + 2048) * (58 + mtp))
    routers = hidden * 256 * (58 + mtp)
    return 6.0 * (routers + mlp + attention * (61 + mtp) + mtp * 2 * hidden**2 + (1 + mtp) * hidden * vocab)


@pytest.mark.parametrize("mtp", [0, 1, 2])
def test_prediction_layers_count_as_megatron_counts_them(mtp: int) -> None:
    model = replace(load_model("deepseek-v3"), mtp_layers=mtp)
    assert model_flops(model, 4096, 1.0, "causal") == pytest.approx(megatron_count(mtp=mtp), rel=2e-4)


def test_prediction_layers_attend_as_the_last_layers_that_do() -> None:
    first, last = (SimpleNamespace(has_attention=True, heads=heads) for heads in (8, 16))
    kinds = [
        (first, 3),
        (SimpleNamespace(has_attention=False), 9),
        (last, 5),
        (SimpleNamespace(has_attention=False), 1),
    ]
    hybrid: Any = SimpleNamespace(
        kinds=[SimpleNamespace(model=each, count=count) for each, count in kinds], mtp_layers=2
    )
    assert attending(hybrid) == [(first, 3), (last, 5), (last, 2)]
    hybrid.mtp_layers = 0
    assert attending(hybrid) == [(first, 3), (last, 5)]
    hybrid.kinds, hybrid.mtp_layers = hybrid.kinds[1:2], 1
    assert attending(hybrid) == []


def test_the_conventions_differ_in_masked_scores_and_in_prediction_layers() -> None:
    model = load_model("deepseek-v3")
    causal, every, plain = (model_flops(model, 4096, 1.0, name) for name in CONVENTIONS)
    assert every > causal > plain
    assert plain == model_flops(replace(model, mtp_layers=0), 4096, 1.0, "6n")
    assert causal == model_flops(model, 4096, 1.0)


@pytest.mark.parametrize(("name", "layer"), [("gpt3", 96 * 2 * 12288), ("llama3-8b", 32 * 2 * 4096)])
def test_scores_are_products_of_every_pair_both_ways(name: str, layer: float) -> None:
    """6 S (d_qk + d_v) a token and layer, of which a causal mask leaves (S + 1) / 2 S."""
    model = load_model(name)
    assert score_flops(model, 2048) == 6 * 2048 * layer
    assert causal_score_flops(model, 2048) == pytest.approx(6 * 2049 / 2 * layer, rel=1e-12)


def test_windows_and_kinds_count_each_by_itself() -> None:
    """Gemma 2 9B: every other of 42 layers sees the last 4,096 of 8,192 tokens; 16 heads of 256 each way."""
    model = load_model("gemma2-9b")
    full, window = (8192 + 1) / 2, (4096 * 4097 / 2 + 4096 * 4096) / 8192
    assert causal_score_flops(model, 8192) == pytest.approx(21 * 6 * 2 * 16 * 256 * (full + window), rel=2e-3)
