"""Every term of an estimate with its formula, inputs, source and label, read from the functions that compute it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from optimizer.job import Job
from optimizer.objectives.kernels import attention, operators
from optimizer.objectives.layer import activation_offload
from optimizer.objectives.layer import communication as layer_communication
from optimizer.objectives.layer import seconds as layer
from optimizer.objectives.layer.kinds import layer_times
from optimizer.objectives.layer.shapes import shapes_of
from optimizer.objectives.pipeline import closed_form as pipeline
from optimizer.objectives.step import data_parallel, memory, once_per_step
from optimizer.objectives.step import price as step
from optimizer.plan import Knobs, Plan, Plans
from optimizer.recomputation import modules_of
from optimizer.units import MB, MS


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term: its value, and how it came about. `label` is datasheet, measured, fitted or assumed."""

    name: str
    value: float
    unit: str
    formula: str
    inputs: dict[str, str] = field(default_factory=dict)
    source: str = ""
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The function whose docstring holds a term's formula, and the stack parameters that enter it."""

    function: Callable[..., Any]
    parameters: tuple[str, ...] = ()
    device: tuple[str, ...] = ()


RATES = ("scale_up_efficiency", "network_efficiency")
TIME: dict[str, Origin] = {
    "gemm": Origin(
        function=layer.gemm_seconds, parameters=("gemm_efficiency", "expert_efficiency"), device=("peak_flops",)
    ),
    "attention": Origin(function=attention.flash_seconds, parameters=("attention_efficiency",), device=("peak_flops",)),
    "elementwise": Origin(
        function=layer.elementwise_seconds,
        parameters=("hbm_efficiency", "elementwise_passes"),
        device=("memory_bandwidth",),
    ),
    "launch": Origin(
        function=layer.launch_seconds, parameters=("launch", "microbatch_overhead", "pipelined_collective")
    ),
    "tp_communication": Origin(function=layer_communication.tensor_seconds, parameters=("tp_overlap", *RATES)),
    "cp_communication": Origin(function=layer_communication.context_seconds, parameters=("cp_overlap", *RATES)),
    "ep_communication": Origin(
        function=layer_communication.expert_seconds, parameters=("ep_overlap", "expert_imbalance", *RATES)
    ),
    "head": Origin(function=operators.head_operators, parameters=("gemm_efficiency", "hbm_efficiency")),
    "dp_communication": Origin(function=data_parallel.per_step, parameters=("dp_overlap", *RATES)),
    "pp_communication": Origin(function=step.stage_extras, parameters=("p2p_overlap", *RATES)),
    "host_transfer": Origin(function=activation_offload.host_seconds, device=("memory_bandwidth",)),
    "bubble": Origin(function=pipeline.pipeline_time),
    "contention": Origin(function=data_parallel.rate_of_share),
    "optimizer": Origin(
        function=once_per_step.optimizer_seconds, parameters=("optimizer_passes",), device=("memory_bandwidth",)
    ),
    "overhead": Origin(function=once_per_step.once_per_step, parameters=("step_overhead",)),
    "stragglers": Origin(function=once_per_step.straggler_seconds, parameters=("straggler",)),
}
MEMORY: dict[str, Origin] = {
    "weights": Origin(function=memory.states),
    "gradients": Origin(function=memory.states),
    "optimizer": Origin(function=memory.states),
    "activations": Origin(function=memory.activation_bytes, parameters=("activation_factor",)),
    "logits": Origin(function=memory.stage_memory, parameters=("logit_memory",)),
    "buffers": Origin(function=memory.buffers, parameters=("workspace",)),
    "fragmentation": Origin(function=memory.stage_memory, parameters=("fragmentation",)),
}


def explain(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> list[Term]:
    """Every second and byte of one plan: value, formula, inputs with their values, source and label."""
    costs = step.price(job, Plans.of([plan]), knobs)
    terms = [_term(job, name, float(value[0]), "s", TIME[name]) for name, value in costs.time.items()]
    terms += [_term(job, name, float(value[0]), "B", MEMORY[name]) for name, value in costs.memory.items()]
    rebuilt = rebuilt_modules(job, plan)
    return [replace(term, inputs=term.inputs | rebuilt.get(term.name, {})) for term in terms]


def rebuilt_modules(job: Job, plan: Plan) -> dict[str, dict[str, str]]:
    """What the modules that a plan rebuilds by name add to a layer and micro-batch, and free of it, by term."""
    found: dict[str, dict[str, str]] = {}
    if not modules_of(plan.recompute):
        return found
    plans = Plans.of([plan])
    layers = layer_times(job, plans)[0]
    for kind in [kind for kind in ("dense", "moe") if kind in layers]:
        bytes_of = memory.activation_bytes(
            job.model, shapes_of(job, plans), job.stack.features, kind == "moe", job.stack.imbalance, job.quantised
        )
        freed = float(memory.kept_bytes(bytes_of, plans.recompute).once[0])
        found.setdefault("activations", {})[f"{plan.recompute} in a {kind} layer"] = f"{freed / MB:.4g} MB freed"
        for term, seconds in layers[kind].again(plans.recompute).terms.items():
            if seconds[0]:
                more = f"{seconds[0] / MS:.4g} ms more"
                found.setdefault(term, {})[f"{plan.recompute} in a {kind} layer"] = more
    return found


def _term(job: Job, name: str, value: float, unit: str, origin: Origin) -> Term:
    function = origin.function
    if name == "attention" and not job.stack.features.attention.startswith("flash"):
        function, origin = attention.unfused_seconds, Origin(function=function, parameters=("score_passes",))
    formula, source = formula_of(function)
    inputs = {parameter: f"{job.stack[parameter]:.4g} (stack {job.stack.name})" for parameter in origin.parameters}
    device = job.cluster.device
    for quantity in origin.device:
        number = device.peak(job.dtype) if quantity == "peak_flops" else getattr(device, quantity)
        inputs[quantity] = f"{number:.4g} ({device.name})"
    fitted = any(parameter in job.stack.parameters for parameter in origin.parameters)
    assumed = bool(origin.parameters) or source.startswith("assumed")
    label = "fitted" if fitted else ("assumed" if assumed else "formula")
    return Term(name=name, value=value, unit=unit, formula=formula, inputs=inputs, source=source, label=label)


def formula_of(function: Callable[..., Any]) -> tuple[str, str]:
    """The text of a docstring before its source and doctest, and the source.

    >>> formula_of(pipeline.bubble_fraction)[1][:16]
    'Narayanan et al.'
    """
    text = inspect.getdoc(function) or ""
    body = text.split(">>>")[0]
    head, _, source = body.partition("Source:")
    return re.sub(r"\s+", " ", head).strip(), re.sub(r"\s+", " ", source).strip()
