"""A torchtitan training configuration for a plan: TOML, as releases up to 0.2 read it.

Source of the keys and of what they do: pytorch/torchtitan v0.2.2, torchtitan/config/job_config.py,
models/llama3/infra/parallelize.py (DDP on one axis alone; no mixed precision without sharding),
distributed/parallel_dims.py (experts fold into ranks that share weights).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from optimizer.base.names import toml_value
from optimizer.frameworks.megatron.layout import layers_per_virtual_stage
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.frameworks.torchtitan.models import MAIN, OLD, flavor_of
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

SCHEDULES: Mapping[str, str] = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
DISPATCHERS: Mapping[str, str] = {"alltoall": "standard", "deepep": "deepep", "hybridep": "hybridep"}
BY_ROW = "rowwise"
FLOAT8 = "quantize.linear.float8"
FLOAT8_EXPERTS = "quantize.grouped_mm.float8"


def torchtitan_toml(answer: Answer) -> str:
    """The parts of a torchtitan configuration that the plan decides; data and optimizer are yours to add.

    Raises InputError when the answer holds no plan, or one that torchtitan cannot run.
    """
    job, plan = runnable(answer, f"torchtitan {OLD}", partial(unexpressed, OLD))
    lines = [f"# torchtitan {OLD}: {plan.summary()}"]
    for table, values in tables(job, plan).items():
        lines += ["", f"[{table}]", *(f"{key} = {toml_value(value)}" for key, value in values.items())]
    return "\n".join(lines).strip() + "\n"


def tables(job: Job, plan: Plan) -> dict[str, dict[str, object]]:
    """Tables of the configuration by name."""
    # Under pipelining torchtitan cuts a rank's local batch into the micro-batches of one schedule.
    selective = plan.recompute == "selective"
    flavor, moe = flavor_of(job.model, OLD), job.model.experts is not None
    assert flavor is not None
    float8 = [FLOAT8, *(FLOAT8_EXPERTS,) * moe] if job.dtype == "fp8" else []
    return {
        "model": {"name": flavor.family, "flavor": flavor.name, **({"converters": float8} if float8 else {})},
        "training": {
            "local_batch_size": local_batch(plan),
            "global_batch_size": job.global_batch,
            "seq_len": job.seq_len,
            "mixed_precision_param": "bfloat16",
            "mixed_precision_reduce": "float32",
        },
        "parallelism": parallelism(job, plan, OLD),
        "activation_checkpoint": {"mode": plan.recompute, **({"selective_ac_option": "op"} if selective else {})},
        "compile": {"enable": True},
        **(_eight_bits(job, moe) if float8 else {}),
        **({"debug": {"moe_force_load_balance": True}} if moe and job.stack.routing_forced else {}),
    }


def _eight_bits(job: Job, moe: bool) -> dict[str, dict[str, object]]:
    """What runs in 8 bits: all of a layer but the router, not the output head; experts are scaled row by row.

    Source: torchtitan v0.2.2, torchtitan/components/quantization/float8.py.
    """
    linear: dict[str, object] = {"filter_fqns": ["output", "router.gate"]}
    linear |= {"recipe_name": BY_ROW} if job.stack.features.fp8_recipe == BY_ROW else {}
    return {FLOAT8: linear, **({FLOAT8_EXPERTS: {"fqns": ["experts"]}} if moe else {})}


def overlaps_tp(job: Job, plan: Plan) -> bool:
    """Whether tensor-parallel collectives run under products."""
    return plan.tp > 1 and plan.sequence_parallel and job.stack["tp_overlap"] > 0


def local_batch(plan: Plan) -> int:
    """Sequences of one rank before gradients are accumulated: all of a step under pipelining [sequences]."""
    return plan.micro_batch * (plan.num_microbatches if plan.pp > 1 else 1)


def unexpressed(release: str, job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What torchtitan lacks to run the plan as it is priced, in words; nothing where it can."""
    features, replicas, sharded = job.stack.features, plan.dp * plan.cp, shards(plan)
    selective = plan.recompute == "selective" and features.selective == "ops"
    old, experts = release == OLD, job.model.experts is not None
    scaled = features.fp8_recipe or "tensorwise"
    alone = plan.tp * plan.pp == 1
    within = sharded * plan.cp * plan.tp
    missing = {
        f"the model {job.model.name}": flavor_of(job.model, release) is None,
        f"the device {job.cluster.device.name} ({job.cluster.device.vendor})": (
            job.cluster.device.vendor not in ("NVIDIA", "AMD")
        ),
        f"the number format {job.dtype}": job.dtype not in ("bf16", "fp8"),
        f"8-bit operands that are scaled {scaled} (--fix fp8_recipe=rowwise)": (
            job.dtype == "fp8" and scaled not in (("tensorwise", BY_ROW) if old and not experts else (BY_ROW,))
        ),
        "8-bit experts under pipeline or context parallelism": (
            old and experts and job.dtype == "fp8" and plan.pp * plan.cp > 1
        ),
        "gradients that are reduced in bf16": features.grad_bytes != 4,
        f"master weights and moments of {features.optimizer_bytes} bytes": features.optimizer_bytes != 12,
        f"{features.attention} attention": not features.attention.startswith("flash"),
        "dropout": features.dropout,
        "a loss that has the logits of some of the tokens in turn": old and features.loss_chunks > 1,
        "ZeRO-1 without a pipeline (gradients are sharded with the optimizer)": (
            plan.zero_stage == 1 and replicas > 1 and plan.pp == 1
        ),
        "ZeRO-2 under a pipeline (gradients are scattered once per step)": plan.zero_stage == 2 and plan.pp > 1,
        "replicas of weights over context-parallel ranks": plan.cp > 1 and plan.zero_stage == 0,
        f"groups of {plan.shard} that share weights with {plan.cp} context-parallel ranks": (
            0 < plan.shard < replicas and (plan.shard % plan.cp > 0 or plan.dp % max(1, plan.shard // plan.cp) > 0)
        ),
        "replicas of whole weights beside tensor or pipeline parallelism": (
            old and plan.zero_stage == 0 and plan.dp > 1 and not alone
        ),
        "bf16 without weights that are shared": old and replicas == 1 and not alone,
        f"{plan.num_microbatches} micro-batches for {plan.pp} stages": plan.pp > plan.num_microbatches,
        f"{job.model.kv_heads} key-value heads split {plan.tp} ways": (
            job.model.mla is None and job.model.kv_heads % plan.tp > 0
        ),
        "a pipeline": old and plan.pp > 1 and job.model.name.startswith("qwen3"),
        "tensor without sequence parallelism": old and plan.tp > 1 and not plan.sequence_parallel,
        f"the schedule {plan.schedule}": plan.schedule not in SCHEDULES,
        f"recomputation of {plan.recompute} as priced": not (plan.recompute in ("none", "full") or selective),
        "recomputation of some layers": plan.recompute == "full"
        and bool(plan.recompute_layers or plan.recompute_first),
        "activations on the host": plan.activation_offload > 0,
        "a share of the optimizer on the host": knobs.offload > 0,
        "gradient buckets of another size than its own": replicas > 1 and knobs.bucket != Knobs().bucket,
        "a share of the multiprocessors for gradients": replicas > 1 and knobs.comm_sm_share != Knobs().comm_sm_share,
        "an all-to-all that overlaps another micro-batch": plan.overlap_exchange,
        "MTP layers": job.model.mtp_layers > 0,
        "a pipeline for an embedding and a head that share weights": (
            job.model.tied_embeddings and plan.pp > 1 and flavor_of(job.model, release) is not None
        ),
        f"experts of one rank split {plan.etp} ways where other weights are {plan.tp}": (
            experts and plan.etp != (plan.tp if plan.ep == 1 else 1) and not (old and plan.etp == plan.tp)
        ),
        f"EP {plan.ep} over ranks that do not share weights": experts and within % (plan.ep * plan.etp) > 0,
        f"the dispatcher {plan.dispatcher}": (
            experts and plan.ep > 1 and (plan.dispatcher not in DISPATCHERS or (old and plan.dispatcher == "hybridep"))
        ),
    }
    return lacks(missing)


def parts(plan: Plan, layers: int, head: str = "output") -> list[list[str]]:
    """Modules on every virtual stage, in the order of the forward pass; `head` is what the release calls it.

    >>> from optimizer.job.plan import Plan
    >>> parts(Plan(pp=2), 3)
    [['tok_embeddings', 'layers.0', 'layers.1'], ['layers.2', 'norm', 'output']]
    """
    counts, modules, start = layers_per_virtual_stage(plan, layers), [], 0
    for count in counts:
        modules.append([f"layers.{number}" for number in range(start, start + count)])
        start += count
    modules[0].insert(0, "tok_embeddings")
    modules[-1] += ["norm", head]
    return modules


def shards(plan: Plan) -> int:
    """Data-parallel ranks that share weights, without those of context parallelism, which always do."""
    if plan.zero_stage == 0:
        return 1
    return max(1, plan.shard // plan.cp) if 0 < plan.shard < plan.dp * plan.cp else plan.dp


def data_parallel(plan: Plan) -> dict[str, object]:
    """Replicas and sharding groups, and when gathered weights are dropped."""
    sharded = shards(plan)
    values: dict[str, object] = {
        "data_parallel_replicate_degree": plan.dp // sharded,
        "data_parallel_shard_degree": sharded,
    }
    if plan.zero_stage:
        values["fsdp_reshard_after_forward"] = "always" if plan.zero_stage == 3 else "never"
    return values


def parallelism(job: Job, plan: Plan, release: str) -> dict[str, object]:
    """Degrees of parallelism, sharding and the pipeline, as a release calls them."""
    old = release == OLD
    values = data_parallel(plan) | {
        "tensor_parallel_degree": plan.tp,
        "context_parallel_degree": plan.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if not old:
        values["enable_sequence_parallel"] = plan.sequence_parallel or plan.tp == 1
    if plan.pp > 1:
        count = {"num_pp_microbatches": plan.num_microbatches}
        values |= {
            "pipeline_parallel_schedule": SCHEDULES[plan.schedule],
            **(count if release == MAIN else {"pipeline_parallel_microbatch_size": plan.micro_batch}),
            "module_fqns_per_model_part": parts(plan, job.model.layers, "output" if old else "lm_head"),
        }
    if job.model.experts:
        values["expert_parallel_degree"] = plan.ep
    if job.model.experts and old:
        values["expert_tensor_parallel_degree"] = plan.etp if plan.ep > 1 else 1
        if plan.ep > 1:
            values["expert_parallel_comm_backend"] = DISPATCHERS[plan.dispatcher]
    if old and overlaps_tp(job, plan):
        values["enable_async_tensor_parallel"] = True
    return values
