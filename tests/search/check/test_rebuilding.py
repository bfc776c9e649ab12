"""Answers to jobs of few plans are built again as they were, whatever they are about, and each other value is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.answer.saved import SavedAnswer, SavedFormat
from optimizer.job.fields import EXPECTED
from optimizer.job.stack import Features
from optimizer.search.check.rebuilding import rebuilt
from optimizer.search.check.verification import UNCHECKED, disagreements, verify
from optimizer.search.plan.planner import plan
from optimizer.search.plan.precision import best_format
from tests.search.jobs import saved, small_job

FEW = small_job(
    2,
    features=Features(zero_stages=(0, 1)),
    fixed={"cp": 1, "micro_batch": 1, "recompute": "none", "vpp": 1, "layout": "even"},
    bubble=0.5,
)
HOSTED = replace(FEW, minimize="energy", prefer=EXPECTED).with_limits(hbm=12e9).with_host_memory(2e12)


@cache
def answered(name: str) -> SavedAnswer:
    """The answer to a job with state on the host, or of two number formats."""
    if name == "hosted":
        return saved(plan(HOSTED, trials=0, top=2, read_twice=False))
    answer: Answer = best_format(FEW, ("bf16", "fp8"), lambda job: plan(job, trials=0, top=2, read_twice=False))
    others = tuple(SavedFormat(dtype=each.dtype, plan=each.plan, knobs=each.knobs) for each in answer.formats)
    return replace(saved(answer), formats=others)


@pytest.mark.parametrize("name", ["hosted", "formats"])
def test_an_answer_is_built_again_as_it_was(name: str) -> None:
    found = verify(answered(name))
    assert found.broken == ()
    assert {*found.agreeing, "search_s", "assumptions"} >= {
        part for part, value in answered(name).document.items() if value
    }


def other(value: Any) -> Any:
    """The same document with each leaf of another value."""
    if isinstance(value, dict):
        return {key: other(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [other(inner) for inner in value]
    if isinstance(value, bool):
        return not value
    return "other" if value is None or isinstance(value, str) else 2 * value + 1


def leaf_names(value: Any, path: str = "") -> Iterator[str]:
    """Places of the values that may be compared."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaf_names(inner, f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip("."))
    elif not any(place in path for place in ("search_s", "assumptions", ".candidates", ".layouts_solved")):
        yield path


@pytest.mark.parametrize("name", ["hosted", "formats"])
def test_every_value_that_is_another_is_named(name: str) -> None:
    saved_ = answered(name)
    found = verify(replace(saved_, document=other(saved_.document)))
    assert {finding.name for finding in found.broken} == set(leaf_names(saved_.document))
    assert not found.agreeing
    assert set(found.unchecked) >= set(UNCHECKED)


def test_what_is_missing_from_a_saved_answer_is_put_there() -> None:
    """Without runners-up, certificates and plans of other formats: those of the answer that would have been saved."""
    saved_ = answered("formats")
    bare = rebuilt(replace(saved_, claims=None, formats=()))
    assert bare.document["certificate"]["proven"]
    assert bare.document["certificate"]["best_s"] == saved_.document["certificate"]["best_s"]
    assert (bare.document["formats"], len(bare.searches)) == ([], 1)
    assert not [*disagreements(bare.document["estimate"], saved_.document["estimate"], ())]
