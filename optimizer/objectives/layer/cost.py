"""What one layer of a kind, the embedding and the head cost: kernels, messages and activations put together.

operators + messages -> LayerTime -> Cost
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from optimizer.job.job import Job
from optimizer.job.loss import SFT
from optimizer.job.method import DORA, FULL, VISION
from optimizer.job.model import LayerKind, Model
from optimizer.job.plan import IntArray, Plan, Plans
from optimizer.job.recomputation import MODES, RECOMPUTE, modules_of
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.kernels.activations import (
    ActivationBytes,
    activation_bytes,
    gathered_inputs,
    input_bytes_of,
    movable_bytes,
    moved_bytes,
    resident_bytes,
    selective_bytes,
)
from optimizer.objectives.kernels.adapters import copied_bytes, dropped_bytes, idle_bytes, scaled_bytes, trained_layer
from optimizer.objectives.kernels.operators import head_operators, layer_operators, padded_vocab
from optimizer.objectives.kernels.shapes import Shapes, computed_shapes, shapes_of, without_full
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.overlapped import EXPERT_ALL_TO_ALL
from optimizer.objectives.layer.phases import TERMS, LayerTime, Phase
from optimizer.objectives.layer.seconds import BACKWARD_KERNELS, head_time, layer_time
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP

HOST_TRANSFER, ATTENTION = "host_transfer", "attention"
SELECTIVE = MODES.index("selective")
COMPILED_LOGIT = 4.0  # a logit and its gradient, in half precision [B]
# Columns of a Cost that are mappings.
BY_TERM = ("forward", "backward", "recompute", "overlapped_forward", "overlapped_backward")
Terms = Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One layer of a kind for one micro-batch, by distinct shape."""

    forward: Terms  # forward pass, by term [s]
    backward: Terms  # backward pass, with what selective recomputation and recomputation by module add, by term [s]
    recompute: Terms  # what recomputing the whole layer adds, by term [s]
    overlapped_forward: Terms  # what a forward pass overlapped with another micro-batch gains (below 0) or loses [s]
    overlapped_backward: Terms  # the same of a backward pass [s]
    weight: FloatArray  # the part of `backward` for gradients of weights, with half of the waits for launches [s]
    cover_forward: FloatArray  # computation and waits for the host under which other messages can hide [s]
    cover_backward: FloatArray  # the same in the backward pass [s]
    cover_recompute: FloatArray  # what recomputing adds to `cover_backward` [s]
    hidden: FloatArray  # communication that hides inside the layer [s]
    hidden_recompute: FloatArray  # what recomputing adds to it [s]
    host: FloatArray  # what the host needs for the kernels of both passes [s]
    collectives: FloatArray  # how many of these kernels are collectives [1]
    resident: FloatArray  # activations of a layer that is spared, for each micro-batch in flight [B]
    resident_recomputed: FloatArray  # the same of a layer that is recomputed [B]
    recomputing: FloatArray  # of a stage, while modules are recomputed [B]
    recomputing_whole: FloatArray  # of a stage, while whole layers are recomputed [B]
    static: FloatArray  # whatever is in flight [B]
    hosted: FloatArray  # activations on the host, for each micro-batch in flight [B]


