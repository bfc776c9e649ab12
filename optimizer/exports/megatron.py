"""Command-line arguments of Megatron-LM (Megatron-Core) for a plan.

Source of the argument names: NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.errors import InputError
from optimizer.exports.layout import first_and_last, is_even, plan_layout, stage_layers
from optimizer.objectives.kernels.activations import offloaded_modules
from optimizer.recomputation import RESCALED, modules_of

if TYPE_CHECKING:
    from optimizer.answer import Answer
    from optimizer.job import Job
    from optimizer.model import Experts, Model
    from optimizer.plan import Knobs, Plan

# A flag without a value maps to None.
Flags = Mapping[str, str | None]

ACTIVATIONS: Mapping[str, str] = {
    "squared-relu": "--squared-relu",
    "relu2": "--squared-relu",
    "quick-geglu": "--quick-geglu",
}
POSITIONS: Mapping[str, str] = {"rope": "rope", "learned": "learned_absolute"}
SHARDING: Mapping[int, str] = {2: "optim_grads", 3: "optim_grads_params"}


def megatron_arguments(answer: Answer) -> list[str]:
    """Arguments of pretrain_gpt.py that launch the answer's plan; data, schedule and checkpoints are yours to add.

    Raises InputError when the answer holds no plan.
    """
    if answer.plan is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    return arguments(plan_flags(answer.job, answer.plan, answer.knobs))


def plan_flags(job: Job, plan: Plan, knobs: Knobs) -> dict[str, str | None]:
    """Every flag of a plan with its value, in the order in which people read them."""
    return {
        **parallel_flags(job, plan),
        **batch_flags(job, plan),
        **sharding_flags(job, plan, knobs),
        **recompute_flags(plan),
        **offload_flags(job, plan),
        **precision_flags(job),
        **recipe_flags(job, plan),
        **model_flags(job.model),
        **dispatcher_flags(plan),
    }


def arguments(flags: Flags) -> list[str]:
    """Flags as an argument list; a value of several words is as many arguments.

    >>> arguments({"--bf16": None, "--seq-length": "2048", "--recompute-modules": "mlp moe"})
    ['--bf16', '--seq-length', '2048', '--recompute-modules', 'mlp', 'moe']
    """
    return [part for flag, value in flags.items() for part in (flag, *(value or "").split())]


def parallel_flags(job: Job, plan: Plan) -> dict[str, str | None]:
    """Degrees of parallelism and the split of the layers over the pipeline."""
    flags: dict[str, str | None] = {
        "--tensor-model-parallel-size": str(plan.tp),
        "--pipeline-model-parallel-size": str(plan.pp),
    }
    flags |= pipeline_flags(plan, job.model)
    if plan.sequence_parallel and plan.tp > 1:
        flags["--sequence-parallel"] = None
    if plan.sequence_parallel and plan.tp > 1 and job.stack["tp_overlap"] > 0:
        flags["--tp-comm-overlap"] = None
    if plan.cp > 1:
        flags["--context-parallel-size"] = str(plan.cp)
    if job.model.experts:
        flags["--expert-model-parallel-size"] = str(plan.ep)
        flags["--expert-tensor-parallel-size"] = str(plan.etp)
    return flags


def pipeline_flags(plan: Plan, model: Model) -> dict[str, str | None]:
    """The schedule if it is no usual one, and how the layers lie on the stages."""
    if plan.pp == 1:
        return {}
    return zero_bubble_flags(plan) | layout_flags(plan, model)


def zero_bubble_flags(plan: Plan) -> dict[str, str | None]:
    """Schedules that only a fork of Megatron-LM runs, by the micro-batches whose weights' gradients may wait.

    Source: sail-sg/zero-bubble-pipeline-parallelism, README.md.
    """
    pending = {"zero-bubble": plan.pp, "zero-bubble-2p": 2 * plan.pp}.get(plan.schedule)
    return {"--enable-zero-bubble": None, "--zero-bubble-max-pending-backward": str(pending)} if pending else {}


def layout_flags(plan: Plan, model: Model) -> dict[str, str | None]:
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


def batch_flags(job: Job, plan: Plan) -> dict[str, str | None]:
    """Sequence length and batch."""
    return {
        "--micro-batch-size": str(plan.micro_batch),
        "--global-batch-size": str(job.global_batch),
        "--seq-length": str(job.seq_len),
    }


def sharding_flags(job: Job, plan: Plan, knobs: Knobs) -> dict[str, str | None]:
    """Data parallelism: sharding, overlap, bucket size, offload of the optimizer."""
    flags: dict[str, str | None] = {}
    replicas = plan.dp * plan.cp
    if plan.zero_stage >= 1:
        flags["--use-distributed-optimizer"] = None
    if plan.zero_stage >= 1 and 0 < plan.shard < replicas:
        flags["--num-distributed-optimizer-instances"] = str(replicas // plan.shard)
    if plan.zero_stage >= 2:
        flags |= {"--use-megatron-fsdp": None, "--data-parallel-sharding-strategy": SHARDING[plan.zero_stage]}
    if job.stack["dp_overlap"] > 0 and replicas > 1:
        flags["--overlap-grad-reduce"] = None
        if plan.zero_stage >= 1:
            flags["--overlap-param-gather"] = None
        # Megatron counts a bucket in parameters.
        flags["--ddp-bucket-size"] = str(round(knobs.bucket / job.stack.features.grad_bytes))
    if knobs.offload > 0:
        flags |= {
            "--use-precision-aware-optimizer": None,
            "--optimizer-cpu-offload": None,
            "--optimizer-offload-fraction": f"{knobs.offload:.3g}",
        }
    return flags


def recompute_flags(plan: Plan) -> dict[str, str | None]:
    """Activation recomputation: of the attention core, of the modules that the plan names, or of whole layers."""
    modules = ("core_attn",) if plan.recompute == "selective" else modules_of(plan.recompute)
    if modules:
        return {"--recompute-granularity": "selective", "--recompute-modules": " ".join(modules)}
    if plan.recompute == "full" and not plan.recompute_layers:
        return {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": "1"}
    if plan.recompute == "full" and any(plan.recompute_layers):
        per_virtual_stage = str(recomputed_per_virtual_stage(plan))
        return {
            "--recompute-granularity": "full",
            "--recompute-method": "block",
            "--recompute-num-layers": per_virtual_stage,
        }
    return {}


def offload_flags(job: Job, plan: Plan) -> dict[str, str | None]:
    """Activations kept on the host: the modules whose inputs go there, and the share of them.

    Source: Megatron-Core developer guide, fine-grained activation offloading.
    """
    if not plan.activation_offload:
        return {}
    modules = " ".join(offloaded_modules(job.model, plan.recompute))
    share = f"{plan.activation_offload / 100:.3g}"
    flags: dict[str, str | None] = {"--fine-grained-activation-offloading": None, "--offload-modules": modules}
    return flags | {"--activation-offload-fraction": share}


def recomputed_per_virtual_stage(plan: Plan) -> int:
    """Layers that every virtual stage must recompute so that each stage recomputes at least those it has to.

    Megatron-LM takes one number for all: stages that need to recompute fewer layers recompute more than the plan says.

    Source: Megatron-LM, megatron/training/arguments.py, --recompute-num-layers with --recompute-method block.

    >>> from optimizer.plan import Plan
    >>> recomputed_per_virtual_stage(Plan(pp=2, vpp=2, recompute="full", recompute_layers=(3, 0)))
    2
    """
    return -(-max(plan.recompute_layers, default=0) // plan.vpp)


def launch_notes(plan: Plan) -> tuple[str, ...]:
    """What the arguments cannot say of a plan, for a person to know before launching it."""
    notes = []
    if plan.recompute == "full" and any(plan.recompute_layers):
        per_stage, counts = recomputed_per_virtual_stage(plan) * plan.vpp, " ".join(map(str, plan.recompute_layers))
        if {*plan.recompute_layers} != {per_stage}:
            notes.append(
                f"Megatron-LM recomputes as many layers on every stage, {per_stage}; the plan recomputes {counts}, so "
                "that the step is slower than predicted"
            )
    if plan.schedule.startswith("zero-bubble"):
        notes.append("zero-bubble schedules need the fork sail-sg/zero-bubble-pipeline-parallelism")
    return tuple(notes)


def precision_flags(job: Job) -> dict[str, str | None]:
    """Number format of weights and matrix products."""
    flags: dict[str, str | None] = {"--fp16": None} if job.dtype == "fp16" else {"--bf16": None}
    if "fp8" in job.dtype:
        flags["--fp8-format"] = "hybrid"
    if "fp4" in job.dtype:
        flags |= {"--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"}
    if job.stack.features.grad_bytes == 4:
        flags["--accumulate-allreduce-grads-in-fp32"] = None
    flags["--attention-backend"] = "flash" if job.stack.features.attention.startswith("flash") else "unfused"
    return flags


def recipe_flags(job: Job, plan: Plan) -> dict[str, str | None]:
    """The scaling of fp8 where Megatron-LM's own choice, delayed scaling, would not recompute what the plan does.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, __post_init__.
    """
    return {"--fp8-recipe": "tensorwise"} if "fp8" in job.dtype and rescales(plan) else {}


def rescales(plan: Plan) -> bool:
    """Whether the plan recomputes outputs that are quantised again."""
    return not set(RESCALED).isdisjoint(modules_of(plan.recompute))


def model_flags(model: Model) -> dict[str, str | None]:
    """Shape of the model."""
    flags: dict[str, str | None] = {
        "--num-layers": str(model.layers),
        "--hidden-size": str(model.hidden),
        "--ffn-hidden-size": str(model.ffn_hidden),
        "--num-attention-heads": str(model.heads),
    }
    if model.kv_heads != model.heads and model.mla is None:
        flags |= {"--group-query-attention": None, "--num-query-groups": str(model.kv_heads)}
    if model.mla is None and model.head_dim * model.heads != model.hidden:
        flags["--kv-channels"] = str(model.head_dim)
    if model.activation == "clamped-swiglu":
        flags |= {"--quick-geglu": None, "--glu-linear-offset": "1.0", "--activation-func-clamp-value": "7.0"}
    elif model.gated_mlp:
        flags["--swiglu"] = None
    elif model.activation in ACTIVATIONS:
        flags[ACTIVATIONS[model.activation]] = None
    if model.norm.startswith("rms"):
        flags["--normalization"] = "RMSNorm"
    flags["--position-embedding-type"] = POSITIONS.get(model.position, "none")
    flags["--max-position-embeddings"] = str(model.max_seq_len)
    flags["--vocab-size"] = str(model.vocab)
    switches = {
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--disable-bias-linear": not model.mlp_bias,
        "--add-qkv-bias": model.attention_bias and not model.mlp_bias,
        "--qk-layernorm": model.qk_norm,
    }
    flags |= {flag: None for flag, on in switches.items() if on}
    if model.window:
        flags["--window-size"] = f"({model.window.size},0)"
        if model.window.global_every:
            flags["--window-attn-skip-freq"] = str(model.window.global_every)
    return flags | latent_attention_flags(model) | (expert_flags(model.layers, model.experts) if model.experts else {})


def latent_attention_flags(model: Model) -> dict[str, str | None]:
    """Multi-head latent attention and multi-token prediction."""
    flags: dict[str, str | None] = {}
    if model.mla:
        flags["--multi-latent-attention"] = None
        if model.mla.q_rank:
            flags["--q-lora-rank"] = str(model.mla.q_rank)
        flags |= {
            "--kv-lora-rank": str(model.mla.kv_rank),
            "--qk-head-dim": str(model.mla.nope_dim),
            "--qk-pos-emb-head-dim": str(model.mla.rope_dim),
            "--v-head-dim": str(model.mla.v_dim),
        }
    if model.mtp_layers:
        flags["--mtp-num-layers"] = str(model.mtp_layers)
    return flags


def dispatcher_flags(plan: Plan) -> dict[str, str | None]:
    """How routed tokens travel: kernels of their own sit behind Megatron's flex dispatcher.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, moe_flex_dispatcher_backend.
    """
    if plan.dispatcher == "alltoall":
        return {}
    return {"--moe-token-dispatcher-type": "flex", "--moe-flex-dispatcher-backend": plan.dispatcher}


def expert_flags(layers: int, experts: Experts) -> dict[str, str | None]:
    """Mixture of experts: sizes, routing, and which layers have it."""
    flags: dict[str, str | None] = {
        "--num-experts": str(experts.count),
        "--moe-router-topk": str(experts.top_k),
        "--moe-ffn-hidden-size": str(experts.ffn_hidden),
        "--moe-token-dispatcher-type": "alltoall",
        "--moe-grouped-gemm": None,
    }
    if experts.group_limit:
        flags |= {
            "--moe-router-num-groups": str(experts.groups),
            "--moe-router-group-topk": str(experts.group_limit),
        }
    if experts.shared_ffn_hidden:
        flags["--moe-shared-expert-intermediate-size"] = str(experts.shared_ffn_hidden)
    if experts.first_dense_layers or experts.every > 1:
        flags["--moe-layer-freq"] = layer_pattern(layers, experts)
    return flags


def layer_pattern(layers: int, experts: Experts) -> str:
    """Which layers are mixtures, as the Python list that --moe-layer-freq evaluates: 1 marks a mixture.

    >>> from optimizer.model import Experts
    >>> layer_pattern(61, Experts(count=256, top_k=8, ffn_hidden=2048, first_dense_layers=3))
    '([0]*3+[1]*58)'
    """
    dense, every = experts.first_dense_layers, experts.every
    head = [f"[0]*{dense}"] if dense else []
    if every == 1:
        return f"({'+'.join([*head, f'[1]*{layers - dense}'])})"
    period = ",".join(["0"] * (every - 1) + ["1"])
    whole, rest = divmod(layers - dense, every)
    tail = [f"[0]*{rest}"] if rest else []
    return f"({'+'.join([*head, f'[{period}]*{whole}', *tail])})"
