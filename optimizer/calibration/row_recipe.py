"""What the words of a measured row say of its recipe: kernels, formats, sharding, schedule, recomputed layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.calibration.row_ablation import ablated
from optimizer.calibration.row_release import container, drops_tokens
from optimizer.frameworks.megatron.arguments import expanded
from optimizer.frameworks.software import switched
from optimizer.job.hardware import Cluster
from optimizer.job.recomputation import RECOMPUTE, written
from optimizer.job.stack import FP8_RECIPES, GRAPHED, Fixed, Stack

# What it hides of these collectives: three pairs of runs that differ in nothing else, Llama 3.1 8B on 64 H100 at TP 8,
# save 0.26, 0.21 and 0.17 s of 0.92 (pytorch/torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md).
ASYNC_TP = 0.25
_RECOMPUTED = re.compile(r"recompute_num_layers=(\d+)")
_LAYOUT = re.compile(r"layout[ =]'?(E[tmL|()*\d]+L)\b")
_SCOPE = re.compile(r"cuda_graph_scope=\[?([^\]=]*)\]?")
_AWAY = re.compile(r"activation offload(?:ing)?:? ([a-z_\d]+(?:,\s?[a-z_\d]+)*)", re.IGNORECASE)
_OFF = re.compile(r"\b(?:ub_)?(?:(tp)_comm_overlap|overlap_(p2p)_comm)=false\b")
_MODULES = re.compile(r"recompute_modules=\[([^\]]*)\]")
# what tables call the modules of optimizer.job.recomputation
_WORDS = {
    **dict.fromkeys(("norm", "norms", "layer_norm"), "layernorm"),
    **dict.fromkeys(("act", "activation"), "moe_act"),
    **dict.fromkeys(("shared_expert", "shared"), "shared_experts"),
    **dict.fromkeys(("up_proj", "mla_up"), "mla_up_proj"),
    **dict.fromkeys(("attn", "core", "core_attention"), "core_attn"),
}


def under_recipe(row: Mapping[str, str], stack: Stack) -> Stack:
    """The stack with the features that the row names.

    >>> row = {"notes": "experts force-balanced", "ep_overlap": "on"}
    >>> features = under_recipe(row, Stack(name="mine")).features
    >>> features.balanced_experts, features.overlap_exchange
    (True, False)
    """
    changes = {**_kernels(row, stack), **_notes(row.get("notes", "").lower()), **ablated(row.get("notes", ""))}
    if "real routing" in row.get("notes", "").lower() or row.get("balance", "").lower() == "real":
        changes["routing"] = "trained"
    elif row.get("balance", "").lower() == "forced":
        changes["balanced_experts"] = True
    elif _trains_afresh(row):
        changes["routing"] = "fresh"
    if recipe := fp8_recipe(row):
        changes["fp8_recipe"] = recipe
    if (products := narrow_products(row)) != "all":
        changes["narrow_products"] = products
    if row.get("ep_overlap"):
        changes["overlap_exchange"] = False  # what hides is a matter of the plan (overlaps)
    if _rematerialises(row):
        changes["selective"] = "qkv"
    if _eager(row):
        changes["fused_norm"] = False
    if drops_tokens(row) or _free_of_waits(row):
        changes["synchronised"] = False
    if _fuses_experts(row):
        changes["fused_experts"] = True
    stack = replace(stack, features=replace(stack.features, **changes)) if changes else stack
    if off := switched_off(row):
        stack = switched(stack, off)
    return with_async_tp(stack) if "async tp" in row.get("notes", "").lower() else stack


def switched_off(row: Mapping[str, str]) -> dict[str, bool]:
    """The overlaps that a row's notes say its launch had switched off, as optimizer.frameworks calls them.

    >>> switched_off({"notes": "ub_tp_comm_overlap=False, overlap_p2p_comm=False"})
    {'tp_overlap': False, 'p2p_overlap': False}
    """
    return {f"{tp or p2p}_overlap": False for tp, p2p in _OFF.findall(row.get("notes", "").lower())}


def fp8_recipe(row: Mapping[str, str]) -> str:
    """How the operands of a row's narrow products are scaled, "" where it does not say.

    >>> fp8_recipe({"dtype": "fp8 rowwise"}), fp8_recipe({"dtype": "fp8", "notes": "tensorwise scaling"})
    ('rowwise', 'tensorwise')
    """
    text = f"{row.get('dtype', '')} {row.get('notes', '')}".lower().replace("row-wise", "rowwise")
    if not any(narrow in row.get("dtype", "").lower() for narrow in ("fp8", "float8")):
        return ""
    said = row.get("dtype", "").lower().replace("row-wise", "rowwise")
    return next((name for words in (said, text) for name in FP8_RECIPES[1:] if name in words), "")


def narrow_products(row: Mapping[str, str]) -> str:
    """Which products a row's narrow format is for.

    >>> [narrow_products({"dtype": f"mxfp8 {words}"}) for words in ("linears only", "grouped GEMMs only", "")]
    ['linears', 'experts', 'all']
    """
    match = re.search(r"\b(linears?|grouped gemms?|experts?) only\b", row.get("dtype", "").lower())
    if match is None:
        return "all"
    return "linears" if match[1].startswith("linear") else "experts"


def with_async_tp(stack: Stack) -> Stack:
    """The stack with collectives of tensor parallelism cut into pieces that travel while products of others run.

    >>> with_async_tp(Stack(name="mine"))["tp_overlap"]
    0.25
    """
    parameters = {name: value for name, value in stack.parameters.items() if name != "tp_overlap"}
    value = max(ASYNC_TP, stack["tp_overlap"])
    fixed = {**stack.fixed, "tp_overlap": Fixed(value=value, why="asynchronous tensor parallelism, as the row says")}
    return replace(stack, parameters=parameters, fixed=fixed)


def recomputation(row: Mapping[str, str], assumed: list[str]) -> str:
    """The mode of recomputation that a row names, or that its framework always has.

    >>> recomputation({"recompute": "selective", "notes": "recompute_modules=['moe_act', 'layernorm']"}, [])
    'layernorm+moe_act'
    >>> recomputation({"recompute": "selective:norm,act"}, [])
    'layernorm+moe_act'
    """
    named, _, listed = row.get("recompute", "").lower().partition(":")
    modules = _MODULES.search(row.get("notes", ""))
    if named == "selective" and (listed or modules):
        words = re.findall(r"\w+", listed or (modules[1] if modules else ""))
        named = written("+".join(_WORDS.get(word, word) for word in words))
        if named not in RECOMPUTE:
            assumed.append(f"selective recomputation for {row['recompute']}")
            named = "selective"
    if named not in RECOMPUTE and _rematerialises(row):
        assumed.append("recomputation of all but the projections into attention, as in MaxText's GPU scripts")
        return "selective"
    return named if named in RECOMPUTE else "none"


def kept_away(row: Mapping[str, str]) -> tuple[str, ...]:
    """The modules whose inputs a row's notes say are kept on the host.

    >>> kept_away({"notes": "fine-grained activation offload expert_fc1,moe_act; A2A_OVERLAP=1"})
    ('expert_fc1', 'moe_act')
    """
    match = _AWAY.search(row.get("notes", ""))
    return tuple(re.findall(r"\w+", match[1])) if match else ()


def recomputed_first(row: Mapping[str, str]) -> int:
    """How many first layers every virtual stage recomputes, 0 where the row gives no number.

    >>> recomputed_first({"recompute": "full", "notes": "recompute_num_layers=5; full recompute of 5 layers only"})
    5
    """
    match = _RECOMPUTED.search(row.get("notes", ""))
    return int(match[1]) if match and row.get("recompute") == "full" else 0


def printed_layout(row: Mapping[str, str], layers: int, stages: int) -> tuple[tuple[int, ...], bool] | None:
    """Layers on each of so many virtual stages as the notes print them, and whether prediction layers are among them.

    None where there is no layout, or one of other layers or stages.

    >>> printed_layout({"notes": "layout Et|(tt|)*2L (4 stages); BF16"}, 5, 4)
    ((1, 2, 2, 0), False)
    """
    match = _LAYOUT.search(row.get("notes", ""))
    if match is None:
        return None
    letters = expanded(match[1]).split("|")
    counts = tuple(stage.count("t") for stage in letters)
    if len(counts) != stages or sum(counts) != layers:
        return None
    return counts, any("m" in stage for stage in letters)


def sharding(row: Mapping[str, str], stack: Stack, cluster: Cluster) -> tuple[int, int]:
    """ZeRO stage and sharding group of a row's description; FSDP2 shards weights, wherever it is named."""
    text = row.get("sharding", "").lower() or ("fsdp2" if "fsdp2" in row.get("notes", "").lower() else "")
    group = re.search(r"within (\d+)|fsdp=(\d+)", text)
    shard = int(next(g for g in group.groups() if g)) if group else 0
    if group and group[2] == "1":  # a column that only says yes
        shard = 0
    if not text:
        return stack.features.default_zero, 0
    if "no fsdp" in text or text.startswith("1") or "zero-1" in text:
        return 1, shard if text.startswith("1") else 0
    if "shard_grad_op" in text or text.startswith("2"):
        return 2, shard
    if "hsdp" in text:
        return 3, cluster.gpus_per_node
    if "fsdp" in text or text.startswith("3"):
        return 3, shard
    return (0, 0) if text.startswith("0") else (stack.features.default_zero, 0)


