"""The causes that are tried, one at a time: what can make a run slower than its plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optimizer.base.units import US
from optimizer.base.units import seconds as shown
from optimizer.calibration.predict import with_parameters
from optimizer.diagnose.causes.cause import DRAWS, Cause, SlowStep, Test, exponential, log_uniform
from optimizer.job.stack import PARAMETERS
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.formula import COMPUTE, STREAM
from optimizer.objectives.step.time_terms import burning

WORST_SHARE, BAD_SHARE = 0.02, 0.07  # of the bandwidth between nodes
SLOWEST_LAUNCH = 1e-4  # s
SLOWEST_NODE, USUAL_SLOWDOWN = 3.0, 0.15  # of the computation of a step
LOWEST_CLOCKS, USUAL_LOSS = 0.4, 0.15  # of the clocks
OVERLAPS = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "p2p_overlap")
SWITCHED = 0.6  # of the runs without overlap, those in which it is off altogether
MOST_IMBALANCE, USUAL_IMBALANCE = 8.0, 4.0
LONGEST_WAIT, USUAL_WAIT = 10.0, 0.3  # of the predicted step


def with_slow_network(question: SlowStep, share: float) -> float:
    """The step with every tier beyond the node at this share of its bandwidth [s].

    share of the catalogue rate of each link [1]; what the software makes of it in training stays the stack's.
    """
    cluster = question.job.cluster
    inner, *outer = cluster.tiers
    slowed = [replace(tier, link=tier.link.scaled(share * tier.link.bandwidth)) for tier in outer]
    return question.seconds(replace(question.job, cluster=replace(cluster, tiers=(inner, *slowed))))


def no_network(question: SlowStep) -> str:
    """Why there is no such network in the run, "" where there is."""
    return "the run stays inside one scale-up domain" if question.job.gpus <= question.job.cluster.scale_up_size else ""


# The network between nodes slower than its catalogue says.
NETWORK = Cause(
    name="network",
    label="network between nodes",
    seconds=with_slow_network,
    healthy=lambda question: 1.0,
    worst=lambda question: WORST_SHARE,
    settings=lambda question: log_uniform(BAD_SHARE, 0.9),
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
    absent=no_network,
)


def no_launches(question: SlowStep) -> str:
    """Why launches cannot matter, "" where they can."""
    return "graphs are replayed without the host" if question.job.stack.features.cuda_graphs else ""


# A host that launches kernels too slowly.
HOST_LAUNCHES = Cause(
    name="launches",
    label="host launches",
    seconds=lambda question, launch: question.with_stack(launch=launch),
    healthy=lambda question: question.job.stack["launch"],
    worst=lambda question: PARAMETERS["launch"].high,
    settings=lambda question: log_uniform(
        question.job.stack["launch"], max(SLOWEST_LAUNCH, question.job.stack["launch"])
    ),
    why="any factor up to 100 us as likely as the next: stacks fitted to published runs need 4 to 86 us for a kernel",
    says=lambda launch: f"the host takes {launch / US:.3g} us to launch a kernel",
    test=Test(
        what="one step under nsys or the PyTorch profiler",
        minutes=5.0,
        shows=lambda launch: f"the GPU idles between kernels, which start about {launch / US:.3g} us apart",
    ),
    # Python's pauses and other processes on the CPU hit single steps; garbage collection adds a tail.
    signs={
        "motion": {"steady": 0.4, "jitter": 0.5, "wander": 0.1},
        "tail": {"even": 0.55, "skewed": 0.3, "stalls": 0.13, "standstill": 0.02},
    },
    absent=no_launches,
)


def with_slow_node(question: SlowStep, slower: float) -> float:
    """The step when one node computes `slower` times longer, minus one: predicted + slower x computation [s].

    Computation is the slowest stage's, on every micro-batch; its wait for the other stages stays, since they are as
    fast as before.
    """
    terms = question.terms
    return question.predicted + slower * sum(terms[name] for name in (*burning(COMPUTE), *burning(STREAM)))


def no_slow_node(question: SlowStep) -> str:
    """Why no node can be slower than another, "" where one can."""
    return "the run has one node" if question.job.gpus <= question.job.cluster.gpus_per_node else ""


# One node that computes slower than the others, for which all wait.
STRAGGLER = Cause(
    name="straggler",
    label="one slow node",
    seconds=with_slow_node,
    healthy=lambda question: 0.0,
    worst=lambda question: SLOWEST_NODE,
    settings=lambda question: exponential(USUAL_SLOWDOWN, SLOWEST_NODE),
    why="15 % on average, exponential (assumed): slow hosts of Jiang et al., arXiv 2402.15627, section 6.3, are about "
    "10 % slower, throttled ones more",
    says=lambda slower: f"one node computes {slower:.0%} longer than the others",
    test=Test(
        what="the same matrix product timed on every node, or the times of every rank in the log "
        "(--timing-log-option all in Megatron-LM)",
        minutes=2.0,
        shows=lambda slower: f"one node takes about {slower:.0%} longer than the rest",
    ),
    # Heat and contention on one host come and go within tens of seconds to hours (Wu et al., arXiv 2410.12588); some
    # hosts are always slower (Jiang et al., arXiv 2402.15627, section 6.3).
    signs={
        "motion": {"steady": 0.45, "jitter": 0.12, "wander": 0.43},
        "floor": {"above": 0.85, "reached": 0.15},
        "tail": {"even": 0.6, "skewed": 0.25, "stalls": 0.12, "standstill": 0.03},
        "trend": {"flat": 0.84, "rises": 0.1, "falls": 0.06},
    },
    absent=no_slow_node,
)


def at_lower_clocks(question: SlowStep, share: float) -> float:
    """The step with matrix products and attention at this share of their rate [s]; HBM and links have other clocks."""
    stack = question.job.stack
    return question.with_stack(
        gemm_efficiency=share * stack["gemm_efficiency"], attention_efficiency=share * stack["attention_efficiency"]
    )


# All GPUs at lower clocks than they should run: a power cap, or heat.
CLOCKS = Cause(
    name="clocks",
    label="GPU clocks",
    seconds=at_lower_clocks,
    healthy=lambda question: 1.0,
    worst=lambda question: LOWEST_CLOCKS,
    settings=lambda question: 1.0 - exponential(USUAL_LOSS, 1.0 - LOWEST_CLOCKS),
    why="15 % lost on average, exponential (assumed): capped or hot GPUs run between their base and boost clocks, and "
    "the usual throttling is in the stack already",
    says=lambda share: f"all GPUs run at {share:.0%} of the clocks that they should hold",
    test=Test(
        what="nvidia-smi --query-gpu=clocks.sm,power.draw,clocks_event_reasons.active --format=csv on every node "
        "while it trains (rocm-smi -c on AMD)",
        minutes=1.0,
        shows=lambda share: f"SM clocks of all GPUs at about {share:.0%} of those in the vendor's benchmark",
    ),
    # A cap is steady; heat builds up over the first minutes.
    signs={
        "motion": {"steady": 0.75, "jitter": 0.07, "wander": 0.18},
        "trend": {"flat": 0.7, "rises": 0.28, "falls": 0.02},
    },
)


def without_overlap(question: SlowStep, lost: float) -> float:
    """The step when this share of what the stack hides is not hidden [s]."""
    stack = question.job.stack
    return question.with_stack(**{name: (1.0 - lost) * stack[name] for name in OVERLAPS})


def lost_overlap(question: SlowStep) -> FloatArray:
    """All of the overlap lost in most runs that have this fault, any part of it in the others."""
    some = round((1.0 - SWITCHED) * DRAWS)
    return np.concatenate([(np.arange(some) + 0.5) / some, np.ones(DRAWS - some)])


# Communication that should hide under computation, and does not.
OVERLAP = Cause(
    name="overlap",
    label="no overlap",
    seconds=without_overlap,
    healthy=lambda question: 0.0,
    worst=lambda question: 1.0,
    settings=lost_overlap,
    why="a switch: all of it lost in 60 % of the runs that have this fault, any part of it in the others (assumed)",
    says=lambda lost: (
        "no communication is hidden under computation"
        if lost > 0.97
        else f"{lost:.0%} of the communication that should hide under computation does not"
    ),
    test=Test(
        what="look for the overlap flags in the script and the printed settings (--overlap-grad-reduce, "
        "--overlap-param-gather, --tp-comm-overlap; overlap_comm in DeepSpeed), and one step under nsys",
        minutes=0.5,
        shows=lambda lost: "a flag is missing, or NCCL kernels run with no kernel beside them",
    ),
    # A missing flag is there from the first step to the last.
    signs={"motion": {"steady": 0.86, "jitter": 0.08, "wander": 0.06}, "overlap": {"on": 0.1, "off": 0.9}},
)


def with_imbalance(question: SlowStep, imbalance: float) -> float:
    """The step when the busiest expert rank gets this many times the mean [s]."""
    stack = with_parameters(question.job.stack, {"expert_imbalance": imbalance})
    features = replace(stack.features, balanced_experts=False)
    return question.seconds(replace(question.job, stack=replace(stack, features=features)))


def no_routing(question: SlowStep) -> str:
    """Why routing cannot matter, "" where it can."""
    if question.job.model.experts is None:
        return "the model has no experts"
    return "every rank holds all experts" if question.plan.ep == 1 else ""


# Experts of an MoE model that get more tokens than others.
ROUTING = Cause(
    name="routing",
    label="routing imbalance",
    seconds=with_imbalance,
    healthy=lambda question: question.job.stack.imbalance,
    worst=lambda question: MOST_IMBALANCE,
    settings=lambda question: log_uniform(question.job.stack.imbalance, USUAL_IMBALANCE),
    why="any factor up to 4 as likely as the next (assumed): real routing of Qwen3-235B takes 1.15 to 1.25 x the time "
    "of even routing (best_practice/qwen3 of the ModelZoo), that of an untrained router far more",
    says=lambda imbalance: f"the busiest expert rank gets {imbalance:.2g} x the mean number of tokens",
    test=Test(
        what="20 steps with routing forced to be even (--moe-router-force-load-balancing in Megatron-LM)",
        minutes=5.0,
        shows=lambda imbalance: "the step falls to what is predicted",
    ),
    # Every batch is routed differently, and balancing losses even the load out over the first thousands of steps.
    signs={
        "motion": {"steady": 0.35, "jitter": 0.45, "wander": 0.2},
        "tail": {"even": 0.6, "skewed": 0.28, "stalls": 0.1, "standstill": 0.02},
        "trend": {"flat": 0.5, "rises": 0.05, "falls": 0.45},
    },
    absent=no_routing,
)


def with_waits(question: SlowStep, wait: float) -> float:
    """The step when it waits so long for its batch, mean over the steps [s]."""
    return question.with_stack(step_overhead=question.job.stack["step_overhead"] + wait)


# Steps that wait for their data.
DATA_LOADING = Cause(
    name="data",
    label="data loading",
    seconds=with_waits,
    healthy=lambda question: 0.0,
    worst=lambda question: LONGEST_WAIT * question.predicted,
    settings=lambda question: question.predicted * exponential(USUAL_WAIT, LONGEST_WAIT),
    why="30 % of a step on average, exponential (assumed): Mohan et al., arXiv 2007.06775, find steps that wait for "
    "most of their time; text needs less work than images",
    says=lambda wait: f"every step waits {shown(wait)} for its data on average",
    test=Test(
        what="20 steps on made-up data (--mock-data in Megatron-LM, the mock data module in NeMo)",
        minutes=4.0,
        shows=lambda wait: "the step falls to what is predicted",
    ),
    # Loaders fall behind and catch up: some steps find their batch ready, others stand still.
    signs={
        "motion": {"steady": 0.3, "jitter": 0.55, "wander": 0.15},
        "tail": {"even": 0.2, "skewed": 0.3, "stalls": 0.3, "standstill": 0.2},
        "floor": {"above": 0.35, "reached": 0.65},
        "loaders": {"some": 0.5, "none": 0.5},
    },
)


CAUSES: tuple[Cause, ...] = (NETWORK, HOST_LAUNCHES, STRAGGLER, CLOCKS, OVERLAP, ROUTING, DATA_LOADING)
