"""Vision towers of config.json: their parameters, held against what transformers' own classes have, and their price."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_stack
from optimizer.catalog.readers.huggingface import read_config
from optimizer.catalog.readers.huggingface_tower import tower_of
from optimizer.job.job import Job
from optimizer.job.model import Model
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan

QWEN3 = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096}
SIGLIP = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
# Parameters outside of the language model of the class, made on the meta device (transformers 5.23).
COUNTED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "qwen2_vl": (
        {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "num_heads": 16},
        3584,
        675_759_104,
        0,
    ),
    "qwen2_5_vl": (
        {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584},
        3584,
        676_550_144,
        0,
    ),
    "qwen3_vl": (QWEN3, 4096, 576_388_336, 576),
    "gemma3": (SIGLIP | {"image_size": 896, "patch_size": 14}, 2560, 419_816_304, 256),
    "llama4": (
        {"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "num_attention_heads": 16},
        5120,
        455_178_240,
        256,
    ),
    "internvl": (
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
        3584,
        331_479_040,
        256,
    ),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_a_tower_has_the_parameters_of_its_class(kind: str) -> None:
    vision, width, counted, image_tokens = COUNTED[kind]
    tower = tower_of({"model_type": kind, "vision_config": vision, "text_config": {"hidden_size": width}})
    assert tower is not None
    assert tower.params == pytest.approx(counted, rel=0.0005)
    assert tower.image_tokens == image_tokens


@pytest.mark.parametrize(
    "vision",
    [
        None,
        {},
        {"depth": 27},
        QWEN3 | {"depth": -1},
        QWEN3 | {"num_heads": "many"},
        QWEN3 | {"depth": 1e9},
        QWEN3 | {"num_heads": "16"},
    ],
)
def test_a_tower_that_lacks_a_size_is_left_out(vision: object) -> None:
    assert tower_of({"model_type": "qwen3_vl", "vision_config": vision, "hidden_size": 64}) is None
    assert tower_of({"model_type": "unheard-of", "vision_config": QWEN3, "hidden_size": 64}) is None


@pytest.fixture
def model(tmp_path: Path) -> Model:
    text = {
        **{"model_type": "qwen3_vl_text", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28},
        **{"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
        **{"max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "hidden_act": "silu"},
    }
    whole = {"model_type": "qwen3_vl", "text_config": text, "vision_config": QWEN3 | {"out_hidden_size": 2048}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(whole))
    return read_config(path)


def of(model: Model, train: str, stack: str = "hf-2026") -> Job:
    return Job(
        **{"model": model, "train": train, "stack": load_stack(stack), "cluster": load_cluster("h200")},
        **{"gpus": 1, "seq_len": 2048, "global_batch": 4},
    )


def costs(job: Job) -> tuple[float, float]:
    priced = price(job, Plans.of([Plan(micro_batch=4)]))
    return float(priced.step_time[0]), float(priced.reserved[0])


def test_a_frozen_tower_has_a_forward_pass_and_a_trained_one_all_that_layers_have(model: Model) -> None:
    assert model.tower is not None
    assert "a vision tower of 0.54 billion" in model.provenance.note
    (blind, least), (frozen, held), (trained, most) = (
        costs(of(replace(model, tower=None), "full")),
        costs(of(model, "frozen:vision")),
        costs(of(model, "full")),
    )
    assert blind < frozen < trained
    assert held - least == pytest.approx(2 * model.tower.params, rel=0.001)
    assert most - least > 8 * model.tower.params
    text = replace(model, tower=replace(model.tower, image_tokens=0))
    # Four images of 2,304 patches: 2 N FLOP a patch, and scores.
    flops = 2 * 2304 * 4 * (model.tower.params - model.tower.outside)
    assert 0.5 < (frozen - costs(of(text, "frozen:vision"))[0]) / (flops / 737e12) < 5


@pytest.mark.parametrize("key", ["mlp_ratio", "deepstack_visual_indexes", "patch_size", "num_position_embeddings"])
@pytest.mark.parametrize("value", ["x", [], {}, -1, True, 1e300])
def test_a_damaged_key_of_a_tower_breaks_nothing(key: str, value: object) -> None:
    tower = tower_of({"model_type": "qwen3_vl", "vision_config": QWEN3 | {key: value}, "hidden_size": 64})
    assert tower is not None
    assert tower.params > 0


def test_software_that_runs_no_tower_has_none(model: Model) -> None:
    job = of(model, "full", "megatron-core")
    assert costs(job) == costs(replace(job, model=replace(model, tower=None)))
    with pytest.raises(InputError, match="no vision tower is in front of"):
        of(model, "frozen:vision", "megatron-core")


def test_the_best_plan_in_front_of_a_tower_is_that_of_all_prices(model: Model) -> None:
    job = of(model, "frozen:vision")
    found = plan(job, top=0, trials=0, priced_risk=False, explained=False, read_twice=False)
    assert found.plan is not None
    every = [
        Plan(micro_batch=size, num_microbatches=4 // size, recompute=mode)
        for size in (1, 2, 4)
        for mode in ("none", "full")
    ]
    fits = price(job, Plans.of(every))
    best = float(price(job, Plans.of([found.plan]), found.knobs).step_time[0])
    assert best == pytest.approx(float(fits.step_time.min()), rel=1e-9)
