"""The recipe of the clean columns of a row: kernels, formats, sharding, schedule, recomputed layers, micro-batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np

from optimizer.base.errors import InputError
from optimizer.frameworks.megatron.stated_plan import expanded
from optimizer.frameworks.software import WHY as SWITCHED
from optimizer.frameworks.software import switched
from optimizer.job.hardware import Cluster
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import RECOMPUTE, written
from optimizer.job.stack import FEATURES, PARAMETERS, Features, Fixed, Stack
from optimizer.objectives.step.price import price

# What it hides of these collectives: three pairs of runs that differ in nothing else, Llama 3.1 8B on 64 H100 at TP 8,
# save 0.26, 0.21 and 0.17 s of 0.92 (pytorch/torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md).
ASYNC_TP = 0.25
WITH_ASYNC_TP = "asynchronous tensor parallelism, as the row says"
STATED = "as measured on the machine of the row"
ANY = "any"  # a cell of tp: heads or tokens, of recompute: as many layers, as are fastest
MOST_RANKS = 8  # that split the heads of a layer of such a row
RECOMPUTED_BY = 4  # layers that such a row may recompute: multiples of it
MOST_SAMPLES = 256  # in a micro-batch of a run that names none: no run that we know has more
OF_STACK = "stack."  # begins the columns that name features of the software, or parameters of its machine
NUMBER = re.compile(r"\d*\.?\d+(?:[eE]-?\d+)?")
# what tables call the modules of optimizer.job.recomputation
_WORDS = {
    **dict.fromkeys(("norm", "norms", "layer_norm"), "layernorm"),
    **dict.fromkeys(("act", "activation"), "moe_act"),
    **dict.fromkeys(("shared_expert", "shared"), "shared_experts"),
    **dict.fromkeys(("up_proj", "mla_up"), "mla_up_proj"),
    **dict.fromkeys(("attn", "core", "core_attention"), "core_attn"),
}


def under_recipe(row: Mapping[str, str], stack: Stack) -> Stack:
    """The stack with the features, and the parameters of its own machine, that the row names.

    >>> row = {"stack.balanced_experts": "yes", "stack.graphed": "attention router"}
    >>> features = under_recipe(row, Stack(name="mine")).features
    >>> features.balanced_experts, features.graphed
    (True, ('attention', 'router'))
    """
    changes = {**_kernels(row, stack), **named_features(row)}
    stack = replace(stack, features=replace(stack.features, **changes)) if changes else stack
    if named := named_parameters(row):
        others = {name: value for name, value in stack.parameters.items() if name not in named}
        stack = replace(stack, parameters=others, fixed={**stack.fixed, **named})
    if off := switched_off(row):
        stack = switched(stack, {**off, "train": row.get("method", "")})
    return with_async_tp(stack) if row.get("async_tp") == "on" else stack


def named_features(row: Mapping[str, str]) -> dict[str, Any]:
    """The features of the software in a row's columns `stack.NAME`: yes or no, a number, words, or none of them.

    Raises InputError for a feature that there is not, or a cell that is no value of it.

    >>> named_features({"stack.unfused": "none", "stack.param_bytes": "1", "stack.routing": "", "tp": "8"})
    {'unfused': (), 'param_bytes': 1}
    """
    cells = _cells_of_stack(row)
    if unknown := sorted(cells.keys() - {*FEATURES, *PARAMETERS}):
        raise InputError(f"{OF_STACK}{unknown[0]} is no feature of a stack; docs/file-formats.md has them all")
    return {name: _feature(name, cell) for name, cell in cells.items() if name in FEATURES}


def named_parameters(row: Mapping[str, str]) -> dict[str, Fixed]:
    """The parameters in a row's columns `stack.NAME`, which were measured on its machine and which no fit moves.

    Raises InputError for a cell that is no number between the bounds of its parameter.

    >>> named_parameters({"stack.launch": "3.4e-05", "stack.unfused": "none"})["launch"].value
    3.4e-05
    """
    parameters = {}
    for name, cell in _cells_of_stack(row).items():
        if name not in PARAMETERS:
            continue
        bounds = PARAMETERS[name]
        value = float(cell) if NUMBER.fullmatch(cell) else nan
        if not bounds.low <= value <= bounds.high:
            limits = f"{bounds.low:g} and {bounds.high:g} {bounds.unit}"
            raise InputError(f"{OF_STACK}{name} must be between {limits}, but got {cell!r}")
        parameters[name] = Fixed(value=value, why=STATED)
    return parameters


def _cells_of_stack(row: Mapping[str, str]) -> dict[str, str]:
    return {column.removeprefix(OF_STACK): cell for column, cell in row.items() if column.startswith(OF_STACK) and cell}


def _feature(name: str, cell: str) -> Any:
    usual = getattr(Features(), name)
    try:
        if isinstance(usual, bool):
            return {"yes": True, "no": False}[cell.lower()]
        if isinstance(usual, tuple):
            return () if cell == "none" else tuple(cell.split())
        return type(usual)(cell)
    except (KeyError, ValueError):
        raise InputError(f"{OF_STACK}{name} cannot be {cell!r}; usually it is {usual!r}") from None


def switched_off(row: Mapping[str, str]) -> dict[str, bool]:
    """The overlaps that a row's notes say its launch had switched off, as optimizer.frameworks calls them.

    >>> switched_off({"tp_overlap": "off"})
    {'tp_overlap': False}
    """
    return {name: False for name in ("tp_overlap", "p2p_overlap") if row.get(name) == "off"}


def with_async_tp(stack: Stack) -> Stack:
    """The stack with collectives of tensor parallelism cut into pieces that travel while products of others run.

    >>> with_async_tp(Stack(name="mine"))["tp_overlap"]
    0.25
    """
    parameters = {name: value for name, value in stack.parameters.items() if name != "tp_overlap"}
    value = max(ASYNC_TP, stack["tp_overlap"])
    fixed = {**stack.fixed, "tp_overlap": Fixed(value=value, why=WITH_ASYNC_TP)}
    return replace(stack, parameters=parameters, fixed=fixed)


def stated_parameters(stack: Stack) -> dict[str, Fixed]:
    """The parameters of a row's stack that the row itself tells: no fit moves them.

    >>> list(stated_parameters(with_async_tp(Stack(name="mine", fixed={"launch": Fixed(value=1e-5, why="measured")}))))
    ['tp_overlap']
    """
    return {name: item for name, item in stack.fixed.items() if item.why in (WITH_ASYNC_TP, SWITCHED, STATED)}


def recomputation(row: Mapping[str, str], assumed: list[str]) -> str:
    """The mode of recomputation that a row names, or that its framework always has.

    >>> recomputation({"recompute": "selective", "recompute_modules": "'moe_act', 'layernorm'"}, [])
    'layernorm+moe_act'
    >>> recomputation({"recompute": "selective:norm,act"}, [])
    'layernorm+moe_act'
    """
    named, _, listed = row.get("recompute", "").lower().partition(":")
    listed = listed or row.get("recompute_modules", "")
    if named == "selective" and listed:
        named = written("+".join(_WORDS.get(word, word) for word in re.findall(r"\w+", listed)))
        if named not in RECOMPUTE:
            assumed.append(f"selective recomputation for {row['recompute']}")
            named = "selective"
    if named not in RECOMPUTE and row.get("stack.selective") == "qkv":
        assumed.append("recomputation of all but the projections into attention, as in MaxText's GPU scripts")
        return "selective"
    return named if named in RECOMPUTE else "none"


def printed_layout(row: Mapping[str, str], layers: int, stages: int) -> tuple[tuple[int, ...], bool] | None:
    """Layers on each of so many virtual stages as the row's layout has them, and whether MTP layers are among them.

    None where there is no layout, or one of other layers or stages.

    >>> printed_layout({"layout": "Et|(tt|)*2L"}, 5, 4)
    ((1, 2, 2, 0), False)
    """
    letters = expanded(row.get("layout", "")).split("|")
    counts = tuple(stage.count("t") for stage in letters)
    if not row.get("layout") or len(counts) != stages or sum(counts) != layers:
        return None
    return counts, row.get("mtp") != "no" and any("m" in stage for stage in letters)


def sharding(row: Mapping[str, str], stack: Stack, cluster: Cluster, *, piped: bool = False) -> tuple[int, int]:
    """ZeRO stage and sharding group of a row's description, with a pipeline or without.

    Software that keeps weights whole between the micro-batches of a pipeline shards nothing but states there, whatever
    it calls that.
    """
    stage, shard = _described_sharding(row, stack, cluster)
    own = stack.features.piped_zero_stages
    most = 1 if stack.features.reduces_once else max(own, default=stage)
    return (min(stage, most) if piped else stage), shard


def _described_sharding(row: Mapping[str, str], stack: Stack, cluster: Cluster) -> tuple[int, int]:
    """ZeRO stage and sharding group as a row's description has them where nothing is piped."""
    text = row.get("sharding", "").lower()
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
    if text == "ddp":
        return 0, 0
    if named := re.match(r"zero-?([0-3])", text):
        return int(named[1]), 0
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
    """How a row's routed tokens travel: what its column says, else what its software usually has.

    >>> [dispatcher({"dispatcher": name}, Stack(name="mine")) for name in ("DeepEP+UCCL", "HybridEP", "alltoall", "")]
    ['deepep', 'hybridep', 'alltoall', 'alltoall']
    """
    text = row.get("dispatcher", "").lower().replace("hybrid-ep", "hybridep").replace("uccl", "deepep")
    words = {"hybridep": "hybridep", "deepep": "deepep", "alltoall": "alltoall", "all-to-all": "alltoall"}
    return next((name for word, name in words.items() if word in text), stack.usual_dispatcher)


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


