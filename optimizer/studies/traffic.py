"""Every kind of collective of a training step: its message, its group, and how often it happens. No times here.

The messages and counts are those that `optimizer.objectives.step.price` prices; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives.layer.communication import copies_per_token
from optimizer.objectives.layer.module_communication import latent_width
from optimizer.objectives.pipeline.parameters import LocalParameters, layer_parameters, replicas, stage_parameters
from optimizer.objectives.pipeline.stages import Stage, layer_counts, representative_stages
from optimizer.objectives.step.data_parallel import BUCKET_PER_RANK, shard_ranks
from optimizer.plan import Knobs, Plan, Plans
from optimizer.recomputation import modules_of

ELEMENT = 2.0
"""Bytes of an activation or weight on the network [B]."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """One kind of collective. `message` [B] follows nccl-tests; groups have `ranks` GPUs, neighbours `stride` apart.

    per_layer: how many of them one layer causes, on average, for one micro-batch forward and backward; what happens
    once per step (data parallelism without ZeRO-3) counts per step instead.
    per_step: how many a GPU takes part in, on the stage with most layers (with most experts, where there are some); of
    those once per step, on the first stage, which holds the embedding; of sends, how many an inner stage sends.
    in_total: how many there are in one step, all groups together.
    """

    parallelism: str
    purpose: str
    kind: str
    message: float
    ranks: int
    stride: int
    per_layer: float
    per_step: float
    in_total: float


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the counts depend on. `first` is the first stage, `busiest` the one with most layers."""

    job: Job
    plan: Plan
    plans: Plans
    knobs: Knobs
    first: Stage
    busiest: Stage

    @property
    def model(self) -> Model:
        """The model of the job."""
        return self.job.model

    @property
    def microbatches(self) -> int:
        """Micro-batches of a step."""
        return self.plan.num_microbatches

    @property
    def stage_gpus(self) -> int:
        """GPUs that hold one pipeline stage."""
        return self.plan.tp * self.plan.cp * self.plan.dp

    @property
    def tokens(self) -> float:
        """Tokens of a micro-batch on one context-parallel rank."""
        return self.plan.micro_batch * self.job.seq_len / self.plan.cp

    @property
    def forwards(self) -> int:
        """Forward passes per micro-batch: two under full recomputation."""
        return 2 if self.plan.recompute == "full" else 1

    @property
    def rebuilt(self) -> frozenset[str]:
        """Modules that the plan rebuilds by name."""
        return frozenset(modules_of(self.plan.recompute))

    def layers(self, moe: bool | None) -> tuple[float, float]:
        """Layers, prediction layers too, on the busiest stage and in the model: dense, MoE, or both for None."""
        whole = layer_counts(self.model)
        dense = (float(self.busiest.dense[0]), float(whole[0]))
        experts = (float(self.busiest.moe[0]), float(whole[1]))
        if moe is None:
            return dense[0] + experts[0], dense[1] + experts[1]
        return experts if moe else dense

    def in_layers(
        self,
        parallelism: str,
        purpose: str,
        kind: str,
        message: float,
        group: tuple[int, int],
        times: float,
        moe: bool | None,
    ) -> Traffic:
        """Traffic of `times` collectives in each layer and micro-batch, over groups of (ranks, stride)."""
        here, everywhere = self.layers(moe)
        groups = self.stage_gpus / group[0]
        return Traffic(
            parallelism=parallelism,
            purpose=purpose,
            kind=kind,
            message=message,
            ranks=group[0],
            stride=group[1],
            per_layer=times,
            per_step=times * here * self.microbatches,
            in_total=times * everywhere * self.microbatches * groups,
        )


