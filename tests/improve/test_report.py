"""What the report and the JSON of a launch say of edits that are given, without a search for them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from optimizer.catalog.offers import quote
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import Improvement
from optimizer.improve.report import TOO_LARGE, binding, improve_report, improvement_dict, lacking, price_rows
from optimizer.improve.state import Edit, State, WholeRun, current_state, edit_to, state_of
from optimizer.objectives.step.safe_memory import chance_to_fit
from optimizer.reports.report import Report, Table
from tests.frameworks import launches

SOURCE = read_launch([File("train.sh", launches.ARRAYS.encode())])
QUESTION = launch_as_read(SOURCE.launch, Controls(cluster="dgx-h100"), "train.sh")
NOW = current_state(QUESTION)
RUN = WholeRun(tokens=1e12, offer=quote("h100", "on_demand", 2.0 / 3600, row="own"))


def edit(**changes: Any) -> Edit:
    return edit_to(NOW, state_of(QUESTION, replace(QUESTION.plan, **changes)))


RISKY = edit(micro_batch=2, num_microbatches=QUESTION.plan.num_microbatches // 2)
FASTER, FULL, SELECTIVE = replace(RISKY, sure=True), edit(recompute="full"), edit(recompute="selective")


def improvement(*edits: Edit, pair: Edit | None = None, best: Edit | None = None) -> Improvement:
    return Improvement(question=QUESTION, current=NOW, edits=edits, pair=pair, best=best)


def report(found: Improvement, run: WholeRun | None = None) -> Report:
    every = [*found.edits, *(other for other in (found.pair, found.best) if other)]
    return improve_report(found, ["train.sh"], {id(other): () for other in every}, run)


def rows(shown: Report, heading: str) -> list[tuple[Any, ...]]:
    (found,) = [section for section in shown.sections if section.heading == heading]
    return [tuple(row) for block in found.blocks if isinstance(block, Table) for row in block.rows]


def days_of(state: State) -> float:
    """Tokens over tokens per second, and a few percent more for failures and restarts [day]."""
    return RUN.tokens / (512 * 8192 / state.estimate.step_time) / 86400


def test_each_edit_has_its_row_and_the_best_is_not_named_twice() -> None:
    for found, names in (
        (improvement(), []),
        (improvement(FASTER, FULL, best=FASTER), ["now", "one 1", "one 2"]),
        (improvement(FASTER, pair=FULL, best=FULL), ["now", "one 1", "two"]),
        (improvement(FASTER, pair=FULL, best=SELECTIVE), ["now", "one 1", "two", "all"]),
        (improvement(*[FASTER] * 9), ["now", *(f"one {place}" for place in range(1, 6))]),
        (improvement(RISKY, FULL), ["now", "one 1"]),
    ):
        assert [row[0] for row in rows(report(found), "What to change")] == names
    risky = report(improvement(*[RISKY] * 3, FULL))
    assert [row[0] for row in rows(risky, "Riskier")] == ["now", "risk 1", "risk 2"]
    assert not any(section.heading == "Riskier" and section.blocks for section in report(improvement(FULL)).sections)


def test_a_row_says_what_a_person_changes_and_what_comes_of_it() -> None:
    now, faster = rows(report(improvement(FASTER), RUN), "What to change")
    gain = FASTER.gain
    assert faster[1] == "micro batch 1 → 2"  # half as many micro-batches follow
    assert faster[2] == f"{gain:+.1%}"
    assert faster[3] == "71%"  # a gain of 4.5 % is less than what two runs differ by
    assert faster[6] == f"{FASTER.after.chance:.0%}"
    for row, state in ((now, NOW), (faster, FASTER.after)):
        [(length, cost)] = re.findall(r"^([\d.]+) days, ([\d,]+) USD$", row[-1])
        assert 1 < float(length) / days_of(state) < 1.1
        assert float(cost.replace(",", "")) == pytest.approx(float(length) * 24 * 256 * 2.0, rel=0.01)
    free = rows(report(improvement(FASTER), replace(RUN, offer=None)), "What to change")[0][-1]
    assert free == now[-1].partition(",")[0]
    assert len(rows(report(improvement(FASTER)), "What to change")[0]) == len(now) - 1


def test_the_best_plan_is_shown_where_no_single_edit_is_it() -> None:
    for best, shown in ((FASTER, False), (SELECTIVE, True)):
        (found,) = [s for s in report(improvement(FASTER, best=best)).sections if s.heading == "The best plan"]
        assert bool(found.blocks) is shown
    fits = chance_to_fit(FASTER.after.job, FASTER.after.estimate.reserved)
    assert f"4.5% more is in reach (71% to gain, {fits:.0%} to fit)" in report(improvement(FASTER, best=FASTER)).title
    assert "in reach" not in report(improvement(FULL, best=FULL)).title  # it is slower


def test_a_launch_that_asks_much_of_the_data_loader_says_so() -> None:
    assert "data" not in dict(price_rows(NOW, None))
    small = replace(NOW, job=replace(NOW.job, global_batch=100 * NOW.job.global_batch))
    assert dict(price_rows(small, None))["data"].startswith("not known whether data keep up: ")


def test_plain_values_have_the_price_of_every_plan() -> None:
    document = improvement_dict(improvement(FASTER, pair=FULL, best=SELECTIVE), {}, RUN)
    for part, state in (
        (document["estimate"], NOW),
        (document["edits"][0], FASTER.after),
        (document["best_two"], FULL.after),
        (document["best"], SELECTIVE.after),
    ):
        assert part["step_time_s"] == state.estimate.step_time
        assert 1 < part["days"] / days_of(state) < 1.1
        assert part["cost_usd"] == pytest.approx(part["days"] * 24 * 256 * 2.0)
        assert part["price_row"] == "own"
    assert document["edits"][0]["changes"]["micro_batch"] == {"before": 1, "after": 2}
    assert document["edits"][0]["chance_to_gain"] > 0.5 > document["best_two"]["chance_to_gain"]  # full recomputation
    bare = improvement_dict(improvement(), {}, None)
    assert (bare["best_two"], bare["best"]["gain"], "days" in bare["estimate"]) == (None, 0.0, False)


def too_large(state: State) -> State:
    return replace(state, estimate=replace(state.estimate, reserved=1.1 * state.job.usable_memory))


@pytest.mark.parametrize(("fits", "edit_fits"), [(True, True), (True, False), (False, True), (False, False)])
def test_where_nothing_fits_edits_only_need_less(fits: bool, edit_fits: bool) -> None:
    one = FASTER if edit_fits else replace(FASTER, after=too_large(FASTER.after))
    found = replace(improvement(one), current=NOW if fits else too_large(NOW))
    shown = report(found)
    texts = [
        str(block) for section in shown.sections if section.heading == "How to write it" for block in section.blocks
    ]
    assert any(TOO_LARGE in text for text in texts) is not (fits or edit_fits)
    assert shown.tone == ("good" if fits else "bad")


@pytest.mark.parametrize(
    ("unpriced", "machine", "said"),
    [
        (0, "", ""),
        (2, "", "; not priced: a, b"),
        (4, "", "; not priced: a, b, c, d"),
        (6, "", "; not priced: a, b, c, d and 2 more"),
        (1, "8 H100", "; machine guessed: 8 H100; not priced: a"),
    ],
)
def test_a_title_names_what_its_price_lacks(unpriced: int, machine: str, said: str) -> None:
    told = replace(QUESTION.launch, gpus=0, vocabulary=0)
    assert lacking(replace(told, unpriced=[*"abcdef"[:unpriced]], machine=machine)) == said


def test_what_binds_is_told_from_the_largest_on_with_the_memory_last() -> None:
    estimate, usable = NOW.estimate, NOW.job.usable_memory
    *terms, memory = binding(NOW).rows
    assert memory[-1] == estimate.reserved / usable
    assert memory[0] == "memory"
    shares = [row[-1] for row in terms]
    assert shares == sorted(shares, reverse=True)
    large = [value / estimate.step_time for value in estimate.time.values() if value >= 0.005 * estimate.step_time]
    assert set(shares) <= set(large)
    assert min(shares) >= 0.02
    assert all(row[2] == f"{row[3]:.1%}" for row in (*terms, memory))