def costs_of(job: Job, plans: Plans, few: Plans, rows: IntArray, *, timed: bool = True) -> dict[str, Cost]:
    """Costs of one of every kind for plans of distinct shapes; the head counts its pass for each MTP layer too.

    Args:
        job: what is trained.
        plans: of distinct shapes.
        few: those of them whose products and messages differ.
        rows: for each plan, which of the few is like it.
        timed: else bytes are told alone, and all takes no time.

    Returns:
        Costs by kind, an entry for each of the plans.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2, and Megatron-LM, megatron/core/models/gpt/gpt_model.py.
    """
    model = job.model
    shapes, local = shapes_of(job, plans), computed_shapes(job, few)
    head = _head_cost(job, shapes, local, rows, timed=timed)
    # The embedding takes no time that counts; its output is resident in flight, 2 t h / sp.
    embedding = replace(_free(len(plans)), resident=ELEMENT * shapes.tokens * model.hidden / shapes.sp)
    embedding = _with_tower(embedding, job, plans, few, rows, timed=timed)
    by_kind = {EMBEDDING: embedding, DENSE: _mean_cost(job, plans, shapes, local, rows, moe=False, timed=timed)}
    if model.experts:
        by_kind[MOE] = _mean_cost(job, plans, shapes, local, rows, moe=True, timed=timed)
    if model.mtp_layers:
        # An MTP layer is one more of the last kind, behind a projection of 2 hidden x hidden.
        by_kind[MTP] = _plus(by_kind.get(MOE, by_kind[DENSE]), head, 2.0 * model.hidden / model.vocab)
    return by_kind | {HEAD: _plus(_free(len(plans)), head, 1.0 + model.mtp_layers)}


def _with_tower(embedding: Cost, job: Job, plans: Plans, few: Plans, rows: IntArray, *, timed: bool) -> Cost:
    """The embedding with the passes of the vision tower over the image of each sequence.

    Its layers are those of a language model whose tokens are the patches, but that no mask halves their scores. Frozen,
    it has a forward pass alone and keeps nothing; trained, it is recomputed where layers are.
    """
    tower = job.tower
    if tower is None or not tower.image_tokens * tower.patches:
        return embedding
    own = replace(
        job,
        model=tower.language_like,
        seq_len=tower.image_tokens * tower.patches,
        train=FULL,
        base="",
        optimizer="",
        loss="",
        lengths="",
    )
    each = _layer_cost(own, plans, shapes_of(own, plans), computed_shapes(own, few), rows, moe=False, timed=timed)
    passes = 1.0 if job.training_loss.teacher else job.forward_passes
    trained, whole = float(job.method.trains(VISION)), plans.recompute == RECOMPUTE.index("full")
    seen = {ATTENTION: 2.0 * (tower.whole_layers or tower.layers) / tower.layers}
    times = {name: tower.layers * seen.get(name, 1.0) for name in each.forward}
    back = {name: each.backward[name] + np.where(whole, each.recompute[name], 0.0) for name in times}
    resident = np.where(whole, each.resident_recomputed, each.resident)
    return replace(
        embedding,
        forward={**embedding.forward, **{name: passes * times[name] * each.forward[name] for name in times}},
        backward={**embedding.backward, **{name: trained * times[name] * back[name] for name in times}},
        resident=embedding.resident + trained * tower.layers * resident,
    )


def _free(count: int) -> Cost:
    """What costs nothing."""
    nothing = np.zeros(count)
    terms = {HEAD: nothing}
    columns = {f.name: nothing for f in fields(Cost) if f.name not in BY_TERM}
    return Cost(
        forward=terms, backward=terms, recompute=terms, overlapped_forward={}, overlapped_backward={}, **columns
    )


def _plus(cost: Cost, head: Cost, times: float) -> Cost:
    """A cost with so many passes through the head besides."""
    names = ("weight", "cover_forward", "cover_backward", "static")
    return replace(
        cost,
        forward={**cost.forward, HEAD: cost.forward.get(HEAD, 0.0) + times * head.forward[HEAD]},
        backward={**cost.backward, HEAD: cost.backward.get(HEAD, 0.0) + times * head.backward[HEAD]},
        **{name: getattr(cost, name) + times * getattr(head, name) for name in names[:3]},
        static=cost.static + (times * head.static if times >= 1 else 0.0),
    )


