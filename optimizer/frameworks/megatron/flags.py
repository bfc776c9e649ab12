"""Flags of Megatron-LM and Megatron-DeepSpeed as settings of a launch, its plan by the reader of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import lcm, prod
from typing import Any

from optimizer.base.units import is_count
from optimizer.catalog import load_model
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.config.method import note_optimizer
from optimizer.frameworks.launch import LACKING, Launch
from optimizer.frameworks.machines import LAUNCHER
from optimizer.frameworks.megatron.flag_names import (
    COUNTED_ENDS,
    COUNTS,
    EXPERT_DEGREES,
    FORMER_FSDP,
    FSDP,
    GRAD_BYTES,
    KNOWN,
    LENGTHS,
    MEGATRON,
    MEGATRON_DEEPSPEED,
    NAMED,
    PLAN_FLAGS,
    SHAPE_COUNTS,
    ULYSSES,
    UNSEARCHED,
    left_open,
    whole_number,
)
from optimizer.frameworks.megatron.shape import OF_CHECKPOINT, read_shape
from optimizer.frameworks.megatron.software import read_software
from optimizer.frameworks.megatron.stated_plan import StatedPlan, plan_settings
from optimizer.job.plan import Plan

BF16_OPTIMIZER = "DeepSpeed's bf16 optimizer shards its states by itself"
MISSPELT = 0.94  # likeness from which on a name counts as another one, misspelt
BUCKET = 40_000_000  # parameters of a bucket at least
BUCKET_PER_REPLICA = 1_000_000
OPTIMIZER = "--optimizer"
COMMUNICATORS = "--nccl-communicator-config-path"
# Inputs of recomputed layers lie apart on ranks of tensor parallelism, as is not priced.
PARTED = ("--partition-activations", "--distribute-checkpointed-activations", "--distribute-saved-activations")
GROUPED = "--moe-grouped-gemm"
SPLIT_EXPERTS = "--enable-expert-tensor-parallelism"  # without which Megatron-DeepSpeed has whole experts on each rank
CHECKPOINTED = ("--activations-checkpoint-method", "--activations-checkpoint-num-layers")  # as before 2022
RECOMPUTED = ("--recompute-granularity", "--recompute-method", "--recompute-num-layers")


def read_flags(launch: Launch, flags: Sequence[Flag]) -> None:
    """Note what the flags of a Megatron program say; InvalidFile's problems go to the launch."""
    last: dict[str, Flag] = {}
    for flag in flags:
        if flag.name in last and last[flag.name].values != flag.values and flag.name in NAMED:
            launch.assumed.append(f"the last {flag.written} counts, {flag.value}; {last[flag.name].value} comes before")
        last[flag.name] = flag
    if any(name in last for name in ("--deepspeed", "--deepspeed-config", "--zero-stage")):
        launch.program = MEGATRON_DEEPSPEED
    read_shape(launch, last)
    read_software(launch, last)
    _machines(launch, last)
    _plan(launch, last)
    known = OPTIMIZER in last and note_optimizer(launch, last[OPTIMIZER].value, last[OPTIMIZER].written)
    for name, flag in last.items():
        if known and name == OPTIMIZER:
            continue
        if name in UNSEARCHED:
            launch.unsearched.append(f"{flag.written}: {UNSEARCHED[name]}")
        elif name not in KNOWN and flag.written not in launch.written.values():
            launch.ignore(flag.written)


def _machines(launch: Launch, last: Mapping[str, Flag]) -> None:
    for name, key in LAUNCHER.items():
        if name not in last:
            continue
        text = last[name].value.partition(":")[2] or last[name].value
        if is_count(text) and int(text) > 0:
            launch.say(key, int(text), last[name].written)


