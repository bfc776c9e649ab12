"""The objective: seconds, bytes and MFU of one training step, for one plan or a million.

    layer times (few distinct shapes)  ->  stage times  ->  pipeline  ->  + data parallelism, optimizer, overheads

Layer times depend on few variables, so they are computed once per distinct shape and gathered; everything after that
is plain arithmetic on arrays with one entry per plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives import data_parallel
from optimizer.objectives.communication import collective
from optimizer.objectives.distinct import distinct, pick, tabulated
from optimizer.objectives.estimate import Costs
from optimizer.objectives.flops import matmul_params, model_flops
from optimizer.objectives.layer import TERMS, LayerTime, layer_time
from optimizer.objectives.memory import KeptBytes, activation_bytes, buffers, kept_bytes, stage_memory, states
from optimizer.objectives.operators import FloatArray, Shapes, head_operators, layer_operators
from optimizer.objectives.parameters import LocalParameters, replicas, stage_parameters
from optimizer.objectives.pipeline import LEFT, bubble_fraction, pipeline_time
from optimizer.objectives.pipelined_host import pipelined_wait
from optimizer.objectives.stages import Stage, layer_counts, representative_stages, stacked, stages_of
from optimizer.plan import RECOMPUTE, SCHEDULES, IntArray, KnobColumns, Knobs, Plans

LAYER_KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel")
SHAPE_KEYS = (*LAYER_KEYS, "recompute")
TRANSFER_KEYS = ("tp", "cp", "dp", "micro_batch", "sequence_parallel")
REPLICA_KEYS = ("tp", "cp", "ep", "etp", "pp", "dp", "zero_stage", "shard")
# Multiples of a stage's weight gradients that a zero-bubble schedule takes off each of the pp - 1 bubbles of 1F1B.
FILLED = {"zero-bubble": 2.0, "zero-bubble-2p": 3.0}
GROUNDWORK, LAYERS = "groundwork", "layers"
OPTIMIZER_TRAFFIC = 30.0  # bytes per element: reads gradient, master, two moments; writes master, moments, weight
OFFLOAD_TRAFFIC = 34.0  # bytes per offloaded element: 6 over the host link, 28 in the host's memory at a like rate


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Seconds per layer and micro-batch of one kind of layer by term, gathered to one entry per plan."""

    terms: dict[str, FloatArray]
    total: FloatArray
    hidden: FloatArray
    weight: FloatArray
    forward_compute: FloatArray
    backward_compute: FloatArray


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
        covering=kinds if len(kinds) == 2 else _spared(plans, kinds),
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

    (pp - 1) 2 W under ZB-H1 and (pp - 1) 3 W under ZB-2p, never more than the bubble: W, the mean stage's weight
    gradients for one micro-batch, is half of its backward products.

    Source: Qi et al., arXiv 2401.10241, section 2.3; see pipeline.zero_bubble_time and zero_bubble_h2_time.
    """
    if not np.any(plans.schedule >= SCHEDULES.index("zero-bubble")):
        return np.zeros(len(plans))
    times = pick(plans.schedule, [FILLED.get(name, 0.0) for name in SCHEDULES])
    counts = layer_counts(job.model)
    weights = (counts[0] * dense.weight + counts[1] * moe.weight) / plans.pp
    return np.minimum(bubble, (plans.pp - 1) * times * weights)


def shapes_of(job: Job, plans: Plans) -> Shapes:
    """The local shapes of each plan's layers."""
    columns = {name: getattr(plans, name).astype(np.float64) for name in SHAPE_KEYS[:5]}
    return Shapes(**columns, sequence_parallel=plans.sequence_parallel, seq_len=job.seq_len)


def layer_times(job: Job, plans: Plans) -> tuple[dict[str, LayerTime], IntArray]:
    """Head, dense and, where the model has any, MoE layer for one micro-batch of each shape; the shape of each plan."""

    def price(few: Plans) -> dict[str, LayerTime]:
        shapes, model, stack = shapes_of(job, few), job.model, job.stack
        found = {
            "head": layer_time(job, head_operators(model, shapes, stack), shapes, False, communicates=False),
            "dense": layer_time(job, layer_operators(model, shapes, stack, False), shapes, False),
        }
        if model.experts:
            found["moe"] = layer_time(job, layer_operators(model, shapes, stack, True), shapes, True)
        return found

    return tabulated(plans, LAYERS, job, LAYER_KEYS, price)