def _head_cost(job: Job, shapes: Shapes, local: Shapes, rows: IntArray, *, timed: bool) -> Cost:
    """The passes through the head and the loss, and the logits that it holds.

    Source: huggingface/trl v1.16.0, trl/kernels/chunked_logprob.py, for logits that the backward pass computes again.
    """
    loss, features = job.training_loss, job.stack.features
    if loss.scored:
        return _free(len(rows))
    untimed = replace(_free(len(rows)), static=logit_bytes(job, shapes))
    if not timed:
        return untimed
    own = loss.logits if features.loss_chunks else None  # kernels that never have all logits have none for such a loss
    more = job.forward_passes - 1.0
    passes = (
        head_operators(job.model, local, job.stack, own, gradients)
        for gradients in ((True, False) if more else (True,))
    )
    time, *others = (head_time(job, trained_layer(job, layer), local).take(rows) for layer in passes)
    alone = others[0] if others else time
    recomputed_logits = time.forward.terms["gemm"] * features.recomputed_logits
    return replace(
        untimed,
        forward={HEAD: time.forward.total + more * alone.forward.total},
        backward={HEAD: time.backward.total + recomputed_logits},
        weight=(time.backward.terms["gemm"] + time.backward.terms["launch"]) * weight_share(job),
        cover_forward=time.forward.busy + more * alone.forward.busy,
        cover_backward=time.backward.busy + recomputed_logits,
    )


def logit_bytes(job: Job, shapes: Shapes) -> FloatArray:
    """What the loss holds of the logits of a micro-batch at its peak [B].

    tokens x padded vocabulary / tp x logit_memory / parts, or x COMPILED_LOGIT of a loss that is compiled; one that
    compares sequences has those of all tokens at once and holds bytes of its own, unless its kernels never have all.

    Source: huggingface/trl v1.16.0, trl/trainer/sft_trainer.py and dpo_trainer.py: the first alone has parts;
    pytorch/torchtitan @bbb1b616e, torchtitan/components/loss.py.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> def per_logit(release: str) -> float:
    ...     job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack(release),
    ...         gpus=8, seq_len=8192, global_batch=8)
    ...     return float(logit_bytes(job, shapes_of(job, Plans.of([Plan(dp=8)])))[0] / (8192 * 128256))
    >>> per_logit("torchtitan@2025"), per_logit("torchtitan@2026")
    (4.0, 0.5)
    """
    loss, features = job.training_loss, job.stack.features
    split = 1.0 if features.gathered_logits else shapes.tp
    count = shapes.tokens * padded_vocab(job.model.vocab, shapes.tp) / split
    each = COMPILED_LOGIT if features.compiled_loss else job.stack["logit_memory"]
    if not features.loss_chunks:
        return np.asarray(count * each / max(1.0, job.model.vocab / job.model.hidden))
    if loss.logits:
        return np.asarray(count * loss.logits.resident)
    return np.asarray(count * each / (features.loss_chunks if loss.name == SFT else 1))


def weight_share(job: Job) -> float:
    """Share of a backward pass that is gradients of weights [1]; none counts where anything is frozen."""
    return 0.0 if job.method.freezes else 0.5


def _mean_cost(
    job: Job, plans: Plans, shapes: Shapes, local: Shapes, rows: IntArray, *, moe: bool, timed: bool
) -> Cost:
    """A layer with experts, or one without, in the mean of those that mix tokens differently: they recur every few
    layers, so that stages hold as many of each; and of those that are trained differently, in one stage. While a layer
    is recomputed, the largest of them is.
    """
    jobs, shares = zip(*job.layers_alike(moe), strict=True)
    costs = [_layer_cost(each, plans, shapes, local, rows, moe=moe, timed=timed) for each in jobs]
    if len(costs) == 1:
        return costs[0]
    columns: dict[str, Any] = {}
    for column in (field.name for field in fields(Cost)):
        values = [getattr(cost, column) for cost in costs]
        if column in BY_TERM:
            terms = dict.fromkeys(name for value in values for name in value)
            columns[column] = {name: _mean([value.get(name, 0.0) for value in values], shares) for name in terms}
        elif column in ("recomputing", "recomputing_whole"):
            columns[column] = np.maximum.reduce(values)
        else:
            columns[column] = _mean(values, shares)
    return Cost(**columns)


