"""The launcher that a plan is for: a stack whose search keeps to what the launcher can express, or to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError, nearest
from optimizer.job.stack import ALL_LAYERS, BY_STAGE, BY_VIRTUAL_STAGE, SETTABLE, Features, Stack
from optimizer.job.variables import DISPATCHERS, SCHEDULES

if TYPE_CHECKING:
    from optimizer.job.plan import Plan

ANY = "any"
AT = "@"  # between the name of a stack and its target


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What a launcher can express, in the words of Features, and the makers of devices that it runs on.

    only: variables of which it has one value. stack: the stack to price it with unless another is asked for.
    """

    schedules: tuple[str, ...]
    zero_stages: tuple[int, ...]
    recompute_by: str
    modules: bool
    settable: tuple[str, ...]
    dispatchers: tuple[str, ...]
    offload: bool
    overlap: bool = True
    selective: bool = True
    whole_experts: bool = False
    context_shares: bool = False
    tied_stages: bool = True
    only: Mapping[str, int] = field(default_factory=dict)
    stack: str = ""
    vendors: tuple[str, ...] = ("NVIDIA", "AMD")


MEGATRON = Launcher(
    schedules=("1f1b", "interleaved"),
    zero_stages=(0, 1, 2, 3),
    recompute_by=BY_VIRTUAL_STAGE,
    modules=True,
    settable=SETTABLE,
    dispatchers=DISPATCHERS,
    offload=True,
)
# Data-parallel replicas that share states, and nothing else.
ALONE: Mapping[str, int] = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "etp": 1}
DATA = Launcher(
    schedules=("1f1b",),
    zero_stages=(2, 3),
    recompute_by=ALL_LAYERS,
    modules=False,
    settable=(),
    dispatchers=DISPATCHERS[:1],
    offload=False,
    overlap=False,
    selective=False,
    only=ALONE,
    stack="llm-foundry-fsdp-2023",
)
LAUNCHERS: Mapping[str, Launcher] = {
    "megatron-lm": MEGATRON,
    "megatron-bridge": MEGATRON,
    "torchtitan": Launcher(
        schedules=("1f1b", "interleaved"),
        zero_stages=(0, 2, 3),
        recompute_by=ALL_LAYERS,
        modules=False,
        settable=(),
        dispatchers=DISPATCHERS[:1],
        offload=False,
        overlap=False,
        whole_experts=True,
        context_shares=True,
        tied_stages=False,
    ),
    # ZeRO-0 with bf16 runs its BF16_Optimizer, which shards states; below ZeRO-3 it offloads all of them or none.
    "deepspeed": replace(DATA, zero_stages=(1, 2, 3), only={**ALONE, "shard": 0}, settable=("bucket",)),
    "accelerate": DATA,
}
TARGETS = (*LAUNCHERS, ANY)


def aimed(stack: Stack, target: str) -> Stack:
    """The stack with the features that the target can express, under a name that says so; for `any` with all.

    Raises InputError for an unknown target, or one that has nothing of the stack.

    >>> aimed(Stack(name="mine"), "megatron-lm").features.recompute_by
    'virtual stage'
    """
    if target not in TARGETS:
        near = nearest(target, TARGETS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"unknown target {target!r}: expected one of {', '.join(TARGETS)}{hint}")
    features = _lifted(stack.features) if target == ANY else _kept(stack, LAUNCHERS[target])
    empty = [name for name in ("schedules", "zero_stages", "recompute") if not getattr(features, name)]
    if empty:
        raise InputError(
            f"{target} has none of the {', '.join(empty)} of {stack.name}: give another --stack or --target"
        )
    return replace(stack, name=f"{stack.name}{AT}{target}", features=features)


def held_to(target: str, fixed: Mapping[str, int | str | bool]) -> dict[str, int | str | bool]:
    """What is fixed, and what the target has one value of. Raises InputError where these differ.

    >>> held_to("deepspeed", {"micro_batch": 2})["tp"], held_to("any", {})
    (1, {})
    """
    only = LAUNCHERS[target].only if target in LAUNCHERS else {}
    wrong = {name: fixed[name] for name, value in only.items() if name in fixed and fixed[name] != value}
    if wrong:
        asked = ", ".join(f"{name}={value}" for name, value in wrong.items())
        raise InputError(f"--target {target} cannot run {asked}: it shares states among replicas and splits no layer")
    return {**fixed, **only}


def target_of(stack: Stack) -> str:
    """The target of a stack, "" for its own software."""
    return stack.name.partition(AT)[2]


def unbuilt(stack: Stack, plan: Plan) -> tuple[str, ...]:
    """What of a plan the stack's own software cannot do, in words: what would have to be built to run it."""
    counts, lifted = plan.recompute_layers, stack.features.lifted
    missing = {
        "recomputation of another number of layers on each stage": "recompute_by" in lifted and len(set(counts)) > 1,
        f"the schedule {plan.schedule}": f"schedule {plan.schedule}" in lifted,
        "stages of unlike length": "uneven_stages" in lifted and len(set(plan.layers_per_stage)) > 1,
    }
    return tuple(f"would have to be built: {what}" for what, holds in missing.items() if holds)


def _lifted(own: Features) -> Features:
    schedules = tuple(f"schedule {name}" for name in SCHEDULES if name not in own.schedules)
    recompute = ("recompute_by",) * (own.recompute_by != BY_STAGE)
    lifted = (*recompute, *schedules, *("uneven_stages",) * (not own.uneven_stages))
    return replace(
        own,
        recompute_by=BY_STAGE,
        schedules=SCHEDULES,
        uneven_stages=True,
        lifted=lifted,
        whole_experts=False,
        context_shares=False,
        tied_stages=True,
    )


def _kept(stack: Stack, can: Launcher) -> Features:
    own = stack.features
    order = (BY_STAGE, BY_VIRTUAL_STAGE, ALL_LAYERS)
    selective = can.selective and own.selective == ("core" if can.modules else "ops")
    return replace(
        own,
        recompute_by=max(own.recompute_by, can.recompute_by, key=order.index),
        schedules=tuple(name for name in own.schedules if name in can.schedules),
        zero_stages=tuple(stage for stage in own.zero_stages if stage in can.zero_stages),
        recompute=tuple(mode for mode in own.recompute if mode != "selective" or selective),
        recompute_modules=own.recompute_modules if can.modules else (),
        activation_offload=own.activation_offload and can.offload,
        settable=tuple(name for name in own.settable if name in can.settable),
        dispatchers=tuple(name for name in stack.dispatchers if name in can.dispatchers),
        offers_overlap=own.offers_overlap and can.overlap,
        whole_experts=own.whole_experts or can.whole_experts,
        context_shares=own.context_shares or can.context_shares,
        tied_stages=own.tied_stages and can.tied_stages,
    )
