"""The network between nodes slower than its catalogue says."""

from __future__ import annotations

from dataclasses import replace

from optimizer.diagnose.causes.cause import Cause, Test, log_uniform
from optimizer.diagnose.causes.question import Question

WORST, BAD = 0.02, 0.07


def seconds(question: Question, share: float) -> float:
    """The step with every tier beyond the node at this share of its bandwidth [s].

    share of the catalogue rate of each link [1]; what the software makes of it in training stays the stack's.
    """
    cluster = question.job.cluster
    inner, *outer = cluster.tiers
    slowed = [replace(tier, link=tier.link.scaled(share * tier.link.bandwidth)) for tier in outer]
    return question.seconds(replace(question.job, cluster=replace(cluster, tiers=(inner, *slowed))))


def absent(question: Question) -> str:
    """Why there is no such network in the run, "" where there is."""
    return "the run stays inside one scale-up domain" if question.job.gpus <= question.job.cluster.scale_up_size else ""


CAUSE = Cause(
    name="network",
    label="network between nodes",
    seconds=seconds,
    healthy=lambda question: 1.0,
    worst=lambda question: WORST,
    settings=lambda question: log_uniform(BAD, 0.9),
    why="any factor down to 7 % as likely as the next: all-reduces timed beside published runs of nanotron reach 7 % "
    "to 100 % of the usual; one of two rails lost is 50 %",
    says=lambda share: f"the network between nodes runs at {share:.0%} of its catalogue rate",
    test=Test(
        what="all_reduce_perf of nccl-tests over the same nodes, 1 GB messages",
        minutes=3.0,
        shows=lambda share: f"bus bandwidth of about {share:.0%} of what the link should give",
    ),
    # Congestion by others comes and goes within tens of seconds to hours (Wu et al., arXiv 2410.12588); a lost port or
    # a fallback to TCP is steady.
    signs={
        "motion": {"steady": 0.5, "jitter": 0.15, "wander": 0.35},
        "floor": {"above": 0.85, "reached": 0.15},
        "tail": {"even": 0.5, "skewed": 0.3, "stalls": 0.16, "standstill": 0.04},
    },
    prior_odds=2.0,  # cross-node communication is the most frequent slow part, Wu et al., arXiv 2410.12588, section 3
    absent=absent,
)