def _plan(launch: Launch, last: Mapping[str, Flag]) -> None:
    """The plan by the reader of arguments, for the GPUs that the launch has so far."""
    settings = launch.settings
    if "--micro-batch-size" not in last:
        launch.problems.append("--micro-batch-size is missing")
    if launch.problems:
        return
    needs = _needed(launch, last)
    gpus = settings.get("gpus") or _stated_gpus(launch, last)
    if gpus % needs and not settings.get("gpus_given"):
        launch.assumed.append(f"{needs:,} GPUs: the {gpus:,} of the launch {LACKING}")
        gpus = launch.gpus = needs
    settings["gpus"] = gpus
    opened = [flag for name, flag in last.items() if name in COUNTS and name not in LAUNCHER and flag.unknown]
    launch.problems += [f"{flag.written} {flag.value}: {left_open(flag)}" for flag in opened]
    if launch.problems:
        return
    count = last.get("--recompute-num-layers")
    nothing = RECOMPUTED if count and count.value == "0" else ()  # full recomputation of no layer is none
    stated = StatedPlan()
    if count and is_count(count.value) and int(count.value) > 1 and _value(last, RECOMPUTED[1]) == "uniform":
        launch.unsearched.append(f"{count.written} {count.value} is priced as 1: each layer is recomputed by itself")
    if (chunk := last.get("--checkpoint-num-layers")) and chunk.value != "1":
        launch.unsearched.append(f"{chunk.written} {chunk.value} is priced as 1: each layer is recomputed by itself")
    for name, flag in last.items():
        if name in SHAPE_COUNTS and len(set(filter(is_count, flag.values))) > 1:  # of layers that differ
            launch.unpriced.append(" ".join((flag.written, *flag.values)))
        if name in NAMED and name not in (*LAUNCHER, *nothing):
            stated.take(name, flag.values)
        elif name not in KNOWN and (close := get_close_matches(name, NAMED, n=1, cutoff=MISSPELT)):
            launch.problems.append(f"unknown argument {flag.written}; did you mean {close[0]}?")
    _take_deepspeed_flags(launch, last, stated)
    numbers = stated.numbers
    if "layers" in numbers and (launch.program == MEGATRON_DEEPSPEED or any(name in last for name in COUNTED_ENDS)):
        # These split the layers as evenly as can be, so that they need not be divisible by the stages.
        stages = numbers.get("pp", 1)
        numbers["layers"] = -(-numbers["layers"] // stages) * stages
    if "--global-batch-size" not in last:
        micro, replicas = whole_number(launch, last["--micro-batch-size"]) or 1, max(1, gpus // _ranks(launch, last))
        numbers["global_batch"] = micro * replicas
        launch.assumed.append(
            f"global batch of {micro * replicas:,}, one micro-batch of each replica, as Megatron does"
        )
    if OF_CHECKPOINT in last and "model" in launch.settings:
        numbers.setdefault("layers", load_model(launch.settings["model"]).layers)
    settings = plan_settings(stated, gpus)
    from_there = ": the checkpoint has it; give --model" if OF_CHECKPOINT in last else ""
    launch.problems += [f"{each}{from_there * each.startswith('--num-layers is')}" for each in stated.problems]
    if not stated.problems:
        _note(launch, last, settings)
    elif any(sentence.startswith("one node") for sentence in launch.assumed):
        launch.problems.append(f"it is taken to run on {gpus} GPUs, for it does not say on how many: give --gpus")


def note_defaults(launch: Launch, has: set[str]) -> None:
    """Note what Megatron-LM has where no flag says it, and what is priced otherwise.

    Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (no_shard until core 0.17, then
    optim_grads_params), megatron/core/models/gpt/gpt_layer_specs.py (SequentialMLP).
    """
    settings = launch.settings
    if has & {FSDP, FORMER_FSDP} and "--data-parallel-sharding-strategy" not in has:
        launch.unpriced.append(f"{FSDP} without a strategy, which shards nothing until core 0.17 and all since 0.18")
    if launch.program == MEGATRON and settings.get("experts", 0) > settings.get("ep", 1) and GROUPED not in has:
        launch.unpriced.append(f"experts one by one, as Megatron-LM has them without {GROUPED}")


def _value(last: Mapping[str, Flag], name: str) -> str:
    return last[name].value if name in last else ""


def _stated_gpus(launch: Launch, last: Mapping[str, Flag]) -> int:
    """Nodes times their GPUs; what the launch leaves open is one node, of eight GPUs."""
    settings = launch.settings
    opened = [flag for name, flag in last.items() if LAUNCHER.get(name) in ("nodes", "gpus") and flag.unknown]
    if "nodes" not in settings:
        why = f"{opened[0].written} hangs on {opened[0].unknown}" if opened else "the launch names no other number"
        launch.assumed.append(f"one node: {why} (--gpus)")
    usual = 1 if settings.get("alone") else 8
    if "gpus_per_node" not in settings:
        launch.assumed.append(
            "one GPU: nothing starts more processes (--gpus)" if usual == 1 else "8 GPUs on a node (--gpus)"
        )
    count = int(settings.get("nodes", 1) * settings.get("gpus_per_node", usual))
    launch.gpus = count if opened or ("gpus_per_node" not in settings and usual > 1) else 0
    return count


def _degree(launch: Launch, last: Mapping[str, Flag], name: str, default: int = 1) -> int:
    return (whole_number(launch, last[name]) or default) if name in last else default


def _ranks(launch: Launch, last: Mapping[str, Flag]) -> int:
    """GPUs of one replica."""
    names = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size", ULYSSES)
    return prod(_degree(launch, last, name) for name in names)


def _needed(launch: Launch, last: Mapping[str, Flag]) -> int:
    """The number of GPUs of which the launch's must be a multiple: replicas, and experts on those of a stage."""
    pp = _degree(launch, last, "--pipeline-model-parallel-size")
    if launch.settings.get("experts", 0) <= 1:
        return _ranks(launch, last)
    tp = _degree(launch, last, "--tensor-model-parallel-size")
    whole = launch.program == MEGATRON_DEEPSPEED and SPLIT_EXPERTS not in last
    etp = _degree(launch, last, "--expert-tensor-parallel-size", 1 if whole else tp)
    ep = _degree(launch, last, EXPERT_DEGREES[launch.program == MEGATRON_DEEPSPEED])
    return pp * lcm(_ranks(launch, last) // pp, etp * ep)


def _take_deepspeed_flags(launch: Launch, last: Mapping[str, Flag], stated: StatedPlan) -> None:
    """Note what Megatron-DeepSpeed and Megatron-LM before 2022 spell in their own way, as Megatron-LM does."""
    if ULYSSES in last:
        stated.take("--context-parallel-size", last[ULYSSES].values)
        written = last[ULYSSES].written
        launch.unsearched.append(f"{written}: the parallelism of sequences is priced as context parallelism")
    if "--moe-expert-parallel-size" in last and launch.settings.get("experts", 0) > 1:
        stated.take("--expert-model-parallel-size", last["--moe-expert-parallel-size"].values)
    if launch.program == MEGATRON_DEEPSPEED and launch.settings.get("experts", 0) > 1:
        launch.fixed += ("etp", "tp") if SPLIT_EXPERTS in last else ("etp",)
        stated.numbers.setdefault("etp", stated.numbers.get("tp", 1) if SPLIT_EXPERTS in last else 1)
    checkpoints = ("--checkpoint-activations", CHECKPOINTED[0])
    if any(name in last for name in checkpoints) and "--recompute-granularity" not in last:
        stated.take("--recompute-granularity", ("full",))
        for before, name in zip(CHECKPOINTED, RECOMPUTED[1:], strict=True):
            if before in last:
                stated.take(name, last[before].values)


def _note(launch: Launch, last: Mapping[str, Flag], plan: dict[str, Any]) -> None:
    """Put the plan into the vocabulary, with the flag that says each variable."""
    zero = launch.settings.get("zero_stage", plan["zero_stage"])
    if "--zero-stage" in last:
        zero = whole_number(launch, last["--zero-stage"])
        if zero == 0 and plan["dtype"] == "bf16":
            zero = 1
            launch.assumed.append(f"{last['--zero-stage'].written} 0 with bf16 shards as ZeRO-1: {BF16_OPTIMIZER}")
    plan["zero_stage"] = zero
    if "--fp4-format" in last:
        plan["dtype"] = "fp4"
    elif "--fp8-hybrid" in last or "--fp8-e4m3" in last:
        plan["dtype"] = "fp8"
    if not any(name in last for name in PLAN_FLAGS["dtype"]):
        launch.assumed.append("bf16: the launch names no number format (Megatron's own default is fp32)")
    for name, value in plan.items():
        stated = value != () and (value or name != "recompute_first")
        flag = next((flag for flag in PLAN_FLAGS.get(name, ()) if flag in last), "") if stated else ""
        launch.say(name, value, last[flag].written if flag else "")
    sizes = {LENGTHS[0]: 1, LENGTHS[1]: plan["seq_len"], LENGTHS[2]: plan["seq_len"] * plan["global_batch"]}
    length = next((name for name in LENGTHS if name in last), "")
    if length and is_count(number := last[length].value.replace("_", "")):
        launch.say("tokens", int(number) * sizes[length], last[length].written)
    if "--enable-zero-bubble" in last:
        launch.say("schedule", "zero-bubble", last["--enable-zero-bubble"].written)
    if COMMUNICATORS in last:
        launch.say("communicators", last[COMMUNICATORS].value, last[COMMUNICATORS].written)
    width = float(launch.settings.get("grad_bytes", GRAD_BYTES))
    if "bucket_params" in launch.settings:
        launch.settings["bucket"] = launch.settings.pop("bucket_params") * width
    else:
        launch.following = lambda plan: {"bucket": max(BUCKET, BUCKET_PER_REPLICA * plan.dp * plan.cp) * width}
        launch.settings |= launch.following(Plan(dp=plan["dp"], cp=plan["cp"]))
    if parted := next((last[name].written for name in PARTED if name in last), ""):
        launch.unpriced += [parted] if plan["tp"] > 1 and plan["recompute"] == "full" else []
    if "--use-torch-fsdp2" in last:
        _overlapped(launch, plan["zero_stage"])
    if "--ddp-bucket-size" in last:
        launch.written["bucket"] = "--ddp-bucket-size"
        launch.written.pop("bucket_params", None)


def _overlapped(launch: Launch, stage: int) -> None:
    """Note that PyTorch's FSDP2 overlaps what it gathers and reduces; Megatron refuses its own flags for that, and EP.

    Source: PyTorch, torch.distributed.fsdp.fully_shard, implicit prefetching; NVIDIA/Megatron-LM,
    megatron/training/arguments.py, checks of overlap_param_gather and use_torch_fsdp2.
    """
    launch.fixed += ("ep",)
    always = {"reduce_overlap": True, "gather_overlap": True}
    stated, follows = {name: launch.settings.get(name, False) for name in always}, launch.following
    launch.following = lambda plan: {**follows(plan), **(always if plan.zero_stage == stage else stated)}
    launch.settings |= always