def traffic(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[Traffic, ...]:
    """Every collective of a step, by kind; groups of one GPU send nothing and are left out."""
    plans = Plans.of([plan])
    stages = [stage for stage in representative_stages(job.model, plans) if stage.exists[0]]
    busiest = max(stages, key=lambda stage: (float(stage.moe[0]), float(stage.dense[0])))
    setting = Setting(job=job, plan=plan, plans=plans, knobs=knobs, first=stages[0], busiest=busiest)
    parts = (_tensor(setting), _context(setting), _experts(setting), _pipeline(setting), _data(setting))
    return tuple(row for part in parts for row in part if row.ranks > 1 and row.in_total > 0 and row.message > 0)


def _tensor(s: Setting) -> Iterator[Traffic]:
    """Two all-reduces a pass of tokens x hidden x 2 B, as gathers and scatters under sequence parallelism.

    Rebuilding a dense MLP, a mixture or its shared experts repeats one of them in each layer that has it.

    Source: Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.
    """
    message = ELEMENT * s.tokens * s.model.hidden
    times = (1 if s.model.parallel_block else 2) * (s.forwards + 1)
    for kind in ("all_gather", "reduce_scatter") if s.plan.sequence_parallel else ("all_reduce",):
        yield s.in_layers("tp", "activations", kind, message, (s.plan.tp, 1), times, None)
        for moe, modules in ((False, {"mlp"}), (True, {"moe", "shared_experts"})):
            again = len(s.rebuilt & modules)
            yield s.in_layers("tp", "rebuilt activations", kind, message, (s.plan.tp, 1), again, moe)
    if s.plan.sequence_parallel and "mla_up_proj" in s.rebuilt:
        width = latent_width(s.model)
        yield s.in_layers("tp", "latent vectors", "all_gather", ELEMENT * s.tokens * width, (s.plan.tp, 1), 1, None)


def _context(s: Setting) -> Iterator[Traffic]:
    """Keys and values of the whole sequence gathered in every pass, their gradients scattered in the backward pass.

    Source: Llama 3, arXiv 2407.21783, section 3.3.2.
    """
    model, tp = s.model, s.plan.tp
    width = 2.0 * (model.q_dim / tp if model.mla else max(model.kv_dim / tp, model.head_dim))
    message = ELEMENT * width * s.job.seq_len * s.plan.micro_batch
    group = (s.plan.cp, tp)
    yield s.in_layers("cp", "keys and values", "all_gather", message, group, s.forwards + 1, None)
    yield s.in_layers("cp", "their gradients", "reduce_scatter", message, group, 1, None)


def _experts(s: Setting) -> Iterator[Traffic]:
    """Dispatch and combine of routed tokens in every pass, and the gathers of expert-tensor parallelism.

    Source: Rajbhandari et al., arXiv 2201.05596; Liu et al., arXiv 2504.14960.
    """
    if s.model.experts is None:
        return
    imbalance = s.job.stack.imbalance
    etp = s.plan.etp
    copies = float(copies_per_token(s.job, s.plan.ep, etp))
    message = ELEMENT * s.tokens / s.plan.tp * copies * s.model.hidden * imbalance
    passes = 2 * (s.forwards + 1 + ("moe" in s.rebuilt))
    yield s.in_layers("ep", "routed tokens", "all_to_all", message, (s.plan.ep, etp), passes, True)
    yield s.in_layers("ep", "tokens of an expert", "all_gather", message * etp, (etp, 1), passes, True)


def _pipeline(s: Setting) -> Iterator[Traffic]:
    """Activations forward and their gradients back over every boundary of virtual stages.

    Software that scatters and gathers sends each TP rank's share and puts it together again inside the next stage.

    Source: Narayanan et al., arXiv 2104.04473, section 4.1.
    """
    pp, vpp = s.plan.pp, s.plan.vpp
    if pp == 1:
        return
    gathered = s.job.stack.features.scatter_gather and not s.plan.sequence_parallel
    whole = ELEMENT * s.tokens * s.model.hidden
    boundaries = pp * vpp - 1
    sent = Traffic(
        parallelism="pp",
        purpose="activations",
        kind="point_to_point",
        message=whole / (s.plan.tp if s.plan.sequence_parallel or gathered else 1),
        ranks=2,
        stride=s.stage_gpus,
        per_layer=2 * boundaries / sum(layer_counts(s.model)),
        per_step=2 * vpp * s.microbatches,
        in_total=2 * s.microbatches * boundaries * s.stage_gpus,
    )
    yield sent
    if gathered:
        groups = sent.in_total / s.plan.tp
        yield replace(sent, kind="all_gather", message=whole, ranks=s.plan.tp, stride=1, in_total=groups)


def _data(s: Setting) -> Iterator[Traffic]:
    """Gradients and weights of the replicas: per layer under ZeRO-3, else in buckets once per step."""
    if s.plan.zero_stage >= 3:
        for moe in (False, True) if s.model.experts else (False,):
            yield from _sharded(s, moe)
        return
    first, whole = stage_parameters(s.model, s.plans, s.first), stage_parameters(s.model, s.plans, _whole(s.model))
    layer = layer_parameters(s.model, s.plans, s.model.experts is not None)
    for part, ranks, stride in _groups(s):
        elements = _elements(first, part)
        if elements:
            yield from _bucketed(s, part, (ranks, stride), elements, _elements(layer, part), _elements(whole, part))


def _sharded(s: Setting, moe: bool) -> Iterator[Traffic]:
    """ZeRO-3: weights gathered before each pass, gradients scattered after the backward pass, in every layer.

    Source: Zhao et al., arXiv 2304.11277, section 3.
    """
    local = layer_parameters(s.model, s.plans, moe)
    for part, ranks, stride in _groups(s):
        elements = _elements(local, part)
        group = (int(shard_ranks(s.plans, np.array([float(ranks)]))[0]), stride)
        if elements:
            of = _purpose(part)
            # Full recomputation keeps the weights that it gathers before the backward pass: no third gather.
            yield s.in_layers("dp", f"weights{of}", "all_gather", elements * ELEMENT, group, 2, moe)
            yield s.in_layers("dp", f"gradients{of}", "reduce_scatter", elements * _gradient(s.job), group, 1, moe)


def _bucketed(
    s: Setting, part: str, group: tuple[int, int], elements: float, in_layer: float, in_model: float
) -> Iterator[Traffic]:
    """ZeRO-0 reduces the gradients, ZeRO-1 and 2 scatter them and gather the weights, in equally large buckets.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7.
    """
    volume = elements * _gradient(s.job)
    buckets = float(max(1.0, np.ceil(volume / max(s.knobs.bucket, BUCKET_PER_RANK * group[0]))))
    kinds = [("gradients", "all_reduce", volume)]
    if s.plan.zero_stage > 0:
        kinds = [("gradients", "reduce_scatter", volume), ("weights", "all_gather", elements * ELEMENT)]
    for purpose, kind, size in kinds:
        yield Traffic(
            parallelism="dp",
            purpose=purpose + _purpose(part),
            kind=kind,
            message=size / buckets,
            ranks=group[0],
            stride=group[1],
            per_layer=buckets * in_layer / elements,
            per_step=buckets,
            in_total=buckets * in_model / elements * s.stage_gpus / group[0],
        )


def _groups(s: Setting) -> Iterator[tuple[str, int, int]]:
    """Replicas of the shared parameters and of the experts: which, how many, how far apart."""
    shared, experts = (int(ranks[0]) for ranks in replicas(s.plans))
    yield "shared", shared, s.plan.tp
    if s.model.experts:
        yield "experts", experts, s.plan.ep * s.plan.etp


def _elements(parameters: LocalParameters, part: str) -> float:
    return float(np.ravel(getattr(parameters, part))[0])


def _purpose(part: str) -> str:
    return " of experts" if part == "experts" else ""


def _gradient(job: Job) -> float:
    return 4.0 if job.stack.features.fp32_reduce else 2.0


def _whole(model: Model) -> Stage:
    """A stage that holds the whole model."""
    one, (dense, moe) = np.ones(1), layer_counts(model)
    return Stage(
        dense=one * dense,
        moe=one * moe,
        embedding=one,
        head=one,
        in_flight=one,
        exists=one,
        mtp=one * model.mtp_layers,
    )
