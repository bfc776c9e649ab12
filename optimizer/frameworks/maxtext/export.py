"""MaxText's YAML for a plan, over its base.yml: `python3 -m maxtext.trainers.pre_train.train maxtext.yml`.

Source of the keys: AI-Hypercomputer/maxtext @e591f30c, src/maxtext/configs/base.yml, types.py (RematPolicy,
QuantizationType; no 8-bit products with accumulated gradients) and pyconfig.py (base_config).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.catalog.readers.yaml_nodes import yaml_file
from optimizer.frameworks.framework import ExportFiles
from optimizer.frameworks.llama import unlike_llama
from optimizer.frameworks.maxtext.config import (
    BATCH,
    COUNTS,
    MEMORY_SHARES,
    MODELS,
    NAME,
    QUANTISED,
    REMAT,
    SHARDED,
    STEPS,
    TIED,
    mesh,
    policy,
)
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.frameworks.sbatch import config_script
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.model import Model
    from optimizer.job.plan import Plan

HARDWARE = {"Google": "tpu", "NVIDIA": "gpu", "AMD": "gpu"}
ALWAYS = ("ici_fsdp_parallelism", "dcn_data_parallelism")  # which are "what is left" in base.yml
TASK = """export JAX_COORDINATOR_IP=$MASTER_ADDR JAX_COORDINATOR_PORT=$MASTER_PORT
    export NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID
    exec python3 -u -m maxtext.trainers.pre_train.train "$@\""""
SHARE = 0.95  # of a GPU's memory, for JAX: what is left holds the driver's context and NCCL's buffers
OWN_FP8 = ("mi300x", "mi325x")  # whose 8-bit formats are their own


def maxtext_yaml(answer: Answer) -> str:
    """What pyconfig reads; run name, output and dataset are yours.

    Raises InputError when the answer holds no plan, or one that MaxText cannot run.
    """
    job, plan = runnable(answer, "MaxText", unexpressed)
    sizes = mesh(plan, slice_of(job))
    size = plan.micro_batch / (plan.tp * plan.cp)
    values: dict[str, object] = {
        "base_config": "base.yml",
        **model_values(job.model),
        "hardware": HARDWARE[job.cluster.device.vendor],
        "max_target_length": job.seq_len,
        BATCH: int(size) if size == int(size) else size,
        STEPS: plan.num_microbatches,
        **{key: size for key, size in sizes.items() if size > 1 or key in ALWAYS},
        **({SHARDED: True} if plan.zero_stage == 1 else {}),
        REMAT: policy(plan.recompute, job),
        "dtype": "bfloat16",
        "weight_dtype": "float32",
        **({QUANTISED: quantisation(job)} if job.dtype == "fp8" else {}),
    }
    variable = "" if job.cluster.device.vendor == "Google" else f"{MEMORY_SHARES[-1]}={SHARE} "
    command = "python3 -m maxtext.trainers.pre_train.train maxtext.yml run_name=... base_output_directory=..."
    return yaml_file([f"MaxText: {plan.summary()}", variable + command], values)


def model_values(model: Model) -> dict[str, object]:
    """The model by its name there, else by its shape."""
    if model.name in MODELS:
        return {NAME: MODELS[model.name]}
    counts = {key: getattr(model, name) for name, key in COUNTS.items() if getattr(model, name, None)}
    norm = {"normalization_layer_epsilon": model.norm_epsilon, "rope_max_timescale": round(model.rope_base)}
    return {"decoder_block": "llama2", **counts, **norm, TIED: model.tied_embeddings}


def quantisation(job: Job) -> str:
    """What it calls products in 8 bits on this device."""
    return "nanoo_fp8" if job.cluster.device.name in OWN_FP8 else "fp8"


def slice_of(job: Job) -> int:
    """Devices of a slice: those that one fabric joins."""
    return min(job.gpus, job.cluster.scale_up_size)


