"""What a worker does with a task, on whatever machine it runs."""

from __future__ import annotations

import platform
import sys
from time import perf_counter

from optimizer.base.errors import OptimizerError
from optimizer.sweep.task import JobOutcome, Task, canonical
from optimizer.sweep.version import cost_model_version

FAILED = "failed"
NO_ANSWER = {"unknown": "the time limit passed before any plan was found; raise time_limit"}


def work(task: Task) -> JobOutcome:
    """Plan one job; whatever goes wrong becomes a failed outcome with its reason."""
    start = perf_counter()
    if task.version != cost_model_version():
        return failed(
            task,
            f"{platform.node()} has version {cost_model_version()} of the cost model, but the batch was started with "
            f"{task.version}; install the same version everywhere",
        )
    if task.job is None:
        return failed(task, task.problem)
    from optimizer.search.plan.planner import plan

    effort = task.effort
    try:
        answer = plan(task.job, top=effort.top, trials=effort.trials, time_limit=effort.time_limit, seed=effort.seed)
    except OptimizerError as error:
        return failed(task, str(error))
    except Exception as error:
        return failed(task, f"internal error: {type(error).__name__}: {error}")
    if answer.status in NO_ANSWER:
        return failed(task, NO_ANSWER[answer.status])
    result = answer.to_dict()
    # How long the search took is no part of its result, which is the same on every run.
    result.pop("search_s", None)
    return JobOutcome(
        key=task.key,
        status=answer.status,
        result=canonical(result),
        seconds=perf_counter() - start,
        memory=peak_memory(),
        host=platform.node(),
    )


def failed(task: Task, reason: str, attempts: int = 1) -> JobOutcome:
    """A task without an answer."""
    return JobOutcome(key=task.key, status=FAILED, error=reason, host=platform.node(), attempts=attempts)


def peak_memory() -> float:
    """Largest resident memory that this process had so far [B], 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
