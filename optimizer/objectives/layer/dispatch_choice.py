"""Which dispatchers a plan may gain by: those that no other one beats for its MoE layers, all else being equal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from optimizer.job.job import Job
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.kernels.operators import layer_operators
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.dispatchers import runs_over
from optimizer.objectives.layer.drained_host import shown_launches
from optimizer.objectives.layer.messages import expert_messages
from optimizer.objectives.layer.seconds import BACKWARD_KERNELS, layer_time
from optimizer.objectives.network.messages import BACKWARD, FORWARD

KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel")
COSTS = ("elementwise", "ep_communication")
Rows = NDArray[np.int64]


def useful_dispatchers(job: Job, columns: Mapping[str, Rows]) -> tuple[Rows, Rows]:
    """Rows and an index of DISPATCHERS for each, a row once for every dispatcher that it may gain by.

    A dispatcher is left out where another one asks no more of the host, permutes no longer and shows no more of its
    all-to-all in either pass: every time of a step grows with these, and messages that lose a cover show no more of
    themselves than the cover has lost. Where the all-to-all may overlap with another micro-batch, that of the other
    one must take no longer either and hold no more multiprocessors. Of several alike the first stays. Of those that the
    stack offers, the job allows and whose kernels run over such a group of ranks.
    """
    count = len(columns["ep"])
    offered = [name for name in job.stack.dispatchers if name in job.limits.choices.get("dispatcher", DISPATCHERS)]
    if job.model.experts is None or not offered or offered == [DISPATCHERS[0]]:
        return np.arange(count), np.zeros(count, dtype=np.int64)
    table = np.stack([columns[key].astype(np.int64) for key in KEYS])
    few, places = np.unique(table, axis=1, return_inverse=True)
    runs = np.stack([runs_over(job, name, few[2], few[3]) for name in offered])
    costs = np.stack([_costs(job, few, name) for name in offered])
    useful = _undominated(np.where(runs[:, None], costs, np.inf)) & runs
    useful[:, few[2] == 1] = False
    taken, which = np.nonzero(useful.T[places.ravel()])
    alone = np.flatnonzero(columns["ep"] == 1)
    rows = np.concatenate([taken, alone])
    chosen = np.concatenate([np.array([DISPATCHERS.index(name) for name in offered])[which], np.zeros_like(alone)])
    order = np.argsort(rows, kind="stable")
    return rows[order], chosen[order]


def _undominated(costs: FloatArray) -> BoolArray:
    """Which dispatchers (rows) no other one beats at each shape; costs are dispatcher x what it costs x shape."""
    useful = np.ones((len(costs), costs.shape[2]), dtype=np.bool_)
    for one in range(len(costs)):
        for other in range(len(costs)):
            if one != other:
                no_worse = np.all(costs[other] <= costs[one], axis=0)
                alike = np.all(costs[other] == costs[one], axis=0)
                useful[one] &= ~(no_worse & (~alike | (other < one)))
    return useful


def _costs(job: Job, few: Rows, dispatcher: str) -> FloatArray:
    """What one MoE layer costs by this dispatcher, one row each, one column for every distinct shape [s].

    Element-wise kernels and what shows of the all-to-all, forward and backward, the host and its launches that show.
    Where it may overlap with another micro-batch, how long it takes in either pass, and the multiprocessors that it
    holds meanwhile [1].
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
    layer = layer_operators(job.model.kinds_with(True)[0].model, shapes, job.software, True, job.row_multiple)
    with np.errstate(invalid="ignore"):  # groups that no network joins take forever
        time = layer_time(job, layer, shapes, True, modules=())
    rows = [phase.terms[name] for name in COSTS for phase in (time.forward, time.backward)]
    rows += [time.host, shown_launches(job, layer, shapes, BACKWARD_KERNELS)]
    if job.stack.features.offers_overlap:
        messages = list(expert_messages(job, shapes))
        for which in (FORWARD, BACKWARD):
            rows.append(sum((each.seconds(job) for each in messages if each.phase == which), np.zeros_like(tp)))
        rows.append(np.asarray(messages[0].taken))
    return np.stack([row + np.zeros_like(tp) for row in rows])
