"""What lies exactly at a border of rules and domains, where one sign or one number more or less decides."""

from __future__ import annotations

import pytest

from optimizer.constraints.given_layout import given_layouts
from optimizer.constraints.program import Program
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.constraints.space import domains
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.job.variables import SCHEDULES
from optimizer.objectives.step.host_memory import node_memory
from tests.search.jobs import small_job


def test_a_schedule_is_a_choice_only_where_software_offers_more_than_the_usual_ones() -> None:
    assert "schedule" not in domains(small_job())
    offered = small_job(features=Features(schedules=("1f1b", "interleaved", "zero-bubble")))
    assert [SCHEDULES[code] for code in domains(offered)["schedule"]] == ["1f1b", "interleaved", "zero-bubble"]


def test_activations_that_fill_the_host_exactly_fit() -> None:
    job = small_job(features=Features(activation_offload=True))
    plans = Plans.of([Plan(tp=2, pp=2, dp=2, num_microbatches=4, activation_offload=100)])
    on_host = float(HostActivations()._on_host(job, plans)[0])
    assert on_host > 0
    exactly = node_memory(job, on_host)
    for share, fits in ((1.0, True), (1 - 1e-6, False)):
        assert HostActivations().check(job.with_host_memory(share * exactly), plans).tolist() == [fits]


@pytest.mark.parametrize(("rows", "value"), [([(3,)], 3), ([], None), ([(5,)], None)])
def test_a_table_of_one_row_allows_it_and_an_empty_one_nothing(rows: list[tuple[int]], value: int | None) -> None:
    program = Program({"pp": (1, 2, 3)})
    program.allow(["pp"], rows)
    values = program.solve().values
    assert (None if values is None else int(values[program.index["pp"]])) == value


def test_no_stage_recomputes_more_layers_than_it_holds() -> None:
    """12 layers on two stages are six each."""
    plans = Plans.of([Plan(pp=2, recompute="full")])
    for counts, fits in (("6,0", True), ("7,0", False)):
        (rule,) = given_layouts(small_job(fixed={"recompute_layers": counts}))
        assert rule.check(small_job(fixed={"recompute_layers": counts}), plans).tolist() == [fits]
