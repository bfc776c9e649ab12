"""The objective: seconds, bytes and MFU of one training step, for one plan or a million.

    layer times (few distinct shapes)  ->  stage times  ->  pipeline  ->  + data parallelism, optimizer, overheads

Layer times depend on few variables, so they are computed once per distinct shape and gathered; everything after that
is plain arithmetic on arrays with one entry per plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives.kernels.modes import modes, rebuilds
from optimizer.objectives.kernels.modules import rebuilt_flops
from optimizer.objectives.kernels.operators import FloatArray
from optimizer.objectives.layer.activation_offload import HOST_TRANSFER
from optimizer.objectives.layer.distinct import distinct, pick, tabulated
from optimizer.objectives.layer.kinds import Kind, layer_kinds, sharded_exposures, spared
from optimizer.objectives.layer.seconds import TERMS
from optimizer.objectives.layer.shapes import SHAPE_KEYS, TRANSFER_KEYS, without_rebuilding
from optimizer.objectives.network.in_training import collective
from optimizer.objectives.pipeline.closed_form import FILLED, bubble_fraction, bubble_left, filled_passes, pipeline_time
from optimizer.objectives.pipeline.stages import Stage, layer_counts, representative_stages, stages_of
from optimizer.objectives.step.estimate import Costs
from optimizer.objectives.step.flops import model_flops, score_flops
from optimizer.objectives.step.once_per_step import once_per_step, straggler_seconds
from optimizer.objectives.step.peak_memory import peak_memory
from optimizer.plan import SCHEDULES, KnobColumns, Knobs, Plans

GROUNDWORK = "groundwork"


@dataclass(frozen=True, kw_only=True)
class Groundwork:
    """What of a step's price no knob changes.

    `few` are the distinct shapes of the plans and `inverse` the one of each plan; `first` is the first stage of the
    even split and `covering` its layers, whose passes hide the collectives of a step; `hidden` are the seconds hidden
    inside the layers already, `time` the terms of the pipeline [s].
    """

    few: Plans
    inverse: NDArray[np.intp]
    stages: Sequence[Stage]
    first: Stage
    covering: tuple[Kind, ...]
    hidden: FloatArray
    time: dict[str, FloatArray]


def price(job: Job, plans: Plans, knobs: Knobs | KnobColumns = Knobs()) -> Costs:
    """Time by term, memory by term, MFU and HFU of every plan, under one setting of the knobs or one per plan.

    Raises InputError when the device has no units for the job's dtype.
    """
    ground = _remembered(job, plans)
    once, hidden = once_per_step(job, plans, ground.first, ground.covering, knobs)
    time = ground.time | once
    step = sum(time.values(), np.zeros(len(plans)))
    time["stragglers"] = straggler_seconds(job, plans, step)
    step = step + time["stragglers"]
    return _costs(job, plans, ground.stages, ground.few, ground.inverse, time, step, hidden + ground.hidden, knobs)


def groundwork(job: Job, plans: Plans) -> Groundwork:
    """Everything before the knobs: layers, stages, pipeline."""
    dense, moe, head = layer_kinds(job, plans)
    kinds: tuple[Kind, ...] = (dense, moe)
    if plans.placements is not None:
        plain = without_rebuilding(plans)
        rebuilds = np.any(plain.recompute != plans.recompute)
        kinds += layer_kinds(job, plain)[:2] if rebuilds else kinds
    stages = stages_of(job.model, plans)
    per_stage = stage_extras(job, plans)
    sharded = sharded_exposures(job, plans, kinds)
    layer_totals = tuple(kind.total + exposed for kind, exposed in zip(kinds, sharded, strict=True))

    totals = [_stage_total(job.model, stage, layer_totals, head.total, per_stage) for stage in stages]
    slowest = np.maximum.reduce(totals)
    pipeline = pipeline_time(
        plans.num_microbatches, plans.vpp, slowest, _whole(job, plans, totals, layer_totals, head.total, per_stage)
    )
    pipeline = pipeline - filled_bubble(plans, pipeline - plans.num_microbatches * slowest, dense, moe, job)
    time = _pipeline_terms(job.model, plans, stages, totals, (*kinds, head), sharded, per_stage, pipeline)
    # What hides the collectives of a step are the passes of an even split; where some layers are spared, of one that
    # rebuilds nothing.
    even = stages if plans.placements is None else representative_stages(job.model, plans)
    few, inverse = distinct(plans, SHAPE_KEYS)
    return Groundwork(
        few=few,
        inverse=inverse,
        stages=stages,
        first=even[0],
        covering=kinds if len(kinds) == 2 else spared(plans, kinds),
        hidden=plans.num_microbatches * (even[0].dense * dense.hidden + even[0].moe * moe.hidden),
        time=time,
    )


def _remembered(job: Job, plans: Plans) -> Groundwork:
    """The groundwork of these plans, kept with them: the search prices the same plans at several knobs."""
    known = plans.memo.get(GROUNDWORK)
    if known is None or known[0] is not job:
        known = plans.memo[GROUNDWORK] = job, groundwork(job, plans)
    found: Groundwork = known[1]
    return found


def filled_bubble(plans: Plans, bubble: FloatArray, dense: Kind, moe: Kind, job: Job) -> FloatArray:
    """What zero-bubble schedules take off the 1F1B bubble by deferring weight gradients [s].

    `filled_passes` of W, never more than the bubble: W, the mean stage's weight gradients for one micro-batch, is half
    of its backward products.

    Source: Qi et al., arXiv 2401.10241, section 2.3; see pipeline.zero_bubble_time and zero_bubble_h2_time.
    """
    if not np.any(plans.schedule >= SCHEDULES.index("zero-bubble")):
        return np.zeros(len(plans))
    times = pick(plans.schedule, [FILLED.get(name, 0.0) for name in SCHEDULES])
    counts = layer_counts(job.model)
    weights = (counts[0] * dense.weight + counts[1] * moe.weight) / plans.pp
    return np.minimum(bubble, filled_passes(times, plans.pp, plans.num_microbatches) * weights)


def stage_extras(job: Job, plans: Plans) -> dict[str, FloatArray]:
    """Seconds per micro-batch that every pipeline stage spends beside its layers: transfers and host overhead.

    Each virtual stage sends activations forward and gradients back: tokens x hidden x 2 B, divided by tp under
    sequence parallelism. Where the software scatters and gathers, it divides them without as well, and the next
    stage's TP ranks gather what they got.

    Source: Narayanan et al., arXiv 2104.04473, section 4.1; deepspeed/runtime/pipe/engine.py (is_pipe_partitioned).
    """
    transfer = np.zeros(len(plans))
    if np.any(plans.pp > 1):
        seconds, index = tabulated(plans, "transfer", job, TRANSFER_KEYS, partial(_transfer, job))
        transfer = np.where(plans.pp > 1, seconds[index], 0.0)
    return {
        "pp_communication": 2.0 * plans.vpp * transfer * (1 - job.stack["p2p_overlap"]),
        "launch": plans.vpp.astype(np.float64) * job.stack["microbatch_overhead"],
    }


def _transfer(job: Job, plans: Plans) -> FloatArray:
    """One micro-batch's activations on their way to the next stage [s], which idles until they come."""
    scattered = job.stack.features.scatter_gather & (plans.tp > 1) & ~plans.sequence_parallel
    split = np.where(plans.sequence_parallel | scattered, plans.tp, 1)
    whole = 2.0 * plans.micro_batch * job.seq_len / plans.cp * job.model.hidden
    ranks, stride = np.full(len(plans), 2), plans.tp * plans.cp * plans.dp
    sent = collective(job, "point_to_point", whole / split, ranks, stride, skewed=False)
    return sent + collective(job, "all_gather", whole, np.where(scattered, plans.tp, 1), 1, skewed=False)