def schedule(row: Mapping[str, str], vpp: int) -> str:
    """The pipeline schedule that a row's framework and virtual stages imply."""
    framework = row.get("framework", "").lower()
    if "zb" in framework:
        return "zero-bubble-2p" if "zb-2p" in framework else "zero-bubble"
    return "interleaved" if vpp > 1 else "1f1b"


def usual_vpp(stack: Stack, layers: int, pp: int, assumed: list[str]) -> int:
    """Virtual stages of a run that names none: the most that its software usually has and that divide the layers."""
    most = stack.features.default_vpp if pp > 1 else 1
    vpp = max((v for v in range(1, most + 1) if layers % (pp * v) == 0), default=1)
    if vpp > 1:
        assumed.append(f"vpp {vpp}")
    return vpp


def dispatcher(row: Mapping[str, str], stack: Stack) -> str:
    """How a row's routed tokens travel: what its column or its notes say, else what its software usually has.

    >>> [dispatcher({"dispatcher": name}, Stack(name="mine")) for name in ("DeepEP+UCCL", "HybridEP", "alltoall", "")]
    ['deepep', 'hybridep', 'alltoall', 'alltoall']
    """
    text = row.get("dispatcher", "").lower() or row.get("notes", "").lower()
    if "hybridep" in text or "hybrid-ep" in text:
        return "hybridep"
    if "deepep" in text or "uccl" in text:
        return "deepep"
    return "alltoall" if "alltoall" in text or "all-to-all" in text else stack.usual_dispatcher


