"""The names of flags of Megatron-LM and Megatron-DeepSpeed, what each says of a launch, and how one is read.

Source of the names and defaults: NVIDIA/Megatron-LM, megatron/training/arguments.py and
megatron/core/distributed/distributed_data_parallel.py; deepspeedai/Megatron-DeepSpeed, megatron/arguments.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optimizer.base.units import is_count
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.machines import LAUNCHER

Meaning = Callable[[Launch, Flag], Any]  # the setting that a flag states, None for none
# Arguments that make a plan or a job, with the name of their value.
COUNTS: Mapping[str, str] = {
    "--tensor-model-parallel-size": "tp",
    "--pipeline-model-parallel-size": "pp",
    "--context-parallel-size": "cp",
    "--expert-model-parallel-size": "ep",
    "--expert-tensor-parallel-size": "etp",
    "--num-layers-per-virtual-pipeline-stage": "layers_per_virtual_stage",
    "--num-virtual-stages-per-pipeline-rank": "vpp",
    "--decoder-first-pipeline-num-layers": "first",
    "--decoder-last-pipeline-num-layers": "last",
    "--num-distributed-optimizer-instances": "instances",
    "--micro-batch-size": "micro_batch",
    "--global-batch-size": "global_batch",
    "--seq-length": "seq_len",
    "--num-layers": "layers",
    "--hidden-size": "hidden",
    "--ffn-hidden-size": "ffn_hidden",
    "--num-attention-heads": "heads",
    "--num-query-groups": "kv_heads",
    "--kv-channels": "head_dim",
    "--vocab-size": "vocab",
    "--num-experts": "experts",
    "--moe-router-topk": "top_k",
    "--recompute-num-layers": "recompute_num_layers",
    "--ddp-bucket-size": "bucket",
    "--world-size": "gpus",
    "--nnodes": "nodes",
    "--nproc-per-node": "gpus_per_node",
}
TEXTS: Mapping[str, str] = {
    "--recompute-granularity": "granularity",
    "--recompute-method": "recompute_method",
    "--data-parallel-sharding-strategy": "sharding",
    "--pipeline-model-parallel-layout": "layout",
    "--fp8-format": "fp8",
    "--fp8-recipe": "fp8_recipe",
    "--activation-offload-fraction": "offload_fraction",
    "--moe-token-dispatcher-type": "dispatcher",
    "--moe-flex-dispatcher-backend": "flex_backend",
    "--optimizer-offload-fraction": "optimizer_offload",
    "--nccl-communicator-config-path": "communicators",
}
LISTS: Mapping[str, str] = {"--recompute-modules": "recompute_modules"}
SWITCHES: Mapping[str, str] = {
    "--sequence-parallel": "sequence_parallel",
    "--use-distributed-optimizer": "distributed_optimizer",
    "--use-megatron-fsdp": "fsdp",
    "--recompute-activations": "recompute_activations",
    "--fine-grained-activation-offloading": "offloads",
    "--overlap-moe-expert-parallel-comm": "overlap_exchange",
    "--bf16": "bf16",
    "--fp16": "fp16",
    "--accumulate-allreduce-grads-in-fp32": "fp32_gradients",
    "--grad-reduce-in-bf16": "bf16_gradients",
    "--optimizer-cpu-offload": "offloads_optimizer",
}
MEGATRON, MEGATRON_DEEPSPEED = "Megatron-LM", "Megatron-DeepSpeed"
ULYSSES = "--ds-sequence-parallel-size"
FP32_GRADIENTS = "--accumulate-allreduce-grads-in-fp32"  # which bf16 has by itself, and fp16 has not
NAMED: Mapping[str, str] = {**COUNTS, **TEXTS, **LISTS, **SWITCHES}
# Where the reader of arguments and this vocabulary differ, and what a plan's variable is written with.
PLAN_FLAGS: Mapping[str, Sequence[str]] = {
    "tp": ("--tensor-model-parallel-size",),
    "cp": ("--context-parallel-size", ULYSSES),
    "pp": ("--pipeline-model-parallel-size",),
    "vpp": (
        "--num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout",
    ),
    "ep": ("--expert-model-parallel-size", "--moe-expert-parallel-size"),
    "etp": ("--expert-tensor-parallel-size",),
    "micro_batch": ("--micro-batch-size",),
    "global_batch": ("--global-batch-size",),
    "seq_len": ("--seq-length",),
    "sequence_parallel": ("--sequence-parallel",),
    "zero_stage": ("--data-parallel-sharding-strategy", "--zero-stage", "--use-distributed-optimizer"),
    "shard": ("--num-distributed-optimizer-instances",),
    "recompute": (
        "--recompute-granularity",
        "--recompute-activations",
        "--checkpoint-activations",
        "--deepspeed-activation-checkpointing",
    ),
    "overlap_exchange": ("--overlap-moe-expert-parallel-comm",),
    "activation_offload": ("--fine-grained-activation-offloading",),
    "layers_per_stage": (
        "--pipeline-model-parallel-layout",
        "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers",
    ),
    "recompute_first": ("--recompute-num-layers",),
    "dtype": ("--fp8-format", "--fp8-hybrid", "--fp8-e4m3", "--fp4-format", "--bf16", "--fp16"),
}
SHAPE_COUNTS: Mapping[str, str] = {
    **{flag: name for flag, name in COUNTS.items() if name in ("layers", "hidden", "ffn_hidden", "heads")},
    **{flag: name for flag, name in COUNTS.items() if name in ("head_dim", "vocab", "experts", "top_k")},
    "--max-position-embeddings": "max_seq_len",
    "--topk": "top_k",
    "--moe-ffn-hidden-size": "expert_ffn",
    "--moe-shared-expert-intermediate-size": "shared_ffn",
    "--shared-moe-ffn-hidden-size": "shared_ffn",
    "--q-lora-rank": "q_rank",
    "--kv-lora-rank": "kv_rank",
    "--qk-head-dim": "nope_dim",
    "--qk-pos-emb-head-dim": "rope_dim",
    "--qk-nope-head-dim": "nope_dim",
    "--qk-rope-head-dim": "rope_dim",
    "--v-head-dim": "v_dim",
    "--mtp-num-layers": "mtp_layers",
    "--window-attn-skip-freq": "window_every",
}
SHAPE_SWITCHES: Mapping[str, tuple[str, Any]] = {
    "--swiglu": ("gated_mlp", True),
    "--quick-geglu": ("gated_mlp", True),
    "--squared-relu": ("activation", "squared-relu"),
    "--untie-embeddings-and-output-weights": ("tied_embeddings", False),
    "--disable-bias-linear": ("mlp_bias", False),
    "--add-qkv-bias": ("attention_bias", True),
    "--qk-layernorm": ("qk_norm", True),
    "--embed-layernorm": ("embedding_norm", True),
    "--use-rotary-position-embeddings": ("position", "rope"),
}
SOFTWARE_SWITCHES: Mapping[str, tuple[str, Any]] = {
    "--overlap-grad-reduce": ("reduce_overlap", True),
    "--overlap-param-gather": ("gather_overlap", True),
    "--tp-comm-overlap": ("tp_overlap", True),
    "--no-overlap-p2p-communication": ("p2p_overlap", False),
    "--enable-cuda-graph": ("cuda_graphs", True),
    "--external-cuda-graph": ("cuda_graphs", True),
    "--grad-reduce-in-bf16": ("grad_bytes", 2),
    "--no-gradient-accumulation-fusion": ("fused_accumulation", False),
    "--use-flash-attn": ("attention", "flash"),
    "--use-flash-attn-v2": ("attention", "flash"),
    "--use-flash-attn-builder": ("attention", "flash"),
    "--optimizer-cpu-offload": ("offload", 1.0),
    "--cpu-optimizer": ("offload", 1.0),
}
EXPERT_DEGREES = ("--expert-model-parallel-size", "--moe-expert-parallel-size")
# Embedding and head count as layers when the stages are cut.
COUNTED_ENDS = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
LENGTHS = ("--train-tokens", "--train-samples", "--train-iters")
# Read with another flag, or the framework's own way to say what is the default here.
QUIET = {
    *("--group-query-attention", "--multi-latent-attention", "--moe-layer-freq", "--moe-enable-deepep"),
    *("--offload-modules", "--use-precision-aware-optimizer", "--zero-bubble-max-pending-backward"),
    *("--num-key-value-heads", "--attention-head-type", "--window-size", "--expert-interval", "--normalization"),
    *("--position-embedding-type", "--attention-backend", "--cuda-graph-impl", "--main-grads-dtype"),
    *("--fp8-hybrid", "--fp8-e4m3", "--fp4-format", "--fp4-recipe", "--pad-vocab-size-to", "--tokenizer-type"),
    *("--deepspeed", "--deepspeed-config", "--no-pipeline-parallel", "--zero-stage", "--moe-expert-parallel-size"),
    *("--checkpoint-activations", "--deepspeed-activation-checkpointing", "--checkpoint-num-layers"),
    *(*COUNTED_ENDS, *LENGTHS, ULYSSES),
}
UNSEARCHED: Mapping[str, str] = {
    "--rampup-batch-size": "the batch grows at first; the price is that of the full batch",
    "--step-batch-size-schedule": "the batch grows at first; the price is that of the full batch",
    "--curriculum-learning-legacy": "sequences grow at first; the price is that of the full length",
    "--delay-wgrad-compute": "is not priced",
    "--delay-grad-reduce": "is not priced",
    "--moe-pad-expert-input-to-capacity": "is not priced",
    "--tp-comm-bulk-dgrad": "is not priced",
    "--cpu-offloading-num-layers": "is not priced: activations are taken to stay on the device",
    "--enable-zero-bubble": "the schedule of a fork",
}


def note_flags(launch: Launch, last: Mapping[str, Flag], table: Sequence[tuple[str, str, Meaning]]) -> None:
    """Note the settings that a table of flag, setting and meaning finds; of one that comes twice the last counts."""
    for name, key, means in table:
        if name in last and (setting := means(launch, last[name])) is not None:
            launch.say(key, setting, last[name].written)


def is_known(name: str) -> bool:
    """Whether a flag means something to a launch."""
    known = (NAMED, SHAPE_COUNTS, SHAPE_SWITCHES, SOFTWARE_SWITCHES, QUIET, LAUNCHER, UNSEARCHED)
    return any(name in names for names in known)


def whole_number(launch: Launch, flag: Flag) -> int | None:
    """The whole number of a flag; None, and a problem of the launch, where it is none."""
    text = flag.value.replace("_", "")
    if is_count(text):
        return int(text)
    launch.problems.append(f"{flag.written} {flag.value}: {left_open(flag) or 'no whole number'}")
    return None


def left_open(flag: Flag) -> str:
    """What a value hangs on that nobody gave, and how to give it; "" where it is told."""
    if not flag.unknown:
        return ""
    if flag.unknown.isdigit():
        return f"which is argument {flag.unknown} of the script (--args)"
    how = f"--env {flag.unknown}=..., or --args" if flag.unknown.isidentifier() else "--env, --args"
    return f"which hangs on {flag.unknown}, that the script does not set ({how})"
