"""What a launch switches on or off besides its plan, each told once: the features of the software in each state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from optimizer.base.content import content
from optimizer.base.errors import InputError
from optimizer.job.hardware import Device
from optimizer.job.model import Model
from optimizer.job.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Switch:
    """One switch."""

    name: str  # as people pin it
    meaning: str  # in words
    states: Mapping[str, Mapping[str, Any]]  # features of a stack, by state, the least first
    formats: tuple[str, ...] = ()  # number formats that can have another state; empty: all
    units: str = ""  # number format that a device must have units for
    recipes: tuple[str, ...] = ()  # recipes of 8 bits that can have another state; empty: all
    gated: bool = False  # whether only models whose MLP has a gate can have another state

    def features(self, state: str) -> dict[str, Any]:
        """The features of a state. Raises InputError for one that it has not.

        >>> switches()["graphs"].features("layers")
        {'cuda_graphs': True, 'graphed': ()}
        """
        if state not in self.states:
            raise InputError(f"{self.name} must be one of {', '.join(self.states)}, but got {state!r}")
        return {name: tuple(value) if isinstance(value, list) else value for name, value in self.states[state].items()}

    def settings(self, state: str) -> tuple[str, ...]:
        """A state as `--set` has it.

        >>> switches()["graphs"].settings("off")
        ('stack.cuda_graphs=false', 'stack.graphed=[]')
        """
        return tuple(f"stack.{name}={json.dumps(value)}" for name, value in self.features(state).items())

    def state(self, stack: Stack) -> str:
        """The state in which a stack has it, "" where it is in none of these.

        >>> switches()["gradients"].state(Stack(name="mine"))
        'fp32'
        """
        own = stack.features
        for state in self.states:
            if all(getattr(own, name) == value for name, value in self.features(state).items()):
                return state
        return ""

    def possible(self, stack: Stack, device: Device, dtype: str, model: Model) -> bool:
        """Whether a job of this software, device, format and model can have another state than the first."""
        allowed = not self.recipes or stack.features.fp8_recipe in self.recipes
        in_format = not self.formats or dtype in self.formats
        has_units = not self.units or self.units in device.peak_flops
        return allowed and in_format and has_units and (model.gated_mlp or not self.gated)


@cache
def switches() -> Mapping[str, Switch]:
    """Every switch by name."""
    return {
        name: Switch(name=name, **table | {key: tuple(table.get(key, ())) for key in ("formats", "recipes")})
        for name, table in content("optimizer.job", "switches.toml").items()
    }


def within_reach(stack: Stack, device: Device, dtype: str, model: Model) -> Stack:
    """The stack without what this device, number format or model cannot have on.

    >>> from optimizer.catalog import load_device, load_model
    >>> stack, model = switched_to(Stack(name="mine"), {"fused_experts": "on"}), load_model("deepseek-v3")
    >>> [within_reach(stack, load_device(name), "fp8", model).features.fused_experts for name in ("h100", "gb200")]
    [False, True]
    """
    beyond = [switch for switch in switches().values() if not switch.possible(stack, device, dtype, model)]
    least = {switch.name: next(iter(switch.states)) for switch in beyond}
    return switched_to(stack, {name: state for name, state in least.items() if switches()[name].state(stack) != state})


def switched_to(stack: Stack, states: Mapping[str, str]) -> Stack:
    """The stack with switches in these states.

    Raises InputError for a state that a switch has not.

    >>> switched_to(Stack(name="mine"), {"graphs": "parts", "gradients": "bf16"}).features.grad_bytes
    2
    """
    changes: dict[str, Any] = {}
    for name, state in states.items():
        changes |= switches()[name].features(state)
    return replace(stack, features=replace(stack.features, **changes)) if changes else stack
