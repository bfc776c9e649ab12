"""Every kind of collective of a training step: its message, its group, and how often it happens. No times here.

The messages are those of the layer costs, counted over the layers of the stages as `objectives.step.price` counts their
seconds; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.recomputation import RECOMPUTE, modules_of
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.layer.messages import boundary_messages, head_messages, layer_messages, module_messages
from optimizer.objectives.layer.sharded import sharded_messages
from optimizer.objectives.network.messages import BACKWARD, CP, DP, EP, FORWARD, PP, STEP, TP, Message
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, FULL, HEAD, LAYERS, MOE, MTP, kinds_of, stages_of
from optimizer.objectives.step.elements import elements_on
from optimizer.objectives.step.per_step import bucket_messages
from optimizer.objectives.step.price import Step


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """One kind of collective."""

    parallelism: str
    purpose: str
    kind: str
    ranks: int  # GPUs of a group
    stride: int  # distance of neighbours in it
    message: float  # its size as nccl-tests count it [B]
    # how many of them a layer that has any causes, on average, for one micro-batch forward and backward, none for those
    # of the embedding and the head; those once per step count per step instead
    per_layer: float
    # how many a GPU takes part in, on the stage that takes longest for a micro-batch; of those once per step, on the
    # stage that takes longest for these; of sends, how many an inner stage sends
    per_step: float
    in_total: float  # how many there are in one step, all groups together
    once: bool = False  # whether it happens once per step, as gradients and weights in buckets do


ORDER = (TP, CP, EP, PP, DP)
OF = {EMBEDDING: " of the embedding", HEAD: " of the head"}


@dataclass(frozen=True, kw_only=True)
class MessageCount:
    """What layers of one kind (all, where it is empty) send of a message."""

    message: Message
    kind: str
    per_pass: float  # messages of one rank for a micro-batch, all layers together
    per_step: float  # as in Traffic
    in_total: float  # as in Traffic

    @property
    def key(self) -> tuple[int, str, str, bool, float, float, float]:
        """Parts with the same key are one row."""
        m = self.message
        group = float(m.size[0]), float(m.ranks[0]), float(m.stride[0])
        return ORDER.index(m.parallelism), m.purpose, m.kind, m.phase == STEP, *group


def traffic(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[Traffic, ...]:
    """Every collective of a step, by kind; groups of one GPU send nothing and are left out."""
    plans = Plans.of([plan])
    step = Step(layer_costs=layer_costs_of(job, plans), stages=stages_of(job.model, plans), knobs=knobs)
    rows: dict[object, list[MessageCount]] = {}
    for part in (*in_layers(step), *between_stages(step), *per_step_messages(step, knobs)):
        if part.message.ranks[0] > 1 and part.in_total > 0 and part.message.size[0] > 0:
            rows.setdefault(part.key, []).append(part)
    counts = {kind: count for kind, count in kinds_of(job.model).items() if kind in LAYERS}
    together = (_row(parts, counts) for parts in rows.values())
    return tuple(sorted(together, key=lambda row: ORDER.index(row.parallelism)))


def in_layers(step: Step) -> Iterator[MessageCount]:
    """What layers, the head and sharded weights send for every micro-batch, by kind of layer."""
    for kind, everywhere in kinds_of(step.layer_costs.job.model).items():
        stage, stages = int(step.slowest[0]), step.stages
        here = float(stages.counts[kind][stage, 0])
        for message in layer_kind_messages(step.layer_costs, kind):
            yield _in_layers(step, message, kind, here, everywhere)
            if message.phase == FORWARD and message.parallelism != DP and kind in LAYERS:
                # Recomputing a layer sends again what its forward pass did, but keeps the weights that it gathered.
                recomputed = float(stages.recomputed[kind][stage, 0])
                yield _in_layers(step, message, kind, recomputed, _recomputed(step, kind, everywhere))
        for message in recomputed_messages(step.layer_costs, kind):
            yield _in_layers(step, message, kind, here, everywhere)


def layer_kind_messages(layer_costs: LayerCosts, kind: str) -> Iterator[Message]:
    """Messages of one layer of a kind, of the embedding or of the head, nothing recomputed."""
    job, shapes = layer_costs.job, shapes_of(layer_costs.job, layer_costs.plans)
    if kind in LAYERS:
        for own, share in job.layers_alike(_is_moe(job, kind)):
            for message in layer_messages(own, shapes, _is_moe(job, kind)):
                if message.phase != BACKWARD or own.reached < job.model.layers:
                    yield replace(message, times=message.times * share)
    if kind == HEAD:
        yield from head_messages(job, shapes)
    for message in sharded_messages(job, layer_costs.plans, layer_costs.by_kind[kind].elements):
        yield replace(message, purpose=message.purpose + OF.get(kind, ""))


def recomputed_messages(layer_costs: LayerCosts, kind: str) -> Iterator[Message]:
    """Messages of the modules of one layer of a kind that the plan recomputes by name."""
    job, shapes = layer_costs.job, shapes_of(layer_costs.job, layer_costs.plans)
    if kind in LAYERS:
        for module in modules_of(RECOMPUTE[layer_costs.plans.recompute[0]]):
            for own, share in job.layers_alike(_is_moe(job, kind)):
                for message in module_messages(own, shapes, module, _is_moe(job, kind)):
                    yield replace(message, purpose=f"recomputed {message.purpose}", times=message.times * share)


def between_stages(step: Step) -> Iterator[MessageCount]:
    """Activations forward and their gradients back over every boundary of virtual stages."""
    plans = step.layer_costs.plans
    boundaries = float(plans.pp[0] * plans.vpp[0] - 1)
    for message in boundary_messages(step.layer_costs.job, plans):
        times, senders = float(message.times[0]), 1.0 if message.kind == "point_to_point" else float(message.ranks[0])
        yield MessageCount(
            message=message,
            kind="",
            per_pass=times * boundaries,
            per_step=times * float(plans.vpp[0]) * _microbatches(step),
            in_total=times * boundaries * _microbatches(step) * _stage_gpus(step) / senders,
        )


def per_step_messages(step: Step, knobs: Knobs) -> Iterator[MessageCount]:
    """Gradients and weights once per step, in buckets, which need not be whole."""
    layer_costs, last = step.layer_costs, int(step.last[0])
    job, layers = layer_costs.job, sum(n for kind, n in kinds_of(layer_costs.job.model).items() if kind in LAYERS)
    layer, whole = layer_costs.by_kind[MOE if job.model.experts else DENSE], layer_costs.replicas.whole
    for message in bucket_messages(job, layer_costs.plans, layer_costs.groups, knobs):
        part = "trained_experts" if message.purpose.endswith("of experts") else "trained_shared"
        each, groups = float(message.times[0]), _stage_gpus(step) / float(message.ranks[0])
        yield MessageCount(
            message=message,
            kind="",
            per_pass=each * float(getattr(layer, part)[0]) * layers,
            per_step=each * float(elements_on(layer_costs, step.stages, part)[last, 0]),
            in_total=each * float(getattr(whole, part)[0]) * groups,
        )


def _row(parts: Sequence[MessageCount], counts: Mapping[str, float]) -> Traffic:
    """Parts of one message as one row."""
    message, of_layers = parts[0].message, [part for part in parts if not part.kind or part.kind in counts]
    kinds = {part.kind for part in of_layers}
    layers = sum(count for kind, count in counts.items() if kind in kinds) or sum(counts.values())
    return Traffic(
        parallelism=message.parallelism,
        purpose=message.purpose,
        kind=message.kind,
        message=float(message.size[0]),
        ranks=int(message.ranks[0]),
        stride=int(message.stride[0]),
        per_layer=sum(part.per_pass for part in of_layers) / layers,
        per_step=sum(part.per_step for part in parts),
        in_total=sum(part.in_total for part in parts),
        once=message.phase == STEP,
    )


def _in_layers(step: Step, message: Message, kind: str, here: float, everywhere: float) -> MessageCount:
    """A message that layers of a kind send for every micro-batch: so many on the slowest stage, so many in all."""
    times = float(message.times[0])
    return MessageCount(
        message=message,
        kind=kind,
        per_pass=times * everywhere,
        per_step=times * here * _microbatches(step),
        in_total=times * everywhere * _microbatches(step) * _stage_gpus(step) / float(message.ranks[0]),
    )


def _recomputed(step: Step, kind: str, everywhere: float) -> float:
    """Layers of a kind that the whole pipeline recomputes."""
    plans = step.layer_costs.plans
    if plans.placements is not None:
        return float(step.stages.recomputed[kind].sum())
    return everywhere * float(plans.recompute[0] == FULL)


def _is_moe(job: Job, kind: str) -> bool:
    return kind == MOE or (kind == MTP and job.model.experts is not None)


def _microbatches(step: Step) -> float:
    return float(step.layer_costs.plans.num_microbatches[0])


def _stage_gpus(step: Step) -> float:
    plans = step.layer_costs.plans
    return float(plans.tp[0] * plans.cp[0] * plans.dp[0])
