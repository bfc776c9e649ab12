"""A small campaign and a planner that answers at once, for tests of the outer search."""

from __future__ import annotations

from typing import Any

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.offers import PriceBook, quote
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import model_flops
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, TrainingRun
from optimizer.purchase.designs.outer import Grid

KINDS = ("h100", "b200", "mi300x")


def quick_planner(job: Job) -> Answer:
    """A made-up plan whose MFU falls with the GPUs per sequence and rises with the network."""
    network = job.cluster.tiers[1].bandwidth / 50e9
    mfu = 0.55 / (1.0 + job.gpus / job.global_batch / 40.0 / network**0.5)
    flops = model_flops(job.model, job.seq_len, job.tokens)
    step = flops / (mfu * job.gpus * job.peak_flops)
    gemm = flops / (0.75 * job.gpus * job.peak_flops)
    estimate = Estimate(
        step_time=step,
        mfu=mfu,
        hfu=mfu,
        flops_per_gpu=flops / step / job.gpus,
        tokens_per_s_per_gpu=job.tokens / step / job.gpus,
        bubble_fraction=0.05,
        time={"gemm": gemm, "tp_communication": 0.7 * (step - gemm), "bubble": 0.3 * (step - gemm)},
        memory={"weights": 40e9, "activations": 20e9},
        reserved=60e9,
        allocated=58e9,
        all_hidden=0.9 * step,
        none_hidden=1.1 * step,
    )
    plan = Plan(tp=8, pp=8, dp=max(1, job.gpus // 64), num_microbatches=16, sequence_parallel=True)
    return Answer(status="optimal", job=job, plan=plan, estimate=estimate)


def no_plan(job: Job) -> Answer:
    """A planner that never finds a plan."""
    return Answer(status="infeasible", job=job)


def campaign(**changes: Any) -> Campaign:
    """Llama 3.1 405B on 15.6 trillion tokens, rented."""
    run = TrainingRun(model=load_model("llama3.1-405b"), tokens=15.6e12, seq_len=8192, global_batch=2048)
    values: dict[str, Any] = {"runs": (run,), "stack": load_stack("megatron-core"), "assumptions": assumptions(False)}
    return Campaign(**values | changes)


def rented_at(**prices: float) -> PriceBook:
    """The price book behind a quote for each kind of machine, named with underscores [USD/s per GPU]."""
    clusters = {kind: load_cluster(kind.replace("_", "-")) for kind in prices}
    return PriceBook().with_quotes(
        [
            quote(clusters[kind].device.name, "on_demand", price, cluster=clusters[kind].name, row="a test")
            for kind, price in prices.items()
        ]
    )


def kinds(*names: str) -> tuple[Design, ...]:
    """One design of each kind of machine."""
    return tuple(Design(kind=name, cluster=load_cluster(name), gpus=1) for name in names or KINDS)


def grid(*names: str, gpus: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384), **axes: Any) -> Grid:
    """A grid over kinds and counts."""
    return Grid(kinds=kinds(*names), gpus=gpus, **axes)
