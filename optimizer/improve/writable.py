"""What pays and can be written: the search again without what the program of a launch may not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optimizer.constraints.space import domains
from optimizer.frameworks.launch import Source
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.frameworks.megatron.layout import is_even
from optimizer.improve.edits import Improvement, improve
from optimizer.improve.patch import changes_of
from optimizer.improve.state import NOTICEABLE, SOFTWARE, Edit
from optimizer.job.variables import VARIABLES

FORCED = ("dp", "num_microbatches")  # what follows from the other settings
SPLIT = ("pp", "vpp", "layers_per_stage")  # together the split of the layers
ROUNDS = 4  # of searches at most, each without what the one before needed
WORDED = ("zero_stage", "recompute")  # whose values are written with unlike flags


def improve_files(question: LaunchAsRead, source: Source, *, flex_batch: bool = False) -> Improvement:
    """The edits that pay and that the files of a launch can say; `beyond` is a better one that they cannot.

    Args:
        question: what the files ask.
        source: the files as they were read.
        flex_batch: whether the global batch may be half, twice or four times.
    """
    every = improvement = improve(question, flex_batch=flex_batch)
    asked = question
    for _ in range(ROUNDS):
        unwritten = [edit for edit in improvement.every if _lacking(source, question, edit)]
        if not unwritten:
            break
        for edit in unwritten:
            asked = _without(asked, source, edit)
        improvement = improve(asked, flex_batch=flex_batch)
    best, second = every.best, improvement.best
    better = best is not None and (second is None or best.expected > second.expected + NOTICEABLE)
    beyond = best if best and better and _lacking(source, question, best) else None
    return replace(improvement, question=question, current=every.current, beyond=beyond)


def _lacking(source: Source, question: LaunchAsRead, edit: Edit) -> set[str]:
    """The flags of an edit that the program may not have, or why it refuses them together."""
    changes = changes_of(source, question, edit)
    if not (why := source.lacking(changes)):
        return set()
    return {change.flag for change in changes if source.lacking([change])} or {why}


def _settings(source: Source, question: LaunchAsRead, edit: Edit) -> list[str]:
    """The settings of an edit without which it needs fewer flags that are lacking, all of them if none alone does."""
    names = [change.name for change in edit.changes if change.name not in FORCED]
    whole = _lacking(source, question, edit)
    return [name for name in names if not whole <= _lacking(source, question, _undone(question, edit, name))] or names


def _undone(question: LaunchAsRead, edit: Edit, name: str) -> Edit:
    """An edit without one of its changes, the layers split as before or as it splits them."""
    names = SPLIT if name in SPLIT else (name,)
    before = {each: getattr(question.plan, each) for each in names if hasattr(question.plan, each)}
    changes = tuple(change for change in edit.changes if change.name not in names)
    return replace(edit, changes=changes, after=replace(edit.after, plan=replace(edit.after.plan, **before)))


def _without(asked: LaunchAsRead, source: Source, edit: Edit) -> LaunchAsRead:
    """The question without what an edit needs: stages of unlike length, values of a setting, else all but its own."""
    names, layers, features = _settings(source, asked, edit), asked.job.model.layers, asked.stack.features
    if (
        {*SPLIT} & {*names}
        and features.uneven_stages
        and is_even(asked.plan, layers) > is_even(edit.after.plan, layers)
    ):
        features = replace(features, uneven_stages=False)
        names = [name for name in names if name not in SPLIT]
    limits, plan = asked.job.limits, asked.plan
    fixed, choices = dict(limits.fixed), dict(limits.choices)
    for name in {*names} & VARIABLES.keys():
        fixed[name] = getattr(plan, name)
        if name in WORDED:
            values: list[Any] = [VARIABLES[name].pinned(value) for value in domains(asked.job)[name]]
            ways = {value: source.changes(asked.job, plan, replace(plan, **{name: value}), {}) for value in values}
            choices[name] = tuple(value for value, changes in ways.items() if not source.lacking(changes))
            del fixed[name]
        elif name in choices:
            del choices[name]
    own = tuple(name for name in names if name in (*SOFTWARE, "bucket") or name in fixed)
    job = asked.job.with_limits(fixed=fixed, choices=choices)
    even = replace(job.stack, features=replace(job.stack.features, uneven_stages=features.uneven_stages))
    return replace(
        asked,
        launch=replace(asked.launch, fixed=(*asked.launch.fixed, *own)),
        job=replace(job, stack=even),
        stack=replace(asked.stack, features=features),
    )
