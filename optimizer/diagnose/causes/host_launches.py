"""A host that launches kernels too slowly."""

from __future__ import annotations

from optimizer.base.units import US
from optimizer.diagnose.causes.cause import Cause, Test, log_uniform
from optimizer.diagnose.causes.question import Question
from optimizer.job.stack import PARAMETERS

SLOWEST = 1e-4


def absent(question: Question) -> str:
    """Why launches cannot matter, "" where they can."""
    return "graphs are replayed without the host" if question.job.stack.features.cuda_graphs else ""


CAUSE = Cause(
    name="launches",
    label="host launches",
    seconds=lambda question, launch: question.with_stack(launch=launch),
    healthy=lambda question: question.job.stack["launch"],
    worst=lambda question: PARAMETERS["launch"].high,
    settings=lambda question: log_uniform(question.job.stack["launch"], max(SLOWEST, question.job.stack["launch"])),
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
    absent=absent,
)
