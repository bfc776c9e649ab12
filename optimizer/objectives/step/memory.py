"""Bytes of every stage, and of the one that reserves most: counts of layers x what the bill says of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plans
from optimizer.objectives.arrays import FloatArray, total
from optimizer.objectives.layer.bill import Bill, bill_of
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.parameters import groups, shard_ranks
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import EMBEDDING, LAYERS, Stages, stages_of
from optimizer.objectives.step.formula import Inputs
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.once import by_stage, elements_on

STATES = ("weights", "gradients", "optimizer")
DYNAMIC = ("activations", "logits", "buffers")  # what fragments


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes by term of every stage (rows), and the inputs of each term's formula."""

    terms: Mapping[str, FloatArray]
    inputs: Mapping[str, Inputs]
    reserved: FloatArray


def reserved_memory(job: Job, plans: Plans, knobs: Knobs | KnobColumns = Knobs()) -> FloatArray:
    """Peak reserved memory of every plan as `price` finds it [B]."""
    bill = bill_of(job, plans)
    return np.asarray(stage_memory(bill, stages_of(job.model, plans), knobs).reserved.max(axis=0))


def stage_memory(bill: Bill, stages: Stages, knobs: Knobs | KnobColumns = Knobs()) -> StageMemory:
    """Every byte of each stage; nothing for stages that a plan does not have [B]."""
    inputs = memory_inputs(bill, stages, knobs)
    terms = {name: MEMORY_TERMS[name].formula(values) for name, values in inputs.items()}
    inputs["fragmentation"] = {
        "rate": np.asarray(bill.job.stack["fragmentation"]),
        "dynamic": sum((terms[name] for name in DYNAMIC), np.zeros(1)),
    }
    terms["fragmentation"] = MEMORY_TERMS["fragmentation"].formula(inputs["fragmentation"])
    reserved = by_stage(stages.exists, knobs) * sum(terms.values(), np.zeros(1))
    return StageMemory(terms=terms, inputs=inputs, reserved=reserved)


def memory_inputs(bill: Bill, stages: Stages, knobs: Knobs | KnobColumns) -> dict[str, dict[str, FloatArray]]:
    """Inputs of every formula but that of fragmentation, which the others make up."""
    job, plans = bill.job, bill.plans
    held = {part: elements_on(bill, stages, part) for part in ("shared", "experts")}

    def kinds(*names: str) -> list[str]:
        found = [k for k, e in bill.entries.items() if any(np.any(getattr(e.cost, name)) for name in names)]
        return found or [EMBEDDING]

    def column(name: str, some: list[str]) -> FloatArray:
        return np.stack([bill.entries[kind].gathered(getattr(bill.entries[kind].cost, name)) for kind in some])[:, None]

    keeping, losing = kinds("kept", "kept_recomputed"), kinds("static")

    found: dict[str, dict[str, FloatArray]] = {}
    several = copies(plans)
    for state, (shared, experts) in state_bytes(job, plans).items():
        left = np.asarray(1.0 - knobs.offload) if state == "optimizer" else np.ones(1)
        if state == "optimizer":  # sharded over the copies too
            left = left / np.where(plans.zero_stage >= 1, several, 1.0)
        found[state] = {
            "shared": by_stage(held["shared"], knobs) if state == "optimizer" else held["shared"],
            "shared_bytes": shared * left,
            "experts": by_stage(held["experts"], knobs) if state == "optimizer" else held["experts"],
            "expert_bytes": experts * left,
        }
    found["activations"] = {
        "in_flight": stages.in_flight,
        "layers": np.stack([stages.counts[kind] for kind in keeping]),
        "kept": column("kept", keeping),
        "recomputed": np.stack([stages.recomputed.get(kind, 0.0 * stages.exists) for kind in keeping]),
        "kept_recomputed": column("kept_recomputed", keeping),
        "once": once_held(bill, stages),
    }
    found["logits"] = {
        "layers": several * np.stack([stages.counts[kind] for kind in losing]),
        "static": column("static", losing),
    }
    if not job.stack.features.gathers_layers:  # a compiler lays what is recomputed where the logits were
        before = total(found["logits"]["layers"] * found["logits"]["static"])
        found["activations"]["once"] = np.maximum(0.0, found["activations"]["once"] - before)
    found["buffers"] = {
        "workspace": np.full(len(plans), job.stack["workspace"]),
        "unsharded": unsharded_bytes(bill),
        "gathered": gathered_bytes(bill),
    }
    if isinstance(knobs, KnobColumns) and knobs.bucket.ndim > 1:
        for name in DYNAMIC:
            found[name] = {key: _with_settings(value) for key, value in found[name].items()}
        for name in STATES[:2]:
            found[name] = {key: _with_settings(value) for key, value in found[name].items()}
    return found


