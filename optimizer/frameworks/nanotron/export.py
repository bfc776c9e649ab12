"""nanotron's YAML for a plan: `torchrun ... run_train.py --config-file nanotron.yaml`.

Source of the keys: huggingface/nanotron @2411b022, src/nanotron/config/config.py, parallelism_config.py and
models_config.py (Qwen2Config, as which it reads every shape); src/nanotron/parallel/context.py, whose groups leave no
room for experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.catalog.readers.yaml_nodes import yaml_file
from optimizer.frameworks.framework import ExportFiles
from optimizer.frameworks.llama import unlike_llama
from optimizer.frameworks.megatron.layout import stage_layers
from optimizer.frameworks.nanotron.config import BUCKET_MB
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.frameworks.sbatch import config_script
from optimizer.job.plan import Knobs
from optimizer.objectives.pipeline.stages import filled_stages

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.model import Model
    from optimizer.job.plan import Plan

CONNECTIONS: Mapping[str, str] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
TASK = """exec torchrun --nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" --nproc-per-node={gpus} \\
        --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@\""""
WARMUP, STEPS = 100, 1000  # of the schedule, which is yours


def nanotron_yaml(answer: Answer) -> str:
    """What get_config_from_file reads; data, schedule and checkpoints are yours.

    Raises InputError when the answer holds no plan, or one that nanotron cannot run.
    """
    job, plan = runnable(answer, "nanotron", unexpressed)
    schedule = {"learning_rate": 3e-4, "lr_warmup_steps": WARMUP, "lr_warmup_style": "linear"}
    adam = {"name": "adamW", "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "torch_adam_is_fused": True}
    values: dict[str, object] = {
        "general": {"project": "optimize", "run": job.model.name, "seed": 42},
        "model": {
            "ddp_bucket_cap_mb": round(answer.knobs.bucket / BUCKET_MB),
            "dtype": "bfloat16",
            "init_method": {"std": 0.02},
            "make_vocab_size_divisible_by": 1,
            "model_config": shape(job.model, job.seq_len),
        },
        "optimizer": {
            "accumulate_grad_in_fp32": job.stack.features.grad_bytes == 4,
            "clip_grad": 1.0,
            "learning_rate_scheduler": {**schedule, "lr_decay_style": "cosine", "min_decay_lr": 3e-5},
            "optimizer_factory": adam,
            "weight_decay": 0.01,
            "zero_stage": plan.zero_stage,
        },
        "parallelism": {
            "dp": plan.dp,
            "pp": plan.pp,
            "pp_engine": "1f1b",
            "tp": plan.tp,
            "tp_mode": "REDUCE_SCATTER" if plan.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": plan.sequence_parallel and job.stack["tp_overlap"] > 0,
            "recompute_layer": plan.recompute == "full",
            "context_parallel_size": 1,
            "expert_parallel_size": 1,
        },
        "tokens": {
            "sequence_length": job.seq_len,
            "train_steps": STEPS,
            "micro_batch_size": plan.micro_batch,
            "batch_accumulation_per_replica": plan.num_microbatches,
        },
    }
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    processes = f"--nnodes {-(-job.gpus // per_node)} --nproc_per_node {per_node}"
    variables = " ".join(f"{name}={value}" for name, value in CONNECTIONS.items())
    head = [
        f"nanotron: {plan.summary()}",
        f"{variables} torchrun {processes} run_train.py --config-file nanotron.yaml",
        "Add tokenizer, data_stages and checkpoints.",
    ]
    return yaml_file(head, values)


def shape(model: Model, seq_len: int) -> dict[str, object]:
    """The model as Qwen2Config has it, which is Llama's block where queries, keys and values have no biases."""
    return {
        "is_qwen2_config": True,
        "attention_bias": model.attention_bias,
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn_hidden,
        "max_position_embeddings": max(model.max_seq_len, seq_len),
        "num_attention_heads": model.heads,
        "num_hidden_layers": model.layers,
        "num_key_value_heads": model.kv_heads,
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_base,
        "tie_word_embeddings": model.tied_embeddings,
        "vocab_size": model.vocab,
    }


def unexpressed(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What nanotron lacks to run the plan as it is priced, in words; nothing where it can."""
    features, device, model = job.stack.features, job.cluster.device, job.model
    replicas = plan.dp * plan.cp
    degrees = {"CP": plan.cp, "EP": plan.ep, "ETP": plan.etp, "VPP": plan.vpp}
    filled = filled_stages(model, plan.pp)
    own = ",".join(map(str, filled))
    missing = {
        f"the device {device.name} ({device.vendor})": device.vendor not in ("NVIDIA", "AMD"),
        **dict.fromkeys(unlike_llama(model), True),
        f"heads of {model.head_dim}": model.head_dim * model.heads != model.hidden,
        **{f"{name} {degree}": degree > 1 for name, degree in degrees.items()},
        f"{model.kv_heads} key-value heads over {plan.tp} GPUs": model.kv_heads % plan.tp > 0,
        f"the number format {job.dtype}": job.dtype != "bf16",
        f"ZeRO-{plan.zero_stage}": plan.zero_stage > 1,
        f"groups of {plan.shard} that share states": 0 < plan.shard < replicas,
        f"the schedule {plan.schedule}": plan.schedule != "1f1b",
        f"other stages than its own (--fix pp={plan.pp} --fix layers_per_stage={own})": (
            plan.pp > 1 and stage_layers(plan, model.layers) != filled
        ),
        f"recomputation of {plan.recompute}": plan.recompute not in ("none", "full"),
        "recomputation of some layers": plan.recompute == "full"
        and bool(plan.recompute_layers or plan.recompute_first),
        f"master weights and moments of {features.optimizer_bytes} bytes": features.optimizer_bytes != 12,
        f"{features.attention} attention": not features.attention.startswith("flash"),
        "dropout": features.dropout,
        "activations on the host": plan.activation_offload > 0,
        "a share of the optimizer on the host": knobs.offload > 0,
        f"gradient buckets of {knobs.bucket / BUCKET_MB:.6g} MB (whole ones)": knobs.bucket % BUCKET_MB > 0,
        "a share of the multiprocessors for gradients": replicas > 1 and knobs.comm_sm_share != Knobs().comm_sm_share,
    }
    return lacks(missing)


def nanotron_sbatch(answer: Answer) -> str:
    """Slurm's script around it: torchrun on each node.

    Raises InputError when the answer holds no plan, one that nanotron cannot run, or one of nodes that are not full.
    """
    job, plan = runnable(answer, "nanotron", unexpressed)
    script = config_script(
        "nanotron",
        "nanotron.yaml",
        task=TASK.format(gpus=min(job.gpus, job.cluster.gpus_per_node)),
        words='"$program/run_train.py" --config-file nanotron.yaml',
        environment=CONNECTIONS,
    )
    return script.text(job, plan)


FILES = ExportFiles(files={"nanotron.yaml": nanotron_yaml, "nanotron.sbatch": nanotron_sbatch})
