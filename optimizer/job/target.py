"""The launcher that a plan is for: a stack whose search keeps to what the launcher can express, or to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.job.stack import ALL_LAYERS, BY_STAGE, BY_VIRTUAL_STAGE, Stack
from optimizer.job.variables import SCHEDULES

if TYPE_CHECKING:
    from optimizer.job.plan import Plan

ANY = "any"
AT = "@"  # between the name of a stack and its target


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What a launcher can express, in the words of Features."""

    schedules: tuple[str, ...]  # pipeline schedules
    zero_stages: tuple[int, ...]  # ZeRO stages
    piped_zero_stages: tuple[int, ...] = ()  # the same under a pipeline; empty: as without one
    recompute_by: str  # what has a number of recomputed layers of its own
    dispatchers: tuple[str, ...]  # ways of tokens to experts
    settable: tuple[str, ...] = ()  # knobs
    modules: bool = False  # single modules of a layer can be recomputed
    offload: bool = False  # activations can lie on the host
    overlap: bool = True  # expert-parallel all-to-all can run during another micro-batch
    selective: bool = True  # attention or operators alone can be recomputed
    whole_experts: bool = False  # an expert is split as all weights are, or not at all
    context_shares: bool = False  # context-parallel ranks share weights
    replicates: bool = True  # several ranks may hold everything whole, where ZeRO-0 is among its stages
    reduces_once: bool = False  # gradients of a pipeline are reduced after the last backward pass of a stage
    tied_stages: bool = True  # embedding and head may share weights across stages
    only: Mapping[str, int | str | bool] = field(default_factory=dict)  # variables of a plan with one value
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # dispatchers that a device lacks, by device
    stack: str = ""  # what prices it unless another stack is asked for; "" for the usual one
    vendors: tuple[str, ...] = ("NVIDIA", "AMD")  # makers of the devices that it runs on


def on_device(stack: Stack, can: Launcher, device: str, gpus: int) -> Stack:
    """The stack of a target without the dispatchers and ZeRO stages that its launcher has not on so many devices."""
    own, lacking = stack.features, can.lacking.get(device, ())
    dispatchers = tuple(name for name in stack.dispatchers if name not in lacking) if lacking else own.dispatchers
    whole = (0,) if 0 in own.zero_stages else ()  # what one GPU has to itself
    sharded = own.zero_stages if can.replicates else tuple(stage for stage in own.zero_stages if stage)
    stages = (whole if gpus == 1 else ()) or sharded
    return replace(stack, features=replace(own, dispatchers=dispatchers, zero_stages=stages))


def target_of(stack: Stack) -> str:
    """The target of a stack, "" for its own software."""
    return stack.name.partition(AT)[2]


def unbuilt(stack: Stack, plan: Plan) -> tuple[str, ...]:
    """What of a plan the stack's own software cannot do, in words: what would have to be built to run it."""
    counts, without = plan.recompute_layers, stack.features.lifted
    missing = {
        "recomputation of another number of layers on each stage": "recompute_by" in without and len(set(counts)) > 1,
        f"the schedule {plan.schedule}": f"schedule {plan.schedule}" in without,
        "stages of unlike length": "uneven_stages" in without and len(set(plan.layers_per_stage)) > 1,
    }
    return tuple(f"would have to be built: {what}" for what, holds in missing.items() if holds)


def lifted(stack: Stack) -> Stack:
    """The stack with what any launcher could express, and in `lifted` what its own software cannot."""
    own = stack.features
    schedules = tuple(f"schedule {name}" for name in SCHEDULES if name not in own.schedules)
    recompute = ("recompute_by",) * (own.recompute_by != BY_STAGE)
    features = replace(
        own,
        recompute_by=BY_STAGE,
        schedules=SCHEDULES,
        uneven_stages=True,
        lifted=(*recompute, *schedules, *("uneven_stages",) * (not own.uneven_stages)),
        whole_experts=False,
        context_shares=False,
        tied_stages=True,
    )
    return replace(stack, name=f"{stack.name}{AT}{ANY}", features=features)


def narrowed(stack: Stack, target: str, can: Launcher) -> Stack:
    """The stack with what both its software and a launcher can.

    Args:
        stack: the software that prices plans.
        target: what the launcher is called.
        can: what the launcher can express.

    Raises:
        InputError: nothing is left of the schedules, ZeRO stages or ways to recompute.
    """
    own = stack.features
    order = (BY_STAGE, BY_VIRTUAL_STAGE, ALL_LAYERS)
    piped = can.piped_zero_stages or can.zero_stages
    selective = can.selective and own.selective == ("core" if can.modules else "ops")
    features = replace(
        own,
        recompute_by=max(own.recompute_by, can.recompute_by, key=order.index),
        schedules=tuple(name for name in own.schedules if name in can.schedules),
        zero_stages=tuple(stage for stage in own.zero_stages if stage in can.zero_stages),
        piped_zero_stages=tuple(stage for stage in stack.zero_stages(piped=True) if stage in piped),
        recompute=tuple(mode for mode in own.recompute if mode != "selective" or selective),
        recompute_modules=own.recompute_modules if can.modules else (),
        activation_offload=own.activation_offload and can.offload,
        hosted_checkpoints=own.hosted_checkpoints and can.offload,
        settable=tuple(name for name in own.settable if name in can.settable),
        dispatchers=tuple(name for name in stack.dispatchers if name in can.dispatchers),
        offers_overlap=own.offers_overlap and can.overlap,
        whole_experts=own.whole_experts or can.whole_experts,
        context_shares=own.context_shares or can.context_shares,
        reduces_once=own.reduces_once or can.reduces_once,
        tied_stages=own.tied_stages and can.tied_stages,
    )
    needed = ("schedules", "zero_stages", "recompute")
    empty = [name for name in needed if getattr(own, name) and not getattr(features, name)]
    if empty:
        raise InputError(
            f"{target} has none of the {', '.join(empty)} of {stack.name}: give another --stack or --target"
        )
    return replace(stack, name=f"{stack.name}{AT}{target}", features=features)
