"""Sizes that a launch says over those of the model that it names: they count, and the title says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.catalog import load_model
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches

PRIMUS, MIXTURE, DEEPSEEK = (
    launches.PRIMUS.replace("llama3.1_8B", name).replace("parallel_size: 2", "parallel_size: 1")
    for name in ("llama3.1_8B", "mixtral_8x7B_v0.1", "deepseek_v3")
)
BRIDGE = "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config "
DEGREES = "model.tensor_model_parallel_size=1 model.pipeline_model_parallel_size=1 model.context_parallel_size=1 "
SWIFT = "NPROC_PER_NODE=8 megatron pt --model Qwen/Qwen2.5-7B --micro_batch_size 1 --global_batch_size 64 "
NEMO = launches.NEMO_RECIPE.replace("    return recipe", "    recipe.model.config.{}\n    return recipe")


def question(name: str, text: str, controls: Controls) -> LaunchAsRead:
    return launch_as_read(
        read_launch([File(name, text.encode())], controls.gpus, controls.model).launch, controls, name
    )


@pytest.mark.parametrize(
    ("name", "text", "preset", "sizes", "said"),
    [
        ("p.yaml", PRIMUS + "      num_layers: 4\n", "llama3.1-8b", {"layers": 4}, "layers 4"),
        (
            "p.yaml",
            PRIMUS + "      ffn_hidden_size: 1024\n",
            "llama3.1-8b",
            {"ffn_hidden": 1024},
            "width of the MLP 1,024",
        ),
        (
            "p.yaml",
            PRIMUS + "      hidden_size: 2048\n      num_attention_heads: 16\n",
            "llama3.1-8b",
            {"hidden": 2048, "heads": 16, "head_dim": 128},
            "width 2,048, attention heads 16",
        ),
        ("p.yaml", PRIMUS + "      num_layers: 32\n", "llama3.1-8b", {}, ""),
        ("p.yaml", DEEPSEEK + "      num_layers: 10\n      moe_topk: 8\n", "deepseek-v3", {"layers": 10}, "layers 10"),
        ("p.yaml", DEEPSEEK + "      moe_layer_freq: ([0]*3+[1]*58)\n", "deepseek-v3", {}, ""),
        ("run.sh", BRIDGE + DEGREES + "model.num_layers=4", "llama3-8b", {"layers": 4}, "layers 4"),
        ("run.sh", SWIFT + "--num_layers 4", "qwen2.5-7b", {"layers": 4}, "layers 4"),
        ("n.py", NEMO.format("num_layers = 16"), "llama3-8b", {"layers": 16}, "layers 16"),
        ("n.py", NEMO.format("ffn_hidden_size = 8192"), "llama3-8b", {"ffn_hidden": 8192}, "width of the MLP 8,192"),
        (
            "m.yml",
            launches.MAXTEXT + "override_model_config: true\nbase_num_decoder_layers: 4\nbase_emb_dim: 2048\n",
            "llama3-8b",
            {"layers": 4, "hidden": 2048},
            "layers 4, width 2,048",
        ),
        ("m.yml", launches.MAXTEXT + "base_num_decoder_layers: 4\n", "llama3-8b", {}, ""),
    ],
)
def test_what_is_stated_over_a_named_model_counts(
    name: str, text: str, preset: str, sizes: Mapping[str, Any], said: str
) -> None:
    controls = Controls(gpus=None if name == "m.yml" else 64, device="h100")
    model, own = question(name, text, controls).job.model, load_model(preset)
    same = {name: getattr(model, name) for name in ("title", "vocab", "published_params", "published_active_params")}
    assert model == replace(own, **same, **sizes)
    assert model.title == ", ".join(filter(None, (own.title, said)))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (MIXTURE + "      num_experts: 16\n      moe_router_topk: 4\n", {"count": 16, "top_k": 4}),
        (MIXTURE + "      ffn_hidden_size: 7168\n", {"ffn_hidden": 7168}),
        (DEEPSEEK + "      moe_layer_freq: 1\n", {"first_dense_layers": 0}),
    ],
)
def test_sizes_of_experts_count_too(text: str, sizes: Mapping[str, int]) -> None:
    model = question("p.yaml", text, Controls(gpus=64, device="mi300x")).job.model
    assert {name: getattr(model.experts, name) for name in sizes} == sizes
    assert model.title != load_model(model.name).title


def test_experts_that_the_named_model_has_not() -> None:
    model = question("p.yaml", PRIMUS + "      num_experts: 8\n", Controls(gpus=64, device="mi300x")).job.model
    assert model.experts is not None
    assert (model.experts.count, model.experts.top_k, model.experts.ffn_hidden) == (8, 2, 14336)
    assert model.title.endswith(", experts 8")


def test_a_model_that_the_user_names_is_as_its_preset_has_it() -> None:
    controls = Controls(gpus=64, device="mi300x", model="llama3-70b")
    assert question("p.yaml", PRIMUS + "      num_layers: 4\n", controls).job.model == load_model("llama3-70b")


def test_sizes_that_no_model_can_have_together_are_refused() -> None:
    with pytest.raises(InvalidFile, match="kv_heads = 5 does not divide heads = 32"):
        question("p.yaml", PRIMUS + "      num_query_groups: 5\n", Controls(gpus=64, device="mi300x"))
