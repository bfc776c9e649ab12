"""After nodes were lost: the best plan on the GPUs that are left, and whether tp and pp can stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.answer.answer import plan_dict
from optimizer.base.errors import InputError
from optimizer.job.job import TIME, Job
from optimizer.job.plan import Plan
from optimizer.objectives.minimised.registry import objective_of
from optimizer.search.plan.best import Best, best_plan

OTHER_BATCH = 0.1  # how far the batch may move to be divisible by the replicas that are left
LARGER_MFU = 1.02  # fewer GPUs are taken to be at most so much better used than all of them
MOST_COUNTS = 24  # numbers of GPUs tried per loss, largest first


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What is left after losing `nodes`: the best plan with the tp, cp and pp of the whole cluster's, and the best of
    any shape; None where there is none. `before` is the whole cluster's.
    """

    nodes: int
    gpus: int
    before: Best
    same_shape: Best | None
    best: Best | None

    def loss(self, after: Best) -> float:
        """Share of the tokens for a unit of what is minimised, such as a second, that is lost with this plan."""
        return 1 - after.worth / self.before.worth

    def to_dict(self) -> dict[str, Any]:
        """The loss as plain values."""
        return {
            "lost_nodes": self.nodes,
            "gpus_left": self.gpus,
            "lost_share_of_gpus": 1 - self.gpus / self.before.job.gpus,
            "same_shape": self._option(self.same_shape),
            "best": self._option(self.best),
        }

    def _option(self, after: Best | None) -> dict[str, Any] | None:
        if after is None:
            return None
        per = objective_of(after.job).per
        return {
            "gpus": after.job.gpus,
            "idle_gpus": self.gpus - after.job.gpus,
            "global_batch": after.job.global_batch,
            "step_time_s": after.estimate.step_time,
            "mfu": after.estimate.mfu,
            "lost_throughput" if after.job.minimize == TIME else f"lost_tokens_per_{per}": self.loss(after),
            "plan": plan_dict(after.plan),
        }


def losses(job: Job, lost_nodes: Sequence[int]) -> tuple[Loss, ...]:
    """The best plans after each of these losses, each at its own knobs; empty when the job has no plan.

    Raises InputError for a loss that is not between one node and all but one GPU.
    """
    left = [job.gpus - nodes * job.cluster.gpus_per_node for nodes in lost_nodes]
    for nodes, gpus in zip(lost_nodes, left, strict=True):
        if nodes < 1 or gpus < 1:
            node, most = job.cluster.gpus_per_node, (job.gpus - 1) // job.cluster.gpus_per_node
            raise InputError(
                f"cannot lose {nodes} node{'s' * (nodes != 1)} of {node} GPUs out of {job.gpus:,} GPUs; "
                + (f"give 1 to {most}" if most else "nothing would be left")
            )
    before = best_plan(job)
    if before is None:
        return ()
    search, after = _once(best_plan), []
    for nodes, gpus in zip(lost_nodes, left, strict=True):
        alike = _best(before, _same_shape(job, before.plan, gpus), search)
        other = _best(before, _any_shape(job, gpus), search, alike)
        after.append(Loss(nodes=nodes, gpus=gpus, before=before, same_shape=alike, best=other))
    return tuple(after)


Search = Callable[[Job], Best | None]


def _once(search: Search) -> Search:
    """The search, once for each number of GPUs, batch and pins: losses of one node and of two try nearly the same."""
    answers: dict[tuple[int, int, str], Best | None] = {}

    def known(job: Job) -> Best | None:
        key = job.gpus, job.global_batch, repr(job.limits.fixed)
        if key not in answers:
            answers[key] = search(job)
        return answers[key]

    return known


def _best(before: Best, jobs: Iterable[Job], search: Search, best: Best | None = None) -> Best | None:
    """The best of the jobs, which come with ever fewer GPUs; those too small to beat the best so far are not tried.

    Fewer GPUs do fewer tokens a second, but need not do fewer a joule or a dollar.
    """
    per_gpu = LARGER_MFU * before.worth / before.job.gpus if before.job.minimize == TIME else float("inf")
    tried: set[int] = set()
    for job in jobs:
        tried.add(job.gpus)
        if len(tried) > MOST_COUNTS or (best is not None and job.gpus * per_gpu <= best.worth):
            break
        candidate = search(job)
        if candidate is not None and (best is None or candidate.worth > best.worth):
            best = candidate
    return best


def _same_shape(job: Job, plan: Plan, gpus: int) -> Iterator[Job]:
    """Fewer and fewer replicas of the same tp x cp x pp, each with the batches next to the job's that it divides."""
    shape: dict[str, int | str | bool] = {"tp": plan.tp, "cp": plan.cp, "pp": plan.pp}
    replica = plan.tp * plan.cp * plan.pp
    # What was pinned for the whole cluster cannot hold on a part of it.
    fixed = {name: value for name, value in job.limits.fixed.items() if name not in ("dp", "num_microbatches", "shard")}
    smaller = job.with_limits(fixed={**fixed, **shape})
    for replicas in range(gpus // replica, 0, -1):
        for batch in batches(job.global_batch, replicas, plan.pp):
            yield replace(smaller, gpus=replicas * replica, global_batch=batch)


def _any_shape(job: Job, gpus: int) -> Iterator[Job]:
    """Fewer and fewer whole nodes with the job's own batch."""
    node = job.cluster.gpus_per_node
    for count in range(gpus // node * node, 0, -node):
        yield replace(job, gpus=count)


def batches(batch: int, replicas: int, pp: int) -> tuple[int, ...]:
    """Batches within 10 % that the replicas divide: the nearest, and the nearest in whole rounds of interleaving.

    >>> batches(1536, 31, 8), batches(1536, 32, 8)
    ((1550, 1488), (1536,))
    """
    near = [unit * round(batch / unit) for unit in (replicas, replicas * pp)]
    return tuple(dict.fromkeys(other for other in near if other and abs(other - batch) <= OTHER_BATCH * batch))
