"""Command-line arguments of Megatron-LM (Megatron-Core) for a plan.

Source of the argument names: NVIDIA/Megatron-LM core_v0.19.0, megatron/training/arguments.py.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.frameworks.megatron.export_model import Flags, given, lacking, model_flags
from optimizer.frameworks.megatron.layout import first_and_last, is_even, plan_layout, stage_layers
from optimizer.frameworks.megatron.software import SCOPES
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.job.plan import Knobs
from optimizer.job.recomputation import RESCALED, modules_of
from optimizer.job.stack import MXFP8
from optimizer.objectives.kernels.activations import offloaded_modules

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.model import Model
    from optimizer.job.plan import Plan

VENDORS = ("NVIDIA", "AMD")
COMMUNICATORS = "megatron-nccl.json"
REPLICAS = ("dp", "dp_cp", "intra_dp_cp", "ep_dp", "intra_ep_dp", "intra_dist_opt_instance")
RELEASE = "core_v0.19.0"
ATTENTION: Mapping[str, str] = {"flash1": "flash", "flash": "flash", "flash3": "fused"}
OVERLAP = ("--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute")
# Format of Adam's moments by the bytes of master weight and moments, where they are not fp32.
MOMENTS: Mapping[int, str] = {8: "bf16"}
MOMENT_FLAGS = ("--exp-avg-dtype", "--exp-avg-sq-dtype")
SHARDING: Mapping[int, str] = {2: "optim_grads", 3: "optim_grads_params"}
# Flags that take several values, and those whose one value is text whatever it looks like.
LISTS = ("--recompute-modules", "--offload-modules", "--cuda-graph-scope")
TEXTS = ("--pipeline-model-parallel-layout", "--moe-layer-freq")


def megatron_arguments(answer: Answer) -> list[str]:
    """Arguments of pretrain_gpt.py that launch the answer's plan; data, schedule and checkpoints are yours to add.

    Raises InputError when the answer holds no plan, or one that Megatron-LM cannot run.
    """
    return arguments(plan_flags(answer.job, exported_plan(answer), answer.knobs))


def arguments_file(answer: Answer) -> str:
    """The arguments in a line. Raises InputError as megatron_arguments does."""
    return shlex.join(megatron_arguments(answer)) + "\n"


def communicators_file(answer: Answer) -> str:
    """NCCL's options of the answer's plan, "" where it needs none.

    Raises InputError when no Megatron can run the plan.
    """
    job, _ = runnable(answer, "Megatron", unexpressed_plan)
    return communicators(job, answer.knobs)


def exported_plan(answer: Answer) -> Plan:
    """The plan of an answer. Raises InputError when there is none, or one that Megatron-LM cannot run."""
    return runnable(answer, f"Megatron-LM {RELEASE}", unexpressed, f"{answer.job.model.name} so")[1]


def plan_flags(job: Job, plan: Plan, knobs: Knobs, shape: Flags | None = None) -> Flags:
    """Every flag of a plan with its value, in the order in which people read them; `shape` has those of the model.

    Dropout is where it is priced, and none where it is not: fused attention and fusions differ with it.
    """
    dropout = "0.1" if job.stack.features.dropout else "0.0"
    return {
        **parallel_flags(job, plan),
        "--micro-batch-size": str(plan.micro_batch),
        "--global-batch-size": str(job.global_batch),
        "--seq-length": str(job.seq_len),
        **sharding_flags(job, plan, knobs),
        **recompute_flags(plan),
        **offload_flags(job, plan),
        **precision_flags(job),
        **recipe_flags(job, plan),
        **(model_flags(job.model, job.seq_len) if shape is None else shape),
        "--attention-dropout": dropout,
        "--hidden-dropout": dropout,
        **dispatcher_flags(job, plan),
        **fused_flags(job, plan),
        **overlap_flags(plan),
        **graph_flags(job, plan),
    }


def unexpressed(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What Megatron-LM lacks to run the plan of this model as it is priced, in words; nothing where it can."""
    return (*lacking(job.model), *unexpressed_plan(job, plan, knobs))


