"""What configs of torchtitan and MaxText say, key by key, with the key that says it."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.maxtext import config as maxtext
from optimizer.frameworks.torchtitan import config as torchtitan
from optimizer.job.job import Job
from optimizer.job.plan import Plan

P, T, OLD = "parallelism.", "training.", "experimental."
SHARD, REPLICATE = f"{P}data_parallel_shard_degree", f"{P}data_parallel_replicate_degree"
PIPED, SLICE = f"{P}pipeline_parallel_degree", f"{P}pipeline_parallel_microbatch_size"
TP, RESHARD = f"{P}tensor_parallel_degree", f"{P}fsdp_reshard_after_forward"
SIZES = {f"{T}seq_len": 4096, f"{T}local_batch_size": 2}
SPLIT = {"tp": 2, "sequence_parallel": True}
TITAN_USUAL = {
    **{"gpus": 8, "seq_len": 4096, "etp": 1, "zero_stage": 3, "sequence_parallel": False, "micro_batch": 2},
    **{"global_batch": 16, "recompute": "selective", "tp_overlap": False, "compiled": False, "dtype": "bf16"},
    "software": "torchtitan-2025",
}
EACH = f"{T}num_tokens_per_microbatch_per_dp_rank"
TOKENS = {f"{T}max_context_length": 1024, EACH: 4096}
IN_TOKENS = {name: value for name, value in TITAN_USUAL.items() if name != "software"} | {"seq_len": 1024}


def titan(values: dict[str, Any], gpus: int | None = 8, text: str = "") -> Launch:
    launch = Launch(program="torchtitan", settings={} if gpus is None else {"gpus": gpus})
    torchtitan.read(launch, values, text)
    return launch


@pytest.mark.parametrize(
    ("values", "gpus", "said"),
    [
        (SIZES, 8, {}),
        ({**SIZES, SHARD: 4, REPLICATE: 2}, 8, {"shard": 4}),
        (
            {**SIZES, SHARD: 4, TP: 2},
            8,
            {**SPLIT, "global_batch": 8},
        ),
        ({**SIZES, SHARD: 8}, 8, {}),
        ({**SIZES, SHARD: 1, REPLICATE: 8}, 8, {"zero_stage": 0}),
        (
            {**SIZES, SHARD: 1, REPLICATE: 8, RESHARD: "never"},
            8,
            {"zero_stage": 2, "shard": 1},
        ),
        ({**SIZES, RESHARD: "never"}, 8, {"zero_stage": 2}),
        (
            {**SIZES, RESHARD: "always", PIPED: 2},
            8,
            {"pp": 2, "micro_batch": 1, "global_batch": 8},
        ),
        ({**SIZES, PIPED: 2}, 8, {"pp": 2, "zero_stage": 1, "micro_batch": 1, "global_batch": 8}),
        (
            {**SIZES, f"{T}local_batch_size": 8, f"{T}global_batch_size": 64, PIPED: 2, SLICE: 2},
            8,
            {"pp": 2, "zero_stage": 1, "global_batch": 64},
        ),
        ({**SIZES, f"{T}global_batch_size": 64}, 8, {"global_batch": 64}),
        ({**SIZES, f"{T}global_batch_size": -1}, 8, {}),
        ({**SIZES, f"{P}context_parallel_degree": 2}, 8, {"cp": 2, "global_batch": 8}),
        (
            {**SIZES, TP: 2, f"{P}enable_sequence_parallel": False},
            8,
            {"tp": 2, "global_batch": 8},
        ),
        ({**SIZES, "activation_checkpoint.mode": "op"}, 8, {}),
        ({**SIZES, "activation_checkpoint.mode": "full"}, 8, {"recompute": "full"}),
        ({**SIZES, "compile.enable": True}, 8, {"compiled": True}),
        ({**SIZES, f"{P}enable_async_tensor_parallel": True}, 8, {"tp_overlap": True}),
        ({**SIZES, "model.converters": ["float8"]}, 8, {"dtype": "fp8"}),
        ({**SIZES, "model.converters": "float8"}, 8, {"dtype": "fp8"}),  # as releases of early 2025 took it
        ({**SIZES, f"{T}mixed_precision_reduce": "bfloat16"}, 8, {"grad_bytes": 2}),
        ({**SIZES, f"{T}dtype": "bfloat16"}, 8, {"optimizer_bytes": 4, "grad_bytes": 2}),
        ({**SIZES, f"{T}steps": 100}, 8, {"tokens": 100 * 16 * 4096}),
        (
            {**SIZES, TP: 2, "model.name": "llama3", "model.flavor": "8B"},
            8,
            {**SPLIT, "global_batch": 8, "model": "llama3.1-8b"},
        ),
    ],
)
def test_torchtitan_by_key(values: dict[str, Any], gpus: int, said: dict[str, Any]) -> None:
    launch = titan(values, gpus)
    assert launch.settings == TITAN_USUAL | said
    assert (launch.problems, launch.unpriced, launch.unsearched, launch.ignored) == ([], [], [], [])


def test_layers_that_torchtitan_recomputes_whole_are_told_and_a_patch_asks_for_operations() -> None:
    option, mode = "activation_checkpoint.selective_ac_option", "activation_checkpoint.mode"
    unsaid, whole, by_operation = (titan({**SIZES, **each}) for each in ({}, {option: "2"}, {option: "op"}))
    assert unsaid.assumed == [f"{option} 2 by default: priced as op"]
    assert (whole.unpriced, whole.assumed) == ([f"{option} 2: priced as op"], [])
    assert (by_operation.unpriced, by_operation.assumed) == ([], [])
    job = Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("torchtitan-2025"),
        gpus=8,
        seq_len=4096,
        global_batch=16,
    )
    before, after = Plan(dp=8, micro_batch=2, recompute="full"), Plan(dp=8, micro_batch=2, recompute="selective")
    edits = [torchtitan.write({**SIZES, mode: "full", **each}, job, before, after, {}) for each in ({}, {option: "op"})]
    assert [edit.get(option) for edit in edits] == ["op", None]


def test_gpus_of_torchtitan_are_those_of_its_degrees_or_of_a_comment() -> None:
    by_degrees = titan({**SIZES, SHARD: 4, REPLICATE: 2, TP: 2}, None).settings
    assert (by_degrees["dp"], by_degrees["shard"], by_degrees["global_batch"]) == (8, 4, 16)
    assert "gpus" not in by_degrees
    counted = titan(SIZES, None, "# for 64 H100 GPUs\nmodel = 8 GPUs\n")
    assert (counted.settings["gpus"], counted.settings["global_batch"]) == (64, 128)
    assert counted.assumed[0] == "64 GPUs, as a comment says (--gpus)"
    assert "gpus" not in titan(SIZES, None, "model = 8 GPUs\n").settings
    wrong = titan({**SIZES, SHARD: 4, TP: 2}, 16)
    assert wrong.problems == [f"{SHARD} and the degrees beside it are of 8 GPUs (--gpus 8)"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({f"{OLD}pipeline_parallel_degree": 2, f"{T}batch_size": 8}, (2, 4, 32)),  # as many slices as stages
        (
            {f"{OLD}pipeline_parallel_degree": 2, f"{T}batch_size": 8, f"{OLD}pipeline_parallel_microbatches": 4},
            (2, 2, 32),
        ),
        ({f"{T}data_parallel_degree": 8, f"{T}batch_size": 8}, (1, 8, 64)),
        ({f"{T}tensor_parallel_degree": 2, f"{T}batch_size": 8}, (1, 8, 32)),
    ],
)
def test_torchtitan_of_2024(values: dict[str, Any], said: tuple[int, int, int]) -> None:
    launch = titan({f"{T}seq_len": 4096, **values})
    settings = launch.settings
    assert (settings.get("pp", 1), settings["micro_batch"], settings["global_batch"]) == said
    assert (settings["software"], launch.problems, launch.ignored) == ("torchtitan-2024", [], [])


@pytest.mark.parametrize(
    ("values", "said", "unsearched"),
    [
        (TOKENS, {"micro_batch": 4, "global_batch": 32}, []),
        ({**TOKENS, f"{T}num_tokens_per_train_step": 65536}, {"micro_batch": 4, "global_batch": 64}, []),
        ({**TOKENS, f"{T}num_tokens_per_train_step": -1}, {"micro_batch": 4, "global_batch": 32}, []),
        (
            {**TOKENS, PIPED: 2, f"{P}num_pp_microbatches": 3},
            {"pp": 2, "zero_stage": 1, "micro_batch": 4, "global_batch": 48},
            [],
        ),
        ({**TOKENS, f"{P}num_pp_microbatches": 3}, {"micro_batch": 4, "global_batch": 32}, []),
        ({f"{T}max_context_length": 1024}, {"micro_batch": 16, "global_batch": 128}, []),  # 16,384 tokens
        (
            {f"{T}num_tokens_per_microbatch_per_dp_rank": 4096},
            {"seq_len": 2048, "micro_batch": 2, "global_batch": 16},
            [],
        ),
        (
            {**TOKENS, f"{T}max_context_length": 1000},
            {"seq_len": 1000, "micro_batch": 4, "global_batch": 32},
            ["training.num_tokens_per_microbatch_per_dp_rank: 4,096 tokens are priced as 4 whole sequences"],
        ),
    ],
)
def test_torchtitan_counts_batches_in_tokens(
    values: dict[str, Any], said: dict[str, Any], unsearched: list[str]
) -> None:
    launch = titan(values)
    assert launch.settings == IN_TOKENS | said
    assert (launch.unsearched, launch.problems, launch.ignored) == (unsearched, [], [])


@pytest.mark.parametrize(
    ("schedule", "parts", "said"),
    [
        ("1F1B", None, (1, None, [])),
        ("Interleaved1F1B", None, (2, None, [])),
        ("ZBVZeroBubble", None, (1, None, [f"{P}pipeline_parallel_schedule zbvzerobubble is priced as 1f1b"])),
        ("1F1B", [["layers.0"], ["layers.1"]], (1, None, [])),
        ("Interleaved1F1B", [["layers.0"]] * 8, (4, None, [])),
        ("1F1B", [["tok_embeddings", "layers.0"], ["layers.1", "layers.2", "norm"]], (1, (1, 2), [])),
        ("1F1B", [["layers.0"]] * 3, (1, None, [])),
    ],
)
def test_stages_of_torchtitan(schedule: str, parts: Any, said: tuple[int, Any, list[str]]) -> None:
    values = {**SIZES, PIPED: 2, f"{P}pipeline_parallel_schedule": schedule}
    launch = titan(values if parts is None else {**values, f"{P}module_fqns_per_model_part": parts})
    assert (launch.settings.get("vpp", 1), launch.settings.get("layers_per_stage"), launch.unsearched) == said


BATCH = "per_device_batch_size"
MAX_USUAL = {
    **{"gpus": 8, "seq_len": 2048, "recompute": "full", "dtype": "bf16", "tp": 1, "pp": 1, "ep": 1, "cp": 1},
    **{"sequence_parallel": False, "zero_stage": 3, "micro_batch": 4, "num_microbatches": 1},
}
FSDP = {"ici_fsdp_parallelism": 8, BATCH: 4}
SHAPE = {"base_emb_dim": 1024, "base_num_decoder_layers": 4, "base_num_query_heads": 8}
NAMED = {"model": "llama3-8b", "head_dim": 128}
SIZED = {"hidden": 1024, "layers": 4, "heads": 8}
BASE = {"ffn_hidden": 7168, "kv_heads": 16, "head_dim": 128, "vocab": 32_000}  # of base.yml
SAID = {**SIZED, **BASE, "norm": "rms", "position": "rope", "tied_embeddings": False}


TWO = {"ici_pipeline_parallelism": 2}
GATED = {"gated_mlp": True, "activation": "swiglu"}


def max_text(values: dict[str, Any], gpus: int | None = 8) -> Launch:
    launch = Launch(program="MaxText", settings={} if gpus is None else {"gpus": gpus})
    maxtext.read(launch, values)
    return launch


@pytest.mark.parametrize(
    ("values", "said", "unpriced"),
    [
        (FSDP, {}, []),
        ({}, {"micro_batch": 12}, []),
        ({**FSDP, "max_target_length": 4096}, {"seq_len": 4096}, []),
        ({"ici_fsdp_parallelism": -1, BATCH: 4}, {}, []),
        ({"ici_fsdp_parallelism": 4, "ici_tensor_parallelism": 2, BATCH: 4}, {**SPLIT, "micro_batch": 8}, []),
        ({"ici_fsdp_parallelism": 2, "dcn_fsdp_parallelism": 4, BATCH: 4}, {}, []),
        ({"dcn_data_parallelism": 2, "ici_fsdp_parallelism": 4, BATCH: 4}, {"shard": 4}, []),
        ({"dcn_data_parallelism": 2, "ici_fsdp_parallelism": -1, BATCH: 4}, {"shard": 4}, []),
        ({"ici_fsdp_parallelism": 4, BATCH: 4}, {"shard": 4}, []),  # data takes what is left
        ({"ici_fsdp_parallelism": 1, BATCH: 4}, {"zero_stage": 0}, []),
        ({"ici_fsdp_parallelism": 1, BATCH: 4, "shard_optimizer_over_data": True}, {"zero_stage": 1}, []),
        ({"ici_fsdp_parallelism": 1, BATCH: 4, "shard_optimizer_over_data": False}, {"zero_stage": 0}, []),
        ({**FSDP, "gradient_accumulation_steps": 3}, {"num_microbatches": 3}, []),
        ({"ici_context_parallelism": 2, "ici_fsdp_parallelism": 4, BATCH: 4}, {"cp": 2, "micro_batch": 8}, []),
        ({BATCH: 0.5, "ici_context_parallelism": 2, "ici_fsdp_parallelism": 4}, {"cp": 2, "micro_batch": 1}, []),
        ({**FSDP, "remat_policy": "minimal_flash"}, {"recompute": "none"}, []),
        ({**FSDP, "remat_policy": "custom"}, {"recompute": "selective"}, ["remat_policy custom"]),
        ({**FSDP, "remat_policy": "save_out_proj"}, {"recompute": "selective"}, ["remat_policy save_out_proj"]),
        ({**FSDP, "remat_policy": "save_qkv_proj"}, {"recompute": "selective", "selective_on_host": False}, []),
        ({**FSDP, "remat_policy": "qkv_proj_offloaded"}, {"recompute": "selective", "selective_on_host": True}, []),
        ({**FSDP, "remat_policy": "minimal"},
         {"recompute": "selective", "selective": "core", "selective_on_host": False}, []),
        ({**FSDP, "remat_policy": "save_dot_except_mlp"},
         {"recompute": "core_attn+mlp", "selective": "core", "selective_on_host": False}, []),
        ({**FSDP, "quantization": "fp8"}, {"dtype": "fp8", "fp8_recipe": "delayed"}, []),
        ({**FSDP, "dtype": "float32"}, {}, ["dtype float32"]),
        ({**FSDP, "model_name": "llama3-8b"}, NAMED, []),
        ({**FSDP, "model_name": "default"}, {}, []),
        ({"ici_fsdp_parallelism": 4, "ici_tensor_parallelism": 2, BATCH: 4, "model_name": "mixtral-8x7b"},
         {"model": "mixtral-8x7b", "head_dim": 128, "etp": 2, **SPLIT, "micro_batch": 8}, []),
        ({**FSDP, **SHAPE}, {**SAID, **GATED}, []),
        ({**FSDP, **SHAPE, "mlp_activations": ["gelu"]}, {**SAID, "gated_mlp": False, "activation": "gelu"}, []),
        ({**FSDP, **SHAPE, "vocab_size": 512}, {**SAID, **GATED, "vocab": 512}, []),
        ({**FSDP, **SHAPE, "decoder_block": "mine"}, {**SAID, **GATED}, ["decoder_block mine"]),
        ({**FSDP, **SHAPE, "model_name": "llama3-8b"}, NAMED, []),  # whose own sizes count
        ({**FSDP, **SHAPE, "model_name": "llama3-8b", "override_model_config": True}, {**NAMED, **SIZED}, []),
        ({**FSDP, "num_experts": 1}, {}, []),
    ],
)  # fmt: skip
def test_maxtext_by_key(values: dict[str, Any], said: dict[str, Any], unpriced: list[str]) -> None:
    launch = max_text(values)
    assert launch.settings == MAX_USUAL | said
    assert (launch.unpriced, launch.unsearched, launch.ignored, launch.problems) == (unpriced, [], [], [])


@pytest.mark.parametrize(
    ("values", "gpus", "micro_batch", "passes"),
    [
        ({**TWO, BATCH: 4, "num_pipeline_microbatches": 8}, 2, 1, 8),
        ({**TWO, BATCH: 4}, 2, 4, 2),  # as many as stages
        ({**TWO, BATCH: 4, "gradient_accumulation_steps": 3}, 2, 4, 6),
        (
            {"ici_pipeline_parallelism": 2, "ici_tensor_parallelism": 2, BATCH: 4, "num_pipeline_microbatches": True},
            4,
            8,
            2,
        ),
    ],
)
def test_a_pipeline_of_maxtext(values: dict[str, Any], gpus: int, micro_batch: int, passes: int) -> None:
    launch = max_text({"ici_fsdp_parallelism": 1, **values}, None)
    settings = launch.settings
    assert (settings["gpus"], settings["micro_batch"], settings["num_microbatches"]) == (gpus, micro_batch, passes)
    assert launch.unsearched == ["its circular pipeline is priced as 1f1b, a layer group a stage"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({BATCH: 0}, f"{BATCH} must be a number above 0, but got 0"),
        ({BATCH: True}, f"{BATCH} must be a number above 0, but got True"),
        ({BATCH: "x"}, f"{BATCH} must be a number above 0, but got 'x'"),
        ({"ici_tensor_parallelism": "x"}, "ici_tensor_parallelism must be a whole number, but got 'x'"),
    ],
)
def test_what_maxtext_cannot_mean_is_refused(values: dict[str, Any], problem: str) -> None:
    assert max_text(values).problems == [problem]
    assert max_text({"model_name": "unheard-of"}).unsearched == [
        "model_name unheard-of is no model that is known (--model)"
    ]
    assert max_text({"ici_tensor_parallelism": -1, BATCH: 4}).unpriced == ["ici_tensor_parallelism -1"]
