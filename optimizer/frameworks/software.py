"""A software stack as a launch switches it: overlaps, kernels, gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.job.method import ADAPTERS
from optimizer.job.recomputation import MODES, MODULES
from optimizer.job.stack import BY_VIRTUAL_STAGE, Fixed, Stack
from optimizer.job.switches import switched_to
from optimizer.job.variables import DISPATCHERS

PARAM_BYTES = 2
WHY = "as the launch says"
SWITCHED_OFF = ("tp_overlap", "p2p_overlap")
# Megatron-LM hides the gather before and the scatter after a backward product under another one by default:
# four of ten collectives of a layer. The other one is that of the weights, which frozen ones have not.
# Source: NVIDIA/Megatron-LM, megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.
WITHOUT = {"tp_overlap": 0.4}


STATED = (
    *("cuda_graphs", "graphed", "grad_bytes", "wire_bytes", "optimizer_bytes", "master_bytes", "update_bytes"),
    *("param_bytes", "fused_accumulation", "fused_experts", "fp8_recipe", "keeps_gathered", "hosted_weights"),
    *("loss_chunks", "selective", "selective_on_host", "syncs_last", "adapter_dropout", "fused_adapters"),
)  # features of a stack that a launch may say


def switched(stack: Stack, settings: Mapping[str, Any], zero_stage: int = 1) -> Stack:
    """The stack with what the launch switches on or off; what it does not mention stays as the stack's runs had it.

    Data parallelism hides as much of its bytes as the launch overlaps: gradients, and with ZeRO gathered weights.

    >>> from optimizer.job.stack import Stack
    >>> off = switched(Stack(name="mine"), {"reduce_overlap": True, "gather_overlap": False})
    >>> round(off["dp_overlap"] / Stack(name="mine")["dp_overlap"], 3)
    0.667
    """
    if settings.get("liger") == "on":
        stack = switched_to(stack, {"liger": "on"})
    features, adapts = stack.features, str(settings.get("train", "")).startswith(ADAPTERS)
    if "attention" in settings:
        own = features.attention
        keeps = settings["attention"] == "flash" and own.startswith("flash")
        features = replace(features, attention=own if keeps else settings["attention"])
    if settings.get("compiled") is False:
        features = replace(features, fused_norm=False, compiled_loss=False)
    if "compiled_loss" in settings:  # where parts are compiled alone
        features = replace(features, compiled_loss=settings["compiled_loss"])
    for name in STATED:
        if name in settings:
            features = replace(features, **{name: settings[name]})
    values: dict[str, float] = {}
    for name in SWITCHED_OFF:
        if settings.get(name) is False:
            values[name] = min(stack[name], WITHOUT.get(name, 0.0) * (not adapts))
    if "reduce_overlap" in settings:
        values["dp_overlap"] = stack["dp_overlap"] * overlapped(settings, zero_stage, features.grad_bytes)
    parameters = {name: value for name, value in stack.parameters.items() if name not in values}
    fixed = {**stack.fixed, **{name: Fixed(value=value, why=WHY) for name, value in values.items()}}
    return replace(stack, features=features, parameters=parameters, fixed=fixed)


def overlapped(settings: Mapping[str, Any], zero_stage: int, grad_bytes: int) -> float:
    """Share of the bytes of data parallelism that may hide: gradients reduced, weights gathered where ZeRO does [1].

    >>> [round(overlapped({name: True}, 1, 4), 3) for name in ("reduce_overlap", "gather_overlap")]
    [0.667, 0.333]
    >>> overlapped({"reduce_overlap": True}, 0, 4), overlapped({"gather_overlap": True}, 0, 4)
    (1.0, 0.0)
    """
    reduce, gather = bool(settings.get("reduce_overlap")), bool(settings.get("gather_overlap"))
    if zero_stage == 0:
        return float(reduce)
    return (reduce * grad_bytes + gather * PARAM_BYTES) / (grad_bytes + PARAM_BYTES)


def widened(stack: Stack, settings: Mapping[str, Any], zero_stages: tuple[int, ...] = ()) -> Stack:
    """The stack offering what the launch uses, so that what runs today is never ruled out, and these ZeRO stages.

    Where none are given, the stack's own.
    """
    features, stage, piped = stack.features, int(settings.get("zero_stage", 1)), int(settings.get("pp", 1)) > 1
    alone = zero_stages or features.zero_stages
    under = tuple(one for one in zero_stages if one != 2) or stack.zero_stages(piped=True)
    recompute = str(settings.get("recompute", "none"))
    modules = features.recompute_modules if recompute in MODES else MODULES
    own = str(settings.get("dispatcher", DISPATCHERS[0]))
    hosted = int(settings.get("activation_offload", 0)) > 0
    inputs = hosted and recompute == "full"  # of whole layers that are recomputed nothing else is left
    features = replace(
        features,
        dispatchers=tuple(name for name in DISPATCHERS if name in (*stack.dispatchers, own)),
        zero_stages=alone if piped else tuple(sorted({*alone, stage})),
        piped_zero_stages=tuple(sorted({*under, stage})) if piped else under,
        schedules=tuple(dict.fromkeys((*features.schedules, str(settings.get("schedule", "1f1b"))))),
        recompute=tuple(dict.fromkeys((*features.recompute, *((recompute,) if recompute in MODES else ())))),
        recompute_modules=modules,
        sequence_parallel=features.sequence_parallel or bool(settings.get("sequence_parallel")),
        activation_offload=features.activation_offload or (hosted and not inputs),
        hosted_checkpoints=features.hosted_checkpoints or inputs,
        settable=tuple(dict.fromkeys((*features.settable, *("offload",) * bool(settings.get("offload"))))),
        recompute_by=BY_VIRTUAL_STAGE if settings.get("recompute_first") else features.recompute_by,
        offers_overlap=features.offers_overlap or bool(settings.get("overlap_exchange")),
        uneven_stages=features.uneven_stages or bool(settings.get("layers_per_stage")),
    )
    return replace(stack, features=features)
