"""How sure a gain is: by the errors of two predictions of one job, which are alike where the plans are."""

from __future__ import annotations

from math import log
from statistics import NormalDist

import numpy as np

from optimizer.improve.state import State
from optimizer.job.plan import Plans
from optimizer.objectives.belief.belief import errors_of
from optimizer.objectives.step.interval import mfu


def chance_to_gain(now: State, after: State) -> float:
    """The chance that a state trains on more tokens per second than what runs, once both are measured [1].

    P(e' - e < log g), g being the predicted throughput over that of today, and e', e the errors of the two predicted
    step times: normal, with the means and the covariance of optimizer.objectives.belief. Whether it
    fits is another chance.

    Args:
        now: What runs.
        after: Where an edit leads.
    """
    states = (now, after)
    shares = np.array([mfu(state.job, state.estimate.step_time) for state in states])
    mean, covariance = errors_of(now.job, Plans.of([state.plan for state in states]), shares)
    difference = NormalDist(mean[1] - mean[0], np.sqrt(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]))
    return difference.cdf(log(after.throughput / now.throughput))
