"""Seconds and bytes of one layer of every kind under one plan: what a layout or a timeline is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives.kernels.operators import FloatArray
from optimizer.objectives.layer.activation_offload import host_passes
from optimizer.objectives.layer.kinds import Kind, host_bytes, layer_times, sharded_exposure
from optimizer.objectives.layer.seconds import LayerTime
from optimizer.objectives.layer.shapes import shapes_of, with_spared_layers
from optimizer.objectives.pipeline.simulator import PassTimes
from optimizer.objectives.pipeline.stages import Stage, moe_pattern
from optimizer.objectives.step.memory import KeptBytes, activation_bytes, buffers, kept_bytes, stage_memory, states
from optimizer.objectives.step.price import stage_extras
from optimizer.plan import IntArray, Knobs, Plan, Plans

Runs = tuple[tuple[str, int], ...]
EMBEDDING, DENSE, MOE, MTP, HEAD = "embedding", "dense", "moe", "mtp", "head"


@dataclass(frozen=True, kw_only=True)
class LayerCosts:
    """One layer for one micro-batch on one GPU.

    forward, backward, recompute: seconds; the last is what rebuilding its activations adds [s]. weight: the part of
    `backward` that computes the weights' gradients [s]. static: weights, gradients, optimizer state and logits [B].
    kept: activations per micro-batch in flight, kept_recomputed: the same when they are rebuilt, rebuilt: held once
    per stage while a layer is rebuilt [B]. `recomputes`: may be rebuilt or spared; else what is rebuilt always is.
    """

    forward: float = 0.0
    backward: float = 0.0
    recompute: float = 0.0
    weight: float = 0.0
    static: float = 0.0
    kept: float = 0.0
    kept_recomputed: float = 0.0
    rebuilt: float = 0.0
    recomputes: bool = False

    @property
    def seconds(self) -> float:
        """Forward and backward pass without recomputation [s]."""
        return self.forward + self.backward


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """What stages are made of: layers by kind, and what each stage spends [s] and holds [B] whatever its layers."""

    kinds: Mapping[str, LayerCosts]
    seconds: float
    fixed: float


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """StageCosts of many plans: the fields of LayerCosts by kind as arrays with one entry per plan."""

    kinds: Mapping[str, Mapping[str, FloatArray]]
    seconds: FloatArray
    fixed: FloatArray

    def take(self, index: NDArray[np.int64]) -> LayerTable:
        """Some of the plans."""
        kinds = {
            kind: {name: column[index] for name, column in columns.items()} for kind, columns in self.kinds.items()
        }
        return LayerTable(kinds=kinds, seconds=self.seconds[index], fixed=self.fixed[index])

    def row(self, index: int) -> StageCosts:
        """One plan's."""
        kinds = {}
        for kind, columns in self.kinds.items():
            numbers = {name: float(column[index]) for name, column in columns.items()}
            recomputes = numbers.pop("recomputes") > 0
            kinds[kind] = LayerCosts(**numbers, recomputes=recomputes)
        return StageCosts(kinds=kinds, seconds=float(self.seconds[index]), fixed=float(self.fixed[index]))


