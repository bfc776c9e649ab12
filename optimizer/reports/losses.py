"""From the peak of the GPUs down to the MFU, each loss named; the losses and the MFU add up to one."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.base.content import content
from optimizer.job.job import Job
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import job_score_flops
from optimizer.reports.terms import label

PRODUCTS = ("gemm", "head")  # terms of matrix products
ATTENTION = "attention"


@dataclass(frozen=True, kw_only=True)
class StepLoss:
    """A loss between the peak and the MFU: its `share` of the step [1], what it is, and in a few words why."""

    name: str
    label: str
    share: float
    about: str = ""


def losses(job: Job, estimate: Estimate) -> tuple[StepLoss, ...]:
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
    scores = job_score_flops(job) * job.tokens / (job.gpus * job.peak_flops * step)
    attention = estimate.time.get(ATTENTION, 0.0) / step - scores
    products = sum(estimate.time.get(name, 0.0) for name in PRODUCTS) / step - (estimate.hfu - scores)
    shares = [("products", "products below peak", products), (ATTENTION, "attention below peak", attention)]
    if estimate.hfu > estimate.mfu:
        shares.append(("recomputation", "recomputation", estimate.hfu - estimate.mfu))
    others = [(name, value) for name, value in estimate.time.items() if name not in (*PRODUCTS, ATTENTION) and value]
    shares += [(name, label(name), value / step) for name, value in sorted(others, key=lambda item: -item[1])]
    about = content("optimizer.reports", "words.toml")["losses"]
    return tuple(
        StepLoss(name=name, label=title, share=share, about=about.get(name, "")) for name, title, share in shares
    )
