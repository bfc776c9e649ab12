"""One job of a batch: what a worker gets, what it gives back, and the key that both are filed under."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from typing import Any

from optimizer.job.job import Job
from optimizer.sweep.study import Effort

# Words about a number, not the number: they change no answer.
UNCOUNTED = {"provenance", "title", "published_params", "published_active_params", "residuals", "runs", "own_runs"}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One job of a batch."""

    key: str  # equal for equal jobs
    version: str  # of the cost model
    asked: Mapping[str, Any]  # the job in plain values, as the results show it
    effort: Effort  # how hard to search
    scenario: str = ""  # names of its scenarios
    job: Job | None = None  # None where the combination cannot be one
    problem: str = ""  # why it cannot


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """What became of a task; the result is the same on every run, and the rest is apart from it."""

    key: str  # of the task
    status: str  # of the answer, or failed
    result: str = ""  # the answer as JSON
    error: str = ""  # why there is none
    seconds: float = 0.0  # time of planning [s]
    memory: float = 0.0  # peak of the worker [B]
    host: str = ""  # machine of the worker
    attempts: int = 1  # times that it was planned


def content(value: Any) -> Any:
    """Any value of a job as plain values, without the words that change no answer.

    >>> from optimizer.job.model import SlidingWindow
    >>> content((SlidingWindow(size=4096), {"tp": 8}))
    [{'size': 4096, 'global_every': 0, 'heads': 0, 'kv_heads': 0, 'head_dim': 0}, {'tp': 8}]
    """
    if is_dataclass(value):
        return {name: content(getattr(value, name)) for name in _names(value)}
    if isinstance(value, Mapping):
        return {str(key): content(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [content(item) for item in (sorted(value, key=str) if isinstance(value, frozenset) else value)]
    return value


def canonical(value: Any) -> str:
    """Plain values as one line of JSON, always the same."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(asked: Any, effort: Effort, version: str, memo: dict[int, tuple[Any, str]] | None = None) -> str:
    """The key of a job: equal for equal questions under the same cost model, and for nothing else.

    `asked` is a Job or another dataclass; calls with the same `memo` share work.
    """
    memo = {} if memo is None else memo
    parts = [f"{name}:{_text(getattr(asked, name), memo)}" for name in _names(asked)]
    whole = "\n".join([*parts, canonical(content(effort)), version])
    return sha256(whole.encode()).hexdigest()[:32]


def _names(value: Any) -> list[str]:
    return [field.name for field in fields(value) if field.name not in UNCOUNTED]


def _text(value: Any, memo: dict[int, tuple[Any, str]]) -> str:
    """Content as text. Jobs share their models and clusters, whose text is made once."""
    if not is_dataclass(value):
        return canonical(content(value))
    if id(value) not in memo:
        # The value is kept too, so that its id stays its own.
        memo[id(value)] = (value, canonical(content(value)))
    return memo[id(value)][1]