def head_passes(model: Model, stage: Stage) -> FloatArray:
    """Passes through the output head on a stage for one micro-batch [1].

    One and one for each prediction layer where the head is, 2 hidden / vocab for the projection of each prediction
    layer where that is.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; Megatron-LM, megatron/core/models/gpt/gpt_model.py.
    """
    if not model.mtp_layers:
        return stage.head
    return stage.head * (1 + model.mtp_layers) + stage.mtp * 2.0 * model.hidden / model.vocab


def _stage_total(
    model: Model, stage: Stage, layers: Sequence[FloatArray], head: FloatArray, extras: dict[str, FloatArray]
) -> FloatArray:
    busy = head_passes(model, stage) * head + sum(extras.values())
    for count, seconds in zip(stage.counts, layers, strict=True):
        busy = busy + count * seconds
    return np.asarray(stage.exists * busy)


def _whole(
    job: Job,
    plans: Plans,
    totals: Sequence[FloatArray],
    layers: Sequence[FloatArray],
    head: FloatArray,
    extras: dict[str, FloatArray],
) -> FloatArray:
    """Time of all stages together for one micro-batch [s]."""
    if plans.placements is not None:
        return np.asarray(np.sum(totals, axis=0))
    dense, moe = layer_counts(job.model)
    mtp = job.model.mtp_layers
    heads = 1 + mtp + mtp * 2.0 * job.model.hidden / job.model.vocab
    beside = sum(extras.values(), np.zeros(len(plans)))
    return dense * layers[0] + moe * layers[1] + heads * head + plans.pp * beside


