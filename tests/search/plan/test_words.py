"""What a certificate says of its figures, and what a search leaves out, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.answer.answer import Answer, Certificate
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.stack import Features
from optimizer.objectives.step.estimate import Estimate
from optimizer.search.lattice.oracle import Sweep
from optimizer.search.plan import precision
from optimizer.search.plan.certificate import (
    MOST,
    described,
    left_out,
    modules_searched,
    status_of,
    unfinished,
    without_plan,
)
from optimizer.search.plan.precision import best_format, format_of, formats_of, joint, joint_status
from tests.search.jobs import small_job

FIGURES: dict[str, Any] = {"proven": True, "lower_bound": 2.0, "knob_bound": 2.0, "best": 2.5, "space": 1200}
PRICED = "All 1,200 plans that satisfy the other rules were priced"
BANDED = (
    f"{PRICED}; evenly split, 900 fit. With any layout, 70 have a bound below the best even split; "
    "{}, and the bounds rule out the others. {}"
)
REACHED = "the even splits reach their bounds"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, BANDED.format(REACHED, "CP-SAT ran out of time.")),
        ({"solved": 30}, BANDED.format("30 of them got the best of their layouts", "CP-SAT ran out of time.")),
        (
            {"candidates": 1200},
            BANDED.format(REACHED, "CP-SAT held all 1,200 plans under every rule and proved the same one the best."),
        ),
        (
            {"candidates": 1199},
            BANDED.format(
                REACHED, "CP-SAT proved the best of 1,199 candidates, and every other plan is slower or does not fit."
            ),
        ),
        ({"proven": False, "knob_bound": 0.0}, "Time limit after 1,200 plans: the bound is a step at an MFU of 100 %."),
        (
            {"proven": False},
            "Cut short: 70 plans have a bound below the best even split, and not all were laid out.",
        ),
        ({"proven": False, "best": float("inf")}, "Time limit after 1,200 plans, none of which fits."),
    ],
)
def test_the_method_follows_from_the_figures(changes: dict[str, Any], said: str) -> None:
    certificate = Certificate(**FIGURES | {"fitting": 900, "band": 70} | changes)
    assert described(small_job(), certificate).method == said


def test_where_nothing_fits_it_is_said_over_which_layouts() -> None:
    none = Certificate(proven=True, lower_bound=0.0, space=1200)
    searched = described(small_job(), none).method
    asked = described(small_job(fixed={"layout": "even"}), none).method
    assert searched.endswith("fits in memory, under any layout that is searched.")
    assert asked.endswith("fits in memory, laid out as asked.")
    assert searched.startswith("None of the 1,200 plans of ")


def test_a_given_layout_is_not_compared_with_others() -> None:
    certificate = Certificate(**FIGURES, fitting=900, even=float("inf"))
    found = described(small_job(fixed={"layout": "even"}), certificate)
    assert found.method.startswith(f"{PRICED}, each with its one layout; 900 fit. ")
    assert found.given
    assert not described(small_job(), certificate).given


@pytest.mark.parametrize(
    ("proven", "best", "status"),
    [(True, 1.0, "optimal"), (False, 1.0, "feasible"), (True, None, "infeasible"), (False, None, "unknown")],
)
def test_the_status_follows_from_proof_and_plan(proven: bool, best: float | None, status: str) -> None:
    figures = {"proven": proven, "lower_bound": 1.0, "space": 1}
    assert status_of(Certificate(**figures, **({} if best is None else {"best": best}))) == status


def test_a_sweep_that_was_cut_short_is_no_proof() -> None:
    swept = Sweep(points=None, best=-1, space=7, fitting=5, complete=False, ideal=0.5, knob_bound=0.0, own=None)
    found = unfinished(small_job(), swept, 2.0)
    assert (found.proven, found.lower_bound, found.best, found.space, found.fitting, found.even) == (
        *(False, 0.5, 2.0, 7, 5, 2.0),
    )
    assert unfinished(small_job(fixed={"layout": "even"}), swept, 2.0).even == float("inf")
    none = without_plan(small_job(), swept)
    assert (none.proven, none.lower_bound, none.space, none.best) == (False, 0.5, 7, float("inf"))
    assert without_plan(small_job(), replace(swept, complete=True)).proven


EVEN = Features(uneven_stages=False)
MODULES = Features(recompute_modules=("layernorm", "mlp"))


@pytest.mark.parametrize(
    ("job", "starts"),
    [
        (small_job(), ["The layouts of interleaved plans are nearly even"]),
        (small_job(max_vpp=1), []),
        (small_job(fixed={"pp": 1}), []),
        (small_job(fixed={"vpp": 1}), []),
        (small_job(features=EVEN), ["test cuts the layers evenly"]),
        (small_job(fixed={"layout": "even"}), ["The search over layouts is switched off (layout=even)"]),
        (small_job(features=Features(activation_offload=True), max_vpp=1), ["Activations stay on the device"]),
        (
            small_job(features=Features(activation_offload=True), max_vpp=1, ranges={"activation_offload": (0, 100)}),
            [],
        ),
        (small_job(features=Features(schedules=("1f1b", "dualpipe"))), ["DualPipe is tried where it is asked for"]),
        (small_job(features=Features(schedules=("1f1b", "dualpipe")), choices={"schedule": ("1f1b",)}), []),
    ],
)
def test_what_a_search_leaves_out_is_said_unless_it_was_asked_for(job: Job, starts: list[str]) -> None:
    lines = left_out(job)
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert len(lines) <= MOST


def test_what_layouts_lose_is_said_where_they_were_searched() -> None:
    (searched,), (even,) = left_out(small_job()), left_out(small_job(features=EVEN))
    lost = "gained nothing on eight jobs."
    assert searched.endswith(lost)
    assert not even.endswith(lost)


def test_the_modules_that_were_tried_are_named() -> None:
    assert modules_searched(small_job()) == ""
    assert modules_searched(small_job(features=MODULES, fixed={"recompute": "full"})) == ""
    assert modules_searched(small_job(features=MODULES, choices={"recompute": ("full", "mlp")})) == ""
    tried = modules_searched(small_job(features=MODULES))
    assert tried.startswith("Of the modules that can be recomputed by name, ")
    assert tried.endswith(" tried.")
    assert (" were tried" in tried) == ("," in tried.removeprefix("Of the modules that can be recomputed by name,"))


def answer(dtype: str, value: float | None, estimate: Estimate, **changes: Any) -> Answer:
    """An answer of one format whose step takes so long, or that has no plan."""
    job = replace(small_job(), dtype=dtype)
    if value is None:
        return Answer(status="infeasible", job=job, **changes)
    certificate = Certificate(proven=True, lower_bound=value, best=value, space=10, fitting=5, candidates=2, band=3)
    return Answer(
        status="optimal",
        job=job,
        plan=Plan(dp=8),
        estimate=replace(estimate, step_time=value),
        certificate=certificate,
        **changes,
    )


def test_formats_are_told_with_how_much_slower_they_are(estimate: Estimate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "value_of", lambda job, plan, knobs, estimate: estimate.step_time)
    made = {
        "bf16": answer("bf16", 3.0, estimate),
        "fp8": answer("fp8", 2.0, estimate),
        "fp16": answer("fp16", None, estimate),
    }
    found = best_format(small_job(), ["bf16", "fp8", "fp16"], lambda job: made[job.dtype])
    assert (found.job.dtype, found.status) == ("fp8", "feasible")  # one of them has no certificate
    assert [(other.dtype, other.slower) for other in found.formats] == [("bf16", pytest.approx(0.5)), ("fp16", 0.0)]
    assert [format_of(made["bf16"], 3.0, best).slower for best in (2.0, float("inf"))] == [0.5, 0.0]
    alone = best_format(small_job(), ["bf16"], lambda job: made[job.dtype])
    assert (alone.formats, alone.status) == ((), "optimal")
    both = best_format(small_job(), ["bf16", "fp8"], lambda job: made[job.dtype])
    assert both.status == "optimal"
    assert both.certificate is not None
    assert (both.certificate.space, both.certificate.fitting, both.certificate.candidates) == (20, 10, 4)
    assert (both.certificate.band, both.certificate.lower_bound, both.certificate.best) == (6, 2.0, 2.0)


def test_several_formats_are_proven_where_each_is() -> None:
    one = Certificate(**FIGURES, method="a.", left_out=("x",))
    other = replace(one, lower_bound=1.5, knob_bound=1.0, best=3.0, method="b.", left_out=("x", "y"))
    found = joint("bf16", {"bf16": one, "fp8": other})
    assert (found.proven, found.lower_bound, found.knob_bound, found.best) == (True, 1.5, 1.0, 2.5)
    assert (found.method, found.left_out, set(found.by_format)) == ("bf16: a. fp8: b.", ("x", "y"), {"bf16", "fp8"})
    open_ = joint("bf16", {"bf16": one, "fp8": replace(other, proven=False)})
    assert not open_.proven
    assert [joint_status("optimal", each) for each in (found, open_, None)] == ["optimal", "feasible", "feasible"]
    assert joint_status("infeasible", open_) == "infeasible"
    none = joint("bf16", {"bf16": replace(one, best=float("inf")), "fp8": replace(other, best=float("inf"))})
    assert (none.lower_bound, none.knob_bound) == (2.0, 0.0)


def test_formats_are_listed_once_or_all_that_the_device_has() -> None:
    assert formats_of("bf16, fp8,bf16", small_job()) == ("bf16", "fp8")
    assert formats_of("any", small_job()) == ("bf16", "fp8")