def _mean(values: Sequence[FloatArray | float], shares: Sequence[float]) -> FloatArray:
    return np.asarray(sum(share * value for share, value in zip(shares, values, strict=True)))


def job_of(job: Job, kind: LayerKind) -> Job:
    """The job with a model all of whose layers are of one kind."""
    return job if kind.model is job.model else replace(job, model=kind.model)


def _layer_cost(
    job: Job, plans: Plans, shapes: Shapes, local: Shapes, rows: IntArray, *, moe: bool, timed: bool
) -> Cost:
    """A layer of a model of one kind for plans of distinct shapes, whose products and messages the few determine.

    Gradients of inputs and of weights are two products of equal size; attention has no weights.
    """
    lean, reached = without_full(plans.recompute), job.reached < job.model.layers
    sizes: dict[str, Any] = _layer_bytes(job, plans, shapes, lean, moe)
    if not timed:
        return replace(_free(len(plans)), **sizes) if reached else _free(len(plans))
    operators = layer_operators(job.model, local, job.software, moe, job.row_multiple)
    layer, named = trained_layer(job, operators), modules_in(plans.recompute)
    time = layer_time(job, layer, local, moe, modules=named).take(rows)
    ahead = job.forward_passes
    more, whole, terms = time.recomputation(lean), (plans.recompute != lean).astype(np.float64), {}
    for name in TERMS:
        terms[name] = (
            ahead * time.forward.terms[name],
            time.backward.terms[name] + more.terms[name],
            time.full.terms[name],
        )
    passes = np.zeros(len(plans)), np.zeros(len(plans))
    if np.any(sizes["hosted"]):
        passes = host_passes(job, time, more, sizes["hosted"], plans.ep * plans.etp <= job.cluster.scale_up_size)
        terms[HOST_TRANSFER] = *passes, np.zeros(len(plans))
    cost = Cost(
        forward={name: parts[0] for name, parts in terms.items()},
        backward={name: parts[1] for name, parts in terms.items()},
        recompute={name: whole * parts[2] for name, parts in terms.items()},
        overlapped_forward=time.overlapped[0],
        overlapped_backward=time.overlapped[1],
        weight=(time.backward.terms["gemm"] + time.backward.terms["launch"]) * weight_share(job),
        cover_forward=ahead * time.forward.busy + passes[0],
        cover_backward=time.backward.busy + more.busy + passes[1],
        cover_recompute=whole * time.full.busy,
        hidden=ahead * time.forward.hidden + time.backward.hidden + more.hidden,
        hidden_recompute=whole * time.full.hidden,
        host=time.host,
        collectives=time.collectives,
        **sizes,
    )
    return cost if reached else _forward_alone(cost, ahead * time.forward.hidden)


def _layer_bytes(job: Job, plans: Plans, shapes: Shapes, lean: IntArray, moe: bool) -> dict[str, FloatArray]:
    """The columns of a layer's Cost that are bytes; `lean` is how it recomputes where it is spared."""
    model, stack, nothing = job.model, job.stack, np.zeros(len(plans))
    table = activations_of(job, model, shapes, moe)
    away, factor = (stack.features.selective_on_host, stack.features.hosted_checkpoints), stack["activation_factor"]
    spared, recomputed = (
        resident_bytes(table, mode, plans.activation_offload, *away) for mode in (lean, plans.recompute)
    )
    gathered = [nothing, nothing]
    if stack.features.keeps_gathered:
        width = 1.0 if job.quantised else 2.0
        gathered = [gathered_inputs(model, shapes, moe, width, mode) for mode in (lean, plans.recompute)]
    return {
        "resident": spared.each * factor + gathered[0],
        "resident_recomputed": recomputed.each * factor + gathered[1],
        "recomputing": spared.recomputing * factor,
        "recomputing_whole": (plans.recompute != lean) * recomputed.recomputing * factor,
        "static": nothing,
        "hosted": hosted_bytes(job, plans, shapes, moe) if np.any(offloads_activations(job, plans)) else nothing,
    }


