"""What sweeps of published runs say of the plans of a software among each other: which of them take longer than priced.

Runs of one software on one device that differ in their plans err alike where their plans are alike. Parts of an error
that all plans of a job share order nothing, and what a prediction makes of the GPUs does not count here: so that faster
hardware makes every plan faster, whatever its neighbours measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from optimizer.catalog.belief import swept_errors
from optimizer.job.job import Job
from optimizer.job.known import TIME
from optimizer.job.plan import Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.likeness import ORDERING, fading, same_layer, squares
from optimizer.objectives.belief.places import EASY_MFU, layer_columns, place, plan_columns, software_of

BLOCK = 1 << 12  # plans that are looked up together


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanSweep:
    """Runs of one software on one device, with different plans: one row each."""

    size: FloatArray  # doublings of width, parameters, GPUs and tokens of a sequence [1]
    plan: FloatArray  # as plan_columns has them [1]
    pull: FloatArray  # by how much each moves what is believed of a plan just like its own [1]

    def at(self, size: FloatArray, plans: FloatArray) -> FloatArray:
        """What is believed of log(measured / predicted) by plans of jobs of a size, but for what all of them share [1].

        sum_j pull_j (v_p m(r_ij) + v_l m(l_ij)) / (v_p + v_l), m being the Matérn function, r_ij the distance in size
        and in plan, l_ij that of the layers and v_p, v_l the variances of what plans and layers share, as
        optimizer.objectives.belief.likeness has them.
        """
        alike = likeness(TIME)
        far = squares(size[None], self.size)[0] / alike.size**2
        plan, layer = (alike.parts[name] ** 2 / alike.ordering for name in ORDERING)
        shapes, of_plan = np.unique(layer_columns(size, plans), axis=0, return_inverse=True)
        shared = layer * (same_layer(shapes, layer_columns(self.size, self.plan)) @ self.pull)
        blocks = [plans[start : start + BLOCK] for start in range(0, len(plans), BLOCK)]
        near = [plan * fading(far + squares(block, self.plan) / alike.plan**2) @ self.pull for block in blocks]
        return np.concatenate(near) + shared[of_plan] if near else np.zeros(0)


def order_factor(job: Job, plans: Plans) -> FloatArray:
    """How much longer each plan is believed to take than is priced, but for what is believed of all of them [1].

    1 for software and devices of which nobody published a sweep; below 1 where runs like it took less.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("nanotron-2024"),
    ...     gpus=256, seq_len=4096, global_batch=256)
    >>> plans = Plans.of([Plan(tp=8, dp=32, micro_batch=2), Plan(tp=32, dp=8, micro_batch=2)])
    >>> within, across = order_factor(job, plans)
    >>> bool(across > 1.0 > within)
    True
    """
    sweep = sweep_of(software_of(job.stack), job.cluster.device.name)
    if sweep is None:
        return np.ones(len(plans))
    size = np.array(place(job, None, EASY_MFU).size)
    return np.asarray(np.exp(sweep.at(size, plan_columns(plans))))


@lru_cache(maxsize=8)
def sweep_of(software: str, device: str) -> PlanSweep | None:
    """The published sweep of a software without its release on a device, None where there is none."""
    rows = swept_errors(software, device)
    if not rows:
        return None
    return PlanSweep(
        size=np.array([row.size for row in rows]),
        plan=np.array([row.plan for row in rows]),
        pull=np.array([row.pull for row in rows]),
    )
