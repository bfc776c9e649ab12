"""Planners that know next to nothing, so that the figures have a scale.

python -m bench.planners.baselines NAME > predictions.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from bench.planners.score import FORMAT, HERE, read

MFU = 0.4
STATE_BYTES = 18  # weights, gradients and both moments of Adam in mixed precision, per parameter [B]


def constant(job: Mapping[str, Any]) -> float:
    """6 FLOP per active parameter and token at 40 % of the peak, whatever the plan [s]."""
    tokens = job["global_batch"] * job["seq_len"]
    return float(6 * job["model"]["active_parameters"] * tokens / (MFU * job["device"]["peak_flops"] * job["gpus"]))


def bubbled(job: Mapping[str, Any]) -> float:
    """The same with attention scores, a second forward pass where all is recomputed, and the pipeline's bubble [s].

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.1 and equation 3.
    """
    plan, model = job["plan"], job["model"]
    scores = 1 + job["seq_len"] / (6 * model["hidden"])
    passes = 4 / 3 if plan["recompute"] == "full" else 1.0
    bubble = 1 + (plan["pp"] - 1) / (plan["vpp"] * plan["num_microbatches"])
    return float(constant(job) * scores * passes * bubble)


def fits(job: Mapping[str, Any]) -> bool:
    """Whether weights, gradients and optimizer, split over all ranks of a replica, leave some memory."""
    plan = job["plan"]
    ranks = job["gpus"] if plan["zero_stage"] == 3 else plan["tp"] * plan["pp"] * max(1, plan["ep"])
    return bool(STATE_BYTES * job["model"]["parameters"] / ranks < job["device"]["memory_bytes"])


BASELINES: Mapping[str, Callable[[Mapping[str, Any]], float]] = {"constant": constant, "bubble": bubbled}
TITLES = {"constant": "6 N D at 40% of the peak", "bubble": "6 N D, scores, recomputation and bubble at 40%"}


def predictions(name: str) -> dict[str, Any]:
    """What a baseline says of every job."""
    jobs = read(HERE / "jobs.json", "jobs")
    said = [{"id": job["id"], "step_time_s": BASELINES[name](job), "fits": fits(job)} for job in jobs]
    return {"format": FORMAT, "planner": TITLES[name], "predictions": said}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in BASELINES:
        sys.exit(f"usage: python -m bench.planners.baselines {{{','.join(BASELINES)}}}")
    print(json.dumps(predictions(sys.argv[1]), indent=1))
