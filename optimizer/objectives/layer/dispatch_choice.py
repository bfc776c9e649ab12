"""Which dispatchers a plan may gain by: those that no other one beats for its mixtures, all else being equal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.kernels.operators import Shapes, layer_operators
from optimizer.objectives.layer.messages import expert_messages, proxied_calls
from optimizer.objectives.layer.seconds import layer_time
from optimizer.objectives.network.messages import BACKWARD, FORWARD
from optimizer.variables import DISPATCHERS

KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel")
Rows = NDArray[np.int64]


def useful_dispatchers(job: Job, columns: Mapping[str, Rows]) -> tuple[Rows, Rows]:
    """Rows and an index of DISPATCHERS for each, a row once for every dispatcher that it may gain by.

    A dispatcher is left out where another one costs the host as much for a call and shows no more of its exchange in
    either pass: every time of a step grows with these, and what hides under a pass that waits for the host does not
    shrink. Where the exchange may run beside another micro-batch, the other one must exchange no longer either and hold
    no more multiprocessors. Of several alike the first stays. Of those that the stack offers and the job allows.
    """
    count = len(columns["ep"])
    offered = [name for name in job.stack.dispatchers if name in job.limits.choices.get("dispatcher", DISPATCHERS)]
    if job.model.experts is None or not offered or offered == [DISPATCHERS[0]]:
        return np.arange(count), np.zeros(count, dtype=np.int64)
    table = np.stack([columns[key].astype(np.int64) for key in KEYS])
    few, places = np.unique(table, axis=1, return_inverse=True)
    useful = _undominated(np.stack([_costs(job, few, name) for name in offered]))
    useful[:, few[2] == 1] = False
    taken, which = np.nonzero(useful.T[places.ravel()])
    alone = np.flatnonzero(columns["ep"] == 1)
    rows = np.concatenate([taken, alone])
    chosen = np.concatenate([np.array([DISPATCHERS.index(name) for name in offered])[which], np.zeros_like(alone)])
    order = np.argsort(rows, kind="stable")
    return rows[order], chosen[order]


def _undominated(costs: FloatArray) -> BoolArray:
    """Which dispatchers (rows) no other one beats at each shape; costs: dispatcher x (call, what must be no more)."""
    useful = np.ones((len(costs), costs.shape[2]), dtype=np.bool_)
    for one in range(len(costs)):
        for other in range(len(costs)):
            if one == other:
                continue
            no_worse = np.all(costs[other, 1:] <= costs[one, 1:], axis=0) & (costs[other, 0] == costs[one, 0])
            alike = np.all(costs[other] == costs[one], axis=0)
            useful[one] &= ~(no_worse & (~alike | (other < one)))
    return useful


def _costs(job: Job, few: Rows, dispatcher: str) -> FloatArray:
    """What a call costs the host, and what of the exchange of one mixture shows in its forward and its backward pass.

    Where it may run beside another micro-batch, how long it takes in either pass, and the multiprocessors that it holds
    meanwhile. One row each [s], one column for every distinct shape.
    """
    tp, cp, ep, etp, micro_batch = few[:5].astype(np.float64)
    shapes = Shapes(
        tp=tp,
        cp=cp,
        ep=ep,
        etp=etp,
        micro_batch=micro_batch,
        sequence_parallel=few[5] > 0,
        seq_len=job.seq_len,
        dispatcher=np.full(few.shape[1], DISPATCHERS.index(dispatcher)),
    )
    time = layer_time(job, layer_operators(job.model, shapes, job.stack, True), shapes, True, modules=False)
    rows = [proxied_calls(job, shapes), *(phase.terms["ep_communication"] for phase in (time.forward, time.backward))]
    if job.stack.features.offers_overlap:
        messages = list(expert_messages(job, shapes))
        for phase in (FORWARD, BACKWARD):
            rows.append(sum((each.seconds(job) for each in messages if each.phase == phase), np.zeros_like(tp)))
        rows.append(np.asarray(messages[0].taken))
    return np.stack([row + np.zeros_like(tp) for row in rows])
