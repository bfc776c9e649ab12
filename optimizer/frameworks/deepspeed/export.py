"""DeepSpeed's JSON, Accelerate's YAML and the Trainer's arguments for a plan that shards data-parallel replicas alone.

Source of the keys: deepspeedai/DeepSpeed v0.19.8, deepspeed/runtime/config.py, zero/config.py and offload_config.py;
huggingface/accelerate v1.15.0, commands/config/config_args.py and commands/launch.py; huggingface/transformers v5,
training_args.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from optimizer.catalog.readers.yaml_nodes import yaml_file
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

DEEPSPEED, FSDP = "DeepSpeed", "Accelerate with FSDP2"
ELEMENT = 2  # bytes of a gradient in a bucket, as the reader takes them
VENDORS = ("NVIDIA", "AMD")


def launch_file(answer: Answer, program: str, text: Callable[[Job, Plan, Knobs], str]) -> str:
    """A file of a program's launch. Raises InputError when the answer holds no plan, or one that it cannot run."""
    job, plan = runnable(answer, program, partial(unexpressed, program), hosts=True)
    return text(job, plan, answer.knobs)


def accelerate_deepspeed(job: Job, plan: Plan, knobs: Knobs) -> str:
    """`accelerate launch --config_file` with DeepSpeed, whose own config lies beside it."""
    inner = {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": plan.zero_stage == 3}
    values = cluster_values(job) | {"distributed_type": "DEEPSPEED", "deepspeed_config": inner}
    return _yaml(values, "accelerate-deepspeed.yaml", "trainer-deepspeed.json")


def accelerate_fsdp(job: Job, plan: Plan, knobs: Knobs) -> str:
    """`accelerate launch --config_file` with FSDP2."""
    values = cluster_values(job) | {"distributed_type": "FSDP", "mixed_precision": job.dtype}
    values["fsdp_config"] = fsdp_values(job, plan)
    group = plan.shard or plan.dp
    if group < plan.dp:
        sizes = {"dp_replicate_size": plan.dp // group, "dp_shard_size": group}
        values["parallelism_config"] = {f"parallelism_config_{name}": size for name, size in sizes.items()}
    return _yaml(values, "accelerate-fsdp.yaml", "trainer-fsdp.json")


def hosted(job: Job, plan: Plan) -> bool:
    """Whether weights, gradients and states lie on the host."""
    return plan.zero_stage == 3 and job.stack.features.hosted_weights


def fsdp_values(job: Job, plan: Plan) -> dict[str, object]:
    """FSDP2 as Accelerate's YAML has it."""
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": plan.zero_stage == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": plan.recompute == "full",
        "fsdp_offload_params": hosted(job, plan),
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def synced(job: Job, plan: Plan) -> dict[str, object]:
    """What has FSDP scatter the gradients of each micro-batch: else they are whole until the last one.

    Source: huggingface/transformers v5.23.0, src/transformers/trainer.py (_run_epoch); huggingface/accelerate v1.15.0,
    src/accelerate/utils/dataclasses.py, GradientAccumulationPlugin.
    """
    waits = plan.zero_stage < 2 or plan.num_microbatches == 1 or job.stack.features.syncs_last
    return {} if waits else {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}


def trainer(job: Job, plan: Plan, more: Mapping[str, object]) -> str:
    """The Trainer's arguments, JSON that TrainingArguments reads."""
    values = {
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.num_microbatches,
        "bf16": job.dtype == "bf16",
        "fp16": job.dtype == "fp16",
    }
    return json.dumps({**values, **more}, indent=1) + "\n"


def engine(job: Job, plan: Plan, knobs: Knobs) -> dict[str, object]:
    """DeepSpeed's config as a dictionary."""
    zero: dict[str, object] = {"stage": plan.zero_stage}
    if plan.zero_stage:
        bucket = round(knobs.bucket / ELEMENT)
        overlaps = job.stack["dp_overlap"] > 0
        zero |= {"overlap_comm": overlaps, "reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
        zero["contiguous_gradients"] = True
    if hosted(job, plan):
        zero |= {name: {"device": "cpu", "pin_memory": True} for name in ("offload_param", "offload_optimizer")}
    elif knobs.offload > 0:
        partly = {"ratio": knobs.offload} if plan.zero_stage == 3 else {}
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True, **partly}
    return {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.num_microbatches,
        "bf16": {"enabled": job.dtype == "bf16"},
        "fp16": {"enabled": job.dtype == "fp16"},
        "data_types": {"grad_accum_dtype": "fp32" if job.stack.features.grad_bytes == 4 else job.dtype},
        "communication_data_type": "fp32" if job.stack.features.grad_bytes == 4 else job.dtype,
        "zero_optimization": zero,
    }


def unexpressed(program: str, job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What the program lacks to run the plan as it is priced, in words; nothing where it can."""
    device, features = job.cluster.device, job.stack.features
    degrees = {"TP": plan.tp, "CP": plan.cp, "PP": plan.pp, "EP": plan.ep}
    partly = plan.recompute == "full" and bool(plan.recompute_layers or plan.recompute_first)
    fsdp = program == FSDP
    missing = {
        f"the device {device.name} ({device.vendor})": device.vendor not in VENDORS,
        **{f"{name} {degree}": degree > 1 for name, degree in degrees.items()},
        f"the number format {job.dtype}": job.dtype not in ("bf16", "fp16"),
        # With bf16, DeepSpeed's ZeRO-0 is its BF16_Optimizer, which shards states.
        f"ZeRO-{plan.zero_stage}": plan.zero_stage < (2 if fsdp else 1),
        f"groups of {plan.shard} that share weights": not fsdp and 0 < plan.shard < plan.dp,
        f"recomputation of {plan.recompute} as priced": plan.recompute not in ("none", "full") or partly,
        "activations on the host": plan.activation_offload > 0,
        "a share of the optimizer on the host": knobs.offload > 0 and fsdp,
        f"{knobs.offload:.0%} of the optimizer on the host (all or none)": (
            0 < knobs.offload < 1 and not fsdp and plan.zero_stage in (1, 2)
        ),
        f"gradients of {features.grad_bytes} bytes": fsdp and features.grad_bytes != 2,
        f"master weights and moments of {features.optimizer_bytes} bytes": features.optimizer_bytes != 12,
    }
    return lacks(missing)


def cluster_values(job: Job) -> dict[str, object]:
    """Machines and processes as Accelerate's YAML has them."""
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    return {
        "compute_environment": "LOCAL_MACHINE",
        "num_machines": -(-job.gpus // per_node),
        "num_processes": job.gpus,
        "main_training_function": "main",
        "rdzv_backend": "static",
    }


def _yaml(values: dict[str, object], name: str, trainer: str) -> str:
    head = (
        "On every node, in the folder of this file; your program reads its TrainingArguments from",
        f"{trainer}: accelerate launch --config_file {name} --machine_rank $SLURM_NODEID",
        "  --main_process_ip FIRST_NODE --main_process_port 29500 TRAIN.py",
    )
    return yaml_file(head, dict(sorted(values.items())))


def _file(program: str, text: Callable[[Job, Plan, Knobs], str]) -> Callable[[Answer], str]:
    return partial(launch_file, program=program, text=text)


DEEPSPEED_FILES = {
    "deepspeed.json": _file(DEEPSPEED, lambda job, plan, knobs: json.dumps(engine(job, plan, knobs), indent=1) + "\n"),
    "accelerate-deepspeed.yaml": _file(DEEPSPEED, accelerate_deepspeed),
    "trainer-deepspeed.json": _file(
        DEEPSPEED, lambda job, plan, _: trainer(job, plan, {"gradient_checkpointing": plan.recompute == "full"})
    ),
}
# FSDP2 of Accelerate recomputes by itself.
ACCELERATE_FILES = {
    "accelerate-fsdp.yaml": _file(FSDP, accelerate_fsdp),
    "trainer-fsdp.json": _file(FSDP, lambda job, plan, _: trainer(job, plan, synced(job, plan))),
}
