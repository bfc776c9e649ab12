"""A plan as the flags that a Megatron script would need, in the script's own spelling, against those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import FlagChange
from optimizer.frameworks.megatron.export import OVERLAP, layout_flags, offload_flags, overlap_flags, recompute_flags
from optimizer.frameworks.megatron.export import SHARDING as MEGATRON_SHARDING
from optimizer.frameworks.megatron.flag_names import (
    FORMER_FSDP,
    FSDP,
    GRAD_BYTES,
    MEGATRON,
    MEGATRON_DEEPSPEED,
    PLAN_FLAGS,
    ULYSSES,
)
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.variables import DISPATCHERS

DEGREES = {PLAN_FLAGS[name][0]: name for name in ("tp", "pp", "cp", "micro_batch")}
# Refused without virtual stages. Source: NVIDIA/Megatron-LM, megatron/core/model_parallel_config.py, __post_init__.
INTERLEAVED = "--overlap-p2p-communication-warmup-flush"
PIPELINE = (*PLAN_FLAGS["vpp"], "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
RECOMPUTE = (
    *("--recompute-granularity", "--recompute-method", "--recompute-num-layers"),
    *("--recompute-modules", "--recompute-activations"),
    *("--activations-checkpoint-method", "--activations-checkpoint-num-layers"),  # as before 2022
)
CHECKPOINT = ("--checkpoint-activations", "--deepspeed-activation-checkpointing")
FORMAT, SEQUENCE, BATCH = "--ckpt-format", "--sequence-parallel", "--global-batch-size"
# Formats of checkpoints that Megatron has with FSDP alone, its own and PyTorch's; its own needs the first.
# Source: NVIDIA/Megatron-LM, megatron/training/arguments.py, checks of ckpt_format.
OF_FSDP = ("fsdp_dtensor", "torch_dcp")
REGISTERED = "--fsdp-manual-registration"  # which it refuses without its own FSDP: the same file
FORMATTED = (MEGATRON, "Megatron-Bridge", "Primus", "FlagScale")  # whose launches can say it
SHARDING = (
    *("--use-distributed-optimizer", FSDP, FORMER_FSDP, "--data-parallel-sharding-strategy"),
    *("--use-torch-fsdp2", "--torch-fsdp2-no-reshard-after-forward"),
)
OFFLOAD = ("--fine-grained-activation-offloading", "--offload-modules", "--activation-offload-fraction")
ON_HOST = ("--optimizer-cpu-offload", "--optimizer-offload-fraction", "--use-precision-aware-optimizer")


def flag_changes(
    flags: Sequence[Flag],
    program: str,
    job: Job,
    before: Plan,
    after: Plan,
    turned: Mapping[str, Any],
    settings: Mapping[str, Any] = {},
) -> tuple[FlagChange, ...]:
    """What to write otherwise so that a script runs another plan.

    Args:
        flags: those that the script has.
        program: its program.
        job: what it trains.
        before: the plan that it has.
        after: the plan that it is to have.
        turned: the software's settings that change.
        settings: those that were read.
    """
    has = {flag.name: flag for flag in flags}
    wanted: dict[str, str | None] = {}
    degrees = {ULYSSES if name == "cp" and ULYSSES in has else flag: name for flag, name in DEGREES.items()}
    for flag, name in degrees.items():
        if getattr(before, name) != getattr(after, name):
            wanted[flag] = str(getattr(after, name))
    lies = before.pp != after.pp or before.vpp != after.vpp or before.placement.layers != after.placement.layers
    # Megatron-DeepSpeed splits the layers by itself.
    if lies and program != MEGATRON_DEEPSPEED:
        wanted |= _pipeline(has, job, after)
    if before.schedule != after.schedule and "zero-bubble" in f"{before.schedule} {after.schedule}":
        wanted |= dict.fromkeys(("--enable-zero-bubble", "--zero-bubble-max-pending-backward")) | _filled(
            zero_bubble_flags(after)
        )
    if job.model.experts:
        wanted |= _experts(has, program, before, after)
    idle = SEQUENCE in has and before.tp == 1  # which a first split of tensors would wake
    if before.sequence_parallel != after.sequence_parallel or (idle and after.tp > 1):
        wanted[SEQUENCE] = "" if after.sequence_parallel else None
    if before.zero_stage != after.zero_stage:
        wanted |= _sharding(has, program, after)
    if before.shard != after.shard:
        replicas = after.dp * after.cp
        wanted["--num-distributed-optimizer-instances"] = str(replicas // after.shard) if after.shard else None
    if (before.recompute, before.recompute_first) != (after.recompute, after.recompute_first):
        wanted |= _recompute(has, program, after)
    if before.overlap_exchange != after.overlap_exchange:
        wanted |= dict.fromkeys(OVERLAP) | _filled(overlap_flags(after))
    if before.activation_offload != after.activation_offload:
        wanted |= dict.fromkeys(OFFLOAD) | _filled(offload_flags(job, after))
    wanted |= _software(turned, settings)
    if program == MEGATRON and BATCH not in has and before.dp * before.micro_batch != after.dp * after.micro_batch:
        wanted[BATCH] = str(job.global_batch)  # which is one micro-batch of each replica where no flag says it
    under = any("_" in flag.written for flag in has.values() if flag.name in DEGREES)
    changes = []
    for name, value in wanted.items():
        given = has.get(name)
        before_text = " ".join(given.values) if given else None
        if before_text != value and not (given is None and value == "1" and name in DEGREES):
            # A new flag has dashes or underscores, as the script writes the others.
            new = f"--{name[2:].replace('-', '_')}" if under else name
            changes.append(FlagChange(flag=given.written if given else new, before=before_text, after=value))
    return tuple(changes)


def zero_bubble_flags(plan: Plan) -> dict[str, str | None]:
    """Schedules that only a fork of Megatron-LM runs, by the micro-batches whose weights' gradients may wait.

    Source: sail-sg/zero-bubble-pipeline-parallelism, README.md.
    """
    pending = {"zero-bubble": plan.pp, "zero-bubble-2p": 2 * plan.pp}.get(plan.schedule)
    return {"--enable-zero-bubble": None, "--zero-bubble-max-pending-backward": str(pending)} if pending else {}


def _filled(flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Flags of the exporter, where None stands for no value, in this module's way."""
    return {flag: value or "" for flag, value in flags.items()}