def _kernels(row: Mapping[str, str], stack: Stack) -> dict[str, Any]:
    kernel = row.get("attention_kernel", "").lower()
    changes: dict[str, Any] = {}
    if "flash1" in kernel:
        changes["attention"] = "flash1"
    elif "flash" in kernel or kernel.startswith("sdpa"):
        changes["attention"] = stack.features.attention if stack.features.attention.startswith("flash") else "flash"
    elif kernel:
        changes["attention"] = "fused_softmax" if "fused" in kernel and "unfused" not in kernel else "unfused"
    if kernel and not stack.features.fused_norm:
        changes["fused_norm"] = "fused_rmsnorm" in kernel
    return changes


def in_one_micro_batch(plan: Plan, assumed: list[str]) -> Plan:
    """The plan, given in micro-batches of one sample, with the whole step of a rank in one, noted in `assumed`.

    Source: AI-Hypercomputer/maxtext, MaxText/configs/base.yml: gradient_accumulation_steps is 1.
    """
    assumed.append(f"micro_batch {plan.num_microbatches}")
    return replace(plan, micro_batch=plan.num_microbatches, num_microbatches=1)


def with_usual_policy(job: Job, plan: Plan, assumed: list[str]) -> Plan:
    """The plan with full recomputation where that is faster or alone fits, noted in `assumed`.

    For software whose selective policies keep what they keep on the host, in rows that name no policy: a published
    recipe has the better of the two. What MoE layers would keep there can take longer to move than to compute again.
    """
    both = [plan, replace(plan, recompute="full")]
    costs = price(job, Plans.of(both))
    seconds = np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf)
    if not seconds[1] < seconds[0]:
        return plan
    assumed.append("full recomputation, the faster policy")
    return both[1]


