"""What one GPU holds of a layer of each kind, as it is stored, and what of it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from optimizer.job.job import WIDE, Job
from optimizer.job.method import VISION
from optimizer.job.model import NOTHING
from optimizer.job.plan import Plans
from optimizer.objectives.kernels.adapters import ELEMENT, ROUTER, SCORES, adapters_of, part_of
from optimizer.objectives.kernels.operators import Gemm, expert_gemms, mixer_gemms, mlp_gemms
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.parameters import LocalParameters, parameters
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP


def local_elements(job: Job, plans: Plans) -> Mapping[str, LocalParameters]:
    """Elements of one layer of every kind, of the embedding and of the head, held and trained [elements].

    Held are elements of two bytes: a frozen matrix in nf4 counts as 0.516 / 2 of its own. A prediction layer is stored
    and trained as the layer that it is like.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=1, train="qlora:8")
    >>> layer = local_elements(job, Plans.of([Plan()]))[DENSE]
    >>> round(float(layer.shared[0]) / 1e6, 2), round(float(layer.trained_shared[0]) / 1e6, 3)
    (56.93, 0.655)
    """
    each, method = dict(parameters(job.model, plans)), job.method
    if job.training_loss.scored:
        norm = np.full(len(plans), float(job.model.final_norm_params))
        each[HEAD] = LocalParameters.all_trained(shared=norm, experts=np.zeros(len(plans)))
    if not method.freezes:
        return {**each, EMBEDDING: _with_tower(job, each[EMBEDDING])}
    elements = {kind: _frozen(whole) for kind, whole in each.items()}
    for kind in (EMBEDDING, HEAD):
        if job.wide_rest:
            elements[kind] = replace(elements[kind], shared=2.0 * elements[kind].shared)
        if method.trains(kind):
            elements[kind] = _saved(job, each[kind]) if method.adapts else each[kind]
    for kind in (DENSE, MOE):
        if kind in each:
            elements[kind] = _layer(job, plans, each[kind], moe=kind == MOE)
    if MTP in each:
        like = MOE if MOE in each else DENSE
        elements[MTP] = replace(elements[like], shared=elements[like].shared + each[MTP].shared - each[like].shared)
    return {**elements, EMBEDDING: _with_tower(job, elements[EMBEDDING])}


def _with_tower(job: Job, embedding: LocalParameters) -> LocalParameters:
    """The embedding with the vision tower beside it, whole on every rank and stored as frozen layers are, or trained.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.model import Tower
    >>> from optimizer.job.plan import Plan
    >>> seeing = replace(load_model("llama3-8b"), tower=Tower(layers=27, hidden=1152, heads=16, ffn_hidden=4304))
    >>> job = Job(model=seeing, cluster=load_cluster("dgx-h100"), stack=load_stack("hf-2026"), gpus=1, seq_len=2048,
    ...     global_batch=1)
    >>> jobs = [replace(job, train=train) for train in ("full", "frozen:vision", "lora")]
    >>> [float(local_elements(each, Plans.of([Plan()]))[EMBEDDING].trained_shared[0]) / 1e6 for each in jobs]
    [936.803184, 525.336576, 0.0]
    """
    tower = job.tower
    if tower is None:
        return embedding
    trained = job.method.trains(VISION)
    stored = 1.0 if trained else job.method.base_bytes / ELEMENT
    return replace(
        embedding,
        shared=embedding.shared + stored * tower.params,
        trained_shared=embedding.trained_shared + trained * tower.params,
    )


def _frozen(whole: LocalParameters) -> LocalParameters:
    nothing = np.zeros_like(whole.shared)
    return LocalParameters(
        shared=whole.shared, experts=whole.experts, trained_shared=nothing, trained_experts=0 * whole.experts
    )


def _saved(job: Job, whole: LocalParameters) -> LocalParameters:
    """A part that is trained whole beside adapters: a copy of it, the frozen one staying where it is.

    Trained are elements of an adapter's bytes: a gradient and moments as the software has them count as their share.

    Source: huggingface/peft, src/peft/utils/other.py, ModulesToSaveWrapper.
    """
    features = job.stack.features
    own = features.grad_bytes + features.update_bytes + features.optimizer_bytes
    wide = job.grad_bytes + features.update_bytes + job.master_bytes + 2 * WIDE
    share = own / wide if job.wide_adapters else 1.0
    return replace(whole, shared=2.0 * whole.shared, trained_shared=share * whole.shared)


def _layer(job: Job, plans: Plans, whole: LocalParameters, *, moe: bool) -> LocalParameters:
    """A layer of one kind, in the mean of those that mix tokens, or are trained, differently."""
    thinner, small, still = ({"shared": np.zeros(len(plans)), "experts": np.zeros(len(plans))} for _ in range(3))
    for alike, share in job.layers_alike(moe):
        method = alike.method
        if method.layers:
            still = {part: still[part] + share * getattr(whole, part) for part in still}
        for product in _products(alike, plans, moe=moe):
            where = "experts" if product.name.startswith("experts_") else "shared"
            size = share * product.n * product.k * product.batch
            frozen = not method.trains(part_of(product.name))
            if frozen and product.name != ROUTER:
                thinner[where] = thinner[where] + size * (1.0 - method.base_bytes / ELEMENT)
            if frozen and not method.layers:
                still[where] = still[where] + size
            for each in adapters_of(alike.model, method, product) if method.adapts else ():
                small[where] = small[where] + share * each.n * each.k * each.batch
    if job.method.adapts:
        still = {"shared": whole.shared, "experts": whole.experts}
    return LocalParameters(
        shared=whole.shared - thinner["shared"] + small["shared"],
        experts=whole.experts - thinner["experts"] + small["experts"],
        trained_shared=whole.shared - still["shared"] + small["shared"],
        trained_experts=whole.experts - still["experts"] + small["experts"],
    )


def _products(job: Job, plans: Plans, *, moe: bool) -> list[Gemm]:
    """Products with weights of a layer of one kind, at the experts' mean rows."""
    shapes, model = shapes_of(job, plans), job.model
    products = mixer_gemms(model, shapes)
    if moe:
        products += expert_gemms(model, shapes, 1.0, 1.0)
    elif model.feed_forwards != NOTHING:
        products += mlp_gemms(model, shapes, model.ffn_hidden)
    return [product for product in products if product.weight and product.name != SCORES]
