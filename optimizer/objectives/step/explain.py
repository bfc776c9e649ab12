"""Every term of an estimate with the formula that was executed, its inputs, source and label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optimizer.base.units import MB, MS
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.recomputation import modules_of
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.activations import resident_bytes
from optimizer.objectives.kernels.operators import layer_operators
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.cost import activations_of, job_of
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.layer.seconds import layer_time
from optimizer.objectives.pipeline.stages import DENSE, MOE, stages_of
from optimizer.objectives.step.formula import Formula, Inputs, Term, is_expression
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.price import Step
from optimizer.objectives.step.time_terms import TIME_TERMS

Value = float | tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TermExplanation:
    """One term of a plan's estimate: evaluating `formula` with `values` gives `value`."""

    name: str
    value: float
    unit: str
    formula: str
    values: Mapping[str, Value]  # inputs of the formula, several for what differs by kind of layer
    about: str  # the formula in words
    # parameters of the stack, quantities of the device and modules recomputed that enter it
    inputs: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)  # formulas behind it
    source: str = ""
    label: str = ""  # formula, fitted or assumed


def explain(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> list[TermExplanation]:
    """Every second and byte of one plan: value, formula, inputs with their values, source and label."""
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    step = Step(layer_costs=layer_costs, stages=stages_of(job.model, layer_costs.plans), knobs=knobs)
    memory = stage_memory(layer_costs, step.stages, knobs)
    fullest, count = int(memory.reserved[:, 0].argmax()), len(memory.reserved)
    notes = module_notes(job, plan)
    explanations = [_explained(job, TIME_TERMS[name], step.inputs(name), notes) for name in step.names]
    for name, inputs in memory.inputs.items():
        here = {key: _on_stage(np.asarray(value), fullest, count) for key, value in inputs.items()}
        explanations.append(_explained(job, MEMORY_TERMS[name], here, notes))
    return explanations


def module_notes(job: Job, plan: Plan) -> dict[str, dict[str, str]]:
    """What the modules that a plan recomputes by name add to a layer and micro-batch, and free of it, by term."""
    by_term: dict[str, dict[str, str]] = {}
    modules = modules_of(plan.recompute)
    if not modules:
        return by_term
    plans, stack = Plans.of([plan]), job.software
    shapes = shapes_of(job, plans)
    for kind in [kind for moe in (False, True)[: 1 + bool(job.model.experts)] for kind in job.model.kinds_with(moe)]:
        model, moe = kind.model, kind.moe
        table = activations_of(job, model, shapes, moe)
        mixer = "" if model.has_attention else " recurrent" if model.state else " mixerless"
        what = f"{plan.recompute} in a {MOE if moe else DENSE}{mixer} layer"
        freed = float(resident_bytes(table, plans.recompute).recomputing[0])
        by_term.setdefault("activations", {})[what] = f"{freed / MB:.4g} MB freed"
        layer = layer_operators(model, shapes, stack, moe, job.row_multiple)
        time = layer_time(job_of(job, kind), layer, shapes, moe, modules=modules)
        for term, seconds in time.recomputation(plans.recompute).terms.items():
            if seconds[0]:
                by_term.setdefault(term, {})[what] = f"{seconds[0] / MS:.4g} ms more"
    return by_term


def _explained(job: Job, term: Term, inputs: Inputs, notes: Mapping[str, Mapping[str, str]]) -> TermExplanation:
    values = {name: _number(inputs[name]) for name in term.formula.names}
    parameters = {name: f"{job.stack[name]:.4g} (stack {job.stack.name})" for name in term.parameters}
    device = job.cluster.device
    for quantity in term.quantities:
        number = device.peak(job.dtype) if quantity == "peak_flops" else getattr(device, quantity)
        parameters[quantity] = f"{number:.4g} ({device.name})"
    behind = [Formula(function=kernel) for kernel in term.kernels]
    texts = {kernel.name: kernel.text if is_expression(kernel.function) else kernel.about for kernel in behind}
    sources = [part.source for part in (term.formula, *behind)]
    fitted = any(name in job.stack.parameters for name in term.parameters)
    assumed = bool(term.parameters) or any(source.startswith("assumed") for source in sources)
    return TermExplanation(
        name=term.name,
        value=float(np.ravel(term.formula(inputs))[0]),
        unit=term.unit,
        formula=term.formula.text,
        values=values,
        about=term.formula.about,
        inputs=parameters | dict(notes.get(term.name, {})),
        kernels=texts,
        source="; ".join(source.rstrip(".") for source in dict.fromkeys(sources) if source),
        label="fitted" if fitted else ("assumed" if assumed else "formula"),
    )


def _number(value: object) -> Value:
    """One number, or one for each kind of layer."""
    numbers = np.asarray(value, dtype=np.float64)
    return tuple(numbers.reshape(len(numbers), -1)[:, 0].tolist()) if numbers.ndim > 1 else float(np.ravel(numbers)[0])


def _on_stage(values: FloatArray, stage: int, stages: int) -> FloatArray:
    """Inputs of one stage: rows of stages are the axis before that of plans."""
    if values.ndim == 3:
        return np.asarray(values[:, stage if values.shape[1] == stages else 0])
    return np.asarray(values[stage]) if values.ndim == 2 and values.shape[0] == stages else values
