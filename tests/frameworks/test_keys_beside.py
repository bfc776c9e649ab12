"""What keys of torchtitan, MaxText, DeepSpeed and Accelerate change beside a small config, and which key is said to.

Each row: the keys, the GPUs that the user names, the settings that are otherwise (None: gone), the keys that are said
to state settings, and what is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from optimizer.frameworks.deepspeed import config as deepspeed
from optimizer.frameworks.deepspeed.defaults import KERNELS
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.llm_foundry import config as llm_foundry
from optimizer.frameworks.maxtext import config as maxtext
from optimizer.frameworks.torchtitan import config as torchtitan
from optimizer.job.plan import Plan
from tests.search.jobs import small_job

Keys = Mapping[str, Any]
Row = tuple[Keys, int | None, Keys, Mapping[str, str], list[str]]
Read = Callable[[Launch, Keys], None]


def launch_of(read: Read, values: Keys, gpus: int | None = 8) -> Launch:
    launch = Launch(program="any", settings={} if gpus is None else {"gpus": gpus})
    read(launch, values)
    return launch


def notes(launch: Launch) -> list[str]:
    return [*launch.problems, *launch.unpriced, *launch.unsearched, *launch.assumed]


P, T, COMPILE = "parallelism.", "training.", "compile."
DATA = f"{P}data_parallel_"
CUTOFF = "cutoff_len 2048: LLaMA-Factory's own where nothing says otherwise"
ACCUMULATED = "gradient_accumulation_steps 1: ms-swift's own for 8 GPUs"
DROPS = "lora_dropout 0.05, its program's default: no key says it"
SHORT = "sequence_len 512: Axolotl's own where nothing says otherwise"
SWITCHED = [SHORT, f"{', '.join(KERNELS)} true: Axolotl's own where nothing says otherwise"]
UNCAST = "embeddings, norms and the residual stream in fp32, as Axolotl has them without flash attention"
OF_BASE = (
    "base_emb_dim 2,048, base_mlp_dim 7,168, base_num_query_heads 16, base_num_kv_heads 16, "
    "head_dim 128, as base.yml has them"
)
OF_OTHERS = (
    "base_num_decoder_layers 16, base_mlp_dim 7,168, base_num_query_heads 16, base_num_kv_heads 16, "
    "head_dim 128, as base.yml has them"
)
VOCABULARY = "vocabulary of 32,000 tokens, as its base.yml has it (--model)"
SIZES = {"kv_heads": 16, "heads": 16, "head_dim": 128, "ffn_hidden": 7168}
LLAMA = {"norm": "rms", "position": "rope", "tied_embeddings": False, "gated_mlp": True, "activation": "swiglu"}
OF_TITAN = {f"{T}seq_len": 1024, f"{T}local_batch_size": 4}
TITAN: list[Row] = [
    ({f"{P}pipeline_parallel_degree": 2}, 8, {"pp": 2, "zero_stage": 1, "micro_batch": 1, "global_batch": 16},
     {"pp": f"{P}pipeline_parallel_degree", "micro_batch": f"{P}pipeline_parallel_microbatch_size"}, []),
    ({f"{P}pipeline_parallel_degree": 2, f"{P}pipeline_parallel_microbatch_size": 4}, 8,
     {"pp": 2, "zero_stage": 1, "global_batch": 16}, {"pp": f"{P}pipeline_parallel_degree"}, []),
    ({f"{T}global_batch_size": 1}, 8, {"global_batch": 1}, {"global_batch": f"{T}global_batch_size"}, []),
    ({f"{T}global_batch_size": 2}, 1, {"global_batch": 2}, {"global_batch": f"{T}global_batch_size"}, []),
    ({f"{DATA}shard_degree": 1}, 8, {"zero_stage": 0}, {"zero_stage": f"{DATA}shard_degree"},
     ["parallelism.data_parallel_shard_degree and the degrees beside it are of 1 GPUs (--gpus 1)"]),
    ({f"{DATA}shard_degree": -1, f"{DATA}replicate_degree": 2}, 8, {"shard": 4},
     {"zero_stage": f"{DATA}shard_degree", "shard": f"{DATA}replicate_degree"}, []),
    ({f"{DATA}shard_degree": 4, f"{P}tensor_parallel_degree": 2}, None,
     {"tp": 2, "dp": 4, "sequence_parallel": True, "global_batch": 16},
     {"tp": f"{P}tensor_parallel_degree", "dp": f"{DATA}shard_degree", "zero_stage": f"{DATA}shard_degree"}, []),
    ({f"{DATA}shard_degree": 2, f"{DATA}replicate_degree": 2, f"{P}context_parallel_degree": 2}, None,
     {"cp": 2, "dp": 4, "shard": 4, "global_batch": 16},
     {"cp": f"{P}context_parallel_degree", "dp": f"{DATA}shard_degree", "zero_stage": f"{DATA}shard_degree",
      "shard": f"{DATA}replicate_degree"}, []),
    ({f"{P}expert_parallel_degree": 2}, 8, {"ep": 2}, {"ep": f"{P}expert_parallel_degree"}, []),
    ({f"{P}expert_tensor_parallel_degree": 1}, 8, {}, {"etp": f"{P}expert_tensor_parallel_degree"}, []),
    ({"quantize.x": 1}, 8, {}, {}, []),
    ({"quantize.x": 1, "model.converters": ["float8"]}, 8, {"dtype": "fp8"}, {"dtype": "model.converters"}, []),
    ({"model.converters": ["nvfp4"]}, 8, {}, {}, ["model.converters nvfp4"]),
    ({f"{COMPILE}enable": True, f"{COMPILE}components": ["model"]}, 8, {"compiled": True, "compiled_loss": False},
     {"compiled": f"{COMPILE}components"}, []),
    ({f"{COMPILE}enable": True, f"{COMPILE}components": ["loss"]}, 8, {"compiled_loss": True},
     {"compiled": f"{COMPILE}components"}, []),
    ({f"{COMPILE}components": ["model"]}, 8, {}, {}, []),
    ({f"{COMPILE}enable": True, f"{COMPILE}components": ["model", "loss"]}, 8, {"compiled": True},
     {"compiled": f"{COMPILE}enable"}, []),
    ({"activation_checkpoint.mode": "full"}, 8, {"recompute": "full"}, {"recompute": "activation_checkpoint.mode"},
     []),
    ({"model.name": "qwen3", "model.flavor": "32B"}, 8, {"model": "qwen3-32b"}, {"model": "model.flavor"}, []),
    ({"model.name": "x"}, 8, {}, {}, ["model.name x  is no model that is known (--model)"]),
    ({"model.name": "llama3", "model.flavor": "9B"}, 8, {}, {},
     ["model.name llama3 9B is no model that is known (--model)"]),
    ({"hf_assets_path": "./assets/Llama-3.1-8B"}, 8, {"model": "llama3.1-8b"}, {"model": "hf_assets_path"}, []),
    ({"model.name": "deepseek_v3", "model.flavor": "671B"}, 8, {"model": "deepseek-v3"}, {"model": "model.flavor"},
     []),
    ({"model.name": "deepseek_v3", "model.flavor": "671B", f"{P}tensor_parallel_degree": 2}, 8,
     {"tp": 2, "etp": 2, "sequence_parallel": True, "global_batch": 16, "model": "deepseek-v3"},
     {"tp": f"{P}tensor_parallel_degree", "model": "model.flavor"}, []),
    ({"lr": 1}, 8, {}, {}, []),
]  # fmt: skip
OF_MAX = {"max_target_length": 1024, "per_device_batch_size": 2, "ici_fsdp_parallelism": 8}
MAX: list[Row] = [
    ({"ici_fsdp_parallelism": 4}, None, {"gpus": 4}, {"gpus": "ici_fsdp_parallelism"}, []),
    ({"ici_fsdp_parallelism": 4, "ici_tensor_parallelism": 2}, None,
     {"gpus": 8, "tp": 2, "sequence_parallel": True, "micro_batch": 4},
     {"tp": "ici_tensor_parallelism", "gpus": "ici_fsdp_parallelism"}, []),
    ({"ici_fsdp_parallelism": 4, "dcn_data_parallelism": 2}, None, {"gpus": 8, "shard": 4},
     {"gpus": "ici_fsdp_parallelism", "shard": "ici_fsdp_parallelism"}, []),
    ({"ici_fsdp_parallelism": 1}, None, {"zero_stage": 0}, {}, []),
    ({"ici_fsdp_parallelism": 4, "dcn_data_parallelism": 4}, 8, {"shard": 4}, {"shard": "ici_fsdp_parallelism"},
     ["the axes of its mesh take 16 GPUs, not 8: give --gpus accordingly"]),
    ({"ici_fsdp_parallelism": 3}, 8, {"shard": 3}, {"shard": "ici_fsdp_parallelism"},
     ["the axes of its mesh take a multiple of 3 GPUs, not 8: give --gpus accordingly"]),
    ({"ici_fsdp_parallelism": 16}, 8, {}, {},
     ["the axes of its mesh take a multiple of 16 GPUs, not 8: give --gpus accordingly"]),
    ({"ici_fsdp_parallelism": 2, "dcn_data_parallelism": 2}, 16, {"shard": 2}, {"shard": "ici_fsdp_parallelism"},
     ["the axes of its mesh take 4 GPUs, not 16: give --gpus accordingly"]),
    ({"ici_fsdp_parallelism": 2, "dcn_data_parallelism": -1}, 16, {"shard": 2}, {"shard": "ici_fsdp_parallelism"},
     []),
    ({"ici_fsdp_parallelism": -1, "dcn_data_parallelism": 2}, 16, {"shard": 8}, {"shard": "ici_fsdp_parallelism"},
     []),
    ({"ici_expert_parallelism": 2, "ici_fsdp_parallelism": 4, "num_experts": 4, "num_experts_per_tok": 2}, 8,
     {"experts": 4, "top_k": 2, "ep": 2, "etp": 1},
     {"experts": "num_experts", "top_k": "num_experts_per_tok", "ep": "ici_expert_parallelism"}, []),
    ({"ici_expert_parallelism": 2, "ici_fsdp_parallelism": 4, "num_experts": 4}, None,
     {"gpus": 8, "experts": 4, "ep": 2, "etp": 1},
     {"experts": "num_experts", "ep": "ici_expert_parallelism", "gpus": "ici_fsdp_parallelism"}, []),
    ({"num_experts": 1}, 8, {}, {}, []),
    ({"num_experts": 2}, 8, {"experts": 2, "etp": 1}, {"experts": "num_experts"}, []),
    ({"per_device_batch_size": 0.125}, 8, {"micro_batch": 1}, {},
      ["per_device_batch_size 0.125 is 0.125 sequences: expected a whole number"]),
    ({"per_device_batch_size": 1000000000}, 8,
     {"recompute": None, "dtype": None, "tp": None, "pp": None, "ep": None, "cp": None, "sequence_parallel": None,
      "zero_stage": None, "micro_batch": None, "num_microbatches": None}, {},
     ["per_device_batch_size must be a number above 0, but got 1000000000"]),
    ({"per_device_batch_size": 999999999}, 8, {"micro_batch": 999999999}, {}, []),
    ({"gradient_accumulation_steps": 2}, 8, {"num_microbatches": 2},
     {"num_microbatches": "gradient_accumulation_steps"}, []),
    ({"modules.pre_trainer.model": "x.yaml"}, 8, {}, {},
     ["modules.pre_trainer.model x.yaml is no model that is known (--model)"]),
    ({"modules.pre_trainer.model": "llama3.1_8B.yaml"}, 8, {"model": "llama3.1-8b", "head_dim": 128},
     {"model": "modules.pre_trainer.model"}, []),
    ({"remat_policy": "minimal_offloaded"}, 8, {"recompute": "selective"}, {"recompute": "remat_policy"},
     ["remat_policy minimal_offloaded"]),
    ({"vocab_size": 100, "base_num_decoder_layers": 2}, 8, {"layers": 2, "vocab": 100, **SIZES, "hidden": 2048,
      **LLAMA},
     {"layers": "base_num_decoder_layers", "vocab": "vocab_size"}, [OF_BASE]),
    ({"base_num_decoder_layers": 2}, 8, {"layers": 2, "vocab": 32000, **SIZES, "hidden": 2048, **LLAMA},
      {"layers": "base_num_decoder_layers"},
     [OF_BASE, VOCABULARY]),
    ({"logits_via_embedding": True}, 8, {"tied_embeddings": True}, {"tied_embeddings": "logits_via_embedding"}, []),
    ({"quantization": "int8"}, 8, {}, {}, []),
    ({"model_name": "llama3-8b", "base_emb_dim": 4}, 8, {"model": "llama3-8b", "head_dim": 128},
     {"model": "model_name"}, ["base_emb_dim 4 does not count: override_model_config is not true"]),
    ({"model_name": "llama3-8b", "base_emb_dim": 4, "override_model_config": True}, 8,
     {"hidden": 4, "model": "llama3-8b", "head_dim": 128}, {"hidden": "base_emb_dim", "model": "model_name"}, []),
    ({"num_pipeline_microbatches": 4}, 8, {}, {"num_microbatches": "num_pipeline_microbatches"}, []),
    ({"ici_pipeline_parallelism": 2, "ici_fsdp_parallelism": 4, "num_pipeline_microbatches": 1}, 8,
     {"pp": 2, "micro_batch": 4},
     {"pp": "ici_pipeline_parallelism", "num_microbatches": "num_pipeline_microbatches"},
     ["its circular pipeline is priced as 1f1b, a layer group a stage"]),
    ({"ici_pipeline_parallelism": 2, "ici_fsdp_parallelism": 4, "num_pipeline_microbatches": 0}, 8,
     {"pp": 2, "num_microbatches": 2},
     {"pp": "ici_pipeline_parallelism", "num_microbatches": "num_pipeline_microbatches"},
     ["its circular pipeline is priced as 1f1b, a layer group a stage"]),
    ({"shared_experts_x": 1}, 8, {}, {}, []),
    ({"dtype": "float32"}, 8, {}, {}, ["dtype float32"]),
    ({"mlp_activations": ["silu"], "base_emb_dim": 8}, 8,
     {**SIZES, **LLAMA, "hidden": 8, "gated_mlp": False, "activation": "gelu",
      "layers": 16, "vocab": 32000}, {"hidden": "base_emb_dim"}, [OF_OTHERS, VOCABULARY]),
    ({"mlp_activations": "silu", "base_emb_dim": 8}, 8,
     {**SIZES, **LLAMA, "hidden": 8, "gated_mlp": False, "activation": "gelu",
      "layers": 16, "vocab": 32000}, {"hidden": "base_emb_dim"}, [OF_OTHERS, VOCABULARY]),
    ({"ici_fsdp_parallelism": 4, "ici_context_parallelism": 2}, 8, {"cp": 2, "micro_batch": 4},
     {"cp": "ici_context_parallelism"}, []),
    ({"steps": 3}, 8, {}, {}, []),
]  # fmt: skip
Z, MESH, F = "zero_optimization.", "parallelism_config.", "fsdp_config.fsdp_"
OPTIMIZER = f"{Z}offload_optimizer."
OF_ENGINE = {"train_micro_batch_size_per_gpu": 2, f"{Z}stage": 2, "bf16.enabled": True}
SFT = {"stage": "sft", "finetuning_type": "full"}
FACTORY = {"recompute": "full", "software": "llama-factory", "seq_len": 2048, "optimizer": "adamw-fused"}
SWIFT = {"recompute": "full", "software": "ms-swift", "optimizer": "adamw-fused", "liger": "off", "packing": False}
STATES = {"optimizer_bytes": 12, "master_bytes": 4, "update_bytes": 0, "update_group": 1e9}
ENGINE: list[Row] = [
    ({f"{Z}stage": 0}, 8, {"zero_stage": 0, "reduce_overlap": None, "gather_overlap": None}, {}, []),
    ({f"{Z}stage": 3}, 8, {"zero_stage": 3, "reduce_overlap": True, "gather_overlap": True}, {}, []),
    ({f"{Z}stage": "x"}, 8, {"zero_stage": 0, "reduce_overlap": None, "gather_overlap": None}, {},
     ["zero_optimization.stage must be a whole number, but got 'x'"]),
    ({f"{Z}overlap_comm": True}, 8, {"reduce_overlap": True, "gather_overlap": True},
     {"reduce_overlap": f"{Z}overlap_comm"}, []),
    ({f"{Z}overlap_comm": "auto"}, 8, {}, {"reduce_overlap": f"{Z}overlap_comm"}, []),
    ({f"{Z}stage": 3, f"{Z}overlap_comm": False}, 8, {"zero_stage": 3}, {"reduce_overlap": f"{Z}overlap_comm"}, []),
    ({f"{Z}stage": 0, f"{Z}overlap_comm": True}, 8,
     {"zero_stage": 0, "reduce_overlap": None, "gather_overlap": None}, {}, []),
    ({f"{Z}reduce_bucket_size": 50000000.0}, 8, {"bucket": 100000000.0}, {"bucket": f"{Z}reduce_bucket_size"}, []),
    ({f"{Z}reduce_bucket_size": "auto"}, 8, {}, {}, []),
    ({f"{Z}reduce_bucket_size": True}, 8, {}, {}, []),
    ({f"{Z}reduce_bucket_size": 100}, 8, {"bucket": 200.0}, {"bucket": f"{Z}reduce_bucket_size"}, []),
    ({f"{OPTIMIZER}device": "cpu"}, 8, {"offload": 1.0}, {"offload": f"{OPTIMIZER}device"}, []),
    ({f"{OPTIMIZER}device": "none"}, 8, {}, {}, []),
    ({f"{OPTIMIZER}device": "nvme"}, 8, {"offload": 1.0}, {"offload": f"{OPTIMIZER}device"}, []),
    ({f"{OPTIMIZER}device": "cpu", f"{OPTIMIZER}ratio": 0.5}, 8, {"offload": 0.5}, {"offload": f"{OPTIMIZER}device"},
     []),
    ({f"{OPTIMIZER}device": "cpu", f"{OPTIMIZER}ratio": "x"}, 8, {"offload": 1.0}, {"offload": f"{OPTIMIZER}device"},
     []),
    ({f"{Z}stage": 3, f"{Z}offload_param.device": "cpu"}, 8,
     {"zero_stage": 3, "reduce_overlap": True, "gather_overlap": True}, {},
     ["zero_optimization.offload_param.device: weights are priced on the host "
      "under ZeRO-3 with the whole optimizer there"]),
    ({f"{Z}stage": 3, f"{Z}offload_param.device": "cpu", f"{OPTIMIZER}device": "cpu"}, 8,
     {"zero_stage": 3, "reduce_overlap": True, "gather_overlap": True, "offload": 1.0, "hosted_weights": True},
     {"offload": f"{OPTIMIZER}device", "hosted_weights": f"{Z}offload_param.device"}, []),
    ({f"{Z}offload_param.device": "nvme"}, 8, {}, {},
     ["zero_optimization.offload_param.device: weights are priced on the host "
      "under ZeRO-3 with the whole optimizer there"]),
    ({"train_batch_size": 64}, 8, {"global_batch": 64, "num_microbatches": None},
     {"global_batch": "train_batch_size"}, []),
    ({"gradient_accumulation_steps": 4}, 8, {"num_microbatches": 4}, {}, []),
    ({"per_device_train_batch_size": 4}, 8,
     {"software": "transformers", "optimizer": "adamw-fused", "packing": False, **STATES}, {},
     ["train_micro_batch_size_per_gpu 2 against per_device_train_batch_size 4"]),
    ({"gradient_accumulation_steps": "auto"}, 8, {}, {}, []),
    ({"communication_data_type": "fp32"}, 8, {"grad_bytes": 4}, {"grad_bytes": "communication_data_type"}, []),
    ({"communication_data_type": "fp16"}, 8, {"grad_bytes": 2}, {"grad_bytes": "communication_data_type"}, []),
    ({"communication_data_type": "x"}, 8, {}, {}, []),
    ({"mixed_precision": "fp8"}, 8, {"dtype": "fp8"}, {"dtype": "mixed_precision"}, []),
    ({"fp16.enabled": True, "bf16.enabled": False}, 8, {"dtype": "fp16"}, {"dtype": "fp16.enabled"}, []),
    ({"bf16.enabled": "auto"}, 8, {"dtype": None}, {}, []),
    ({"bf16.enabled": False}, 8, {"dtype": None}, {}, ["bf16.enabled false, and no format of 16 bits: priced as bf16"]),
    ({"bf16.enabled": False, "torch_dtype": "float16"}, 8, {"dtype": "fp16"}, {"dtype": "torch_dtype"}, []),
    ({"bf16": "full", "bf16.enabled": None}, 8, {}, {"dtype": "bf16"}, []),
    ({"max_steps": 0}, 8, {}, {}, []),
    ({"max_steps": 10}, 8, {"steps": 10}, {}, []),
    ({"num_train_epochs": 2, "max_samples": 100}, 8, {"samples": 200}, {},
     ["200 samples in the whole run, 100 an epoch at most (--tokens)"]),
    ({"num_train_epochs": 2}, 8, {}, {}, ["num_train_epochs 2 of how many samples is not told (--tokens)"]),
    ({"max_steps": -1, "num_train_epochs": 3}, 8, {}, {},
     ["num_train_epochs 3 of how many samples is not told (--tokens)"]),
    ({"max_steps": 1000000001}, 8, {}, {},
     ["max_steps, num_train_epochs and max_samples must be at most 1,000,000,000"]),
    ({"max_steps": 1000000000}, 8, {"steps": 1000000000}, {}, []),
    ({"gradient_checkpointing": True}, 8, {"recompute": "full"}, {"recompute": "gradient_checkpointing"}, []),
    ({"gradient_checkpointing": False}, 8, {"recompute": "none"}, {"recompute": "gradient_checkpointing"}, []),
    ({"gradient_checkpointing": "offload"}, 8, {"recompute": "full", "activation_offload": 100},
     {"recompute": "gradient_checkpointing", "activation_offload": "gradient_checkpointing"}, []),
    ({"stage": "sft", "finetuning_type": "lora", "lora_rank": 8, "lora_dropout": 0.1}, 8,
     {"recompute": "full", "train": "lora:8", "adapter_dropout": True, "software": "llama-factory", "seq_len": 2048,
      "optimizer": "adamw-fused", "packing": False, "liger": "off"},
     {"recompute": "disable_gradient_checkpointing", "train": "finetuning_type"}, [CUTOFF]),
    ({"stage": "pt", "finetuning_type": "full"}, 8, {**FACTORY, **STATES, "packing": True, "liger": "off"},
     {"recompute": "disable_gradient_checkpointing"}, [CUTOFF]),
    (SFT, 8, {**FACTORY, **STATES, "packing": False, "liger": "off"},
     {"recompute": "disable_gradient_checkpointing"}, [CUTOFF]),
    ({**SFT, "pure_bf16": True}, 8, {**FACTORY, **STATES, "packing": False, "liger": "off"},
     {"recompute": "disable_gradient_checkpointing"}, [CUTOFF]),
    ({**SFT, "disable_gradient_checkpointing": True}, 8,
     {"recompute": "none", "software": "llama-factory", "seq_len": 2048, "optimizer": "adamw-fused", **STATES,
      "packing": False, "liger": "off"}, {"recompute": "disable_gradient_checkpointing"}, [CUTOFF]),
    ({"use_liger_kernel": True}, 8, {"liger": "on"}, {"liger": "use_liger_kernel"}, []),
    ({**SFT, "enable_liger_kernel": True}, 8, {**FACTORY, **STATES, "packing": False, "liger": "on"},
     {"recompute": "disable_gradient_checkpointing", "liger": "enable_liger_kernel"}, [CUTOFF]),
    ({**SFT, "enable_liger_kernel": False}, 8, {**FACTORY, **STATES, "packing": False, "liger": "off"},
     {"recompute": "disable_gradient_checkpointing"}, [CUTOFF]),
    ({"model_name_or_path": "meta-llama/Llama-3.1-8B"}, 8, {"model": "llama3.1-8b"}, {"model": "model_name_or_path"},
     []),
    ({"model_name_or_path": "x/y"}, 8, {}, {}, ["model_name_or_path x/y is no model that is known (--model)"]),
    ({"swift": "swift sft"}, 8,
     {"recompute": "full", "train": "lora:8", "adapter_dropout": True, "software": "ms-swift",
      "optimizer": "adamw-fused", "packing": False, "liger": "off"}, {"recompute": "gradient_checkpointing"},
     [ACCUMULATED, "adapters of rank 8, its program's default: no key says it", DROPS]),
    ({"swift": "swift rlhf"}, 8,
     {"micro_batch": 4, "recompute": "full", "train": "lora:8", "adapter_dropout": True, "loss": "dpo",
      "software": "ms-swift", "optimizer": "adamw-fused", "packing": False, "liger": "off"},
     {"recompute": "gradient_checkpointing"},
     [ACCUMULATED, "adapters of rank 8, its program's default: no key says it", DROPS]),
    ({"swift": "swift sft", "tuner_type": "full"}, 8,
     {"recompute": "full", "software": "ms-swift", "optimizer": "adamw-fused", **STATES, "packing": False,
      "liger": "off"}, {"recompute": "gradient_checkpointing"}, [ACCUMULATED]),
    ({"cutoff_len": 512}, 8, {"seq_len": 512}, {"seq_len": "cutoff_len"}, []),
    ({"tensor_parallel_size": 2}, 8, {"tp": 2}, {"tp": "tensor_parallel_size"}, []),
    ({"deepspeed": "zero3_offload"}, 8,
     {"zero_stage": 3, "offload": 1.0, "reduce_overlap": True, "gather_overlap": True},
     {"zero_stage": "deepspeed", "offload": "deepspeed"}, []),
    ({"deepspeed": "zero2"}, 8, {}, {"zero_stage": "deepspeed"}, []),
    ({"deepspeed": "zero2", "swift": "swift sft", "tuner_type": "full"}, 8,
     {**SWIFT, **STATES, "bucket": 4e8}, {"zero_stage": "deepspeed", "recompute": "gradient_checkpointing"},
     [ACCUMULATED]),
    ({"deepspeed": "zero3", "swift": "swift pt"}, 8,
     {**SWIFT, "zero_stage": 3, "train": "lora:8", "adapter_dropout": True},
     {"zero_stage": "deepspeed", "recompute": "gradient_checkpointing"},
     [ACCUMULATED, "adapters of rank 8, its program's default: no key says it", DROPS]),
    ({f"{MESH}dp_shard_size": 4, f"{MESH}dp_replicate_size": 2}, 8, {"shard": 4},
     {"shard": f"{MESH}dp_replicate_size"}, []),
    ({f"{MESH}dp_shard_size": 2, f"{MESH}dp_replicate_size": 2}, 8, {"shard": 2},
     {"shard": f"{MESH}dp_replicate_size"},
     ["parallelism_config.dp_shard_size and the sizes beside it are of 4 GPUs (--gpus 4)"]),
    ({f"{MESH}dp_shard_size": 1, f"{MESH}dp_replicate_size": 8}, 8,
     {"zero_stage": 0, "reduce_overlap": None, "gather_overlap": None}, {"zero_stage": f"{MESH}dp_shard_size"}, []),
    ({f"{MESH}dp_shard_size": 2, f"{MESH}cp_size": 2, f"{MESH}tp_size": 2}, 8, {"tp": 2, "cp": 2},
     {"tp": f"{MESH}tp_size", "cp": f"{MESH}cp_size"}, []),
    ({f"{MESH}dp_shard_size": 4, f"{MESH}dp_replicate_size": 2, f"{MESH}tp_size": 2, f"{MESH}sp_size": 2}, None,
     {"tp": 2, "shard": 4, "gpus": 32}, {"tp": f"{MESH}tp_size", "shard": f"{MESH}dp_replicate_size"}, []),
]  # fmt: skip
OF_TRL = 'gradient_checkpointing true, max_length 1024, dtype "float32": TRL\'s own where nothing says otherwise'
FULLY = {"fsdp": True, "syncs_last": True}
TRL = {"recompute": "full", "seq_len": 1024}
OF_FSDP = {"per_device_train_batch_size": 2}
FSDP: list[Row] = [
    ({"fsdp": "full_shard auto_wrap"}, 8, {"zero_stage": 3, **FULLY, "hybrid": False}, {"zero_stage": "fsdp"}, []),
    ({"fsdp": "shard_grad_op"}, 8, {"zero_stage": 2, **FULLY, "hybrid": False}, {"zero_stage": "fsdp"}, []),
    ({"fsdp": ["no_shard"]}, 8, {**FULLY, "hybrid": False}, {"zero_stage": "fsdp"}, []),
    ({"fsdp": "full_shard offload"}, 8, {"zero_stage": 3, **FULLY, "hosted_weights": True, "hybrid": False},
     {"zero_stage": "fsdp", "hosted_weights": "fsdp"}, []),
    ({"fsdp": "false"}, 8, {}, {}, []),
    ({f"{F}sharding_strategy": "1"}, 8, {"zero_stage": 3, **FULLY, "hybrid": False},
      {"zero_stage": f"{F}sharding_strategy"},
     []),
    ({f"{F}sharding_strategy": 2}, 8, {"zero_stage": 2, **FULLY, "hybrid": False},
      {"zero_stage": f"{F}sharding_strategy"}, []),
    ({f"{F}sharding_strategy": "HYBRID_SHARD"}, 8, {"zero_stage": 3, **FULLY, "hybrid": True},
     {"zero_stage": f"{F}sharding_strategy"}, []),
    ({f"{F}sharding_strategy": "x"}, 8, {"zero_stage": 3, **FULLY, "hybrid": False},
      {"zero_stage": f"{F}sharding_strategy"},
     ["fsdp_config.fsdp_sharding_strategy x: priced as ZeRO-3"]),
    ({f"{F}reshard_after_forward": True}, 8, {"zero_stage": 3, **FULLY},
     {"zero_stage": f"{F}reshard_after_forward"}, []),
    ({f"{F}reshard_after_forward": False}, 8, {"zero_stage": 2, **FULLY},
     {"zero_stage": f"{F}reshard_after_forward"}, []),
    ({f"{F}reshard_after_forward": "SHARD_GRAD_OP"}, 8, {"zero_stage": 2, **FULLY},
     {"zero_stage": f"{F}reshard_after_forward"}, []),
    ({f"{F}reshard_after_forward": True, f"{F}offload_params": True}, 8,
     {"zero_stage": 3, **FULLY, "hosted_weights": True},
     {"zero_stage": f"{F}reshard_after_forward", "hosted_weights": f"{F}offload_params"}, []),
    ({"fsdp": "full_shard", "bf16": True, "use_peft": False}, 8,
     {"zero_stage": 3, **FULLY, "dtype": "bf16", **TRL, "software": "trl", "optimizer": "adamw-fused",
      "optimizer_bytes": 12, "master_bytes": 4, "grad_bytes": 4, "update_bytes": 4, "param_bytes": 0, "wire_bytes": 2,
      "packing": False, "liger": "off", "hybrid": False}, {"zero_stage": "fsdp", "dtype": "bf16"},
     [OF_TRL, "bf16 True: Accelerate's FSDP then holds what it trains in fp32",
      "objective not given: no key is of one of TRL's trainers alone; taken as sft"]),
    ({"fsdp": "full_shard", "bf16": False, "use_peft": False}, 8,
     {"zero_stage": 3, **FULLY, **TRL, "software": "trl", "optimizer": "adamw-fused", "packing": False, "liger": "off",
      "hybrid": False},
     {"zero_stage": "fsdp"}, ["bf16 false, and no format of 16 bits: priced as bf16", OF_TRL,
      "objective not given: no key is of one of TRL's trainers alone; taken as sft"]),
    ({"base_model": "llama3-8b", "fsdp": "full_shard", "bf16": True, "adapter": "lora", "lora_r": 8,
      "activation_offloading": True}, 8,
     {"zero_stage": 3, **FULLY, "model": "llama3-8b", "dtype": "bf16", "train": "lora:8", "software": "axolotl",
      "optimizer": "adamw-fused", "packing": False, "seq_len": 512, "hybrid": False, "fused_adapters": True},
     {"zero_stage": "fsdp", "model": "base_model", "dtype": "bf16", "train": "adapter"}, SWITCHED),
    ({"base_model": "llama3-8b", "bf16": True, "activation_offloading": True}, 8,
     {"activation_offload": 100, "model": "llama3-8b", "dtype": "bf16", "software": "axolotl",
      "optimizer": "adamw-fused", "packing": False},
     {"activation_offload": "activation_offloading", "model": "base_model", "dtype": "bf16"}, [UNCAST]),
    ({"base_model": "llama3-8b", "activation_offloading": "hidden_states"}, 8,
     {"activation_offload": 100, "model": "llama3-8b", "software": "axolotl", "optimizer": "adamw-fused",
      "packing": False}, {"activation_offload": "activation_offloading", "model": "base_model"}, [UNCAST]),
    ({"base_model": "llama3-8b", "attn_implementation": "flash_attention_2", "fsdp_config.offload_params": False}, 8,
     {"zero_stage": 3, **FULLY, "hybrid": None, "model": "llama3-8b", "software": "axolotl", "packing": False,
      "optimizer": "adamw-fused"},
     {"model": "base_model"},
     ["fsdp_config.reshard_after_forward true: Axolotl's own where nothing says otherwise"]),
    ({"base_model": "llama3-8b", "pretraining_dataset": "x"}, 8,
     {"model": "llama3-8b", "software": "axolotl", "packing": None, "seq_len": 512},
      {"model": "base_model"}, [UNCAST, SHORT]),
    ({"unsloth": True}, 8,
     {"num_microbatches": 4, "seq_len": 2048, "recompute": "full", "activation_offload": 100, "model": "llama3-8b",
      "packing": False, "optimizer": "adamw-8bit", "train": "lora:16", "software": "unsloth", "steps": 400},
     {"train": "unsloth"}, []),
]  # fmt: skip
# What every launch by a Trainer's program notes.
USUAL = ("optim adamw_torch_fused", "sequences of 2,048 tokens, LLaMA-Factory's default")
TABLES: dict[str, tuple[Read, Keys, list[Row]]] = {
    "torchtitan": (torchtitan.read, OF_TITAN, TITAN),
    "MaxText": (maxtext.read, OF_MAX, MAX),
    "DeepSpeed": (deepspeed.read, OF_ENGINE, ENGINE),
    "FSDP": (deepspeed.read, OF_FSDP, FSDP),
}


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, (_, _, rows) in TABLES.items() for row in rows])
def test_keys_beside_a_small_config(name: str, row: Row) -> None:
    read, base, _ = TABLES[name]
    keys, gpus, said, written, noted = row
    before, after = launch_of(read, base), launch_of(read, {**base, **keys}, gpus)
    expected = {**before.settings, "gpus": gpus, **said}
    assert {key: after.settings.get(key) for key in {**expected, **after.settings}} == expected
    assert {key: path for key, path in after.written.items() if before.written.get(key) != path} == written
    assert [each for each in notes(after) if each not in before.assumed and not each.startswith(USUAL)] == noted


def test_small_configs() -> None:
    assert launch_of(torchtitan.read, OF_TITAN).settings == {
        **{"gpus": 8, "seq_len": 1024, "etp": 1, "zero_stage": 3, "sequence_parallel": False, "micro_batch": 4},
        **{"global_batch": 32, "recompute": "selective", "tp_overlap": False, "compiled": False, "dtype": "bf16"},
        "software": "torchtitan-2025",
    }
    assert launch_of(maxtext.read, OF_MAX).settings == {
        **{"gpus": 8, "seq_len": 1024, "recompute": "full", "dtype": "bf16", "tp": 1, "pp": 1, "ep": 1, "cp": 1},
        **{"sequence_parallel": False, "zero_stage": 3, "micro_batch": 2, "num_microbatches": 1},
    }
    engine = launch_of(deepspeed.read, OF_ENGINE)
    assert engine.settings == {
        **{"gpus": 8, "micro_batch": 2, "num_microbatches": 1, "zero_stage": 2, "fsdp": False},
        **{"reduce_overlap": False, "gather_overlap": False, "bucket": 1e9, "dtype": "bf16"},
    }
    assert notes(engine) == ["all weights are trained: these files name no adapters, and are of no program known here"]
    plain = launch_of(deepspeed.read, OF_FSDP)
    assert plain.settings == {
        **{"gpus": 8, "micro_batch": 2, "num_microbatches": 1, "zero_stage": 0, "fsdp": False},
        **{"software": "transformers", "optimizer": "adamw-fused", "packing": False},
    }


@pytest.mark.parametrize(
    ("more", "newer"),
    [
        ({}, []),
        ({f"{T}batch_size": 1}, [f"{T}global_batch_size"]),
        ({f"{T}compile": True}, [f"{P}expert_parallel_degree"]),
        ({f"{T}tensor_parallel_degree": 2}, [f"{P}x", f"{P}expert_parallel_degree"]),
        ({f"{P}tensor_parallel_degree": 2}, []),
    ],
)
def test_keys_that_are_newer_than_a_torchtitan_may_be(more: Keys, newer: list[str]) -> None:
    lacks = launch_of(torchtitan.read, {f"{T}seq_len": 1024, **more}).lacks
    keys = (f"{P}x", f"{T}global_batch_size", f"{P}expert_parallel_degree", f"{T}y")
    assert [key for key in keys if lacks(key)] == newer


@pytest.mark.parametrize(
    ("values", "gpus", "kv_heads", "python", "why"),
    [
        ({f"{P}pipeline_parallel_degree": 2, f"{T}local_batch_size": 2}, 8, 0, False, ""),
        (
            {f"{P}pipeline_parallel_degree": 2, f"{T}local_batch_size": 1},
            *(8, 0, False),
            "a pipeline of 2 stages takes no 1 micro-batches",
        ),
        (
            {f"{P}pipeline_parallel_degree": 2, f"{T}local_batch_size": 3, f"{P}pipeline_parallel_microbatch_size": 2},
            *(8, 0, True),
            "a pipeline of 2 stages takes no 1 micro-batches",
        ),
        ({f"{P}num_pp_microbatches": 2, f"{P}pipeline_parallel_degree": 2}, 8, 0, True, ""),
        ({f"{P}tensor_parallel_degree": 4}, 8, 8, False, ""),
        ({f"{P}tensor_parallel_degree": 4}, 8, 2, False, "2 key-value heads are not split 4 ways"),
        ({"model.name": "deepseek_v3", f"{P}context_parallel_degree": 2}, 8, 0, True, ""),
        (
            {f"{DATA}replicate_degree": 2, f"{DATA}shard_degree": 1, f"{P}tensor_parallel_degree": 2},
            *(4, 0, False),
            "whole weights have replicas beside no other parallelism",
        ),
        (
            {f"{DATA}replicate_degree": 2, f"{DATA}shard_degree": 1, f"{P}pipeline_parallel_degree": 2},
            *(4, 0, False),
            "whole weights have replicas beside no other parallelism",
        ),
        ({f"{DATA}replicate_degree": 2, f"{P}tensor_parallel_degree": 2}, 8, 0, False, ""),
        ({f"{DATA}shard_degree": 1, f"{P}tensor_parallel_degree": 2}, 2, 0, False, ""),
        ({f"{P}tensor_parallel_degree": 3}, 8, 7, False, "7 key-value heads are not split 3 ways"),
        (
            {f"{P}expert_parallel_degree": 2, f"{DATA}shard_degree": 1},
            *(8, 0, False),
            "experts are spread over ranks that share weights",
        ),
        ({f"{P}expert_parallel_degree": 2, f"{DATA}shard_degree": 2}, 8, 0, False, ""),
    ],
)
def test_why_torchtitan_refuses_values_together(values: Keys, gpus: int, kv_heads: int, python: bool, why: str) -> None:
    values = {f"{T}local_batch_size": 8, **values}
    assert torchtitan.clash(values, gpus, kv_heads, python) == why


def test_what_files_of_deepspeed_cannot_be_told_stays() -> None:
    def fixed(values: Keys) -> set[str]:
        return set(launch_of(deepspeed.read, values).fixed)

    assert fixed(OF_ENGINE) == {"shard", "activation_offload"}
    assert fixed({**OF_ENGINE, f"{MESH}dp_shard_size": 8}) == {"activation_offload"}
    assert fixed({**OF_ENGINE, "activation_offloading": False}) == {"shard"}
    assert fixed(OF_FSDP) == {"shard", "activation_offload", "reduce_overlap", "gather_overlap", "bucket", "zero_stage"}
    assert fixed({**OF_FSDP, "fsdp": "full_shard"}) == {"shard", "activation_offload"}
    stages = launch_of(deepspeed.read, OF_ENGINE).following
    assert [stages(Plan(zero_stage=stage))["reduce_overlap"] for stage in range(4)] == [None, False, False, True]


def test_states_on_drives_are_told() -> None:
    for keys, path in (
        ({f"{OPTIMIZER}device": "nvme"}, f"{OPTIMIZER}device"),
        ({f"{Z}offload_param.device": "nvme"}, f"{Z}offload_param.device"),
        ({f"{OPTIMIZER}device": "cpu"}, ""),
    ):
        assert launch_of(deepspeed.read, {**OF_ENGINE, **keys}).drives == path


Writer = Callable[..., Mapping[str, Any]]
RUNS = {"dp": 8, "zero_stage": 3}
# What a config says, the plan that it runs, the one that it should run, what is switched, and the keys that change.
WRITTEN: list[tuple[Writer, Keys, Keys, Keys, Keys, Keys]] = [
    (llm_foundry.write, {}, RUNS, {**RUNS, "activation_offload": 1}, {}, {"fsdp_config.activation_cpu_offload": True}),
    (maxtext.write, {"ici_tensor_parallelism": 2, "ici_pipeline_parallelism": 2, "ici_fsdp_parallelism": 1},
     {"tp": 2, "pp": 2}, {"tp": 4}, {},
     {"ici_tensor_parallelism": 4, "ici_pipeline_parallelism": 1}),
    (maxtext.write, {"per_device_batch_size": 1}, {"tp": 2}, {"tp": 2, "micro_batch": 4}, {},
     {"per_device_batch_size": 2}),
    (maxtext.write, {"per_device_batch_size": 1}, {"tp": 2}, {"tp": 2, "micro_batch": 3}, {},
     {"per_device_batch_size": 1.5}),
    (torchtitan.write, {f"{COMPILE}enable": False}, RUNS, {**RUNS, "micro_batch": 6}, {"compiled": True},
     {f"{T}local_batch_size": 6, f"{COMPILE}enable": True}),
    (torchtitan.write, {f"{T}compile": False}, RUNS, {**RUNS, "micro_batch": 6}, {"compiled": True},
     {f"{T}local_batch_size": 6, f"{T}compile": True}),
    (torchtitan.write, {f"{DATA}shard_degree": 1, f"{DATA}replicate_degree": 8}, {"dp": 8, "zero_stage": 0},
     {"dp": 8, "zero_stage": 0, "micro_batch": 6}, {},
     {f"{T}local_batch_size": 6, f"{DATA}shard_degree": 1, f"{DATA}replicate_degree": 8}),
    (torchtitan.write, {f"{DATA}shard_degree": 8}, RUNS, {**RUNS, "micro_batch": 6}, {},
     {f"{T}local_batch_size": 6, f"{DATA}shard_degree": 8}),
    (torchtitan.write, {}, RUNS, {**RUNS, "micro_batch": 6}, {}, {f"{T}local_batch_size": 6}),
]  # fmt: skip


@pytest.mark.parametrize(("write", "values", "before", "after", "turned", "keys"), WRITTEN)
def test_keys_of_another_plan(write: Writer, values: Keys, before: Keys, after: Keys, turned: Keys, keys: Keys) -> None:
    assert write(values, small_job(), Plan(**before), Plan(**after), turned) == keys