def overlaps(row: Mapping[str, str]) -> bool:
    """Whether a row says that its exchange ran beside other micro-batches.

    >>> overlaps({"ep_overlap": "on"}), overlaps({"ep_overlap": "off"}), overlaps({})
    (True, False, False)
    """
    return row.get("ep_overlap", "").lower() == "on"


def number_format(row: Mapping[str, str], cluster: Cluster, stack: Stack, assumed: list[str]) -> str:
    """The format of a row's matrix products, among those that its device has."""
    text = row.get("dtype", "").lower()
    usual = stack.features.default_dtype
    if not text and usual in cluster.device.peak_flops:
        assumed.append(f"dtype {usual}")
        return usual
    if "fp4" in text and "fp4" in cluster.device.peak_flops:
        return "fp4"
    if "fp8" in text or "fp4" in text:
        return "fp8"
    if "bf16" not in cluster.device.peak_flops:
        return "fp16"
    return "bf16"


def graphed_parts(notes: str) -> tuple[str, ...]:
    """Parts of a mixture's layer that graphs replay while the rest is launched, none where whole layers are replayed.

    The router's graph holds the shared experts.

    Source: NVIDIA/Megatron-LM @3c1b98efdc^, DeepSeek-V3 GB200 guide, section 2.3 (--cuda-graph-scope).

    >>> graphed_parts("cuda_graph_scope=['moe_router', 'moe_preprocess']"), graphed_parts("cuda_graph_scope=full")
    (('router', 'shared_experts'), ())
    """
    match = _SCOPE.search(notes)
    words = re.findall(r"\w+", match[1]) if match else []
    if not {"attn", "moe_router"} & set(words):
        return ()
    return ("attention",) * ("attn" in words) + GRAPHED[1:] * ("moe_router" in words)


