"""Flags of Megatron-LM and Megatron-DeepSpeed as settings of a launch, its plan by the reader of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import lcm, prod
from typing import Any

from optimizer.base.errors import InvalidFile
from optimizer.base.units import is_count
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import LACKING, Launch
from optimizer.frameworks.machines import LAUNCHER
from optimizer.frameworks.megatron.arguments import read_megatron_arguments
from optimizer.frameworks.megatron.flag_names import (
    COUNTED_ENDS,
    COUNTS,
    EXPERT_DEGREES,
    KEPT,
    LENGTHS,
    LISTS,
    MEGATRON_DEEPSPEED,
    NAMED,
    PLAN_FLAGS,
    SWITCHES,
    ULYSSES,
    is_known,
    left_open,
    whole_number,
)
from optimizer.frameworks.megatron.shape import read_shape
from optimizer.frameworks.megatron.software import read_software
from optimizer.job.plan import Plan

BF16_OPTIMIZER = "DeepSpeed's bf16 optimizer shards its states by itself"
MISSPELT = 0.94  # likeness from which on a name counts as another one, misspelt
BUCKET = 40_000_000  # parameters of a bucket at least
BUCKET_PER_REPLICA = 1_000_000
COMMUNICATORS = "--nccl-communicator-config-path"
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
    for name, flag in last.items():
        if name in KEPT:
            launch.kept.append(f"{flag.written}: {KEPT[name]}")
        elif not is_known(name):
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
    said = launch.settings
    if "--micro-batch-size" not in last:
        launch.problems.append("--micro-batch-size is missing")
    if launch.problems:
        return
    needs = _needed(launch, last)
    gpus = said.get("gpus") or _told(launch, last)
    if gpus % needs and not said.get("gpus_given"):
        launch.assumed.append(f"{needs:,} GPUs: the {gpus:,} of the launch {LACKING}")
        gpus = needs
    said["gpus"] = gpus
    opened = [flag for name, flag in last.items() if name in COUNTS and name not in LAUNCHER and flag.unknown]
    launch.problems += [f"{flag.written} {flag.value}: {left_open(flag)}" for flag in opened]
    if launch.problems:
        return
    count = last.get("--recompute-num-layers")
    nothing = RECOMPUTED if count and count.value == "0" else ()  # full recomputation of no layer is none
    passed: list[str] = []
    for name, flag in last.items():
        if name in nothing:
            continue
        if name in NAMED and name not in LAUNCHER:
            values = [value.replace("_", "") if name in COUNTS else value for value in flag.values]
            passed += [name, *(values if name in LISTS else values[:1] if name not in SWITCHES else [])]
        elif not is_known(name) and (close := get_close_matches(name, NAMED, n=1, cutoff=MISSPELT)):
            launch.problems.append(f"unknown argument {flag.written}; did you mean {close[0]}?")
    passed += _deepspeed_flags(launch, last)
    if launch.program == MEGATRON_DEEPSPEED or any(name in last for name in COUNTED_ENDS):
        # These split the layers as evenly as can be, so that the reader need not find them divisible.
        passed = _divisible(passed, last)
    if "--global-batch-size" not in last:
        micro, replicas = whole_number(launch, last["--micro-batch-size"]) or 1, max(1, gpus // _ranks(launch, last))
        passed += ["--global-batch-size", str(micro * replicas)]
        launch.assumed.append(
            f"global batch of {micro * replicas:,}, one micro-batch of each replica, as Megatron does"
        )
    try:
        plan, job = read_megatron_arguments(" ".join(passed) + " ", gpus)
    except InvalidFile as error:
        launch.problems += error.problems
        if any(sentence.startswith("one node") for sentence in launch.assumed):
            launch.problems.append(f"it is taken to run on {gpus} GPUs, for it does not say on how many: give --gpus")
        return
    _note(launch, last, plan, job)


def _told(launch: Launch, last: Mapping[str, Flag]) -> int:
    """Nodes times their GPUs; what the launch leaves open is one node, of eight GPUs."""
    said = launch.settings
    opened = [flag for name, flag in last.items() if LAUNCHER.get(name) in ("nodes", "gpus") and flag.unknown]
    if "nodes" not in said:
        why = f"{opened[0].written} hangs on {opened[0].unknown}" if opened else "the launch names no other number"
        launch.assumed.append(f"one node: {why} (--gpus)")
    usual = 1 if said.get("alone") else 8
    if "gpus_per_node" not in said:
        launch.assumed.append(
            "one GPU: nothing starts more processes (--gpus)" if usual == 1 else "8 GPUs on a node (--gpus)"
        )
    return int(said.get("nodes", 1) * said.get("gpus_per_node", usual))


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
    etp = _degree(launch, last, "--expert-tensor-parallel-size", tp)
    ep = _degree(launch, last, EXPERT_DEGREES[launch.program == MEGATRON_DEEPSPEED])
    return pp * lcm(_ranks(launch, last) // pp, etp * ep)


def _divisible(passed: list[str], last: Mapping[str, Flag]) -> list[str]:
    """The arguments with as many layers as fill every stage."""
    place, stages = passed.index("--num-layers") + 1 if "--num-layers" in passed else 0, 1
    if "--pipeline-model-parallel-size" in last:
        value = last["--pipeline-model-parallel-size"].value
        stages = max(1, int(value)) if is_count(value) else 1
    if place and is_count(passed[place]):
        passed[place] = str(-(-int(passed[place]) // stages) * stages)
    return passed


def _deepspeed_flags(launch: Launch, last: Mapping[str, Flag]) -> list[str]:
    """What Megatron-DeepSpeed spells in its own way, as Megatron-LM does."""
    found: list[str] = []
    if ULYSSES in last:
        found += ["--context-parallel-size", last[ULYSSES].value]
        launch.kept.append(f"{last[ULYSSES].written}: the parallelism of sequences is priced as context parallelism")
    if "--moe-expert-parallel-size" in last and launch.settings.get("experts", 0) > 1:
        found += ["--expert-model-parallel-size", last["--moe-expert-parallel-size"].value]
    if any(name in last for name in ("--checkpoint-activations", "--deepspeed-activation-checkpointing")):
        found += ["--recompute-granularity", "full"] if "--recompute-granularity" not in last else []
    return found


def _note(launch: Launch, last: Mapping[str, Flag], plan: Plan, job: Mapping[str, Any]) -> None:
    """Put the plan into the vocabulary, with the flag that says each variable."""
    zero = launch.settings.get("zero_stage", plan.zero_stage)
    if "--zero-stage" in last:
        zero = whole_number(launch, last["--zero-stage"])
        if zero == 0 and job["dtype"] == "bf16":
            zero = 1
            launch.assumed.append(f"{last['--zero-stage'].written} 0 with bf16 shards as ZeRO-1: {BF16_OPTIMIZER}")
    values = {name: getattr(plan, name) for name in PLAN_FLAGS if hasattr(plan, name)} | {"zero_stage": zero}
    values |= {name: job[name] for name in ("global_batch", "seq_len", "dtype")}
    if "--fp4-format" in last:
        values["dtype"] = "fp4"
    elif "--fp8-hybrid" in last or "--fp8-e4m3" in last:
        values["dtype"] = "fp8"
    if not any(name in last for name in PLAN_FLAGS["dtype"]):
        launch.assumed.append("bf16: the launch names no number format (Megatron's own default is fp32)")
    for name, value in values.items():
        said_so = value != () and (value or name != "recompute_first")
        flag = next((flag for flag in PLAN_FLAGS[name] if flag in last), "") if said_so else ""
        launch.say(name, value, last[flag].written if flag else "")
    launch.settings |= {"dp": plan.dp, "num_microbatches": plan.num_microbatches, "schedule": plan.schedule}
    launch.settings["mtp_ahead"] = plan.mtp_ahead
    sizes = {LENGTHS[0]: 1, LENGTHS[1]: job["seq_len"], LENGTHS[2]: job["seq_len"] * job["global_batch"]}
    length = next((name for name in LENGTHS if name in last), "")
    if length and is_count(number := last[length].value.replace("_", "")):
        launch.say("tokens", int(number) * sizes[length], last[length].written)
    if "--enable-zero-bubble" in last:
        launch.say("schedule", "zero-bubble", last["--enable-zero-bubble"].written)
    if COMMUNICATORS in last:
        launch.say("communicators", last[COMMUNICATORS].value, last[COMMUNICATORS].written)
    width = float(launch.settings.get("grad_bytes", 4))
    if "bucket_params" in launch.settings:
        launch.settings["bucket"] = launch.settings.pop("bucket_params") * width
    else:
        launch.following = lambda plan: {"bucket": max(BUCKET, BUCKET_PER_REPLICA * plan.dp * plan.cp) * width}
        launch.settings |= launch.following(plan)
    if "--ddp-bucket-size" in last:
        launch.written["bucket"] = "--ddp-bucket-size"
        launch.written.pop("bucket_params", None)