def layer_costs(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> StageCosts:
    """The costs from which objectives/step/price.py adds up a step, layer by layer.

    Under full recomputation each layer may or may not be rebuilt, unless the job pins it; else the mode's cost is in
    `backward` and `kept`. A prediction layer is one more layer of the last kind and a projection, always rebuilt under
    full recomputation; its logits are the head's.
    """
    return layer_table(job, Plans.of([plan]), knobs).row(0)


def layer_table(job: Job, plans: Plans, knobs: Knobs = Knobs()) -> LayerTable:
    """`layer_costs` of many plans at once."""
    seconds, held = _seconds(job, plans), _bytes(job, plans, knobs)
    extras = sum(stage_extras(job, plans).values(), np.zeros(len(plans)))
    kinds = {kind: {**seconds[kind], **columns} for kind, columns in held.items() if kind}
    return LayerTable(kinds=kinds, seconds=extras, fixed=held[""]["static"])


def byte_table(job: Job, plans: Plans, knobs: Knobs = Knobs()) -> LayerTable:
    """`layer_table` without the seconds, which are much of its work."""
    held = _bytes(job, plans, knobs)
    return LayerTable(
        kinds={kind: columns for kind, columns in held.items() if kind},
        seconds=np.zeros(len(plans)),
        fixed=held[""]["static"],
    )


def layer_sequence(model: Model) -> Runs:
    """Runs of layers of one kind in the order of the model, from the embedding to the head.

    >>> from optimizer.presets import load_model
    >>> layer_sequence(load_model("deepseek-v3"))
    (('embedding', 1), ('dense', 3), ('moe', 58), ('mtp', 1), ('head', 1))
    """
    kinds = [MOE if mixture else DENSE for mixture in moe_pattern(model)]
    runs = [(EMBEDDING, 1)]
    for kind in [*kinds, *[MTP] * model.mtp_layers, HEAD]:
        if runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return tuple(runs)


def pass_times(
    costs: StageCosts, runs: Sequence[Runs], rebuilt: Sequence[Runs], *, pp: int, split: bool = False
) -> PassTimes:
    """Times for the simulator: `runs` of layers on each virtual stage, layers `rebuilt` on each stage.

    What a stage spends beside its layers is spread evenly over its passes, rebuilding over its backward passes.
    `split`: the weights' gradients are passes of their own.
    """
    vpp = len(runs) // pp
    aside = costs.seconds / (2 * vpp)

    def table(name: str, extra: float) -> list[list[float]]:
        return [
            [extra + sum(n * getattr(costs.kinds[kind], name) for kind, n in chunk) for chunk in runs[stage::pp]]
            for stage in range(pp)
        ]

    backward, weight = np.array(table("backward", aside)), np.array(table("weight", 0.0))
    again = [sum(n * costs.kinds[kind].recompute for kind, n in stage) / vpp for stage in rebuilt]
    return PassTimes(
        forward=table("forward", aside),
        backward=(backward - weight if split else backward).tolist(),
        weight=weight.tolist(),
        recompute=[[seconds] * vpp for seconds in again],
    )


def _seconds(job: Job, plans: Plans) -> dict[str, dict[str, FloatArray]]:
    """Pass times by kind; ZeRO-3's exposed collectives go to the forward and backward passes in equal parts."""
    model = job.model
    table, rows = layer_times(job, plans)
    layers = {kind: times.take(rows) for kind, times in table.items()}
    head = layers.pop(HEAD)
    dense, last = layers[DENSE], layers.get(MOE, layers[DENSE])
    lean = with_spared_layers(job, plans).recompute
    spared, rebuilt = (
        sharded_exposure(job, plans, _kind(dense, mode), _kind(last, mode)) for mode in (lean, plans.recompute)
    )
    found = {}
    for i, (kind, time) in enumerate(layers.items()):
        hosted = host_passes(job, time, lean, host_bytes(job, plans, kind == MOE, lean))
        found[kind] = _passes(time, plans, lean, spared[i], rebuilt[i], hosted)
    nothing = np.zeros(len(plans))
    once = {"forward": head.forward.total, "backward": head.backward.total, "weight": head.backward.terms["gemm"] / 2}
    found[EMBEDDING] = dict.fromkeys((*once, "recompute"), nothing)
    found[HEAD] = {name: value * (1 + model.mtp_layers) for name, value in once.items()} | {"recompute": nothing}
    if model.mtp_layers:
        layer, projection = found[MOE if model.experts else DENSE], 2.0 * model.hidden / model.vocab
        found[MTP] = {name: layer[name] + projection * value for name, value in once.items()} | {"recompute": nothing}
        found[MTP]["backward"] = found[MTP]["backward"] + layer["recompute"]
    return found


def _kind(time: LayerTime, recompute: IntArray) -> Kind:
    """What the exposure of ZeRO-3 depends on: the compute under which its collectives hide."""
    return Kind(
        terms={},
        total=time.forward.total + time.backward.total,
        hidden=time.forward.hidden + time.backward.hidden,
        weight=time.backward.terms["gemm"] / 2,
        forward_compute=time.forward.compute,
        backward_compute=time.backward.compute + time.again(recompute).compute,
    )


def _passes(
    time: LayerTime,
    plans: Plans,
    lean: IntArray,
    spared: FloatArray,
    rebuilt: FloatArray,
    hosted: tuple[FloatArray, FloatArray],
) -> dict[str, FloatArray]:
    """Seconds of a layer at its leanest, with what a pass exposes and waits for the host, and of rebuilding it."""
    more = np.where(plans.recompute != lean, time.full.total + rebuilt - spared, 0.0)
    return {
        "forward": time.forward.total + spared / 2 + hosted[0],
        "backward": time.backward.total + time.again(lean).total + spared / 2 + hosted[1],
        "recompute": more,
        # Gradients of inputs and of weights are two products of equal size; attention has no weights.
        "weight": time.backward.terms["gemm"] / 2,
    }


def _bytes(job: Job, plans: Plans, knobs: Knobs) -> dict[str, dict[str, FloatArray]]:
    """Bytes by kind; those of a stage without layers under "" [B]."""
    model, nothing = job.model, np.zeros(len(plans))
    last = MOE if model.experts else DENSE
    # Without a pipeline the embedding is at hand for prediction layers.
    home = (plans.pp == 1).astype(np.float64)
    predicting = {"embedding": home, "mtp": model.mtp_layers, last: model.mtp_layers}
    contents: dict[str, dict[str, FloatArray | float]] = {
        "": {},
        EMBEDDING: {"embedding": 1},
        "kept": {"embedding": 1, "in_flight": 1},
        HEAD: {"head": 1},
        DENSE: {"dense": 1},
    }
    contents |= {MOE: {"moe": 1}} if model.experts else {}
    contents |= {MTP: predicting, "home": {"embedding": home}} if model.mtp_layers else {}
    reserved = dict(zip(contents, _reserved(job, plans, knobs, list(contents.values())), strict=True))
    empty = reserved[""]
    embedding = {"static": reserved[EMBEDDING] - empty, "kept": reserved["kept"] - reserved[EMBEDDING]}
    found = {
        "": {"static": empty},
        EMBEDDING: _waiting(nothing) | embedding | {"kept_recomputed": embedding["kept"]},
        HEAD: _waiting(nothing) | {"static": reserved[HEAD] - empty},
        DENSE: {"static": reserved[DENSE] - empty} | _activations(job, plans, False),
    }
    if model.experts:
        found[MOE] = {"static": reserved[MOE] - empty} | _activations(job, plans, True)
    if model.mtp_layers:
        layer = found[last]
        found[MTP] = layer | {
            "static": (reserved[MTP] - reserved["home"]) / model.mtp_layers,
            "kept": layer["kept_recomputed"],
            "recomputes": nothing,
        }
    return found


def _waiting(nothing: FloatArray) -> dict[str, FloatArray]:
    return dict.fromkeys(("kept", "kept_recomputed", "rebuilt", "recomputes"), nothing)


def _activations(job: Job, plans: Plans, moe: bool) -> dict[str, FloatArray]:
    """Activations of one layer: kept, kept where it is rebuilt, and held once while it is [B]."""
    table = activation_bytes(
        job.model, shapes_of(job, plans), job.stack.features, moe, job.stack.imbalance, job.quantised
    )
    lean = with_spared_layers(job, plans).recompute
    spared, rebuilt = (kept_bytes(table, mode, plans.activation_offload) for mode in (lean, plans.recompute))
    reserved = job.stack["activation_factor"] * (1 + job.stack["fragmentation"])
    return {
        "kept": spared.each * reserved,
        "kept_recomputed": rebuilt.each * reserved,
        "rebuilt": rebuilt.once * reserved,
        "recomputes": (plans.recompute != lean).astype(np.float64),
    }


def _reserved(job: Job, plans: Plans, knobs: Knobs, contents: Sequence[Mapping[str, FloatArray | float]]) -> FloatArray:
    """Bytes of a stage with each of these contents (rows), without the activations of its layers [B]."""

    def column(name: str) -> FloatArray:
        return np.stack([np.zeros(len(plans)) + content.get(name, 0.0) for content in contents])

    stage = Stage(
        dense=column("dense"),
        moe=column("moe"),
        embedding=column("embedding"),
        head=column("head"),
        in_flight=column("in_flight"),
        exists=np.ones(len(plans)),
        mtp=column("mtp"),
    )
    none = KeptBytes(each=np.zeros(len(plans)), once=np.zeros(len(plans)))
    terms = stage_memory(job, plans, stage, none, none, states(job, plans, stage, knobs), buffers(job, plans))
    return np.asarray(sum(terms.values(), np.zeros(len(plans))))
