"""What a check holds an answer to: each claim right at its limit and beyond it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.answer.answer import Certificate, Safety
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import Features
from optimizer.search.check import verification
from optimizer.search.check.plan_rules import placement_findings, possible
from optimizer.search.check.verification import (
    TOLERANCE,
    _best_even,
    _of_alternatives,
    _of_format,
    _of_safety,
    _of_search,
    disagreements,
    leaves,
    same,
    shown,
)
from optimizer.search.plan.certificate import described
from tests.search.jobs import MIXTURE, small_job

JOB = small_job()
BY_STAGE = Features(recompute_by="stage")
BY_VIRTUAL = Features(recompute_by="virtual stage")


def swept(best: int = 1, *values: float) -> Any:
    points = SimpleNamespace(values=np.array(values or (3.0, 2.0)))
    return SimpleNamespace(points=points, best=best, space=1234)


def searched(**changes: Any) -> Any:
    claims = Certificate(proven=True, lower_bound=2.0, best=2.0, space=1234)
    usual: dict[str, Any] = {"job": JOB, "plan": Plan(dp=8), "claims": claims, "swept": swept(), "fits": False}
    return SimpleNamespace(**usual | {"estimate": object(), "value": 2.0, "knobs": Knobs()} | changes)


@pytest.mark.parametrize(
    ("bound", "holds"),
    [(2.0, True), (2.0 * (1 + TOLERANCE), True), (2.0 * (1 + 2 * TOLERANCE), False), (1.0, True)],
)
def test_no_even_split_is_below_the_bound(bound: float, holds: bool) -> None:
    claims = Certificate(proven=True, lower_bound=bound, best=2.0, space=1234)
    (found,) = _of_search(searched(claims=claims))
    assert found.holds is holds
    assert found.name == "certificate of bf16: bound"
    assert "of 1,234, evenly split, takes 2 s" in found.reason


def test_where_no_plan_was_found_none_fits() -> None:
    for fits in (False, True):
        (found,) = _of_search(searched(plan=None, fits=fits))
        assert found.holds is not fits
        assert ("some of which fit" in found.reason) is fits
    open_ = replace(searched().claims, proven=False)
    assert list(_of_search(searched(plan=None, claims=open_))) == []


def test_the_best_even_split_of_a_sweep() -> None:
    assert _best_even(swept()) == 2.0
    assert _best_even(swept(0)) == 3.0
    assert _best_even(swept(-1)) == np.inf
    assert _best_even(SimpleNamespace(points=None, best=0)) == np.inf


def test_what_caution_costs_is_checked_where_it_is_stated_of_a_plan() -> None:
    for main, stated in ((searched(), None), (searched(estimate=None), Safety(fastest=None))):
        assert list(_of_safety(main, stated)) == []


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ((2.0, 3.0, 4.0), []),
        ((2.0, 2.0, 2.0), []),
        ((3.0, 3.0 * (1 - TOLERANCE), 4.0), []),
        ((3.0, 3.0 * (1 - 2 * TOLERANCE), 4.0), ["alternatives[1]"]),
        ((3.0, 4.0, 2.0), ["alternatives[2]"]),
    ],
)
def test_runners_up_stand_in_their_order(
    values: tuple[float, ...], wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_values", lambda main, others: list(values[: len(others)]))
    monkeypatch.setattr(verification, "_broken", lambda *_: iter(()))
    monkeypatch.setattr(verification, "_missing", lambda *_: None)
    others = tuple(SimpleNamespace(plan=Plan(tp=tp, dp=8 // tp), knobs=Knobs()) for tp in (2, 4, 8))
    found = list(_of_alternatives(searched(), others))
    assert [finding.name for finding in found] == wrong
    assert all("than the one before it" in finding.reason for finding in found)
    twice = list(_of_alternatives(searched(), (others[0], others[0])))
    assert [finding.reason for finding in twice if "structure" in finding.reason] == [
        "is of the structure of one before it"
    ]
    first = SimpleNamespace(plan=Plan(dp=8), knobs=Knobs())
    assert any("structure" in finding.reason for finding in _of_alternatives(searched(), (first,)))


@pytest.mark.parametrize(("value", "holds"), [(2.0, True), (2.0 * (1 - TOLERANCE), True), (1.9, False), (3.0, True)])
def test_no_other_format_is_better_than_the_best(value: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_broken", lambda *_: iter(()))
    other = searched(job=replace(JOB, dtype="fp8"), value=value)
    names = [finding.name for finding in _of_format(searched(), other, "by format") if not finding.holds]
    assert names == ([] if holds else ["by format"])
    without = list(_of_format(searched(estimate=None), other, "by format"))
    assert not all(finding.holds for finding in without)
    assert len(list(_of_format(searched(), searched(plan=None, estimate=None), "by format"))) == 1


@pytest.mark.parametrize(
    ("saved", "fresh", "paths"),
    [
        ({"a": 1.0}, {"a": 1.0 + 0.9 * TOLERANCE}, []),
        ({"a": 1.0}, {"a": 1.0 + 2 * TOLERANCE}, ["a"]),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1}, {}, ["a"]),
        ({}, {"a": 1}, ["a"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1]"]),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, ["a.b"]),
        ({"a": 1e-13, "b": 1.0}, {"a": 0.0, "b": 1.0}, []),  # noise beside a larger number
        ({"a": 1e-11, "b": 1.0}, {"a": 0.0, "b": 1.0}, ["a"]),
        ({"search_s": 1.0}, {"search_s": 2.0}, []),
        ({"search_s": {"total": 1.0}}, {"search_s": {"total": 2.0}}, []),
        ({"search": 1.0}, {"search": 2.0}, ["search"]),
    ],
)
def test_every_value_that_differs_is_named(saved: Any, fresh: Any, paths: list[str]) -> None:
    assert [finding.name for finding in disagreements(saved, fresh, ("search_s",))] == paths


def test_values_are_compared_by_kind_and_shown_in_their_unit() -> None:
    assert same(True, True)
    assert not same(1, True)
    assert not same("1", 1.0)
    assert (leaves(3), leaves([]), leaves({"a": {"b": [1, 2]}})) == (1, 0, 2)
    assert shown(2.0e9, "a_bytes.b") == "2 GB"
    assert shown(1.5, "a_s.b") == "1.5 s"
    assert shown(1.5, "a_small") == "1.5"
    assert shown("x" * 58) == '"' + "x" * 58 + '"'
    assert shown("Größe") == '"Größe"'
    assert shown("x" * 59) == '"' + "x" * 56 + "..."
    assert described(JOB, Certificate(proven=True, lower_bound=1.0, space=0)).left_out == ()


def test_a_format_without_an_estimate_breaks_nothing() -> None:
    for other in (searched(plan=None, estimate=None), searched(estimate=None)):
        assert all(finding.holds for finding in _of_format(searched(), other, "formats[0]"))


@pytest.mark.parametrize(
    ("features", "mtp", "plan", "holds"),
    [
        (Features(), 0, Plan(pp=2, layers_per_stage=(5, 7)), True),
        (Features(), 0, Plan(pp=2, layers_per_stage=(5, 6)), False),
        (Features(), 0, Plan(pp=2, layers_per_stage=(13, -1)), False),
        (Features(), 0, Plan(pp=2, layers_per_stage=(12, 0)), True),
        (Features(), 0, Plan(pp=2, layers_per_stage=(4, 4, 4)), False),
        (Features(), 0, Plan(pp=2, vpp=2, layers_per_stage=(3, 4, 3, 2)), True),
        (Features(uneven_stages=False), 0, Plan(pp=2, layers_per_stage=(5, 7)), False),
        (Features(uneven_stages=False), 0, Plan(pp=2, layers_per_stage=(6, 6)), True),
        (Features(), 1, Plan(pp=4, layers_per_stage=(4, 4, 4, 0), mtp_ahead=1), True),
        (Features(), 1, Plan(pp=4, layers_per_stage=(6, 6, 0, 0), mtp_ahead=2), True),
        (Features(), 1, Plan(pp=4, layers_per_stage=(4, 4, 2, 2), mtp_ahead=1), False),
        (Features(), 1, Plan(pp=4, layers_per_stage=(4, 4, 4, 0), mtp_ahead=2), False),
        (Features(), 1, Plan(pp=4, layers_per_stage=(12, 0, 0, 0), mtp_ahead=3), False),
        (Features(), 0, Plan(pp=4, layers_per_stage=(4, 4, 4, 0), mtp_ahead=1), False),
        (Features(), 1, Plan(pp=3, layers_per_stage=(6, 6, 0), mtp_ahead=1), True),
        (Features(), 1, Plan(pp=2, layers_per_stage=(12, 0), mtp_ahead=1), False),
        (Features(), 1, Plan(pp=1, vpp=2, layers_per_stage=(12, 0), mtp_ahead=1), False),
        (BY_STAGE, 0, Plan(pp=2, layers_per_stage=(5, 7), recompute="full", recompute_layers=(5, 0)), True),
        (BY_STAGE, 0, Plan(pp=2, layers_per_stage=(5, 7), recompute="full", recompute_layers=(6, 0)), False),
        (BY_STAGE, 0, Plan(pp=2, layers_per_stage=(5, 7), recompute="full", recompute_layers=(-1, 0)), False),
        (BY_STAGE, 0, Plan(pp=2, recompute="full", recompute_layers=(1, 1, 1)), False),
        (BY_STAGE, 0, Plan(pp=2, recompute="none", recompute_layers=(1, 1)), False),
        (BY_STAGE, 0, Plan(pp=2, recompute="full", recompute_layers=(1, 1), recompute_first=1), False),
        (BY_STAGE, 0, Plan(pp=2, recompute="full", recompute_first=1), True),
        (BY_VIRTUAL, 0, Plan(pp=2, recompute="full", recompute_first=1), True),
        (BY_VIRTUAL, 0, Plan(pp=2, recompute="none", recompute_first=1), False),
        (BY_VIRTUAL, 0, Plan(pp=2, recompute="full", recompute_layers=(1, 1)), False),
        (Features(recompute_by="all layers"), 0, Plan(pp=2, recompute="full", recompute_first=1), False),
    ],
)
def test_layers_that_a_plan_places_are_the_models(features: Features, mtp: int, plan: Plan, holds: bool) -> None:
    job = small_job(model=replace(MIXTURE, mtp_layers=mtp), features=features)
    assert all(finding.holds for finding in placement_findings(job, plan)) is holds


@pytest.mark.parametrize(("cut", "most"), [((5, 7), 7), ((5, 6), 0)])
def test_stages_of_another_model_have_no_layers_to_recompute(cut: tuple[int, ...], most: int) -> None:
    plan = Plan(pp=2, layers_per_stage=cut, recompute="full", recompute_layers=(0, 0))
    *_, found = placement_findings(small_job(features=BY_STAGE), plan)
    assert f"up to {most} layers may" in found.reason


def test_no_more_virtual_stages_are_priced_than_there_are_layers_for() -> None:
    """Of twelve layers, one each at the most; a virtual stage is there anyhow."""
    asked = [Plan(pp=pp, vpp=9) for pp in (1, 2, 4, 24)]
    assert [possible(small_job(), plan).vpp for plan in asked] == [9, 6, 3, 1]