def _pipeline_terms(
    model: Model,
    plans: Plans,
    stages: Sequence[Stage],
    totals: list[FloatArray],
    kinds: tuple[Kind, ...],
    sharded: Sequence[FloatArray],
    extras: dict[str, FloatArray],
    pipeline: FloatArray,
) -> dict[str, FloatArray]:
    """What the slowest stage does for its m micro-batches, term by term; the rest of the pipeline's time is bubble.

    `kinds` are the layers as Stage.counts lists them, and the head.
    """
    slowest = np.argmax(np.stack(totals), axis=0)
    counts = [pick(slowest, column) for column in zip(*(stage.counts for stage in stages), strict=True)]
    heads = pick(slowest, [head_passes(model, stage) for stage in stages])
    held = [
        (count, kind, gathering)
        for count, kind, gathering in zip(counts, kinds[:-1], sharded, strict=True)
        if np.any(count)
    ]
    m = plans.num_microbatches.astype(np.float64)
    nothing = np.zeros(len(plans))
    terms = {}
    for term in (*TERMS, *(HOST_TRANSFER,) * (HOST_TRANSFER in kinds[0].terms)):
        busy = extras.get(term, nothing)
        for count, kind, _ in held:
            busy = busy + count * kind.terms[term]
        terms[term] = m * busy
    terms["head"] = m * heads * kinds[-1].total
    terms["dp_communication"] = m * sum((count * gathering for count, _, gathering in held), nothing)
    terms["pp_communication"] = m * extras["pp_communication"]
    terms["bubble"] = pipeline - m * np.maximum.reduce(totals)
    return terms


def _costs(
    job: Job,
    plans: Plans,
    stages: Sequence[Stage],
    few: Plans,
    inverse: NDArray[np.intp],
    time: dict[str, FloatArray],
    step: FloatArray,
    hidden: FloatArray,
    knobs: Knobs | KnobColumns,
) -> Costs:
    time["dp_communication"] = time["dp_communication"] + time.pop("dp_exposed")
    memory, reserved = peak_memory(job, plans, stages, few, inverse, knobs)
    allocated = reserved - memory["fragmentation"]
    useful = model_flops(job.model, job.seq_len, 1.0) * plans.global_batch * job.seq_len
    available = step * plans.gpus * job.peak_flops
    return Costs(
        time=time,
        memory=memory,
        step_time=step,
        reserved=reserved,
        allocated=allocated,
        mfu=useful / available,
        hfu=(useful + recomputed_flops(job, plans)) / available,
        bubble=bubble_fraction(
            plans.pp,
            plans.vpp,
            plans.num_microbatches,
            bubble_left(plans.schedule, plans.pp, plans.num_microbatches),
        ),
        overlappable=hidden,
    )


def recomputed_flops(job: Job, plans: Plans) -> FloatArray:
    """Operations that recomputation adds to a step: a third of the layers' under full, of the scores' under selective.

    Modules add two operations for each of their parameters and token (`rebuilt_flops`). Prediction layers are rebuilt
    whenever recomputation is full.

    Source: Korthikanti et al., arXiv 2205.05198, equations 7 to 9.
    """
    mtp = job.model.mtp_layers
    scores = score_flops(job.model, job.seq_len)
    layers = model_flops(job.model, job.seq_len, 1.0) - 6.0 * (1 + mtp) * job.model.vocab * job.model.hidden
    tokens = plans.global_batch * job.seq_len
    share = np.ones(len(plans))
    if plans.placements is not None:
        whole = job.model.layers + mtp
        share = np.array([(sum(p.rebuilt) + mtp) / whole if p.rebuilt else 1.0 for p in plans.placements])
    again = pick(modes(plans.recompute), (0.0, scores / 3, share * layers / 3))
    for module, operations in rebuilt_flops(job.model, scores / 3).items():
        again = again + np.where(rebuilds(plans.recompute, module), operations, 0.0)
    return tokens * again
