"""All that the files of programs that train from scratch say for a plan of Llama 3 8B, by hand: every key and flag."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from typing import Any

import pytest
from ruamel.yaml import YAML

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.export_folder import exported
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.sbatch import MEETING
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price

SPLIT = Plan(tp=2, pp=2, dp=4, num_microbatches=16, sequence_parallel=True, zero_stage=1)
TENSOR = Plan(tp=2, dp=8, num_microbatches=8, sequence_parallel=True, zero_stage=1)
GATHERED = Plan(dp=16, num_microbatches=4, zero_stage=3)
# Stack, target and cluster; the plan; the file and what it says.
DOCUMENTS: tuple[tuple[tuple[str, str, str], Plan, str, Any], ...] = (
    (
        ("megatron-core", "megatron-lm", "dgx-h100"),
        SPLIT,
        "megatron.args",
        [
            "--tensor-model-parallel-size",
            "2",
            "--pipeline-model-parallel-size",
            "2",
            "--sequence-parallel",
            "--tp-comm-overlap",
            "--micro-batch-size",
            "1",
            "--global-batch-size",
            "64",
            "--seq-length",
            "4096",
            "--use-distributed-optimizer",
            "--overlap-grad-reduce",
            "--overlap-param-gather",
            "--ddp-bucket-size",
            "40000000",
            "--nccl-communicator-config-path",
            "megatron-nccl.json",
            "--bf16",
            "--accumulate-allreduce-grads-in-fp32",
            "--attention-backend",
            "fused",
            "--num-layers",
            "32",
            "--hidden-size",
            "4096",
            "--ffn-hidden-size",
            "14336",
            "--num-attention-heads",
            "32",
            "--group-query-attention",
            "--num-query-groups",
            "8",
            "--swiglu",
            "--normalization",
            "RMSNorm",
            "--norm-epsilon",
            "1e-05",
            "--position-embedding-type",
            "rope",
            "--rotary-base",
            "500000",
            "--rotary-percent",
            "1",
            "--max-position-embeddings",
            "8192",
            "--vocab-size",
            "128256",
            "--untie-embeddings-and-output-weights",
            "--disable-bias-linear",
            "--attention-dropout",
            "0.0",
            "--hidden-dropout",
            "0.0",
        ],
    ),
    (
        ("nanotron-2024", "nanotron", "dgx-h100"),
        TENSOR,
        "nanotron.yaml",
        {
            "general": {"project": "optimize", "run": "llama3-8b", "seed": 42},
            "model": {
                "ddp_bucket_cap_mb": 80,
                "dtype": "bfloat16",
                "init_method": {"std": 0.02},
                "make_vocab_size_divisible_by": 1,
                "model_config": {
                    "is_qwen2_config": True,
                    "attention_bias": False,
                    "hidden_act": "silu",
                    "hidden_size": 4096,
                    "intermediate_size": 14336,
                    "max_position_embeddings": 8192,
                    "num_attention_heads": 32,
                    "num_hidden_layers": 32,
                    "num_key_value_heads": 8,
                    "rms_norm_eps": 1e-05,
                    "rope_theta": 500000.0,
                    "tie_word_embeddings": False,
                    "vocab_size": 128256,
                },
            },
            "optimizer": {
                "accumulate_grad_in_fp32": True,
                "clip_grad": 1.0,
                "learning_rate_scheduler": {
                    "learning_rate": 0.0003,
                    "lr_warmup_steps": 100,
                    "lr_warmup_style": "linear",
                    "lr_decay_style": "cosine",
                    "min_decay_lr": 3e-05,
                },
                "optimizer_factory": {
                    "name": "adamW",
                    "adam_beta1": 0.9,
                    "adam_beta2": 0.95,
                    "adam_eps": 1e-08,
                    "torch_adam_is_fused": True,
                },
                "weight_decay": 0.01,
                "zero_stage": 1,
            },
            "parallelism": {
                "dp": 8,
                "pp": 1,
                "pp_engine": "1f1b",
                "tp": 2,
                "tp_mode": "REDUCE_SCATTER",
                "tp_linear_async_communication": True,
                "recompute_layer": False,
                "context_parallel_size": 1,
                "expert_parallel_size": 1,
            },
            "tokens": {
                "sequence_length": 4096,
                "train_steps": 1000,
                "micro_batch_size": 1,
                "batch_accumulation_per_replica": 8,
            },
        },
    ),
    (
        ("maxtext", "maxtext", "dgx-h100"),
        TENSOR,
        "maxtext.yml",
        {
            "base_config": "base.yml",
            "model_name": "llama3-8b",
            "hardware": "gpu",
            "max_target_length": 4096,
            "per_device_batch_size": 0.5,
            "gradient_accumulation_steps": 8,
            "ici_tensor_parallelism": 2,
            "ici_fsdp_parallelism": 1,
            "ici_data_parallelism": 4,
            "dcn_data_parallelism": 2,
            "shard_optimizer_over_data": True,
            "remat_policy": "minimal_with_context",
            "dtype": "bfloat16",
            "weight_dtype": "float32",
        },
    ),
    (
        ("maxtext", "maxtext", "dgx-h100"),
        GATHERED,
        "maxtext.yml",
        {
            "base_config": "base.yml",
            "model_name": "llama3-8b",
            "hardware": "gpu",
            "max_target_length": 4096,
            "per_device_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "ici_fsdp_parallelism": 8,
            "dcn_fsdp_parallelism": 2,
            "dcn_data_parallelism": 1,
            "remat_policy": "minimal_with_context",
            "dtype": "bfloat16",
            "weight_dtype": "float32",
        },
    ),
    (
        ("torchtitan-2024", "torchtitan", "dgx-h100"),
        GATHERED,
        "torchtitan.toml",
        {
            "model": {"name": "llama3", "flavor": "8B"},
            "training": {
                "local_batch_size": 1,
                "global_batch_size": 64,
                "seq_len": 4096,
                "mixed_precision_param": "bfloat16",
                "mixed_precision_reduce": "float32",
            },
            "parallelism": {
                "data_parallel_replicate_degree": 1,
                "data_parallel_shard_degree": 16,
                "fsdp_reshard_after_forward": "always",
                "tensor_parallel_degree": 1,
                "context_parallel_degree": 1,
                "pipeline_parallel_degree": 1,
            },
            "activation_checkpoint": {"mode": "none"},
            "compile": {"enable": True},
        },
    ),
    (
        ("llm-foundry-fsdp-2023", "deepspeed", "dgx-h100"),
        GATHERED,
        "deepspeed.json",
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 4,
            "bf16": {"enabled": True},
            "fp16": {"enabled": False},
            "data_types": {"grad_accum_dtype": "bf16"},
            "communication_data_type": "bf16",
            "zero_optimization": {
                "stage": 3,
                "overlap_comm": True,
                "reduce_bucket_size": 80000000,
                "allgather_bucket_size": 80000000,
                "contiguous_gradients": True,
            },
        },
    ),
    (
        ("llm-foundry-fsdp-2023", "deepspeed", "dgx-h100"),
        GATHERED,
        "accelerate-deepspeed.yaml",
        {
            "compute_environment": "LOCAL_MACHINE",
            "deepspeed_config": {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": True},
            "distributed_type": "DEEPSPEED",
            "main_training_function": "main",
            "num_machines": 2,
            "num_processes": 16,
            "rdzv_backend": "static",
        },
    ),
    (
        ("llm-foundry-fsdp-2023", "deepspeed", "dgx-h100"),
        GATHERED,
        "trainer-deepspeed.json",
        {
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "bf16": True,
            "fp16": False,
            "gradient_checkpointing": False,
        },
    ),
    (
        ("llm-foundry-fsdp-2023", "accelerate", "dgx-h100"),
        GATHERED,
        "accelerate-fsdp.yaml",
        {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "FSDP",
            "fsdp_config": {
                "fsdp_version": 2,
                "fsdp_reshard_after_forward": True,
                "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "fsdp_activation_checkpointing": False,
                "fsdp_offload_params": False,
                "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            },
            "main_training_function": "main",
            "mixed_precision": "bf16",
            "num_machines": 2,
            "num_processes": 16,
            "rdzv_backend": "static",
        },
    ),
    (
        ("llm-foundry-fsdp-2023", "accelerate", "dgx-h100"),
        GATHERED,
        "trainer-fsdp.json",
        {
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "bf16": True,
            "fp16": False,
            "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
        },
    ),
    (
        ("primus-2025", "primus", "mi300x-8"),
        SPLIT,
        "primus.yaml",
        {
            "work_group": "optimize",
            "user_name": "optimize",
            "exp_name": "llama3-8b",
            "workspace": "./output",
            "modules": {
                "pre_trainer": {
                    "framework": "megatron",
                    "config": "pre_trainer.yaml",
                    "model": "language_model.yaml",
                    "overrides": {
                        "bf16": True,
                        "fp16": False,
                        "sequence_parallel": True,
                        "use_distributed_optimizer": True,
                        "overlap_grad_reduce": True,
                        "overlap_param_gather": True,
                        "tp_comm_overlap": False,
                        "group_query_attention": True,
                        "swiglu": True,
                        "add_bias_linear": False,
                        "untie_embeddings_and_output_weights": True,
                        "accumulate_allreduce_grads_in_fp32": True,
                        "moe_token_dispatcher_type": "alltoall",
                        "tensor_model_parallel_size": 2,
                        "pipeline_model_parallel_size": 2,
                        "micro_batch_size": 1,
                        "global_batch_size": 64,
                        "seq_length": 4096,
                        "ddp_bucket_size": 40000000,
                        "nccl_communicator_config_path": "megatron-nccl.json",
                        "attention_backend": "fused",
                        "num_layers": 32,
                        "hidden_size": 4096,
                        "ffn_hidden_size": 14336,
                        "num_attention_heads": 32,
                        "num_query_groups": 8,
                        "normalization": "RMSNorm",
                        "layernorm_epsilon": 1e-05,
                        "position_embedding_type": "rope",
                        "rotary_base": 500000,
                        "rotary_percent": 1,
                        "max_position_embeddings": 8192,
                        "vocab_size": 128256,
                        "attention_dropout": 0.0,
                        "hidden_dropout": 0.0,
                        "gradient_accumulation_fusion": False,
                    },
                }
            },
        },
    ),
)


def parsed(name: str, text: str) -> Any:
    """What a program reads of a file."""
    if name.endswith(".json"):
        return json.loads(text)
    if name.endswith(".toml"):
        return tomllib.loads(text)
    return shlex.split(text, comments=True) if name.endswith(".args") else YAML(typ="safe").load(text)


def job_of(stack: str, target: str, cluster: str) -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster(cluster),
        stack=aimed(load_stack(stack), target),
        gpus=16,
        seq_len=4096,
        global_batch=64,
    )


def texts_of(stack: str, target: str, cluster: str, plan: Plan) -> dict[str, str]:
    job = job_of(stack, target, cluster)
    estimate = price(job, Plans.of([plan]), Knobs()).estimate(0, job.tokens, job.gpus, 1.0)
    return dict(exported(Answer(status="optimal", job=job, plan=plan, estimate=estimate)).texts)


@pytest.mark.parametrize(("where", "plan", "name", "said"), DOCUMENTS)
def test_a_file_says_all_of_this_and_no_more(where: tuple[str, str, str], plan: Plan, name: str, said: Any) -> None:
    assert parsed(name, texts_of(*where, plan)[name]) == said


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (("megatron-core", "megatron-lm", "dgx-h100"), "megatron-skypilot.yaml"),
        (("megatron-core", "megatron-lm", "dgx-h100"), "megatron-pytorchjob.yaml"),
        (("megatron-bridge-2025", "megatron-bridge", "dgx-h100"), "megatron-bridge-main.overrides"),
        (("nemo-2024", "nemo", "dgx-h100"), "nemo_pretrain.py"),
        (("primus-2025", "primus", "mi300x-8"), "primus.yaml"),
    ],
)
def test_a_program_that_meets_otherwise_gets_the_other_variables_alone(where: tuple[str, str, str], name: str) -> None:
    """Ranks meet by torchrun, by the operator or by the launcher; Slurm's names of hosts are of no use there."""
    text = texts_of(*where, SPLIT)[name]
    variables = environment(job_of(*where), SPLIT)
    others = {key: value for key, value in variables.items() if key not in MEETING}
    assert others
    assert variables.keys() - others.keys() == MEETING.keys()
    for key, value in others.items():
        assert re.search(rf"{key}\W+(name\W+)?(value\W+)?{re.escape(value)}\b", text), key
    assert "scontrol" not in text
