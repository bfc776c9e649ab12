"""Processes that work beside this one: copies of one that has imported what they need, where the system can."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

from optimizer.base.interruption import start_server

FORKING = "forkserver"


def context_of(preloaded: Sequence[str]) -> Any:
    """How processes begin: as forks of a clean one, in milliseconds and with its memory, or anew, as everywhere."""
    if FORKING not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context(FORKING)
    context.set_forkserver_preload(list(preloaded))
    return context


def begun(context: Any, target: Callable[..., object], *args: object) -> Any:
    """A process that has begun, after the one that it is forked from; it ends with this one."""
    process = context.Process(target=target, args=args, daemon=True)
    if context.get_start_method() == FORKING:
        start_server()
    process.start()
    return process
