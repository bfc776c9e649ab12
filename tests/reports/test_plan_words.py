"""What is said of a plan, at the ends of what it may be."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.answer.answer import Answer, Safety
from optimizer.job.plan import Knobs, Plan
from optimizer.reports.plan_report import _conflict
from optimizer.reports.plan_words import (
    chance_words,
    knobs_text,
    layout_rows,
    listed,
    moving_parts,
    pins_of_plan,
    plan_words,
    safety_words,
    show_gigabytes,
)
from optimizer.reports.report import Pairs
from optimizer.reports.why_report import _worst

EVEN = (3,) * 4


@pytest.mark.parametrize(
    ("plan", "words", "pins"),
    [
        ({}, "one GPU does everything", "tp=1,pp=1"),
        ({"tp": 2}, "a matrix product on 2 GPUs (TP)", "tp=2,pp=1"),
        ({"sequence_parallel": True}, "one GPU does everything", "tp=1,pp=1"),
        ({"cp": 2}, "a sequence on 2 (CP)", "tp=1,cp=2,pp=1"),
        ({"ep": 2, "etp": 2}, "the experts on 2 (EP), each expert on 2 (ETP)", "tp=1,ep=2,etp=2,pp=1"),
        ({"pp": 2, "vpp": 2}, "2 pipeline stages (PP) of 2 virtual stages (VPP)", "tp=1,pp=2,vpp=2"),
        ({"pp": 2, "micro_batch": 2}, "2 pipeline stages (PP)", "tp=1,pp=2,micro_batch=2"),
        ({"dp": 2}, "2 replicas (DP), which share the optimizer state (ZeRO-1)", "tp=1,pp=1"),
    ],
)
def test_degrees_of_one_are_not_told(plan: dict[str, Any], words: str, pins: str) -> None:
    assert plan_words(Plan(**plan)) == words
    assert pins_of_plan(Plan(**plan)) == pins


@pytest.mark.parametrize(
    ("plan", "part"),
    [
        *(({"tp": 2}, "tensor parallelism"), ({"cp": 2}, "context parallelism"), ({"ep": 2}, "expert parallelism")),
        *(({"etp": 2}, "tensor parallelism of experts"), ({"pp": 2}, "pipeline"), ({"vpp": 2}, "virtual stages")),
        *(({"schedule": "dualpipe"}, "dualpipe schedule"), ({"zero_stage": 2}, "ZeRO-2"), ({"zero_stage": 1}, "")),
        *(({"shard": 1}, "shards of some replicas"), ({"recompute": "selective"}, "recomputation")),
        *(({"overlap_exchange": True}, "overlap of the exchange"), ({"layers_per_stage": EVEN}, "")),
        *(({"layers_per_stage": (1, 2)}, "uneven stages"), ({"recompute_layers": EVEN}, "")),
        *(({"recompute_layers": (0, 1)}, "stages that recompute unlike"), ({"schedule": "interleaved"}, "")),
        *(
            ({"mtp_ahead": 1}, "prediction layers before the head"),
            ({"activation_offload": 1}, "activations on the host"),
        ),
    ],
)
def test_what_moves_beyond_data_parallelism(plan: dict[str, Any], part: str) -> None:
    assert moving_parts(Plan(**plan), Knobs()) == ((part,) if part else ())
    assert moving_parts(Plan(**plan), Knobs(offload=0.01))[-1] == "optimizer on the host"


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        ({}, {}),
        ({"pp": 4, "layers_per_stage": (3, 2, 3, 4)}, {"layers per stage": "3 2 3 4"}),
        ({"pp": 1, "layers_per_stage": (12,)}, {}),
        ({"pp": 4, "recompute_layers": (0, 1, 0, 0)}, {"recomputed layers": "0 1 0 0"}),
        ({"pp": 4, "recompute_layers": (1, 1, 1, 1)}, {"recomputed layers": "1 on every stage"}),
        ({"pp": 4, "recompute_layers": (0, 0, 0, 0)}, {}),
        ({"pp": 2, "recompute_first": 1}, {"recomputed layers": "the first 1 of every stage"}),
        ({"pp": 2, "vpp": 2, "recompute_first": 2}, {"recomputed layers": "the first 2 of every virtual stage"}),
        (
            {"pp": 2, "vpp": 2, "layers_per_stage": (24, 25, 24, 23)},
            {"layers per stage": "48 48", "layout": "Et*24| t*25| t*24| t*23L"},
        ),
    ],
)
def test_a_layout_is_told_where_it_is_more_than_even(
    plan: dict[str, Any], rows: dict[str, str], gpt3_answer: Answer
) -> None:
    assert dict(layout_rows(gpt3_answer.job, Plan(**plan))) == rows


def test_many_stages_are_told_in_runs() -> None:
    assert listed((1,) * 40) == " ".join("1" * 40)
    assert listed((1,) * 20 + (2,) * 21) == "20×1 21×2 (stages×layers)"


def test_a_chance_is_never_certain_and_small_terms_are_megabytes() -> None:
    chances = {
        0.994: "99.4%",
        0.9899: "99%",
        0.99: "99%",
        0.9901: "99.0%",
        0.999: "99.9%",
        0.9991: ">99.9%",
        0.5: "50%",
    }
    assert {share: chance_words(share) for share in chances} == chances
    sizes = {0.05e9: "0.1 GB", 0.0499e9: "50 MB", 1.25e9: "1.2 GB", 0.0: "0 MB"}
    assert {size: show_gigabytes(size) for size in sizes} == sizes


def test_settings_are_those_that_the_software_has(gpt3_answer: Answer) -> None:
    job, told = gpt3_answer.job, []
    for settable in ((), ("bucket", "offload")):
        features = replace(job.stack.features, settable=settable)
        told.append(knobs_text(replace(job, stack=replace(job.stack, features=features)), Knobs(offload=0.5)))
    assert told == ["none that the software can set", "gradient bucket 160 MB, 50% of the optimizer on the host"]


def test_caution_is_told_with_what_it_costs(gpt3_answer: Answer) -> None:
    job, step, (other,) = gpt3_answer.job, gpt3_answer.estimate, gpt3_answer.alternatives
    assert step is not None
    fits = safety_words(job, step, None)
    assert fits == "40.0 GB, fits with >99.9%"
    assert safety_words(job, step, Safety()) == f"{fits}; no plan that is predicted to fit is faster"
    costs = (
        f"{fits}, 25.0% slower than the fastest plan that is predicted to fit: {other.plan.summary()}, 40.0 GB, >99.9%"
    )
    assert safety_words(job, step, Safety(fastest=replace(other, slower=-0.2))) == costs
    expected = replace(job, prefer="expected")
    assert safety_words(expected, step, Safety()) == f"{fits}; no plan on paper is faster"


@pytest.mark.parametrize(("clashes", "most"), [(1, 56 * 10), (2, 56 * 5), (3, 56 * 3), (11, 56)])
def test_a_conflict_takes_twenty_lines_in_a_short_answer(clashes: int, most: int, infeasible_answer: Answer) -> None:
    (clash,) = infeasible_answer.conflict
    conflict = tuple(
        replace(clash, rule=str(number), reason="r " * 900, relaxation=f"{number} " * 900) for number in range(clashes)
    )
    for whole, longest in ((False, most), (True, 1799)):
        found = _conflict(replace(infeasible_answer, conflict=conflict), whole=whole)
        (pairs,) = found.blocks
        assert isinstance(pairs, Pairs)
        assert len(pairs.rows) == 2 * clashes
        assert longest - 4 <= max(len(text) for _, text in pairs.rows[::2]) <= longest + 1


def test_the_two_worst_terms_are_named() -> None:
    terms: Any = [
        SimpleNamespace(term=term, more=more) for term, more in (("gemm", -2.0), ("bubble", 0.5), ("head", 0.1))
    ]
    assert _worst(terms).count(" of ") == 2
    assert _worst(terms).startswith("2 s of ")
    assert _worst(terms, 1).count(" of ") == 1
