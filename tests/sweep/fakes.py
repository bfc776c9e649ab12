"""Jobs that cost nothing, for tests of everything around the planner; importable by worker processes."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from functools import cache, partial
from pathlib import Path

from optimizer.answer.answer import job_dict
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.sweep.batch import run_batch
from optimizer.sweep.local import LocalEngine
from optimizer.sweep.store import Store
from optimizer.sweep.study import Effort
from optimizer.sweep.task import JobOutcome, Task, canonical, content
from optimizer.sweep.work import failed


@cache
def job() -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=64,
        seq_len=8192,
        global_batch=512,
    )


@cache
def tasks(count: int) -> tuple[Task, ...]:
    asked = content(job_dict(job())) | {"family": "llama"}
    return tuple(
        Task(key=f"job-{n:04}", version="v1", asked={**asked, "gpus": 8 * n + 8}, effort=Effort(), job=job())
        for n in range(count)
    )


def answer(key: str) -> str:
    """A result as large as a real one, the same every time."""
    number = random.Random(key).random()
    estimate = {
        "step_time_s": 10 * number,
        "mfu": number,
        "tokens_per_s_per_gpu": 1e4 * number,
        "memory_bytes": {"peak_reserved": 5e10, "weights": 5e10},
        "time_s": {"gemm": 10 * number},
    }
    plan = {"tp": 8, "cp": 1, "ep": 1, "etp": 1, "pp": 1, "vpp": 1, "dp": 8, "micro_batch": 1, "num_microbatches": 64}
    plan |= {"sequence_parallel": True, "zero_stage": 1, "shard": 0, "recompute": "none", "schedule": "1f1b"}
    plan["layers_per_stage"] = [32]
    return canonical({"status": "optimal", "plan": plan, "estimate": estimate, "conflict": [], "alternatives": []})


def work(task: Task, nap: float = 0.0, log: str = "") -> JobOutcome:
    """Answer after a nap; each run of a job is a line in the log."""
    if log:
        with open(log, "a", encoding="utf-8") as target:
            target.write(f"{task.key}\n")
    time.sleep(nap)
    if task.key.endswith("13"):
        return failed(task, "thirteen brings bad luck")
    return JobOutcome(key=task.key, status="optimal", result=answer(task.key), seconds=nap, memory=1e8, host="here")


def deadly(task: Task, folder: str, deaths: int, victim: str) -> JobOutcome:
    """Die on the victim's first runs, as if killed from outside."""
    marks = Path(folder)
    if task.key == victim and len(list(marks.iterdir())) < deaths:
        (marks / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return work(task)


def broken(task: Task) -> JobOutcome:
    raise ValueError("an error nobody expected")


def main() -> None:
    """Run a batch in a process of its own: place, number of jobs, nap, log."""
    place, count, nap, log = sys.argv[1:]
    store = Store(place)
    engine = LocalEngine(workers=2, work=partial(work, nap=float(nap), log=log))
    run_batch(store, tasks(int(count)), engine, lambda statuses: None)


def bytes_of(store: Store, count: int) -> bytes:
    """Everything that must not depend on how a batch was run."""
    rows = store.rows([task.key for task in tasks(count)])
    return json.dumps([(row.key, row.version, row.status, row.asked, row.result, row.error) for row in rows]).encode()


if __name__ == "__main__":
    main()