def _rematerialises(row: Mapping[str, str]) -> bool:
    """MaxText always recomputes by some policy: without one its published runs would need several times the memory."""
    return any("maxtext" in row.get(column, "").lower() for column in ("framework", "stack"))


def _trains_afresh(row: Mapping[str, str]) -> bool:
    """Torchtitan's benchmarks are the first steps of a new model, whose router is untrained unless balance is forced.

    Source: pytorch/ao @36027d8, torchao/prototype/moe_training/README.md: 50 to 200 steps, no option that balances.
    """
    return "torchtitan" in row.get("stack", "") and not row.get("balance") and bool(row.get("experts"))


def _eager(row: Mapping[str, str]) -> bool:
    """A torchtitan run whose list of techniques lacks torch.compile runs its norms kernel by kernel."""
    notes = row.get("notes", "").lower()
    return "torchtitan" in row.get("stack", "") and "fsdp" in notes and "compile" not in notes


def _free_of_waits(row: Mapping[str, str]) -> bool:
    """Whether the host no longer waits for the sizes of the exchange.

    So a step of Primus' ablation says, and those of its table that came after it: the same dispatcher with another
    launch or micro-batch.

    >>> [_free_of_waits({"notes": f"cumulative ablation: +{step}"}) for step in ("sync-free 1", "DeepEP", "MBS14")]
    [True, False, True]
    """
    notes = row.get("notes", "").lower()
    return bool(re.search(r"sync-free|cumulative ablation: \+(launch optimi[sz]ation|mbs14)", notes))


def _fuses_experts(row: Mapping[str, str]) -> bool:
    """NeMo containers have had since 26.06 a Transformer Engine that fuses experts in MXFP8 on Blackwell (2.14)."""
    blackwell = re.search(r"[bg]b?[23]00", row.get("gpu", "").lower())
    return bool(container(row) >= "26.06" and blackwell and "mx" in row.get("dtype", "").lower())


def _kernels(row: Mapping[str, str], stack: Stack) -> dict[str, Any]:
    kernel = row.get("attention_kernel", "").lower()
    changes: dict[str, Any] = {}
    if "flash1" in kernel:
        changes["attention"] = "flash1"
    elif "flash" in kernel:
        changes["attention"] = stack.features.attention if stack.features.attention.startswith("flash") else "flash"
    elif kernel:
        changes["attention"] = "fused_softmax" if "fused" in kernel and "unfused" not in kernel else "unfused"
    if kernel and not stack.features.fused_norm:
        changes["fused_norm"] = "fused_rmsnorm" in kernel
    return changes


def _notes(notes: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if "cuda_graph_impl=" in notes:
        parts = graphed_parts(notes)
        changes["cuda_graphs"] = "cuda_graph_impl=none" not in notes and not parts
        if "cuda_graph_impl=none" not in notes:
            changes["graphed"] = parts
    if "eager mixtures" in notes:
        changes["eager_experts"] = True
    if "force-balanced" in notes:
        changes["balanced_experts"] = True
    if "torch 1.13" in notes:
        changes["stops_early"] = False
    if "bf16 adam moments" in notes:
        changes["optimizer_bytes"] = 8
    if "fp8 primary weights" in notes:
        changes["param_bytes"] = 1
    if "weight_dtype=bfloat16" in notes:  # MaxText's moments inherit it
        changes |= {"optimizer_bytes": 6, "grad_bytes": 2}
    return changes
