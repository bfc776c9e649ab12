"""From the peak of the GPUs down to the MFU, each loss named; the losses and the MFU add up to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.job.job import Job
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import causal_score_flops
from optimizer.reports.terms import label

PRODUCTS = ("gemm", "head")  # terms of matrix products
ATTENTION = "attention"
ABOUT: Mapping[str, str] = {
    "products": "matrix products run below the peak",
    "attention": "attention runs below the peak",
    "recomputation": "operations that are done twice to save memory",
    "elementwise": "norms, activations and residuals wait for memory",
    "launch": "the host starts kernels",
    "tp_communication": "tensor-parallel messages that show",
    "cp_communication": "context-parallel messages that show",
    "ep_communication": "tokens on their way to experts",
    "host_transfer": "activations on their way to the host and back",
    "pp_communication": "pipeline messages that show",
    "dp_communication": "gradients and weights that show",
    "bubble": "stages wait for each other",
    "contention": "kernels slowed by messages beside them",
    "optimizer": "the update of the weights",
    "overhead": "host time of every step",
    "stragglers": "all wait for the slowest",
}


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss between the peak and the MFU: its `share` of the step [1], what it is, and in a few words why."""

    name: str
    label: str
    share: float
    about: str = ""


def losses(job: Job, estimate: Estimate) -> tuple[Loss, ...]:
    """Every loss in the order in which it is taken off the peak: products, attention, recomputation, then by size.

    A second in which GPUs multiply at their peak is no loss, so that products and attention lose what they take above
    the time that their useful operations take at the peak.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> one = Estimate(step_time=10.0, mfu=0.5, hfu=0.6, flops_per_gpu=0.0, tokens_per_s_per_gpu=0.0,
    ...     bubble_fraction=0.0, time={"gemm": 8.0, "attention": 1.0, "bubble": 1.0}, memory={}, reserved=0.0,
    ...     allocated=0.0, all_hidden=0.0, none_hidden=0.0)
    >>> found = losses(job, one)
    >>> round(one.mfu + sum(loss.share for loss in found), 9), found[-1].name, found[-1].share
    (1.0, 'bubble', 0.1)
    """
    step = estimate.step_time
    scores = causal_score_flops(job.model, job.seq_len) * job.tokens / (job.gpus * job.peak_flops * step)
    attention = estimate.time.get(ATTENTION, 0.0) / step - scores
    products = sum(estimate.time.get(name, 0.0) for name in PRODUCTS) / step - (estimate.hfu - scores)
    every = [
        Loss(name="products", label="products below peak", share=products, about=ABOUT["products"]),
        Loss(name=ATTENTION, label="attention below peak", share=attention, about=ABOUT[ATTENTION]),
    ]
    if estimate.hfu > estimate.mfu:
        recomputed = estimate.hfu - estimate.mfu
        every.append(Loss(name="recomputation", label="recomputation", share=recomputed, about=ABOUT["recomputation"]))
    others = [(name, value) for name, value in estimate.time.items() if name not in (*PRODUCTS, ATTENTION) and value]
    for name, value in sorted(others, key=lambda item: -item[1]):
        every.append(Loss(name=name, label=label(name), share=value / step, about=ABOUT.get(name, "")))
    return tuple(every)