def layer_kinds(job: Job, plans: Plans) -> tuple[Kind, Kind, Kind]:
    """Dense layer, MoE layer and head of every plan."""
    few, inverse = distinct(plans, SHAPE_KEYS)
    table, rows = layer_times(job, few)
    plans.tables[LAYERS] = few.tables[LAYERS].at(inverse)
    priced = {name: times.take(rows) for name, times in table.items()}

    def gathered(values: FloatArray) -> FloatArray:
        return np.asarray(values[inverse] if np.any(values) else zero)

    zero = np.zeros(len(plans))

    def kind(times: LayerTime, recompute: NDArray[np.int64], by_term: bool = True) -> Kind:
        again = {term: pick(recompute, (0.0, times.selective.terms[term], times.full.terms[term])) for term in TERMS}
        terms = {term: times.forward.terms[term] + times.backward.terms[term] + again[term] for term in TERMS}
        hidden = times.forward.hidden + times.backward.hidden + np.where(recompute == 2, times.full.hidden, 0.0)
        recomputed = again["gemm"] + again["attention"] + again["elementwise"]
        total = gathered(sum(terms.values(), np.zeros(len(few))))
        wait = pipelined_wait(job, plans, total, gathered(times.host), gathered(times.collectives))
        shown = {term: gathered(seconds) for term, seconds in terms.items() if by_term}
        return Kind(
            terms=shown | {"launch": shown["launch"] + wait} if by_term else shown,
            total=total + wait,
            hidden=gathered(hidden),
            weight=gathered(times.backward.terms["gemm"] / 2),
            forward_compute=gathered(times.forward.compute),
            backward_compute=gathered(times.backward.compute + recomputed),
        )

    dense = kind(priced["dense"], few.recompute)
    moe = kind(priced["moe"], few.recompute) if "moe" in priced else dense
    return dense, moe, kind(priced["head"], few.recompute * 0, by_term=False)


def stage_extras(job: Job, plans: Plans) -> dict[str, FloatArray]:
    """Seconds per micro-batch that every pipeline stage spends beside its layers: transfers and host overhead.

    Each virtual stage sends activations forward and gradients back: tokens x hidden x 2 B, divided by tp under
    sequence parallelism.

    Source: Narayanan et al., arXiv 2104.04473, section 4.1.
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
    """One micro-batch's activations on their way to the next stage [s]."""
    split = np.where(plans.sequence_parallel, plans.tp, 1)
    message = 2.0 * plans.micro_batch * job.seq_len / plans.cp * job.model.hidden / split
    return collective(job, "point_to_point", message, np.full(len(plans), 2), plans.tp * plans.cp * plans.dp)


def sharded_exposure(job: Job, plans: Plans, dense: Kind, moe: Kind) -> tuple[FloatArray, FloatArray]:
    """ZeRO-3 seconds per layer and micro-batch that neighbouring layers' compute does not hide [s]."""
    nothing = np.zeros(len(plans))
    selected = plans.zero_stage >= 3
    if not np.any(selected):
        return nothing, nothing
    overlap = job.stack["dp_overlap"]
    exposures = []
    for is_moe, kind in ((False, dense), (True, moe)):
        price = partial(data_parallel.sharded_layer, job, moe=is_moe)
        table, index = tabulated(plans, ("sharded", is_moe), job, REPLICA_KEYS, price)
        gather, scatter = (seconds[index] for seconds in table)
        forward = gather - overlap * np.minimum(gather, kind.forward_compute)
        backward = gather + scatter - overlap * np.minimum(gather + scatter, kind.backward_compute)
        exposures.append(np.where(selected, forward + backward, 0.0))
        if not job.model.experts:
            return exposures[0], nothing
    return exposures[0], exposures[1]


def sharded_exposures(job: Job, plans: Plans, kinds: Sequence[Kind]) -> tuple[FloatArray, ...]:
    """ZeRO-3's exposed seconds of dense and MoE layers, and of those that are spared [s]."""
    pairs = [sharded_exposure(job, plans, *kinds[start : start + 2]) for start in range(0, len(kinds), 2)]
    return tuple(seconds for pair in pairs for seconds in pair)


def without_rebuilding(plans: Plans) -> Plans:
    """The plans with nothing recomputed where recomputation is full: what a spared layer costs."""
    full = plans.recompute == RECOMPUTE.index("full")
    return plans.recomputed(np.where(full, RECOMPUTE.index("none"), plans.recompute))


def with_spared_layers(job: Job, plans: Plans) -> Plans:
    """The plans as their leanest layers are: spared where a plan may choose, not where a person asked for all."""
    return plans if job.limits.fixed.get("recompute") == "full" else without_rebuilding(plans)


