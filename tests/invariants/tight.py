"""Random jobs whose memory is tight: state on the host, recomputation by stage and cuts decide together."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster
from optimizer.constraints.rules.every import structural
from optimizer.job.job import EVEN_RISK, Job, Limits
from optimizer.job.plan import Placement, Plans
from optimizer.job.stack import FP8_RECIPES, NARROW_PRODUCTS, RECOMPUTE_BY, Features, Stack
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.linear_stage import reserved_memory
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import at_most_offload
from tests.search.jobs import DENSE, MIXED, SHARED

SHAPES = ((2, 1), (2, 1), (3, 1), (4, 1), (2, 2), (2, 3))  # stages, and virtual stages of each
CLUSTERS = ("dgx-h100", "dgx-h100", "mi300x-8", "gb200-nvl72")
ZERO_STAGES = ((3,), (1, 3), (2, 3), (0, 1, 2, 3))
TRAINED = ("full", "full", "full", "lora:8", "qlora:4:attention", "frozen:embedding,mlp")
OPTIMIZERS = ("", "", "muon", "lion", "adamw-8bit", "paged-adamw-8bit", "adamw:in-backward", "adamw-8bit:in-backward")


def tight_job(random: Random, various: bool = False) -> Job:
    """A job of one shape of the pipeline, with memory between what some plan of it needs at most and at least.

    `various` jobs differ in sharding, number formats, what is trained and how weights are updated too.
    """
    (pp, vpp), tp = random.choice(SHAPES), random.choice((1, 1, 2))
    model = replace(
        DENSE,
        layers=random.randint(pp, 7 - pp // 2) if vpp == 1 else pp * vpp + random.randint(0, 1),
        hidden=random.choice((1024, 1536, 3072)),
        ffn_hidden=random.choice((2048, 6144, 12288)),
        vocab=random.choice((1000, 50_000)),
        experts=random.choice((None, None, MIXED, SHARED)),
        mtp_layers=random.choice((0, 0, 0, 1)),
    )
    features = Features(
        zero_stages=(random.choice((1, 1, 2)),),
        schedules=("1f1b", "interleaved"),
        recompute=random.choice((("none",), ("none", "full"), ("full",))),
        recompute_by=random.choice(("stage", "stage", "stage", "virtual stage")),
    )
    job = Job(
        model=model,
        cluster=load_cluster(random.choice(CLUSTERS)),
        stack=Stack(name="tight", features=features),
        gpus=pp * tp * random.choice((1, 2, 4)),
        seq_len=random.choice((1024, 2048, 4096)),
        global_batch=random.choice((4, 8, 12, 24, 48)),
        limits=Limits(
            bubble=1.0,
            oom_risk=EVEN_RISK,
            max_micro_batch=random.choice((1, 1, 2)),
            fixed={"pp": pp, "vpp": vpp, "cp": 1, "tp": tp},
        ),
    )
    if random.random() < 0.3:
        job = replace(job, cluster=replace(job.cluster, host_memory=random.uniform(20e9, 400e9)))
    return squeezed(varied(job, random) if various else job, random)


def varied(job: Job, random: Random) -> Job:
    """The job sharded, trained, updated and rounded in any way that its device can have."""
    while True:
        features = replace(
            job.stack.features,
            zero_stages=random.choice(ZERO_STAGES),
            piped_zero_stages=random.choice(((), (), (1, 3), (1, 2, 3))),
            reduces_once=random.random() < 0.5,
            gathers_layers=random.random() < 0.7,
            recompute_by=random.choice(RECOMPUTE_BY),
            schedules=random.choice((("1f1b", "interleaved"), ("1f1b", "interleaved", "zero-bubble"))),
            uneven_stages=random.random() < 0.8,
            grad_bytes=random.choice((2, 4)),
            optimizer_bytes=random.choice((8, 12)),
            update_bytes=random.choice((0, 0, 4)),
            cuda_graphs=random.random() < 0.2,
            eager_experts=random.random() < 0.3,
            synchronised=random.random() < 0.3,
            fp8_recipe=random.choice(FP8_RECIPES),
            narrow_products=random.choice(NARROW_PRODUCTS),
            narrow_inputs=random.random() < 0.3,
            loss_chunks=random.choice((1, 1, 0, 4)),
        )
        shard = {"shard": random.choice((2, 4))} if random.random() < 0.2 else {}
        mixed = "".join(random.choice("de") for _ in range(job.model.layers)) if job.model.experts else ""
        try:
            return replace(
                job,
                model=replace(job.model, feed_forwards=mixed if "e" in mixed else ""),
                stack=replace(job.stack, features=features),
                dtype=random.choice(("bf16", "bf16", "fp8", "fp4")),
                train=random.choice(TRAINED),
                optimizer=random.choice(OPTIMIZERS),
                global_batch=random.choice((job.global_batch, job.global_batch, 2 * job.gpus)),
                limits=replace(job.limits, fixed={**job.limits.fixed, **shard}),
            )
        except InputError:  # the device has no units for the format
            continue


def squeezed(job: Job, random: Random) -> Job:
    """The job with as much memory as some plan of it asks for between all and nothing that may be spared; itself where
    it has no plan.
    """
    plans = [plan for some in lattice(job, structural(job)) for plan in some.plans()]
    if not plans:
        return job
    plan = random.choice(plans)
    lean = plan.lying(Placement())
    full = plan.lying(Placement(recomputed=(0,) * plan.pp)) if plan.recompute == "full" else lean
    host = at_most_offload(layer_costs_of(job, Plans.of([lean])))
    most, least = reserved_memory(job, Plans.of([full]))[0], reserved_memory(job, Plans.of([lean]), host)[0]
    share = random.uniform(-0.05, 1.0) ** 2 if random.random() < 0.5 else random.uniform(-0.05, 1.0)
    wanted = float(np.interp(share, (-0.05, 1.0), (least * 0.97, most)))
    hbm = wanted * job.usable_memory / safe_memory(job) + job.stack["context_memory"]
    return job.with_limits(hbm=min(hbm, job.cluster.device.memory))
