"""What a worker does with a task, on whatever machine it runs."""

from __future__ import annotations

import platform
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from optimizer.base.errors import OptimizerError
from optimizer.sweep.task import JobOutcome, Task, canonical

# Everything that an answer depends on besides the job itself, which is in the key of its result: the code that planning
# runs, the presets that it reads on the way, and the libraries that search.
PARTS = ("answer", "base", "catalog", "constraints", "job", "objectives", "search")
DATA = ("belief.csv", "belief-sweeps.csv", "belief-tuning.csv", "belief.toml", "kernels.csv", "nccl.csv")
LIBRARIES = ("ortools", "optuna")
FAILED = "failed"
ATTEMPTS = 3
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
    from optimizer.objectives.minimised.energy import busy_seconds
    from optimizer.reports.render.json import as_json
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
    if answer.plan is not None:
        busy = busy_seconds(answer.job, answer.plan, answer.knobs)
        result["mean_gpu"] = as_json(busy, compute="compute_s", stream="stream_s")
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


@dataclass(kw_only=True)
class Attempts:
    """Tasks of an engine that are tried again after their worker died."""

    counts: dict[str, int] = field(default_factory=dict)  # attempts that failed, by key
    waiting: deque[Task] = field(default_factory=deque)  # tasks to try again

    def next(self, tasks: Iterator[Task]) -> Task | None:
        """What to run next, None where nothing is left."""
        return self.waiting.popleft() if self.waiting else next(tasks, None)

    def died(self, task: Task, words: Callable[[int], str]) -> JobOutcome | None:
        """None for a task that is tried again, else its failure, whose reason tells the number of attempts."""
        count = self.counts[task.key] = self.counts.get(task.key, 0) + 1
        if count < ATTEMPTS:
            self.waiting.append(task)
            return None
        del self.counts[task.key]
        return failed(task, words(count), count)

    def done(self, outcome: JobOutcome) -> JobOutcome:
        """The outcome with the attempts that it took."""
        return replace(outcome, attempts=self.counts.pop(outcome.key, 0) + 1)


def peak_memory() -> float:
    """Largest resident memory that this process had so far [B], 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


@cache
def cost_model_version() -> str:
    """Fingerprint of the code, data and libraries behind every answer, the same on every machine that has them.

    Results of another version of the cost model are kept, and never taken for results of this one.

    >>> len(cost_model_version())
    12
    """
    digest = sha256()
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    for name in LIBRARIES:
        digest.update(f"{name} {'.'.join(version(name).split('.')[:2])}".encode() + b"\0")
    return digest.hexdigest()[:12]


def sources() -> list[Path]:
    """The files of code and data."""
    from optimizer.catalog.files import presets_folder

    package = Path(__file__).resolve().parents[1]
    code = [path for part in PARTS for path in sorted((package / part).rglob("*.py"))]
    return code + [path for name in DATA if (path := presets_folder() / name).exists()]