def with_what_fits(job: Job, plan: Plan, assumed: list[str]) -> Plan:
    """The plan with full recomputation where it fits with it alone, noted in `assumed`: a run that ran has fitted.

    For software whose defaults are not known, in rows that name no recomputation.
    """
    both = [plan, replace(plan, recompute="full")]
    fits = price(job, Plans.of(both)).reserved <= job.usable_memory
    if fits[0] or not fits[1]:
        return plan
    assumed.append("full recomputation, without which it does not fit")
    return both[1]


def in_usual_layout(job: Job, plan: Plan, assumed: list[str]) -> Plan:
    """The plan, given with all that splits its layers as tensor parallelism, as it is fastest and fits.

    For rows that tell how many ranks share a sequence, not how: heads or tokens are split, in powers of two.
    """
    ranks = plan.tp
    candidates = [
        replace(plan, tp=tp, cp=ranks // tp, sequence_parallel=tp > 1 and job.stack.features.sequence_parallel)
        for tp in (2**power for power in range(MOST_RANKS.bit_length()))
        if ranks % tp == 0 and job.model.kv_heads % tp == 0
    ] or [plan]
    best = _fastest(job, candidates)
    assumed.append(f"tp {best.tp}, cp {best.cp}")
    return best


def with_usual_layers(job: Job, plan: Plan, assumed: list[str]) -> Plan:
    """The plan with as few layers recomputed as fit, noted in `assumed`: so tuned recipes have it that name none."""
    steps = range(RECOMPUTED_BY, job.model.layers + 1, RECOMPUTED_BY)
    best = _fastest(job, [plan, *(replace(plan, recompute="full", recompute_first=count) for count in steps)])
    assumed.append(f"{best.recompute_first} layers recomputed")
    return best


def _fastest(job: Job, candidates: Sequence[Plan]) -> Plan:
    """The fastest of these plans that fit, the first where none does."""
    costs = price(job, Plans.of(candidates))
    seconds = np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf)
    return candidates[int(np.argmin(seconds))]


def in_usual_micro_batches(job: Job, plan: Plan, assumed: list[str]) -> Plan:
    """The plan, given in micro-batches of one sample, in those with which it is fastest and fits, noted in `assumed`.

    Powers of two that divide the samples of a data-parallel rank, with enough micro-batches for an interleaved
    schedule; one sample where none fits.
    """
    samples = plan.num_microbatches
    candidates = [
        replace(plan, micro_batch=size, num_microbatches=samples // size)
        for size in (2**power for power in range(MOST_SAMPLES.bit_length()))
        if samples % size == 0 and (plan.vpp == 1 or samples // size % plan.pp == 0)
    ] or [plan]
    best = _fastest(job, candidates)
    assumed.append(f"micro_batch {best.micro_batch}")
    return best
