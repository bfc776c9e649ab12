"""A conflict whose search ran out of time: which of its rules clash is not known, what each of them says is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.answer.answer import Clash
from optimizer.job.job import Job
from optimizer.search.infeasible.conflict import CUT_SHORT, ConflictQuestion


def as_far_as_known(job: Job, stated: object) -> tuple[Clash, ...]:
    """The clashes of a saved conflict whose time was over that rules of the job can have, once each, with their
    numbers; none for a conflict that was known.

    What would be enough is as it was stated, where the time was not over for it.
    """
    if not is_cut_short(stated):
        return ()
    rules = {rule.name: rule for rule in ConflictQuestion(job=job).rules()}
    clashes: dict[str, Clash] = {}
    for entry in _tables(stated):
        rule = rules.get(str(entry.get("rule")))
        if rule is None or rule.name in clashes:
            continue
        reason, saved_reason = rule.explain(job), str(entry.get("reason", ""))
        if entry.get("note") == CUT_SHORT:
            clashes[rule.name] = Clash(rule=rule.name, reason=reason, note=CUT_SHORT)
            continue
        clashes[rule.name] = Clash(
            rule=rule.name,
            reason=saved_reason if saved_reason.startswith(reason) else reason,
            relaxation=str(entry.get("relaxation", "")),
            note=str(entry.get("note", "")),
        )
    return tuple(clashes.values())


def is_cut_short(stated: object) -> bool:
    """Whether a saved conflict says of one of its rules that the time was over."""
    return any(entry.get("note") == CUT_SHORT for entry in _tables(stated))


def _tables(stated: object) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in stated if isinstance(entry, dict)] if isinstance(stated, list) else []
