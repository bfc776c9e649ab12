"""Why there is no launch file for a plan: what a launcher lacks to run it as it is priced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Knobs, Plan


def lacks(missing: Mapping[str, bool]) -> tuple[str, ...]:
    """What is missing, in words, of all that may be.

    >>> lacks({"dropout": True, "ZeRO-1": False})
    ('dropout',)
    """
    return tuple(what for what, holds in missing.items() if holds)


def runnable(
    answer: Answer,
    launcher: str,
    lacking: Callable[[Job, Plan, Knobs], tuple[str, ...]],
    plan: str = "this plan",
    *,
    hosts: bool = False,
) -> tuple[Job, Plan]:
    """The job and the plan of an answer that a launcher can run.

    Args:
        answer: what was found.
        launcher: its name and release.
        lacking: what it lacks to run a plan.
        plan: how people call the plan.
        hosts: whether `lacking` knows where its file can have weights lie on the host; else it cannot.

    Raises:
        InputError: the answer holds no plan, or the launcher lacks something.
    """
    if answer.plan is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    hosted = {"a file written with weights on the host": answer.job.stack.features.hosted_weights and not hosts}
    if missing := (*lacking(answer.job, answer.plan, answer.knobs), *lacks(hosted)):
        raise InputError(f"{launcher} cannot run {plan}: it lacks {'; '.join(missing)}")
    return answer.job, answer.plan