def _forward_alone(cost: Cost, hidden: FloatArray) -> Cost:
    """What a layer costs that no backward pass reaches: no gradient of its inputs, and nothing kept for one."""
    nothing = np.zeros_like(cost.host)
    changed: dict[str, Any] = {column.name: nothing for column in fields(Cost) if column.name not in BY_TERM}
    for column in (name for name in BY_TERM if "forward" not in name):
        changed[column] = dict.fromkeys(getattr(cost, column), nothing)
    changed |= {"cover_forward": cost.cover_forward, "hidden": hidden, "collectives": cost.collectives / 2.0}
    return replace(cost, **changed | {"host": cost.host / (1.0 + BACKWARD_KERNELS)})


def activations_of(job: Job, model: Model, shapes: Shapes, moe: bool) -> ActivationBytes:
    """What one layer of a model keeps as the job trains it: activation_bytes without the inputs that nobody needs.

    What recomputation does not keep anyway is not taken off once more: a module's inputs, or, unless it is the core of
    attention alone that is recomputed, those of all frozen products.
    """
    stack = job.stack
    table = activation_bytes(model, shapes, stack.features, moe, stack.imbalance, job.quantised, job.wide_rest)
    if not job.method.freezes:
        return table
    idle = idle_bytes(job, model, shapes, moe)
    every = sum(idle.values(), np.zeros_like(shapes.tp))
    added, passing = np.zeros_like(shapes.tp), table.passing
    products = layer_operators(model, shapes, stack, moe).gemms if job.method.adapts else ()
    if job.wide_adapters and job.eager_adapters:
        added = copied_bytes(job, model, shapes, products)
    added = added + dropped_bytes(job, model, products)
    if job.method.name == DORA:
        resident, scaled = scaled_bytes(job, model, products)
        added, passing = added + resident, passing + scaled
    return replace(
        table,
        none=table.none - every + added,
        passing=passing,
        selective=table.selective - every * (stack.features.selective == "core"),
        modules={module: freed - idle.get(module, 0.0) for module, freed in table.modules.items()},
    )


def modules_in(recompute: IntArray) -> frozenset[str]:
    """The modules that some of these modes of recomputation name.

    >>> sorted(modules_in(np.array([RECOMPUTE.index("layernorm+moe_act"), RECOMPUTE.index("full")])))
    ['layernorm', 'moe_act']
    """
    modes = np.flatnonzero(np.bincount(recompute.astype(np.int64))).tolist()
    return frozenset(module for mode in modes for module in modules_of(RECOMPUTE[mode]))


def hosted_bytes(job: Job, plans: Plans, shapes: Shapes, moe: bool) -> FloatArray:
    """What one layer of each plan, dense or MoE, keeps on the host for one micro-batch [B].

    >>> from optimizer.job.plan import Plan
    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=2048, global_batch=8)
    >>> plans = Plans.of([Plan(tp=8, activation_offload=share) for share in (0, 50)])
    >>> (hosted_bytes(job, plans, shapes_of(job, plans), moe=False) / job.stack["activation_factor"] / 2048).tolist()
    [0.0, 6144.0]
    """
    alike = job.layers_alike(moe)
    if len(alike) > 1:
        jobs, shares = zip(*alike, strict=True)
        return _mean([hosted_bytes(each, plans, shapes, moe) for each in jobs], shares)
    if job.reached == job.model.layers:
        return np.zeros(len(plans))
    job = alike[0][0]
    input_bytes, lean = 1.0 if job.quantised else 2.0, without_full(plans.recompute)
    stack = job.stack
    inputs_alone = stack.features.hosted_checkpoints and not stack.features.activation_offload
    movable = {} if inputs_alone else movable_bytes(job.model, shapes, moe, stack.imbalance, input_bytes)
    moved = moved_bytes(movable, lean, plans.activation_offload / 100.0)
    if stack.features.selective_on_host or stack.features.hosted_checkpoints:
        table = activations_of(job, job.model, shapes, moe)
        moved = moved + selective_bytes(table, lean) * stack.features.selective_on_host
        inputs = input_bytes_of(table, plans.recompute) * plans.activation_offload / 100.0
        moved = moved + inputs * stack.features.hosted_checkpoints
    return moved * stack["activation_factor"]