def _spared(plans: Plans, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """Dense and MoE layer of each plan, as if spared where the plan says which layers are rebuilt."""
    partly = np.array([bool(placed.rebuilt) for placed in plans.placements or ()])
    return tuple(
        replace(
            kind,
            forward_compute=np.where(partly, plain.forward_compute, kind.forward_compute),
            backward_compute=np.where(partly, plain.backward_compute, kind.backward_compute),
        )
        for kind, plain in zip(kinds[:2], kinds[2:], strict=True)
    )


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
    for term in TERMS:
        busy = extras.get(term, nothing)
        for count, kind, _ in held:
            busy = busy + count * kind.terms[term]
        terms[term] = m * busy
    terms["head"] = m * heads * kinds[-1].total
    terms["dp_communication"] = m * sum((count * gathering for count, _, gathering in held), nothing)
    terms["pp_communication"] = m * extras["pp_communication"]
    terms["bubble"] = pipeline - m * np.maximum.reduce(totals)
    return terms


def once_per_step(
    job: Job,
    plans: Plans,
    first: Stage,
    kinds: Sequence[Kind],
    knobs: Knobs | KnobColumns,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Once per step: exposed gradient reduction, contention with it, optimizer, embedding reduction, overhead.

    `first` is the first stage of the even split, which stands for all of them however the layers lie.
    """
    dense, moe = kinds[:2]
    busiest = stage_parameters(job.model, plans, first)
    once = _once(job, plans, knobs)
    per_step = (plans.zero_stage < 3) | (data_parallel.hybrid_groups(plans, replicas(plans)[0]) > 1)
    chunk = (first.dense * dense.backward_compute + first.moe * moe.backward_compute) / plans.vpp
    ahead = (first.dense * dense.forward_compute + first.moe * moe.forward_compute) / plans.vpp
    overlap = np.where((plans.zero_stage == 0) | job.stack.features.overlap_sharded, job.stack["dp_overlap"], 0.0)
    hidden = overlap * (np.minimum(np.maximum(0.0, once.reduce - once.tail), chunk) + np.minimum(once.gather, ahead))
    exposed = once.reduce + once.gather - hidden
    terms = {
        "dp_exposed": np.where(per_step, exposed, 0.0),
        "contention": np.where(per_step, hidden * knobs.comm_sm_share, 0.0),
        "optimizer": optimizer_seconds(job, plans, busiest, knobs),
        "overhead": np.full(len(plans), job.stack["step_overhead"]),
    }
    return terms, np.where(per_step, hidden, 0.0)


def optimizer_seconds(job: Job, plans: Plans, held: LocalParameters, knobs: Knobs | KnobColumns) -> FloatArray:
    """Time of the optimizer step on the elements a rank updates [s].

    elements x (30 B x optimizer_passes / HBM bandwidth x (1 - offload) + 34 B / host bandwidth x offload): Adam reads
    gradient, master weight and two moments and writes the last three and the weight; ZeRO divides the elements.

    Source: Rajbhandari et al., arXiv 1910.02054, section 3.1 for the state; Ren et al., arXiv 2101.06840 for offload.
    """
    shards = np.where(plans.zero_stage >= 1, data_parallel.shard_ranks(plans, replicas(plans)[0]), 1)
    on_device = OPTIMIZER_TRAFFIC * job.stack["optimizer_passes"] / job.cluster.device.memory_bandwidth
    on_host = OFFLOAD_TRAFFIC / job.cluster.host_bandwidth
    return (held.shared + held.experts) / shards * (on_device * (1 - knobs.offload) + on_host * knobs.offload)


def straggler_seconds(job: Job, plans: Plans, step: FloatArray) -> FloatArray:
    """Time lost to the slowest of many nodes: step x straggler x log2(nodes) [s].

    Source: assumed form, the expected maximum of n like delays growing with log n; the rate is fitted.
    """
    nodes = np.maximum(1.0, plans.gpus / job.cluster.gpus_per_node)
    return np.asarray(step * job.stack["straggler"] * np.log2(nodes))


def _once(job: Job, plans: Plans, knobs: Knobs | KnobColumns) -> data_parallel.DataParallel:
    """Gradient and weight collectives of the first stage, which holds the embedding besides its layers."""
    if isinstance(knobs, KnobColumns):
        first = representative_stages(job.model, plans)[0]
        return data_parallel.per_step(job, plans, stage_parameters(job.model, plans, first), knobs)

    def price(few: Plans) -> data_parallel.DataParallel:
        first = representative_stages(job.model, few)[0]
        return data_parallel.per_step(job, few, stage_parameters(job.model, few, first), knobs)

    once, index = tabulated(plans, ("once", knobs), job, REPLICA_KEYS, price)
    return data_parallel.DataParallel(reduce=once.reduce[index], gather=once.gather[index], tail=once.tail[index])


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
        bubble=bubble_fraction(plans.pp, plans.vpp, plans.num_microbatches, LEFT[plans.schedule]),
        overlappable=hidden,
    )


def stage_states(
    job: Job, plans: Plans, stages: Sequence[Stage], knobs: Knobs | KnobColumns
) -> list[dict[str, FloatArray]]:
    """Weights, gradients and optimizer state of each representative stage [B]."""
    if plans.placements is not None or isinstance(knobs, KnobColumns):
        return [states(job, plans, stage, knobs) for stage in stages]

    def price(few: Plans) -> list[dict[str, FloatArray]]:
        return [states(job, few, stage, knobs) for stage in representative_stages(job.model, few)]

    held, index = tabulated(plans, ("states", knobs), job, REPLICA_KEYS, price)
    return [{name: values[index] for name, values in table.items()} for table in held]


def reserved_memory(job: Job, plans: Plans, knobs: Knobs | KnobColumns = Knobs()) -> FloatArray:
    """Peak reserved memory of every plan as `price` finds it, without the seconds [B]."""
    few, inverse = distinct(plans, SHAPE_KEYS)
    return peak_memory(job, plans, stages_of(job.model, plans), few, inverse, knobs)[1]


def peak_memory(
    job: Job,
    plans: Plans,
    stages: Sequence[Stage],
    few: Plans,
    inverse: NDArray[np.intp],
    knobs: Knobs | KnobColumns,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Memory by term of the stage that reserves most, and its total [B]."""
    shapes, features, imbalance = shapes_of(job, few), job.stack.features, job.stack.imbalance

    def kept(moe: bool, recompute: IntArray = few.recompute) -> KeptBytes:
        table = activation_bytes(job.model, shapes, features, moe, imbalance, job.quantised)
        distinct_kept = kept_bytes(table, recompute)
        return KeptBytes(each=distinct_kept.each[inverse], once=distinct_kept.once[inverse])

    dense = kept(False)
    moe = kept(True) if job.model.experts else dense
    spared: tuple[KeptBytes, ...] = ()
    if plans.placements is not None:
        plain = without_rebuilding(few).recompute
        spared = (kept(False, plain), kept(bool(job.model.experts), plain))
    buffered = buffers(job, plans)
    if plans.placements is not None and isinstance(knobs, Knobs):
        every = stacked(stages)
        table = stage_memory(job, plans, every, dense, moe, states(job, plans, every, knobs), buffered, spared)
        total = every.exists * sum(table.values(), np.zeros(1))
        fullest = np.argmax(total, axis=0)[None]
        of_fullest = {
            name: np.take_along_axis(np.broadcast_to(values, total.shape), fullest, axis=0)[0]
            for name, values in table.items()
        }
        return of_fullest, total.max(axis=0)
    held = stage_states(job, plans, stages, knobs)
    tables = [
        stage_memory(job, plans, stage, dense, moe, states, buffered, spared)
        for stage, states in zip(stages, held, strict=True)
    ]
    totals = np.stack([s.exists * sum(t.values(), np.zeros(1)) for s, t in zip(stages, tables, strict=True)])
    fullest = np.argmax(totals, axis=0)
    terms = {name: pick(fullest, [table[name] for table in tables]) for name in tables[0]}
    return terms, totals.max(axis=0)


def recomputed_flops(job: Job, plans: Plans) -> FloatArray:
    """Operations that recomputation adds to a step: a third of the layers' under full, of the scores' under selective.

    Source: Korthikanti et al., arXiv 2205.05198, equations 7 to 9.
    """
    total = model_flops(job.model, job.seq_len, 1.0)
    scores = total - 6.0 * matmul_params(job.model)
    layers = total - 6.0 * job.model.vocab * job.model.hidden
    tokens = plans.global_batch * job.seq_len
    share = np.ones(len(plans))
    if plans.placements is not None:
        layers_of = job.model.layers
        share = np.array([sum(p.rebuilt) / layers_of if p.rebuilt else 1.0 for p in plans.placements])
    return tokens * pick(plans.recompute, (0.0, scores / 3, share * layers / 3))