def unexpressed_plan(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """The same of the plan, whatever the model."""
    alike, device = plan.recompute_layers == () or plan.recompute != "full", job.cluster.device
    missing = {
        f"master weights and moments of {job.stack.features.optimizer_bytes} bytes": (
            job.stack.features.optimizer_bytes not in (12, *MOMENTS)
        ),
        "moments in bf16 without their sharding (ZeRO-0)": (
            job.stack.features.optimizer_bytes in MOMENTS and not distributed(plan, knobs)
        ),
        f"the device {device.name} ({device.vendor})": device.vendor not in VENDORS,
        f"experts that are split {plan.etp} ways with their gate in one kernel (--fix fused_experts=off)": (
            plan.etp > 1 and fuses_experts(job)
        ),
        "a scale for each row of 8-bit operands": "fp8" in job.dtype and job.stack.features.fp8_recipe == "rowwise",
        "recomputation of other layers on each stage": not alike,
        f"the schedule {plan.schedule}": plan.schedule not in ("1f1b", "interleaved"),
        "a share of the optimizer on the host without its sharding (ZeRO-0)": (
            knobs.offload > 0 and not distributed(plan, knobs)
        ),
        f"selective recomputation of other operators ({job.stack.features.selective})": (
            plan.recompute == "selective" and job.stack.features.selective != "core"
        ),
    }
    return lacks(missing)


def distributed(plan: Plan, knobs: Knobs) -> bool:
    """Whether the optimizer is Megatron's distributed one: what is offloaded has to be, which changes nothing alone.

    >>> from optimizer.job.plan import Knobs, Plan
    >>> distributed(Plan(zero_stage=0), Knobs(offload=0.5)), distributed(Plan(zero_stage=0, dp=2), Knobs(offload=0.5))
    (True, False)
    """
    return plan.zero_stage >= 1 or (knobs.offload > 0 and plan.dp * plan.cp == 1)


def arguments(flags: Flags) -> list[str]:
    """Flags as an argument list; a value of several words is as many arguments.

    >>> arguments({"--bf16": None, "--seq-length": "2048", "--recompute-modules": "mlp moe"})
    ['--bf16', '--seq-length', '2048', '--recompute-modules', 'mlp', 'moe']
    """
    return [part for flag, value in flags.items() for part in (flag, *(value or "").split())]


def typed(flag: str, text: str | None) -> object:
    """The value of a flag as Megatron-LM's parser would make it.

    >>> typed("--bf16", None), typed("--seq-length", "2048"), typed("--recompute-modules", "mlp moe")
    (True, 2048, ['mlp', 'moe'])
    >>> typed("--window-size", "1024,0"), typed("--moe-layer-freq", "([0]*3+[1]*58)")
    ([1024, 0], '([0]*3+[1]*58)')
    """
    if text is None:
        return True
    if flag in LISTS:
        return text.split()
    if flag == "--window-size":
        return [int(word) for word in text.split(",")]
    if flag in TEXTS:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parallel_flags(job: Job, plan: Plan) -> Flags:
    """Degrees of parallelism and the split of the layers over the pipeline."""
    sequence = plan.sequence_parallel and plan.tp > 1
    experts = job.model.experts is not None
    return given(
        {
            "--tensor-model-parallel-size": plan.tp,
            "--pipeline-model-parallel-size": plan.pp,
            **(layout_flags(plan, job.model) if plan.pp > 1 else {}),
            "--sequence-parallel": sequence,
            "--tp-comm-overlap": sequence and job.stack["tp_overlap"] > 0,
            "--context-parallel-size": plan.cp > 1 and str(plan.cp),
            "--expert-model-parallel-size": experts and str(plan.ep),
            "--expert-tensor-parallel-size": experts and str(plan.etp),
        }
    )


def layout_flags(plan: Plan, model: Model) -> Flags:
    """The split of the layers: nothing to say, first and last stage, or an explicit layout."""
    layers = model.layers
    if is_even(plan, layers) and not model.mtp_layers:
        if plan.vpp == 1:
            return {}
        return {"--num-layers-per-virtual-pipeline-stage": str(layers // (plan.pp * plan.vpp))}
    ends = first_and_last(stage_layers(plan, layers))
    if plan.vpp > 1 or ends is None or model.mtp_layers:
        return {"--pipeline-model-parallel-layout": plan_layout(plan, model)}
    names = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
    return {name: str(count) for name, count in zip(names, ends, strict=True) if count is not None}


def sharding_flags(job: Job, plan: Plan, knobs: Knobs) -> Flags:
    """Data parallelism: sharding, overlap, bucket size, offload of the optimizer."""
    replicas, fsdp = plan.dp * plan.cp, plan.zero_stage >= 2
    grouped = plan.zero_stage >= 1 and 0 < plan.shard < replicas
    overlap = job.stack["dp_overlap"] > 0 and replicas > 1
    moments = MOMENTS.get(job.stack.features.optimizer_bytes, False)
    return given(
        {
            "--use-distributed-optimizer": distributed(plan, knobs),
            "--num-distributed-optimizer-instances": grouped and str(replicas // plan.shard),
            "--use-megatron-fsdp": fsdp,
            "--data-parallel-sharding-strategy": fsdp and SHARDING[plan.zero_stage],
            "--ckpt-format": fsdp and "fsdp_dtensor",
            "--overlap-grad-reduce": overlap,
            "--overlap-param-gather": overlap and plan.zero_stage >= 1,
            # Megatron counts a bucket in parameters.
            "--ddp-bucket-size": round(knobs.bucket / job.stack.features.grad_bytes),
            "--nccl-communicator-config-path": bool(communicators(job, knobs)) and COMMUNICATORS,
            "--use-precision-aware-optimizer": bool(moments) or knobs.offload > 0,
            **dict.fromkeys(MOMENT_FLAGS, moments),
            "--optimizer-cpu-offload": knobs.offload > 0,
            "--optimizer-offload-fraction": knobs.offload > 0 and repr(knobs.offload),
        }
    )


def communicators(job: Job, knobs: Knobs) -> str:
    """The file (JSON, which is YAML too) that bounds the thread blocks of data-parallel communicators alone.

    Each block occupies one multiprocessor. Empty for devices whose multiprocessors are not known.

    Source: Megatron-LM, megatron/core/parallel_state.py, get_nccl_options.
    """
    sms = job.cluster.device.sms
    if sms <= 1:
        return ""
    blocks = max(1, round(knobs.comm_sm_share * sms))
    return json.dumps({group: {"max_ctas": blocks} for group in REPLICAS}, indent=1) + "\n"


def recompute_flags(plan: Plan) -> Flags:
    """Activation recomputation: of the attention core, of the modules that the plan names, or of whole layers."""
    modules = ("core_attn",) if plan.recompute == "selective" else modules_of(plan.recompute)
    if modules:
        return {"--recompute-granularity": "selective", "--recompute-modules": " ".join(modules)}
    if plan.recompute != "full":
        return {}
    method, count = ("block", plan.recompute_first) if plan.recompute_first else ("uniform", 1)
    return {"--recompute-granularity": "full", "--recompute-method": method, "--recompute-num-layers": str(count)}


def offload_flags(job: Job, plan: Plan) -> Flags:
    """Activations kept on the host: the modules whose inputs go there, and the share of them.

    Source: Megatron-Core developer guide, fine-grained activation offloading.
    """
    if not plan.activation_offload:
        return {}
    return {
        "--fine-grained-activation-offloading": None,
        "--offload-modules": " ".join(offloaded_modules(job.model, plan.recompute)),
        "--activation-offload-fraction": f"{plan.activation_offload / 100:.3g}",
    }


def precision_flags(job: Job) -> Flags:
    """Number format of weights and matrix products."""
    half, features, fp4 = job.dtype == "fp16", job.stack.features, "fp4" in job.dtype
    return given(
        {
            "--fp16" if half else "--bf16": True,
            "--fp8-format": "fp8" in job.dtype and "hybrid",
            "--fp4-format": fp4 and "e2m1",
            "--fp4-recipe": fp4 and "nvfp4",
            "--accumulate-allreduce-grads-in-fp32": features.grad_bytes == 4,
            "--grad-reduce-in-bf16": features.grad_bytes != 4 and not half,
            "--attention-backend": ATTENTION.get(features.attention, "unfused"),
            "--no-masked-softmax-fusion": features.attention == "unfused",
        }
    )


def recipe_flags(job: Job, plan: Plan) -> Flags:
    """The scaling of fp8: as asked for; or where Megatron-LM's own, delayed, would not fuse or recompute as priced.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, __post_init__.
    """
    rescaled = not set(RESCALED).isdisjoint(modules_of(plan.recompute))
    usual = MXFP8 if fuses_experts(job) else "tensorwise" if rescaled else ""
    recipe = job.stack.features.fp8_recipe or usual
    return {"--fp8-recipe": recipe} if "fp8" in job.dtype and recipe else {}


def dispatcher_flags(job: Job, plan: Plan) -> Flags:
    """How routed tokens travel: one copy for each destination needs Megatron's flex dispatcher, if they travel at all.

    Source: Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher: TP x EP above 1;
    transformer_config.py, moe_flex_dispatcher_backend.
    """
    if job.model.experts is None:
        return {}
    balanced: Flags = {"--moe-router-force-load-balancing": None} if job.stack.routing_forced else {}
    if plan.dispatcher == "alltoall" or plan.etp * plan.ep == 1:
        return {"--moe-token-dispatcher-type": "alltoall", **balanced}
    return {
        "--moe-token-dispatcher-type": "flex",
        "--moe-flex-dispatcher-backend": plan.dispatcher,
        "--moe-router-dtype": "fp32",
        **balanced,
    }


def fuses_experts(job: Job) -> bool:
    """Whether products of experts apply the gate themselves: a kernel for MXFP8 on devices with 4-bit units."""
    return job.model.experts is not None and job.quantised and job.software.features.fused_experts


def fused_flags(job: Job, plan: Plan) -> Flags:
    """Products of experts with their gate in one kernel, and tokens that HybridEP permutes on their way.

    Source: NVIDIA/Megatron-LM core_v0.19.0, megatron/core/transformer/transformer_config.py
    (use_transformer_engine_op_fuser, moe_permute_fusion_into_hybridep), moe/experts.py (_is_fused_impl_supported).
    """
    if not fuses_experts(job):
        return {}
    return given(
        {
            "--use-transformer-engine-op-fuser": True,
            "--moe-mlp-glu-interleave-size": job.model.gated_mlp and "32",
            "--moe-permute-fusion-into-hybridep": plan.dispatcher == "hybridep" and plan.etp * plan.ep > 1,
        }
    )


def graph_flags(job: Job, plan: Plan) -> Flags:
    """CUDA graphs of the parts of MoE layers that the software replays; whole layers that are recomputed exclude them.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, __post_init__ (cuda_graph_scope).
    """
    parts = job.stack.features.graphed
    scopes = [scope for scope, captured in SCOPES.items() if set(captured) <= set(parts)]
    if job.model.experts is None or not scopes or plan.recompute == "full":
        return {}
    preprocess = ["moe_preprocess"] * ("moe_router" in scopes)
    names = ("--cuda-graph-impl", "--cuda-graph-scope", "--te-rng-tracker")
    return dict(zip(names, ("transformer_engine", " ".join((*scopes, *preprocess)), None), strict=True))


def overlap_flags(plan: Plan) -> Flags:
    """An expert-parallel all-to-all that another micro-batch overlaps; gradients of weights wait so that more can hide.

    Source: Megatron-LM, megatron/core/model_parallel_config.py.
    """
    return dict.fromkeys(OVERLAP) if plan.overlap_exchange else {}