def _pipeline(has: Mapping[str, Flag], job: Job, after: Plan) -> dict[str, str | None]:
    # A layout names MTP layers too; a script without one has them where Megatron puts them.
    flags = _filled(layout_flags(after, replace(job.model, mtp_layers=0))) if after.pp > 1 else {}
    if after.pp > 1 and (PIPELINE[2] in (*has, *flags) or after.mtp_ahead):
        flags = _filled(layout_flags(after, job.model))
    if PIPELINE[1] in has and PIPELINE[0] in flags:
        del flags[PIPELINE[0]]
        flags[PIPELINE[1]] = str(after.vpp)
    return {**dict.fromkeys((*PIPELINE, INTERLEAVED) if after.vpp == 1 else PIPELINE), **flags}


def _experts(has: Mapping[str, Flag], program: str, before: Plan, after: Plan) -> dict[str, str | None]:
    wanted: dict[str, str | None] = {}
    if before.ep != after.ep:
        deepspeed = program == MEGATRON_DEEPSPEED
        wanted["--moe-expert-parallel-size" if deepspeed else "--expert-model-parallel-size"] = str(after.ep)
    if before.dispatcher != after.dispatcher and after.ep > 1:
        flex = after.dispatcher != DISPATCHERS[0]
        wanted["--moe-token-dispatcher-type"] = "flex" if flex else DISPATCHERS[0]
        wanted["--moe-flex-dispatcher-backend"] = after.dispatcher if flex else None
        if flex and program != MEGATRON_DEEPSPEED:
            wanted["--moe-router-dtype"] = "fp32"
    if program == MEGATRON_DEEPSPEED:
        return wanted
    stated = "--expert-tensor-parallel-size" in has
    if (before.etp != after.etp and (stated or after.etp != after.tp)) or (not stated and after.etp != after.tp):
        wanted["--expert-tensor-parallel-size"] = str(after.etp)
    return wanted


def _sharding(has: Mapping[str, Flag], program: str, after: Plan) -> dict[str, str | None]:
    if program == MEGATRON_DEEPSPEED:
        return {"--zero-stage": str(after.zero_stage)}
    wanted: dict[str, str | None] = dict.fromkeys(SHARDING)
    if after.zero_stage:
        wanted["--use-distributed-optimizer"] = ""
    else:
        wanted["--overlap-param-gather"] = None
    if after.zero_stage <= 1:
        wanted[REGISTERED] = None
    if after.zero_stage > 1:
        wanted |= {FSDP: "", "--data-parallel-sharding-strategy": MEGATRON_SHARDING[after.zero_stage]}
        wanted |= {FORMAT: OF_FSDP[0]} if program in FORMATTED else {}
    elif FORMAT in has and has[FORMAT].value in OF_FSDP:
        wanted[FORMAT] = "torch_dist"
    return wanted


def _recompute(has: Mapping[str, Flag], program: str, after: Plan) -> dict[str, str | None]:
    wanted: dict[str, str | None] = dict.fromkeys((*RECOMPUTE, *CHECKPOINT))
    if program == MEGATRON_DEEPSPEED and after.recompute == "full":
        return wanted | dict.fromkeys(CHECKPOINT, "")
    if after.recompute == "selective" and "--recompute-activations" in has:
        return wanted | {"--recompute-activations": ""}
    return wanted | _filled(recompute_flags(after))


def _software(turned: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str | None]:
    wanted: dict[str, str | None] = {}
    for name, flag in (("reduce_overlap", "--overlap-grad-reduce"), ("gather_overlap", "--overlap-param-gather")):
        if name in turned:
            wanted[flag] = "" if turned[name] else None
    if "cuda_graphs" in turned:
        wanted["--cuda-graph-impl"] = "local" if turned["cuda_graphs"] else "none"
    if "global_batch" in turned:
        wanted[BATCH] = str(turned["global_batch"])
    if "offload" in turned:
        share = turned["offload"]
        wanted |= dict.fromkeys(ON_HOST)
        if share:
            wanted |= {ON_HOST[0]: "", ON_HOST[1]: f"{share:.3g}", ON_HOST[2]: ""}
    if "bucket" in turned:
        wanted["--ddp-bucket-size"] = str(round(turned["bucket"] / settings.get("grad_bytes", GRAD_BYTES)))
    return wanted