def gathered_bytes(bill: Bill) -> FloatArray:
    """Tokens that sequence parallelism gathers before a product, t h 2 B [B]."""
    plans = bill.plans
    tokens = plans.micro_batch * bill.job.seq_len / plans.cp
    return np.where(plans.sequence_parallel, ELEMENT * tokens * bill.job.model.hidden, 0.0)


def _with_settings(values: FloatArray) -> FloatArray:
    """Values with an axis for the settings of the knobs before that of the plans."""
    return values[..., None, :] if np.ndim(values) > 1 else values


def once_held(bill: Bill, stages: Stages) -> FloatArray:
    """What a stage holds while its largest layer or module is recomputed [B]."""
    largest = np.zeros(stages.exists.shape)
    for kind, entry in bill.entries.items():
        if kind not in LAYERS:
            continue
        for name, counts in (("once", stages.counts[kind]), ("once_whole", stages.recomputed[kind])):
            values = getattr(entry.cost, name)
            if np.any(values):
                largest = np.maximum(largest, entry.gathered(values) * (counts > 0))
    return largest


def state_bytes(job: Job, plans: Plans) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Bytes that a rank keeps for each element of the shared parameters and of the experts, by state [B].

    A software that keeps no copy of its weights beside the master copy (param_bytes 0) has one in half precision while
    it computes, for good wherever it is not gathered and freed again.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5; Zhao et al., arXiv 2304.11277, section 3.
    """
    features = job.stack.features
    found: dict[str, list[FloatArray]] = {state: [] for state in STATES}
    for _, ranks, _ in groups(plans):
        shards = shard_ranks(plans, ranks)
        resident = features.param_bytes or ELEMENT
        found["weights"].append(np.where(plans.zero_stage >= 3, features.param_bytes / shards, resident))
        found["gradients"].append(features.grad_bytes / np.where(plans.zero_stage >= 2, shards, 1.0))
        found["optimizer"].append(features.optimizer_bytes / np.where(plans.zero_stage >= 1, shards, 1.0))
    return {state: (shared, experts) for state, (shared, experts) in found.items()}


def unsharded_bytes(bill: Bill) -> FloatArray:
    """Two gathered units and an unsharded gradient under ZeRO-3, the gradient alone under ZeRO-2 [B].

    A unit is a layer, the embedding or the head; the largest and the largest layer are gathered together. Where a
    compiler gathers for every product, a layer counts as its largest matrix.

    Source: Zhao et al., arXiv 2304.11277, section 4 (the rate limiter keeps two gathered units).
    """
    zero = bill.plans.zero_stage
    if not np.any(zero >= 2):
        return np.zeros(len(zero))
    units = {kind: entry.shared + entry.experts for kind, entry in bill.entries.items()}
    layer = np.maximum.reduce([size for kind, size in units.items() if kind in LAYERS])
    if not bill.job.stack.features.gathers_layers:
        layer = largest_matrix(bill)
    largest = np.maximum(layer, units[EMBEDDING])
    features = bill.job.stack.features
    # What a compiler gathers in half precision has its gradient in half precision until it is scattered.
    gradient = np.where(zero >= 2, largest * (features.grad_bytes if features.gathers_layers else ELEMENT), 0.0)
    return gradient + np.where(zero >= 3, (layer + largest) * ELEMENT, 0.0)


def largest_matrix(bill: Bill) -> FloatArray:
    """Elements of the largest matrix of a layer on a rank: of its MLP or its experts, or into attention [elements]."""
    model, plans = bill.job.model, bill.plans
    found = model.hidden * np.maximum(model.ffn_hidden if model.dense_layers else 0, model.q_dim) / plans.tp
    if model.experts:
        each = model.hidden * model.experts.ffn_hidden * model.experts.count
        found = np.maximum(found, each / (plans.ep * plans.etp))
    return np.asarray(found)