def unexpressed(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What MaxText lacks to run the plan as it is priced, in words; nothing where it can."""
    features, device, replicas = job.stack.features, job.cluster.device, plan.dp * plan.cp
    inside = slice_of(job)
    within = 1
    for key, size in mesh(plan, inside).items():
        within *= size if key.startswith("ici") else 1
    shared = plan.cp * plan.ep
    each = plan.micro_batch / (plan.tp * plan.cp)
    missing = {
        f"the device {device.name} ({device.vendor})": device.vendor not in HARDWARE,
        **dict.fromkeys(() if job.model.name in MODELS else unlike_llama(job.model), True),
        "biases of queries, keys and values": job.model.name not in MODELS and job.model.attention_bias,
        f"the number format {job.dtype}": job.dtype not in ("bf16", "fp8"),
        f"8-bit operands that are scaled {features.fp8_recipe}": job.dtype == "fp8" and bool(features.fp8_recipe),
        "accumulated gradients of 8-bit products": job.dtype == "fp8" and plan.num_microbatches > 1,
        "gradients that are reduced in bf16": features.grad_bytes != 4,
        f"master weights and moments of {features.optimizer_bytes} bytes": features.optimizer_bytes != 12,
        "weights in bf16 beside their master copy": features.param_bytes != 0,
        "dropout": features.dropout,
        "a pipeline of one pass forward, one backward": plan.pp > 1,
        "tensor without sequence parallelism (--fix sequence_parallel=on)": plan.tp > 1 and not plan.sequence_parallel,
        f"experts split {plan.etp} ways where other weights are {plan.tp}": (
            job.model.experts is not None and plan.etp != plan.tp
        ),
        f"ZeRO-{plan.zero_stage}": plan.zero_stage not in (0, 1, 3),
        "weights that context- or expert-parallel devices do not share": plan.zero_stage < 3 and shared > 1,
        f"EP {plan.ep} over more than the {plan.dp} replicas": plan.dp % plan.ep > 0,
        f"groups of {plan.shard} that share weights": plan.zero_stage == 3
        and (plan.shard or replicas) % shared + replicas % (plan.shard or replicas) > 0,
        f"{plan.shard} replicas that share an optimizer": plan.zero_stage == 1 and 0 < plan.shard < replicas,
        f"recomputation of {plan.recompute} as priced": (
            plan.recompute not in ("none", "full") and (plan.recompute, features.selective) != ("selective", "qkv")
        ),
        "recomputation of some layers": plan.recompute == "full"
        and bool(plan.recompute_layers or plan.recompute_first),
        "other activations on the host": plan.activation_offload > 0,
        "a share of the optimizer on the host": knobs.offload > 0,
        "gradient buckets, which a compiler forms": replicas > 1 and knobs != Knobs(offload=knobs.offload),
        f"the dispatcher {plan.dispatcher}": plan.ep > 1 and plan.dispatcher != "alltoall",
        "an all-to-all that overlaps another micro-batch": plan.overlap_exchange,
        f"slices of {inside} devices in which the degrees of the plan fill {within}": within != inside,
        f"a micro-batch of {plan.micro_batch} over {plan.tp * plan.cp} devices": (
            int(each * job.gpus) != plan.micro_batch * plan.dp
        ),
    }
    return lacks(missing)


def maxtext_sbatch(answer: Answer) -> str:
    """Slurm's script around it: one process a node, which has all GPUs of the node.

    Source: the same, src/maxtext/utils/max_utils.py (initialize_jax_for_gpu).

    Nothing for TPUs, which are no GPUs to Slurm.

    Raises InputError when the answer holds no plan, one that MaxText cannot run, or one of nodes that are not full.
    """
    job, plan = runnable(answer, "MaxText", unexpressed)
    if HARDWARE[job.cluster.device.vendor] != "gpu":
        return ""
    script = config_script(
        "MaxText",
        "maxtext.yml",
        task=TASK,
        words="maxtext.yml",
        environment={"PYTHONPATH": '"$program/src${PYTHONPATH:+:$PYTHONPATH}"', MEMORY_SHARES[-1]: str(SHARE)},
        arguments="run_name=... base_output_directory=...",
    )
    return script.text(job, plan)


FILES = ExportFiles(files={"maxtext.yml": maxtext_yaml, "maxtext.sbatch": maxtext_sbatch})