def share_on_host(job: Job, plan: Plan, modules: Sequence[str]) -> int:
    """Per cent of what a layer may keep on the host that the inputs of these modules are, as optimizer.plan counts.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=2048, global_batch=8)
    >>> share_on_host(job, Plan(tp=8), ("attn_proj",)), share_on_host(job, Plan(tp=8), ("core_attn", "attn_proj"))
    (25, 100)
    """
    plans, has_experts = Plans.of([plan]), job.model.experts is not None
    attending = next(kind.model for kind in job.model.kinds if kind.model.has_attention)
    whole = movable_bytes(
        attending, shapes_of(job, plans), has_experts, job.stack.imbalance, 1.0 if job.quantised else 2.0
    )
    some = {name: size for name, size in whole.items() if name in modules}
    part, all_of_it = (moved_bytes(sizes, without_full(plans.recompute), np.ones(1))[0] for sizes in (some, whole))
    return round(100 * float(part) / max(float(all_of_it), 1.0))


def offloads_activations(job: Job, plans: Plans) -> BoolArray:
    """Plans that keep activations on the host: a share of them, or what selective recomputation keeps where the
    software has that there.
    """
    selective = job.stack.features.selective_on_host & (plans.recompute == SELECTIVE)
    return np.asarray((plans.activation_offload > 0) | selective)


def host_seconds(job: Job, moved: FloatArray, window: FloatArray) -> FloatArray:
    """Seconds that one pass over a layer loses to its traffic with the host [s].

    max(0, moved / host bandwidth - window) + moved / HBM bandwidth: what does not fit under the pass's computation and
    its waits for launches, and the copies' own traffic in device memory. Where communication hides under computation
    the host link waits: it is shared with the network card, and so is none of an all-to-all inside the scale-up domain.
    That everything else hides is assumed; of one run that was measured (Qwen3-235B on 256 GB200), all of it does.

    Source: assumed; Transformer Engine documentation, CPU offloading (copies run beside the computation).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...           gpus=8, seq_len=2048, global_batch=8)
    >>> host_seconds(job, np.array([55.1e6, 55.1e6]), np.array([0.0, 2e-3])).round(6).tolist()
    [0.001016, 1.6e-05]
    """
    device = job.cluster.device
    return np.maximum(0.0, moved / job.cluster.host_bandwidth - window) + moved / device.memory_bandwidth


def host_passes(
    job: Job, time: LayerTime, added: Phase, moved: FloatArray, near: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """`host_seconds` of the forward and the backward pass of a layer [s].

    Args:
        job: what is trained.
        time: of the layer.
        added: what recomputing adds to its backward pass.
        moved: its traffic with the host in one pass [B].
        near: whether the all-to-all stays inside the scale-up domain, so that the host link is free meanwhile.
    """
    windows = time.forward.window, time.backward.window + added.window
    # What overlaps with another micro-batch travels over the network card too, unless it stays near, and what the GPU
    # then waits for launches leaves the link free.
    hides = (sum(terms.values(), np.zeros(1)) for terms in time.overlapped)
    forward, backward, more = (phase.terms[EXPERT_ALL_TO_ALL] for phase in (time.forward, time.backward, added))
    forward, backward = (
        host_seconds(job, moved, np.maximum(0.0, window + hidden + np.where(near, all_to_all, 0.0)))
        for window, hidden, all_to_all in zip(windows, hides, (forward, backward + more), strict=True)
    )
    return forward, backward
