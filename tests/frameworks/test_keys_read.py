"""What a key of each config says by itself, and what is noted of one that says nothing priced: by hand, key by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from optimizer.frameworks.gpt_neox import config as gpt_neox
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.litgpt import config as litgpt
from optimizer.frameworks.llm_foundry import config as llm_foundry
from optimizer.frameworks.nanotron import config as nanotron
from optimizer.frameworks.picotron import config as picotron
from optimizer.frameworks.torchtune import config as torchtune

Row = tuple[Mapping[str, Any], Mapping[str, Any], list[str]]


def told(read: Callable[[Launch, Mapping[str, Any]], None], values: Mapping[str, Any], gpus: int = 0) -> Launch:
    launch = Launch(program="any", settings={"gpus": gpus} if gpus else {})
    read(launch, values)
    return launch


def holds(launch: Launch, said: Mapping[str, Any], notes: list[str]) -> None:
    assert {name: launch.settings.get(name) for name in said} == said
    assert [*launch.problems, *launch.unpriced, *launch.unsearched, *launch.assumed] == notes


SIZED = {"pipe-parallel-size": 1, "hidden_size": 1024, "num_layers": 2}
NEOX: list[Row] = [
    ({}, {"pp": 1, "zero_stage": 0, "vocab": 50304, "attention": "unfused", "ffn_hidden": 4096}, []),
    ({}, {"gated_mlp": False, "activation": "gelu", "norm": "layer", "position": "learned", "recompute": "none"}, []),
    ({}, {"tied_embeddings": True, "mlp_bias": True, "attention_bias": True, "parallel_block": False}, []),
    ({"pipe-parallel-size": 2}, {"pp": 2}, []),
    ({"pipe-parallel-size": "x"}, {"pp": 1}, []),
    ({"fp16": {}, "fp16.enabled": True}, {"dtype": "fp16", "zero_stage": 0}, []),
    ({"bf16.enabled": True, "zero_optimization.stage": 2}, {"dtype": "bf16", "zero_stage": 2}, []),
    ({"bf16.enabled": False}, {"dtype": None, "zero_stage": 0}, []),
    ({"num_nodes": -1, "num_gpus": -1}, {"nodes": None, "gpus_per_node": None}, []),
    ({"num_nodes": 2, "num_gpus": 4}, {"nodes": 2, "gpus_per_node": 4}, []),
    ({"num_nodes": 0}, {}, ["num_nodes must be from 1 to 1,000,000,000, but got 0"]),
    ({"train_micro_batch_size_per_gpu": 4}, {"micro_batch": 4, "num_microbatches": 1}, []),
    ({"train_micro_batch_size_per_gpu": 4, "train_batch_size": 64}, {"global_batch": 64, "num_microbatches": None}, []),
    ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, {"num_microbatches": 3}, []),
    ({"norm": "rmsnorm"}, {"norm": "rms"}, []),
    ({"norm": "layernorm"}, {"norm": "layer"}, []),
    ({"pos_emb": "rotary"}, {"position": "rope"}, []),
    ({"pos_emb": "sinusoidal"}, {"position": "none"}, ["pos_emb sinusoidal"]),
    ({"no_weight_tying": True}, {"tied_embeddings": False}, []),
    ({"use_bias_in_mlp": False, "use_bias_in_attn_linear": False}, {"mlp_bias": False, "attention_bias": False}, []),
    ({"zero_optimization.reduce_bucket_size": 5e7}, {"bucket": 1e8}, []),
    ({"zero_optimization.reduce_bucket_size": "auto"}, {"bucket": None}, []),
    ({"data_types.grad_accum_dtype": "fp32"}, {"grad_bytes": 4}, []),
    ({"data_types.grad_accum_dtype": "bf16"}, {"grad_bytes": 2}, []),
    ({"fp32_allreduce": True}, {"grad_bytes": 4}, []),
    ({"fp32_allreduce": False}, {"grad_bytes": None}, []),
    ({"intermediate_size": "4x"}, {"ffn_hidden": None}, ["intermediate_size must be a whole number, but got '4x'"]),
    ({"intermediate_size": 3000}, {"ffn_hidden": 3000}, []),
    ({"mlp_type": "regular"}, {"ffn_hidden": 4096, "gated_mlp": False}, []),
    ({"mlp_type": "moe"}, {"ffn_hidden": 4096}, ["mlp_type moe"]),
    # 2/3 of 4,096 is 2,730.7, and the next multiple of 256 is 2,816.
    ({"mlp_type": "llama"}, {"ffn_hidden": 2816, "gated_mlp": True, "activation": "swiglu"}, []),
    ({"mlp_type": "llama", "hidden_size": 768}, {"ffn_hidden": 2048}, []),
    ({"mlp_type": "gated"}, {"ffn_hidden": 2731, "gated_mlp": True}, []),
    ({"mlp_type": "gated", "mlp_multiple_of": 256}, {"ffn_hidden": 2816}, []),
    (
        {"activation": "geglu"},
        {"ffn_hidden": 1365, "gated_mlp": True},
        ["a gated MLP is 1,365 wide, a third of intermediate_size, as since 2024"],
    ),
    (
        {"activation": "swiglu", "mlp_multiple_of": 256},
        {"ffn_hidden": 1536},
        ["a gated MLP is 1,536 wide, a third of intermediate_size, as since 2024"],
    ),
    ({"tokenizer_type": "HFTokenizer"}, {"vocab": 50432}, []),
    ({"tokenizer_type": "HFTokenizer", "vocab_file": "mine.json"}, {"vocab": None}, []),
    ({"tokenizer_type": "GPT2BPETokenizer", "vocab_file": "mine.json"}, {"vocab": 50304}, []),
    ({"tokenizer_type": "CharLevelTokenizer"}, {"vocab": None}, []),
    ({"padded_vocab_size": 1000}, {"vocab": 1000}, []),
    ({"attention_config": [[["flash"], "all"]]}, {"attention": "flash"}, []),
    ({"attention_config": ["flash", [], ["global", 2]]}, {"attention": "unfused"}, []),
    (
        {"attention_config": [[["local", "bigbird", "flash"], 2]]},
        {"attention": None},
        ["attention_config bigbird, local"],
    ),
    (
        {"attention_config": [[["rwkv"], 2], [["flash"], 1]]},
        {},
        ["attention_config has rwkv: only layers with attention are priced"],
    ),
    ({"partition_activations": True, "checkpoint_activations": True}, {"recompute": "full"}, []),
    (
        {"partition_activations": True, "checkpoint_activations": True, "model_parallel_size": 2},
        {"tp": 2},
        ["partition_activations"],
    ),
    ({"partition_activations": True, "model_parallel_size": 2}, {"recompute": "none"}, []),
    ({"train_iters": 10, "train_batch_size": 64, "seq_length": 128}, {"tokens": 10 * 64 * 128}, []),
]


@pytest.mark.parametrize(("values", "said", "notes"), NEOX)
def test_gpt_neox(values: Mapping[str, Any], said: Mapping[str, Any], notes: list[str]) -> None:
    launch = told(gpt_neox.read, {**SIZED, **values})
    if "dtype" not in launch.settings:
        launch.unpriced.remove("fp32, as GPT-NeoX has it where no key names a number format")
    holds(launch, said, notes)


def test_gpt_neox_with_bf16_shards_the_optimizer() -> None:
    launch = told(gpt_neox.read, {**SIZED, "bf16.enabled": True})
    assert launch.settings["zero_stage"] == 1
    assert [each.partition(":")[0] for each in launch.assumed] == ["no ZeRO with bf16 shards as ZeRO-1"]


def test_keys_of_gpt_neox_are_named_as_the_file_spells_them() -> None:
    launch = told(gpt_neox.read, {**SIZED, "num-nodes": 2, "log-dir": "x", "train-batch-size": 8})
    spelt = {"pp": "pipe-parallel-size", "nodes": "num-nodes", "hidden": "hidden_size"}
    assert {name: launch.written[name] for name in spelt} == spelt
    assert (launch.ignored, "ffn_hidden" in launch.written) == (["log-dir"], False)


MPT = {"global_train_batch_size": 256, "device_train_microbatch_size": 4, "max_seq_len": 2048, "model.d_model": 1024}
IMPLEMENTATION, ALIBI = "model.attn_config.attn_impl", "model.attn_config.alibi"
STRATEGY, PRETRAINED = "fsdp_config.sharding_strategy", "model.pretrained_model_name_or_path"
FOUNDRY: list[Row] = [
    ({}, {"zero_stage": 0, "recompute": "none", "activation_offload": None, "ffn_hidden": 4096, "shard": None}, []),
    ({}, {"gated_mlp": False, "activation": "gelu", "tied_embeddings": True, "position": "learned"}, []),
    ({}, {"mlp_bias": False, "max_seq_len": 2048, "attention": None, "packing": None, "tokens": None}, []),
    ({STRATEGY: "shard_grad_op"}, {"zero_stage": 2}, []),
    (
        {STRATEGY: "HYBRID_SHARD"},
        {"zero_stage": 3, "shard": 8, "hybrid": True},
        [f"{STRATEGY} HYBRID_SHARD: weights are shared by the GPUs of a node"],
    ),
    ({"fsdp_config.activation_checkpointing": True}, {"recompute": "full"}, []),
    ({"fsdp_config.activation_cpu_offload": True}, {"activation_offload": 100}, []),
    ({"precision": "amp_bf16"}, {"dtype": "bf16"}, []),
    ({"precision": "fp32"}, {"dtype": None}, ["precision fp32"]),
    ({"train_loader.name": "finetuning"}, {"packing": False}, []),
    ({"train_loader.name": "finetuning", "train_loader.dataset.packing_ratio": "auto"}, {"packing": True}, []),
    ({"train_loader.name": "text", "train_loader.dataset.packing_ratio": 2.0}, {"packing": None}, []),
    ({IMPLEMENTATION: "flash"}, {"attention": "flash"}, []),
    ({IMPLEMENTATION: "triton"}, {"attention": "flash"}, []),
    ({IMPLEMENTATION: "torch"}, {"attention": "unfused"}, []),
    (
        {"device_train_microbatch_size": "auto"},
        {"micro_batch": None},
        ["device_train_microbatch_size auto: micro-batches of 1; the edits say what fits"],
    ),
    ({"max_duration": "20_000_000tok"}, {"tokens": 20_000_000}, []),
    ({"max_duration": "10ba"}, {"tokens": 10 * 256 * 2048}, []),
    ({"max_duration": "1ep"}, {"tokens": None}, []),
    ({"max_duration": "tok"}, {"tokens": None}, []),
    ({"model.expansion_ratio": 2.5}, {"ffn_hidden": 2560}, []),
    ({"model.expansion_ratio": 2, "model.ffn_config.ffn_hidden_size": 3000}, {"ffn_hidden": 3000}, []),
    ({"model.expansion_ratio": 0}, {"ffn_hidden": None}, ["model.expansion_ratio must be a number above 0, but got 0"]),
    (
        {"model.expansion_ratio": 1000},
        {"ffn_hidden": None},
        ["model.expansion_ratio must be a number above 0, but got 1000"],
    ),
    ({"model.expansion_ratio": 0.5}, {"ffn_hidden": 512}, []),
    ({"model.expansion_ratio": "4"}, {}, ["model.expansion_ratio must be a number above 0, but got '4'"]),
    ({"model.ffn_config.ffn_type": "mptglu"}, {"gated_mlp": True, "activation": "swiglu"}, []),
    ({"model.tie_word_embeddings": False, "model.no_bias": False}, {"tied_embeddings": False, "mlp_bias": True}, []),
    ({ALIBI: True}, {"position": "alibi"}, []),
    ({ALIBI: False, "model.attn_config.rope": True}, {"position": "rope"}, []),
    ({PRETRAINED: "mosaicml/mpt-7b"}, {"model": "mpt-7b", "ffn_hidden": None, "position": None}, []),
    ({PRETRAINED: "own/x"}, {"model": None}, [f"{PRETRAINED} own/x is no model that is known (--model)"]),
    ({"model.name": "mpt_causal_lm"}, {"hidden": 1024, "ffn_hidden": 4096}, []),
    (
        {"model.name": "mine"},
        {"hidden": None, "seq_len": 2048, "ffn_hidden": None},
        ["model.name mine is no model that is known (--model)"],
    ),
]


@pytest.mark.parametrize(("values", "said", "notes"), FOUNDRY)
def test_llm_foundry(values: Mapping[str, Any], said: Mapping[str, Any], notes: list[str]) -> None:
    launch = told(llm_foundry.read, {**MPT, **values})
    if any(path.startswith("fsdp_config") for path in values):
        launch.unpriced.remove("fsdp_config.mixed_precision DEFAULT, where no key says it: priced as PURE")
    holds(launch, said, notes)


@pytest.mark.parametrize(("gpus", "micro_batch"), [(64, 4), (65, 3), (128, 2), (256, 1), (257, 4)])
def test_a_micro_batch_of_llm_foundry_is_no_more_than_a_gpu_has(gpus: int, micro_batch: int) -> None:
    launch = told(llm_foundry.read, MPT, gpus)
    few = f"{llm_foundry.MICRO} 4: a GPU has {micro_batch} sequences a step, so micro-batches of {micro_batch}"
    assert launch.settings["micro_batch"] == micro_batch
    assert launch.assumed == ([few] if micro_batch < 4 else [])


PICO = {"distributed.tp_size": 2, "training.seq_length": 1024, "model.name": "meta-llama/Llama-3.1-8B"}
COUNTED = {"distributed.dp_size": 4, "training.micro_batch_size": 2, "training.gradient_accumulation_steps": 8}
PICOTRON: list[Row] = [
    (
        {},
        {"tp": 2, "seq_len": 1024, "max_seq_len": 1024, "model": "llama3.1-8b", "attention": None, "tokens": None},
        [],
    ),
    ({"distributed.pp_engine": "1f1b"}, {}, []),
    (
        {"distributed.pp_engine": "afab"},
        {},
        ["distributed.pp_engine afab is priced as 1f1b, which holds fewer activations"],
    ),
    ({"model.use_flash_attention": True}, {"attention": "flash"}, []),
    ({"model.use_flash_attention": False}, {"attention": "unfused"}, []),
    ({"training.max_tokens": 5000, **COUNTED}, {"tokens": 5000}, []),
    ({"training.total_train_steps": 10, "training.max_tokens": None, **COUNTED}, {"tokens": 10 * 4 * 2 * 8 * 1024}, []),
    ({"model.name": "x/y"}, {"model": None}, ["model.name x/y is no model that is known (--model)"]),
]


@pytest.mark.parametrize(("values", "said", "notes"), PICOTRON)
def test_picotron(values: Mapping[str, Any], said: Mapping[str, Any], notes: list[str]) -> None:
    launch = told(picotron.read, {**PICO, **values})
    holds(launch, said, notes)
    assert launch.ignored == []


NANO = {"parallelism.dp": 8, "tokens.sequence_length": 2048}
MODEL = "model.model_config."
GPT = "model.model_config, of a class that is not nanotron's: read as a GPT"
NANOTRON: list[Row] = [
    ({}, {"dp": 8, "recompute": "none", "sequence_parallel": False, "bucket": 50e6, "position": "rope"}, []),
    ({}, {"gated_mlp": True, "activation": "swiglu", "norm": "rms", "tp_overlap": None, "grad_bytes": None}, []),
    ({"parallelism.tp_mode": "reduce_scatter"}, {"sequence_parallel": True}, []),
    ({"parallelism.recompute_layer": True}, {"recompute": "full"}, []),
    ({"optimizer.accumulate_grad_in_fp32": True}, {"grad_bytes": 4}, []),
    ({"optimizer.accumulate_grad_in_fp32": False}, {"grad_bytes": 2}, []),
    ({"parallelism.tp_recompute_allgather": False}, {"keeps_gathered": True}, []),
    ({"parallelism.tp_recompute_allgather": True}, {"keeps_gathered": False}, []),
    ({"parallelism.tp_linear_async_communication": False}, {"tp_overlap": False}, []),
    ({"parallelism.tp_linear_async_communication": True}, {"tp_overlap": None}, []),
    ({"model.ddp_bucket_cap_mb": 10}, {"bucket": 20e6}, []),
    ({"model.ddp_bucket_cap_mb": "x"}, {"bucket": None}, []),
    ({"parallelism.pp_engine": "afab"}, {}, []),
    ({"parallelism.pp_engine": "afab", "parallelism.pp": 2}, {}, ["parallelism.pp_engine afab is priced as 1f1b"]),
    ({"parallelism.pp_engine": "1f1b"}, {}, []),
    ({"parallelism.expert_parallel_size": 2}, {"ep": 2, "dp": 8}, []),
    (
        {f"{MODEL}moe_num_experts": 4, "parallelism.expert_parallel_size": 2},
        {"ep": 2, "dp": 16, "experts": 4},
        ["16 replicas, those that share experts included, as before 2025"],
    ),
    ({f"{MODEL}moe_num_experts": 4, "parallelism.expert_parallel_size": 1}, {"dp": 8}, []),
    ({f"{MODEL}is_starcoder2_config": True}, {"kv_heads": 1, "gated_mlp": False, "tied_embeddings": True}, []),
    (
        {f"{MODEL}is_starcoder2_config": True, f"{MODEL}multi_query": True, f"{MODEL}num_kv_heads": 4},
        {"kv_heads": 1},
        [],
    ),
    (
        {f"{MODEL}is_starcoder2_config": True, f"{MODEL}grouped_query": True, f"{MODEL}num_kv_heads": 4},
        {"kv_heads": 4, "norm": "layer", "mlp_bias": True, "attention_bias": True, "position": "rope"},
        [],
    ),
    ({f"{MODEL}is_starcoder2_config": True, f"{MODEL}grouped_query": True}, {"kv_heads": None}, []),
    ({f"{MODEL}activation_function": "gelu"}, {"position": "learned", "gated_mlp": False}, [GPT]),
]


@pytest.mark.parametrize(("values", "said", "notes"), NANOTRON)
def test_nanotron(values: Mapping[str, Any], said: Mapping[str, Any], notes: list[str]) -> None:
    holds(told(nanotron.read, {**NANO, **values}), said, notes)


LIT = {
    **{"train.micro_batch_size": 4, "train.max_seq_length": 512, "train.global_batch_size": 64},
    "precision": "bf16-true",
}
COMPILED = "torch.compile of the whole model, litgpt's own where it pretrains"
MIXED = "precision bf16-mixed: litgpt's own where nothing says otherwise"
PRETRAINS, TUNES = (
    {**LIT, "litgpt": "pretrain"},
    {**LIT, "litgpt": "finetune", "checkpoint_dir": "meta-llama/Llama-2-7b-hf"},
)
ALONE = {**TUNES, "devices": 1, "num_nodes": 1}
DROPS = "lora_dropout 0.05, its program's default: no key says it"
LITGPT: list[tuple[Mapping[str, Any], int, Mapping[str, Any], list[str]]] = [
    (PRETRAINS, 8, {"zero_stage": 3, "recompute": "none", "fsdp": True, "train": None, "packing": None}, [COMPILED]),
    (PRETRAINS, 1, {"zero_stage": 0, "recompute": "none"}, [COMPILED]),
    ({**PRETRAINS, "devices": 4, "num_nodes": 2}, 0,
     {"nodes": 2, "gpus_per_node": 4, "shard": 4, "zero_stage": 3}, [COMPILED]),
    ({**PRETRAINS, "devices": 4, "num_nodes": 1}, 0, {"nodes": 1, "shard": None}, [COMPILED]),
    # The user's number of GPUs counts over that of the files.
    ({**PRETRAINS, "devices": 4, "num_nodes": 2}, 16,
     {"nodes": None, "gpus_per_node": None, "shard": None}, [COMPILED]),
    ({**TUNES, "devices": 4, "num_nodes": 2}, 0, {"shard": None, "recompute": "full", "packing": False}, []),
    (
        {**TUNES, "devices": 1, "num_nodes": 1, "lora_r": 16},
        0,
        {"zero_stage": 0, "recompute": "none", "train": "lora:16:q+v", "model": "llama2-7b"},
        [],
    ),
    (
        {"litgpt": "pretrain", "train.max_seq_length": 512, "devices": 8},
        0,
        {"micro_batch": 4, "global_batch": 512},
        [COMPILED, "train.micro_batch_size 4, train.global_batch_size 512: litgpt's own", MIXED],
    ),
    (
        {"litgpt": "finetune_full", "train.max_seq_length": 512},
        8,
        {"micro_batch": 1, "global_batch": 16, "nodes": None, "gpus_per_node": None, "train": None},
        [
            "train.micro_batch_size 1, train.global_batch_size 16, num_nodes 1, devices 1: litgpt's own, where 8 GPUs "
            "are priced",
            MIXED,
        ],
    ),
    (
        {**LIT, "devices": 2},
        0,
        {"nodes": 1, "gpus_per_node": 2, "zero_stage": 3, "recompute": "none"},
        [COMPILED, "num_nodes 1: litgpt's own"],
    ),
    (LIT, 8, {"nodes": None}, [COMPILED]),
    ({**PRETRAINS, "precision": "bf16-true"}, 8, {"dtype": "bf16", "grad_bytes": 2, "optimizer_bytes": 4}, [COMPILED]),
    ({**PRETRAINS, "precision": "bf16-mixed"}, 8,
     {"dtype": "bf16", "grad_bytes": 4, "optimizer_bytes": 12, "param_bytes": 0}, [COMPILED]),
    ({**ALONE, "litgpt": "finetune_full", "precision": None}, 1, {"grad_bytes": 4, "param_bytes": None}, [MIXED]),
    ({**ALONE, "lora_r": 8, "precision": "16-mixed"}, 1, {"grad_bytes": None},
     ["precision 16-mixed: what is frozen has 32 bits"]),
    ({**PRETRAINS, "precision": "32-true"}, 8, {"dtype": None, "grad_bytes": None}, ["precision 32-true", COMPILED]),
    ({**PRETRAINS, "train.max_tokens": 3000}, 8, {"tokens": 3000}, [COMPILED]),
    ({**PRETRAINS, "model_name": "own"}, 8, {"model": None},
     [COMPILED, "model_name own is no model that is known (--model)"]),
    ({**PRETRAINS, "optimizer.class_path": "torch.optim.SGD"}, 8, {"optimizer": "sgd"}, [COMPILED]),
    ({**LIT, "checkpoint_dir": "llama2-7b", "lora_r": 4, "lora_mlp": True, "lora_query": False}, 8,
     {"train": "lora:4:v+gate+up+down"}, []),
    ({**LIT, "checkpoint_dir": "llama2-7b", "lora_r": 4, "lora_dropout": 0.0}, 8, {"train": "lora:4:q+v"}, []),
    ({**LIT, "checkpoint_dir": "llama2-7b", "lora_r": None}, 8, {"train": "lora:8:q+v"}, []),
    ({**LIT, "checkpoint_dir": "llama2-7b", "lora_r": 4, "lora_query": False, "lora_value": False}, 8,
     {"train": "lora:4:q+v"}, []),
    ({**LIT, "checkpoint_dir": "llama2-7b", "lora_r": 4, "quantize": "bnb.nf4"}, 8,
     {"train": "qlora:4:q+v", "base": "nf4-single"}, []),
    ({**LIT, "checkpoint_dir": "llama2-7b"}, 8, {"train": None}, []),
    (
        {"litgpt": "chat"},
        8,
        {},
        ["litgpt chat: of its commands only pretrain, finetune, finetune_lora, finetune_full are priced"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("values", "gpus", "said", "notes"), LITGPT)
def test_litgpt(values: Mapping[str, Any], gpus: int, said: Mapping[str, Any], notes: list[str]) -> None:
    launch = told(litgpt.read, values, gpus)
    adapts = str(launch.settings.get("train", "")).startswith(("lora", "qlora"))
    drops = [DROPS] * (adapts and "lora_dropout" not in values)
    assert launch.settings.get("adapter_dropout", False) == bool(drops)
    launch.assumed = [each for each in launch.assumed if each not in drops]
    holds(launch, said, notes)


TUNE = {
    "model._component_": "torchtune.models.llama3_1.llama3_1_8b",
    "optimizer._component_": "torch.optim.AdamW",
    "loss._component_": "torchtune.modules.loss.LinearCrossEntropyLoss",
    "dtype": "bf16",
    "batch_size": 2,
}
COMPONENT, RESHARD = "model._component_", "fsdp_reshard_after_forward"
LORA = {COMPONENT: "torchtune.models.llama3_1.lora_llama3_1_8b"}
TORCHTUNE: list[Row] = [
    ({}, {"model": "llama3.1-8b", "micro_batch": 2, "num_microbatches": 1, "packing": False, "loss_chunks": 8}, []),
    ({}, {"zero_stage": 3, "recompute": "none", "fsdp": True, "grad_bytes": 2, "optimizer_bytes": 4}, []),
    ({}, {"sequence_parallel": False, "hosted_weights": None, "train": None}, []),
    ({"loss._component_": "torchtune.modules.loss.CrossEntropyLoss"}, {"loss_chunks": 1}, []),
    ({"loss._component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"}, {"loss_chunks": 8}, []),
    ({"loss.num_output_chunks": 3}, {"loss_chunks": 3}, []),
    ({RESHARD: False}, {"zero_stage": 2}, []),
    ({"dtype": "fp16"}, {"dtype": "fp16", "grad_bytes": None}, []),
    ({"fsdp_cpu_offload": True}, {"hosted_weights": True}, []),
    (
        {"fsdp_cpu_offload": True, RESHARD: False},
        {"hosted_weights": None},
        [f"fsdp_cpu_offload: weights are priced on the host where {RESHARD} is on"],
    ),
    ({"tensor_parallel_dim": 2}, {"tp": 2, "sequence_parallel": False}, []),
    ({"tensor_parallel_dim": 2, "data_parallel_shard_dim": 4}, {"sequence_parallel": True}, []),
    ({"data_parallel_shard_dim": 4}, {"sequence_parallel": False}, []),
    ({"dataset.packed": True}, {"packing": True}, []),
    ({"dataset": [{"packed": False}, {"packed": True}]}, {"packing": True}, []),
    ({"dataset": [{"packed": False}, "x"]}, {"packing": False}, []),
    (LORA, {"train": "lora:8:q_proj+v_proj", "base": None}, []),
    (
        {**LORA, "model.lora_rank": 16, "model.apply_lora_to_mlp": True},
        {"train": "lora:16:q_proj+v_proj+gate+up+down"},
        [],
    ),
    ({**LORA, "model.lora_attn_modules": "['output_proj', 'k_proj']"}, {"train": "lora:8:o_proj+k_proj"}, []),
    (
        {**LORA, "model.use_dora": True, "model.quantize_base": True},
        {"train": "dora:8:q_proj+v_proj", "base": "nf4"},
        [],
    ),
    ({**LORA, "model.quantize_base": True}, {"train": "qlora:8:q_proj+v_proj", "base": "nf4"}, []),
    ({**LORA, "model.quantize_base": False}, {"train": "lora:8:q_proj+v_proj", "base": None}, []),
    ({COMPONENT: "torchtune.models.llama3_1.qlora_llama3_1_8b"}, {"train": "qlora:8:q_proj+v_proj", "base": "nf4"}, []),
    (
        {COMPONENT: "torchtune.models.own.own_1b"},
        {"model": None},
        ["model._component_ own_1b is no model that is known (--model)"],
    ),
    ({"optimizer": "torch.optim.SGD"}, {"optimizer": "sgd"}, []),
    (
        {"teacher_model._component_": "x"},
        {},
        ["teacher_model._component_ x: of its recipes only supervised fine-tuning is priced"],
    ),
    (
        {"loss._component_": ""},
        {},
        ["loss._component_ is not there: of its recipes only supervised fine-tuning is priced"],
    ),
]


@pytest.mark.parametrize(("values", "said", "notes"), TORCHTUNE)
def test_torchtune(values: Mapping[str, Any], said: Mapping[str, Any], notes: list[str]) -> None:
    holds(told(torchtune.read, {**TUNE, **values}), said, notes)


def test_what_torchtune_cannot_be_told_stays() -> None:
    alone = told(torchtune.read, TUNE, 1)
    assert alone.settings["zero_stage"] == 0
    fixed = [told(torchtune.read, {**TUNE, **more}).fixed for more in ({}, {RESHARD: True})]
    assert [set(each) >= {"shard", "reduce_overlap", "gather_overlap", "bucket", "tp", "cp"} for each in fixed] == [
        True
    ] * 2
    assert ["zero_stage" in each for each in fixed] == [True, False]
    split = {**TUNE, "tensor_parallel_dim": 1, "tensor_parallel_plan._component_": "x"}
    assert "tp" not in told(torchtune.read, split).fixed
    assert "tp" in told(torchtune.read, {**TUNE, "tensor_parallel_dim": 1}).fixed
