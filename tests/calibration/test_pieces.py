"""Pieces of a fit and of its scores by hand: errors of a few rows, parts to leave out, bounds, what data identify."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from math import exp, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.base.units import GB
from optimizer.calibration import known
from optimizer.calibration.calibrate import informed
from optimizer.calibration.groups import MOST_FOLDS, _far_ends, _spread, folds, like_runs, plan_group, site_name
from optimizer.calibration.known import _clusters, knowing, known_error
from optimizer.calibration.least_squares import PRIOR_SPREAD, SCALE, Optimum, derivatives, solve
from optimizer.calibration.leave_out import _surrounded, devices_of, held_out, ranges_of, refitted
from optimizer.calibration.link import fit_link, scaled_link
from optimizer.calibration.node_cluster import NodeCluster
from optimizer.calibration.rows import recipe
from optimizer.calibration.rows.cluster import _node_speed, read_cluster
from optimizer.calibration.rows.recipe import _described_sharding, _kernels, schedule
from optimizer.calibration.rows.training import step_seconds
from optimizer.calibration.runs import Run
from optimizer.calibration.scores import Verdicts, choice_of, errors_of
from optimizer.calibration.settle import bound_words, settled
from optimizer.calibration.stack_file import stack_toml
from optimizer.calibration.validation import PricedRun, Validation, _dominant, _verdicts, score, suspicion, worst
from optimizer.calibration.validation_report import (
    MOST_POINTS,
    _guides,
    _stack_row,
    drawn,
    given_section,
    headline,
    scatter,
)
from optimizer.catalog import load_cluster, load_link, load_stack
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.job.known import TIME, YOURS
from optimizer.job.plan import Plan
from optimizer.job.stack import PARAMETERS, Features, Fixed, Stack
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.places import Places, place
from optimizer.objectives.network.protocols import quantities
from optimizer.objectives.step.interval import SIDES, Interval, mfu
from optimizer.reports.report import Table
from tests.search.jobs import small_job


def row(measured: float | None = 1.0, predicted: float | None = 1.0, **values: Any) -> PricedRun:
    """A run of one plan and its prediction [s]; what is no field of the row is one of the run."""
    of_row = {name: values.pop(name) for name in [*values] if name in PricedRun.__dataclass_fields__}
    cells = {"micro_batch": "1", "global_batch": "8", **values.pop("cells", {})}
    usual: dict[str, Any] = {"id": "1", "row": cells, "stack_name": "mine", "job": small_job(), "plan": Plan(dp=8)}
    return PricedRun(run=Run(**usual | {"step_time": measured} | values), step_time=predicted, **of_row)


def test_errors_of_a_few_rows_by_hand() -> None:
    inside, beyond = Interval(low=0.9, high=1.2), Interval(low=0.5, high=0.9, reasons=("far",))
    rows = [
        row(1.0, 1.1, interval=inside, memory=10 * GB, memory_kind="reserved", as_measured=11 * GB, memory_spread=0.1),
        row(1.0, 0.8, interval=beyond, memory=10 * GB, memory_kind="allocated", as_measured=5 * GB, memory_spread=0.1),
        row(0.9, 0.9, interval=inside),
        row(1.2, 1.2, interval=inside, fits=True, out_of_memory=False),
        row(None, 1.0, fits=False, out_of_memory=True),
        row(None, 1.0, fits=True, out_of_memory=True),
        row(None, 1.0, fits=False, out_of_memory=False),
        row(None, 1.0, fits=True),
    ]
    found = score("all", "all", rows)
    assert found.time is not None
    assert (found.rows, found.time.runs, found.time.mape) == (8, 4, pytest.approx(0.3 / 4))
    assert (found.coverage, found.extrapolated) == (0.75, 1)  # the ends are within
    assert found.reserved is not None
    assert found.allocated is not None
    assert (found.reserved.mape, found.allocated.mape) == (pytest.approx(0.1), pytest.approx(0.5))
    assert (found.memory_coverage, found.memory is not None) == (0.5, True)
    assert found.verdicts == Verdicts(
        fits_predicted_fits=1, fits_predicted_oom=1, oom_predicted_fits=1, oom_predicted_oom=1
    )
    assert (found.verdicts.runs, found.verdicts.balanced_accuracy) == (4, 0.5)
    empty = score("all", "all", [row(None, 1.0)])
    assert (empty.time, empty.coverage, empty.memory, empty.choice) == (None, None, None, None)
    edge = row(1.0, 1.0, memory=1.0, as_measured=float(np.exp(0.999 * SIDES * 0.1)), memory_spread=0.1)
    assert score("all", "all", [edge]).memory_coverage == 1.0


def test_rows_count_where_they_are_priced_and_not_doubted() -> None:
    doubted, refused = row(1.0, 1.0, doubt="odd"), row(1.0, None, plan=None)
    found = Validation(rows=(row(), row(), doubted, refused), scores=())
    assert (found.doubtful, found.refused, found.overall) == (1, 1, None)
    assert [each.clean for each in (row(), doubted, refused)] == [True, False, False]
    assert (row(2.0, 1.0).ratio, row(None, 1.0).ratio, refused.ratio) == (0.5, None, None)
    far, near, half = row(1.0, 1.9), row(1.0, 1.1), row(1.0, 0.5)
    assert worst([near, far, half, row(1.0, 9.0, doubt="odd")], 2) == [half, far]
    piped = Plan(pp=2, dp=4)
    assert row(plan=piped).run.doubted == ""
    assert row(plan=piped, cells={"global_batch": ""}).run.doubted == "it names no global_batch"
    assert row(cells={"global_batch": ""}).run.doubted == ""
    assert row(cells={"micro_batch": ""}).run.doubted == "it names no micro_batch"


def test_a_suspect_row_says_what_may_be_wrong() -> None:
    terms = {"gemm": 0.6, "tp_communication": 0.25, "bubble": 0.15}
    assert _dominant(row(terms=terms)) == "tp communication is 25% of the predicted time"
    less = {"gemm": 0.7, "attention": 0.06, "tp_communication": 0.24}
    assert _dominant(row(terms=less)) == "matrix products and attention are 76% of the predicted time"
    assert _dominant(row(1.0, None, terms=less)) == "not priced"
    said = suspicion(row(1e6, 1.0, terms=terms, fits=False, out_of_memory=False, assumed=("tp", "pp")))
    slow = "measured MFU 0.0%: bound by the host or the network"
    assert said.startswith(f"assumed tp, pp; {slow}; predicted not to fit; ")
    for other in (row(fits=False), row(fits=True, out_of_memory=False), row(fits=False, out_of_memory=True)):
        assert "predicted not to fit" not in suspicion(other)


def test_the_best_of_a_group_is_a_choice_of_two_plans_at_least() -> None:
    def of(plan: Plan, measured: float, predicted: float, group: str = "a") -> PricedRun:
        return row(measured, predicted, plan=plan, group=group)

    one, other, third = Plan(dp=8), Plan(tp=2, dp=4), Plan(tp=4, dp=2)
    alone = [of(one, 9.0, 1.0, "b"), of(one, 8.0, 1.0, "b")]
    chosen = score("all", "all", [of(one, 1.5, 1.0), of(other, 1.0, 1.2), *alone])
    assert chosen.choice is not None
    assert (chosen.choice.groups, chosen.choice.worst_regret, chosen.choice.rank_correlation) == (1, 0.5, None)
    three = score("all", "all", [of(one, 1.0, 1.0), of(other, 2.0, 2.0), of(third, 4.0, 3.0)])
    assert three.choice is not None
    assert (three.choice.mean_regret, three.choice.rank_correlation) == (0.0, pytest.approx(1.0))
    assert choice_of([]) is None
    many = choice_of([(np.array([1.0, 2.0]), np.array([1.0 + 0.1 * place, 1.0])) for place in range(11)])
    assert many is not None
    assert (many.mean_regret, many.p90_regret, many.worst_regret) == pytest.approx((0.5, 0.9, 1.0))
    found = errors_of([1.1, 0.7, 1.0], [1.0, 1.0, 1.0])
    assert found is not None
    assert (found.median, found.bias) == (pytest.approx(0.1), pytest.approx(-0.2 / 3))


def test_parts_to_leave_out_are_whole_groups_dealt_evenly() -> None:
    groups = [[place] for place in range(MOST_FOLDS)]
    assert _spread(groups) == groups
    dealt = _spread([*groups, [20, 21, 22]])
    assert len(dealt) == MOST_FOLDS
    assert sorted(map(len, dealt)) == [1] * (MOST_FOLDS - 2) + [2, 3]

    def run(number: int, model: str, gpu: str, source: str = "lab") -> Run:
        return Run(id=str(number), row={"source": source, "model": model, "gpu": gpu}, stack_name="mine")

    runs = [run(number, "abc"[number % 3], "h100" if number < 8 else "a100") for number in range(20)]
    parts = [part.tolist() for part in folds(runs)]
    assert [part for part in parts if len(part) == 8] == [list(range(8))]  # of two devices the one of half at most
    assert sorted(place for part in parts if len(part) < 8 for place in part) == list(range(20))
    numbers = like_runs(runs)
    assert len(set(numbers)) == 6
    assert numbers[0] == numbers[3] != numbers[1]
    assert _far_ends(runs) == []  # without jobs there are none
    sized = [row(job=small_job(gpus)).run for gpus in (8, 8, 16, 64)]
    assert [0, 1] in _far_ends(sized)
    assert [3] in _far_ends(sized)
    assert [2] not in _far_ends(sized)
    assert _far_ends([*sized, runs[0]]) == []
    assert (site_name(runs[0]), site_name(run(0, "a", "h100", ""))) == ("lab", YOURS)
    alike = row(group="g").run
    assert plan_group(alike) == plan_group(row(group="g", plan=Plan(tp=2, dp=4)).run)
    assert plan_group(alike) != plan_group(row(group="g", cells={"attention_kernel": "math"}).run)


def optimum(unit: list[float], information: list[list[float]], home: list[float] | None = None) -> Optimum:
    names = ("tp_overlap", "cp_overlap", "dp_overlap")[: len(unit)]
    return Optimum(
        names=names,
        unit=np.array(unit),
        home=np.array(home or [0.5] * len(unit)),
        information=np.array(information),
        cost=0.0,
        evaluations=1,
    )


def test_what_lies_on_a_bound_and_how_much_is_known_after_a_fit() -> None:
    """With the prior's spread s, information 4 / s^2 halves it, and 1 / s^2 leaves it."""
    prior = 1.0 / PRIOR_SPREAD
    found = optimum([0.004, 0.5, 0.996], np.diag([4.0, 1.0, 100.0]) @ np.eye(3) * prior**2)
    assert found.parameters == pytest.approx({"tp_overlap": 0.004, "cp_overlap": 0.5, "dp_overlap": 0.996})
    assert found.at_bound == {"tp_overlap": 0.0, "dp_overlap": 1.0}
    assert optimum([0.006, 0.994], np.eye(2).tolist()).at_bound == {}
    assert found.spreads == pytest.approx({"tp_overlap": 0.5, "cp_overlap": 1.0, "dp_overlap": 0.1})
    assert found.unidentified(3) == ("cp_overlap",)
    assert optimum([], np.zeros((0, 0)).tolist()).spreads == {}
    sharp = [[100.0 * prior**2, 0.0], [0.0, 100.0 * prior**2]]
    assert optimum([0.9, 0.6], sharp).unidentified(2) == ()
    assert optimum([0.9, 0.6], sharp).unidentified(1) == ("cp_overlap",)  # the nearer to its home
    both = [[100.5 * prior**2, 99.5 * prior**2], [99.5 * prior**2, 100.5 * prior**2]]  # their sum alone
    assert optimum([0.6, 0.55], both).unidentified(2) == ("cp_overlap",)
    for share, vague in ((1.01, False), (0.99, True)):  # seven tenths of the prior's spread
        told = optimum([0.6], [[share * prior**2 / 0.49]])
        assert (told.unidentified(1) != ()) is vague


def test_a_fit_by_hand() -> None:
    """Two errors that a parameter moves apart: the slope of each, the least cost, and what it is made of."""

    def errors(values: Mapping[str, float]) -> Any:
        return np.array([values["tp_overlap"] - 0.3, 2.0 * (values["tp_overlap"] - 0.3)])

    for at in (0.2, 0.8):
        slopes = derivatives(errors, ["tp_overlap"], np.array([at]), errors({"tp_overlap": at}))
        assert slopes == pytest.approx(np.array([[1.0], [2.0]]))
    assert derivatives(errors, [], np.zeros(0), np.zeros(2)).shape == (2, 0)
    found = solve(errors, ["tp_overlap"], {"tp_overlap": 0.5}, {"tp_overlap": 0.9}, prior=0.0)
    assert found.parameters["tp_overlap"] == pytest.approx(0.3, abs=1e-3)
    assert found.cost == pytest.approx(0.0, abs=1e-4)
    assert len(found.errors) == 2
    held = solve(errors, ["tp_overlap"], {"tp_overlap": 0.5}, {"tp_overlap": 0.3}, weights=np.array([2.0, 0.0]))
    u = held.parameters["tp_overlap"]
    loss = 2.0 * (sqrt(1 + (u - 0.3) ** 2 / SCALE**2) - 1) + (u - 0.5) ** 2 / (2 * PRIOR_SPREAD**2)
    assert held.cost == pytest.approx(loss)
    assert 0.3 < u < 0.5


def test_bounds_are_told_as_what_they_say_of_the_software() -> None:
    for name, parameter in PARAMETERS.items():
        assert bound_words(name, parameter.low) != bound_words(name, parameter.high)
    ends = PARAMETERS["hbm_efficiency"]
    assert bound_words("hbm_efficiency", ends.low) == f"the lowest of its bounds: {ends.meaning}"
    assert bound_words("hbm_efficiency", ends.high) == f"the highest of its bounds: {ends.meaning}"


def test_a_link_is_scaled_in_its_rates_its_steps_and_its_floor() -> None:
    base = load_link("infiniband-ndr")
    for network in (True, False):
        before = quantities(base, network)
        after = scaled_link(base, 0.5, 3.0, 5.0, network=network)
        assert (after.name, after.latency) == (f"{base.name}-fitted", 3.0 * base.latency)
        for name, value in before.items():
            found = after.quantities[name]
            if name.endswith("_base_latency"):
                assert found == pytest.approx(5.0 * value)
            elif name.endswith("_latency"):
                assert found == pytest.approx(3.0 * value - (3.0 * base.latency if network else 0.0))
            elif name.endswith("_share"):
                assert found == pytest.approx(0.5 * value)
            else:
                assert found == value
    faster = scaled_link(base, 9.0, 1.0, 1.0).quantities
    assert all(value <= 1.0 for name, value in faster.items() if name.endswith("_share") and "copy" not in name)
    assert scaled_link(scaled_link(base, 1.0, 1.0, 1.0), 1.0, 1.0, 1.0).name == f"{base.name}-fitted"


def test_like_runs_stand_for_their_median_and_are_no_surer_than_a_third_of_their_noise() -> None:
    first = place(small_job(), Plan(dp=8), 0.4, "lab", TIME)
    noise = float(likeness(TIME).single(Places.of([first]))[0])
    for count, spread in ((1, noise), (4, noise / 2), (9, noise / 3), (100, noise / 3)):
        rows = [replace(first, error=0.1 * number) for number in range(count)]
        (found,) = _clusters(rows, likeness(TIME), 3)
        assert (found.error, found.spread) == (pytest.approx(0.05 * (count - 1)), pytest.approx(spread))
    far = [replace(first, size=tuple(8.0 + each for each in first.size)), first]
    assert len(_clusters(far, likeness(TIME), 2)) == 2
    assert len(_clusters(far, likeness(TIME), 1)) == 1
    run = row(2.0, 1.0).run
    error = known_error(run, 0.5, TIME, "lab")
    assert error == replace(place(small_job(), Plan(dp=8), mfu(small_job(), 2.0 * exp(-0.5)), "lab", TIME), error=0.5)
    with pytest.raises(ValueError, match="is not priced"):
        known_error(replace(run, job=None), 0.5, TIME, "lab")


def test_a_stack_in_the_plot_has_its_median_and_how_many_are_within_a_fifth() -> None:
    assert _stack_row("mine", [0.1, -0.2, 0.21, -0.5]) == ("mine", "4", "20.5%", "50%")
    rows = [row(1.0, 1.0 + 0.1 * number) for number in (3, 1, 2)]
    assert drawn(rows, len(rows)) is rows
    assert drawn(rows, MOST_POINTS) is rows
    assert [each.step_time for each in drawn(rows, MOST_POINTS + 1)] == [1.1, 1.3]


def test_samples_of_two_gpus_or_more_count_and_ports_are_the_nodes() -> None:
    few = [CollectiveSample(kind="all_reduce", message=1e6, time=1e-4, ranks=ranks) for ranks in (1, 1, 2, 2, 2)]
    with pytest.raises(InputError, match="3 usable samples"):
        fit_link(few, load_link("nvlink4"))
    for text, speed in (("200 Gb/s", 25e9), ("2x 200 Gb/s", 6.25e9), ("200 Gb/s per node", 3.125e9)):
        assert _node_speed(text, 8) == speed
    assert _node_speed("200 Gb/s per GPU", 8) == 25e9


def test_an_attention_kernel_says_what_attends_and_what_norms() -> None:
    stack = load_stack("megatron-core")
    split = replace(stack, features=replace(stack.features, fused_norm=False))
    for kernel, attention, norm in (
        ("flash1", "flash1", False),
        ("flash2, fused_rmsnorm", stack.features.attention, True),
        ("sdpa", stack.features.attention, False),
        ("fused softmax", "fused_softmax", False),
        ("unfused", "unfused", False),
    ):
        found = _kernels({"attention_kernel": kernel}, split)
        assert (found["attention"], found["fused_norm"]) == (attention, norm)
        assert "fused_norm" not in _kernels({"attention_kernel": kernel}, stack)
    assert _kernels({}, split) == {}


def test_a_schedule_follows_from_the_framework_and_its_virtual_stages() -> None:
    for framework, vpp, name in (
        ("Megatron-LM", 1, "1f1b"),
        ("Megatron-LM", 2, "interleaved"),
        ("megatron ZB", 1, "zero-bubble"),
        ("megatron zb-2p", 2, "zero-bubble-2p"),
    ):
        assert schedule({"framework": framework}, vpp) == name
    assert schedule({}, 1) == "1f1b"


@pytest.mark.parametrize(
    ("text", "stage", "shard"),
    [
        *(("ddp", 0, 0), ("1", 1, 0), ("1 within 4", 1, 4), ("zero-1", 1, 0), ("no FSDP", 1, 0)),
        *(("2", 2, 0), ("SHARD_GRAD_OP", 2, 0), ("2 within 8", 2, 8), ("ZeRO-2", 2, 0), ("zero3", 3, 0)),
        *(("3", 3, 0), ("3 within 16", 3, 16), ("fsdp", 3, 0), ("fsdp=16", 3, 16), ("fsdp=1", 3, 0), ("hsdp", 3, 8)),
        *(("0", 0, 0), ("0 within 4", 0, 0)),
    ],
)
def test_sharding_as_tables_write_it(text: str, stage: int, shard: int) -> None:
    job = small_job()
    assert _described_sharding({"sharding": text}, job.stack, job.cluster) == (stage, shard)
    for default in (0, 3):
        own = replace(job.stack, features=replace(job.stack.features, default_zero=default))
        for unsaid in ("", "other"):
            assert _described_sharding({"sharding": unsaid}, own, job.cluster) == (default, 0)


def test_what_given_runs_change_is_told_by_group() -> None:
    inside = Interval(low=0.9, high=1.1)
    rows = (
        row(1.0, 1.1, without=1.3, interval=inside),
        row(1.0, 0.9, without=0.9, interval=Interval(low=0.5, high=0.9)),
        row(1.0, 1.5, without=1.5, interval=inside, stack_name="other"),
        row(1.0, 5.0, without=9.0, interval=inside, doubt="odd"),
        row(None, 5.0, without=9.0),
    )
    (told,) = given_section(Validation(rows=rows, scores=(), given=2))
    assert told.heading == "Given 2 runs: mean error of each group's other runs"
    (table,) = told.blocks
    assert isinstance(table, Table)
    mean, first, second = table.rows
    assert first[1:] == pytest.approx((2, 0.2, 0.1, 0.5))
    assert second[1:] == pytest.approx((1, 0.5, 0.5, 1.0))
    assert mean[:2] == ("mean of 2 groups", 3)
    assert mean[2:] == pytest.approx((0.35, 0.3, 0.75))
    assert given_section(Validation(rows=rows, scores=())) == []
    one = Validation(rows=rows, scores=(score("all", "all", [each for each in rows if each.clean]),))
    assert headline(one) == "Step time of 3 runs: MAPE 23.3%, median 10.0%, bias +16.7%"
    assert headline(Validation(rows=(), scores=())).startswith("No clean row")
    assert scatter(one).words.startswith("2 of 3 runs lie between")
    assert "is drawn" not in scatter(one).words


def test_a_run_is_surrounded_by_others_of_its_device_and_within_their_ranges() -> None:
    rest = [row(job=small_job(gpus)).run for gpus in (8, 64)]
    left = [row(job=small_job(gpus)).run for gpus in (8, 16, 128)]
    other = row(job=replace(small_job(16), cluster=load_cluster("dgx-a100"))).run
    assert _surrounded([*left, other, replace(left[0], job=None)], rest).tolist() == [True, True, False, False, False]
    assert devices_of([*rest, other, replace(other, job=None)]) == ("a100-80", small_job().cluster.device.name)
    assert ranges_of([replace(other, job=None)]) == {}


def test_parts_are_left_out_by_a_step_to_the_others() -> None:
    """Of errors that a parameter moves one for one: without the part it goes to where the others' mean is nearly 0."""
    runs = [row(1.0 + number).run for number in range(4)]
    offsets = {run.step_time: offset for run, offset in zip(runs, (0.0, 0.01, -0.01, 0.2), strict=True)}

    def errors(some: Any, values: Mapping[str, float]) -> Any:
        return np.array([values["tp_overlap"] - 0.5 + offsets[run.step_time] for run in some])

    fitted = replace(load_stack("megatron-core"), parameters={"tp_overlap": 0.5}, fixed={})
    home = replace(fitted, parameters={"tp_overlap": 0.6})
    without, with_far = refitted(runs, [np.array([3]), np.array([0])], fitted, ["tp_overlap"], errors, home)
    pull = 1.0 / PRIOR_SPREAD**2 / (3 / SCALE**2 + 1.0 / PRIOR_SPREAD**2)
    assert without["tp_overlap"] == pytest.approx(0.5 + 0.1 * pull, abs=1e-3)
    assert 0.4 < with_far["tp_overlap"] < without["tp_overlap"]
    left = held_out(runs, [np.array([3, 1]), np.array([1])], fitted, ["tp_overlap"], errors, home)
    assert (left.places.tolist(), left.parts.tolist(), left.like.tolist()) == (
        [3, 1, 1],
        [0, 0, 1],
        [True, True, False],
    )
    assert abs(left.errors[0]) >= 0.2
    assert left.part(np.array([False, True, False])).places.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400 Gb/s", 50.0),  # a GPU's
        ("400 Gb/s per node", 6.25),
        ("400 Gbps", 6.25),  # as clouds sell it, by the node
        ("300 Gbps", 37.5),
        ("800 Gbps", 12.5),
        ("900 Gb/s", 112.5),
        ("1000 Gb/s", 15.625),  # more than a port has
        ("1600 Gb/s", 25.0),
        ("4 ports 400 Gb/s", 25.0),
        ("2x 400 Gb/s per GPU", 100.0),
        ("1x 400 Gb/s per GPU", 50.0),
        ("50 GB/s", 50.0),
        ("NDR", 50.0),
        ("nothing", 0.0),
    ],
)
def test_a_rate_is_a_gpus_or_a_nodes(text: str, rate: float) -> None:
    """Of 8 GPUs [GB/s]."""
    assert _node_speed(text, 8) / 1e9 == pytest.approx(rate)


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        ({"samples_per_s": "4"}, 2.0),
        ({"tokens_per_s": "1000", "tokens_per_s_scope": "all GPUs"}, 32.0),
        ({"tokens_per_s": "1000", "tokens_per_s_scope": "per GPU"}, 4.0),
        ({"tokens_per_s": "1000", "tokens_per_s_scope": "a node"}, 0.0),
        ({"samples_per_s": "4", "tokens_per_s": "1", "tokens_per_s_scope": "all"}, 2.0),
        ({}, 0.0),
    ],
)
def test_throughput_is_a_step_time(cells: dict[str, str], seconds: float) -> None:
    """8 samples of 4,000 tokens on 8 GPUs."""
    assert step_seconds(cells, 8, 32_000, 8) == seconds


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"attention_efficiency"}),
        ({"tp": 2}, {"attention_efficiency", "tp_overlap", "scale_up_efficiency"}),
        ({"cp": 2}, {"attention_efficiency", "cp_overlap", "dp_overlap", "scale_up_efficiency"}),
        ({"dp": 2}, {"attention_efficiency", "dp_overlap", "scale_up_efficiency"}),
        ({"pp": 2}, {"attention_efficiency", "p2p_overlap", "scale_up_efficiency"}),
        ({"ep": 2, "dp": 2}, {"attention_efficiency", "dp_overlap", "ep_overlap", "scale_up_efficiency"}),
        (
            {"dp": 16},
            {"attention_efficiency", "dp_overlap", "scale_up_efficiency", "network_efficiency", "straggler"},
        ),
    ],
)
def test_parameters_of_what_a_run_does_are_fitted_to_it(changes: dict[str, Any], names: set[str]) -> None:
    plan = Plan(**changes)
    job = replace(small_job(), gpus=plan.gpus, global_batch=48)
    decided = {
        *("attention_efficiency", "score_passes", "tp_overlap", "dp_overlap", "p2p_overlap", "scale_up_efficiency"),
        *("network_efficiency", "straggler", "cp_overlap", "ep_overlap", "expert_imbalance", "expert_efficiency"),
        *("expert_host", "pipelined_collective"),
    }
    found = {*informed([row(job=job, plan=plan).run])}
    assert found & decided == names
    assert found - decided  # whatever the run
    unfused = replace(job, stack=replace(job.stack, features=replace(job.stack.features, attention="unfused")))
    assert {*informed([row(job=unfused, plan=plan).run])} & decided == names - {"attention_efficiency"} | {
        "score_passes"
    }


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans among which the fastest is asked for; the last of them is."""
    plans: list[Plan] = []

    def last(job: Any, candidates: list[Plan]) -> Plan:
        plans.extend(candidates)
        return candidates[-1]

    monkeypatch.setattr(recipe, "_fastest", last)
    return plans


@pytest.mark.parametrize(
    ("samples", "pp", "vpp", "sizes"),
    [(12, 1, 1, {1, 2, 4}), (7, 1, 1, {1}), (12, 2, 2, {1, 2}), (12, 4, 2, {1}), (6, 4, 2, {1})],
)
def test_usual_micro_batches_divide_the_samples(
    samples: int, pp: int, vpp: int, sizes: set[int], tried: list[Plan]
) -> None:
    """Powers of two, with whole rounds of an interleaved schedule; one sample where no other way is left."""
    assumed: list[str] = []
    plan = Plan(pp=pp, vpp=vpp, num_microbatches=samples, schedule="interleaved" if vpp > 1 else "1f1b")
    best = recipe.in_usual_micro_batches(small_job(), plan, assumed)
    assert {each.micro_batch for each in tried} == sizes
    assert all(each.micro_batch * each.num_microbatches == samples for each in tried)
    assert assumed == [f"micro_batch {best.micro_batch}"]


def test_a_fabric_that_is_named_is_that_of_all_tiers_between_nodes() -> None:
    row = {"gpu": "H100", "gpus": "64", "gpus_per_node": "8", "inter_link": "32x 100Gb/s EFA per node"}
    cluster = read_cluster(row)
    link = load_link("efa-v2")
    assert len(cluster.tiers) > 1
    assert [tier.link.name for tier in cluster.tiers[1:]] == [link.name] * (len(cluster.tiers) - 1)
    assert cluster.tiers[0].link.name != link.name
    assert cluster.tiers[1].link.latency == link.latency
    assert cluster.tiers[1].link.bandwidth == pytest.approx(32 * 12.5e9 / 8)


@pytest.mark.parametrize("offset", [0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 8.0])
def test_runs_stand_apart_where_their_errors_differ_by_more_than_one_runs_noise(offset: float) -> None:
    first = place(small_job(), Plan(dp=8), 0.4, "lab", TIME)
    rows = [first, replace(first, size=tuple(offset + each for each in first.size))]
    alike = likeness(TIME)
    like = alike.covariance(Places.of(rows), Places.of(rows))
    apart = like[0, 0] + like[1, 1] - 2 * like[0, 1]
    assert len(_clusters(rows, alike, 2)) == (2 if apart > alike.noise**2 else 1)


@pytest.mark.parametrize(
    ("gone", "kept"),
    [
        ([("a",), ()], [("b", "c")]),
        ([("a", "b", "c"), ()], [("b",)]),  # the best identified stays
        ([("b",), ("a", "c"), ()], [("a", "c"), ("c",)]),
        ([()], []),
    ],
)
def test_what_the_runs_do_not_identify_goes_and_the_best_of_it_stays(
    gone: list[tuple[str, ...]], kept: list[tuple[str, ...]]
) -> None:
    left, asked = iter(gone), []
    spreads = {"a": 0.3, "b": 0.1, "c": 0.2}

    def optimum() -> Any:
        missing = next(left)
        return SimpleNamespace(unidentified=lambda most: missing, spreads=spreads, at_bound={}, parameters={})

    def fit(stack: Any, names: Any, begin: Any) -> Any:
        asked.append(names)
        return optimum()

    stack = load_stack("megatron-core")
    settled(fit, lambda fitted: fitted, stack, tuple(spreads), optimum(), 100)
    assert asked == kept


@pytest.mark.parametrize("layers", [11, 12, 13, 15, 16])
def test_no_more_layers_are_recomputed_than_there_are(layers: int, tried: list[Plan]) -> None:
    assumed: list[str] = []
    job = small_job()
    best = recipe.with_usual_layers(replace(job, model=replace(job.model, layers=layers)), Plan(dp=8), assumed)
    step = recipe.RECOMPUTED_BY
    assert [plan.recompute_first for plan in tried] == [0, *(n for n in range(1, layers + 1) if n % step == 0)]
    assert assumed == [f"{best.recompute_first} layers recomputed"]


@pytest.mark.parametrize(
    ("nics", "own", "link", "ports"),
    [
        (8, False, "infiniband-ndr", "1"),
        (4, False, "infiniband-ndr", "0.5"),
        (0, False, "infiniband-ndr", "1"),
        (2, True, "efa-v2", "0.25"),
    ],
)
def test_a_node_has_the_network_of_its_preset_and_its_own_ports(nics: int, own: bool, link: str, ports: str) -> None:
    node: Any = SimpleNamespace(gpus=[*range(8)], nearest_nics=lambda gpu: {gpu % nics} if nics else set())
    usual = load_cluster("dgx-h100")
    found = NodeCluster(name="its", node=node, usual=usual, network=load_link("efa-v2") if own else None)
    text = "\n".join(found._network())
    assert f'link = "{link}"' in text
    assert text.endswith(f"ports_per_gpu = {ports}")
    assert ("--network says another" in text) is not own
    alone = replace(usual, tiers=usual.tiers[:1])
    if not own:
        with pytest.raises(InputError, match="no network between nodes"):
            replace(found, usual=alone)._network()


@pytest.mark.parametrize(
    ("size", "links", "mesh"), [(1, 0, None), (2, 4, None), (3, 4, True), (4, 4, True), (3, 18, False), (8, 18, False)]
)
def test_gpus_that_are_joined_pair_by_pair_are_a_mesh(size: int, links: int, mesh: bool | None) -> None:
    """Of 18 links of a GPU, so many to each other: more in all than there are go through a switch."""
    node: Any = SimpleNamespace(
        gpus=[*range(size)], scale_up_size=size, nvlinks=lambda one, other: links, nvlink_bandwidth=lambda link: 1e11
    )
    text = NodeCluster(name="its", node=node, usual=load_cluster("dgx-h100"))._nvlink()
    assert bool(text) is (size > 1)
    assert ('topology = "mesh"' in text) is bool(mesh)
    if mesh:
        assert 'p2p_bandwidth_one_way = "100 GB/s"' in text


@pytest.mark.parametrize(("count", "kept"), [(1, 1), (60, 60), (61, 4)])
def test_some_dozens_of_given_runs_count_each_and_more_are_thinned(
    count: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place(small_job(), Plan(dp=8), 0.4, "lab", TIME)
    rows = tuple(replace(first, size=tuple(float(n) + each for each in first.size)) for n in range(count))
    monkeypatch.setattr(known, "known_errors", lambda runs: rows)
    stack = load_stack("megatron-core")
    told = knowing(stack, [], "runs.csv")
    assert len(told.known) - len(stack.known) == kept


@pytest.mark.parametrize(("error", "right"), [(3.4, True), (-3.4, True), (3.41, False), (-3.41, False)])
def test_thirty_times_what_is_predicted_is_a_mistake(
    error: float, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = replace(place(small_job(), Plan(dp=8), 0.4, "lab", TIME), error=error)
    monkeypatch.setattr(known, "known_errors", lambda runs: (row,))
    if right:
        assert knowing(load_stack("megatron-core"), [], "runs.csv").known[-1] == row
    else:
        with pytest.raises(InputError, match=r"runs\.csv: a run measured"):
            knowing(load_stack("megatron-core"), [], "runs.csv")


def test_verdicts_count_what_was_predicted_of_each_outcome() -> None:
    counts = {(False, True): 4, (False, False): 3, (True, True): 2, (True, False): 1, (None, True): 5}
    rows = [row(out_of_memory=failed, fits=fits) for (failed, fits), count in counts.items() for _ in range(count)]
    assert _verdicts(rows) == Verdicts(
        fits_predicted_fits=4, fits_predicted_oom=3, oom_predicted_fits=2, oom_predicted_oom=1
    )
    assert _verdicts(rows).runs == 10


def test_a_stack_is_written_with_what_it_has_and_no_more() -> None:
    bare = tomllib.loads(stack_toml(Stack(name="mine")))
    assert bare == {"name": "mine", "runs": 0, "features": {}, "parameters": {}, "residuals": {}, "provenance": {}}
    launch = PARAMETERS["launch"]
    whole = Stack(
        name="mine",
        parent="megatron-core",
        runs=7,
        devices=("h100",),
        features=Features(zero_stages=(0, 1, 3), uneven_stages=False),
        parameters={"launch": 6e-6},
        fixed={"step_overhead": Fixed(value=0.25, why="as told")},
        residuals={"mape": 0.0625},
        ranges={"gpus": (8.0, 64.0)},
        known=(place(small_job(), Plan(dp=8), 0.4, "lab", TIME),),
    )
    text = stack_toml(whole)
    found = tomllib.loads(text)
    (row,) = found.pop("known")
    assert (row["site"], row["quantity"]) == ("lab", TIME)
    assert found == {
        **{"name": "mine", "parent": "megatron-core", "runs": 7, "devices": ["h100"]},
        "features": {"zero_stages": [0, 1, 3], "uneven_stages": False},
        "parameters": {"launch": 6e-6},
        "fixed": {"step_overhead": {"value": 0.25, "why": "as told"}},
        **{"residuals": {"mape": 0.0625}, "ranges": {"gpus": [8, 64]}, "provenance": {}},
    }
    assert f"launch = 6e-06  # {launch.unit}: {launch.meaning}" in text


def test_an_error_is_what_the_ratio_is_off_one() -> None:
    assert [each.error for each in (row(1.0, 1.5), row(2.0, 1.0), row(None, 1.0), row(1.0, None))] == [
        0.5,
        -0.5,
        0.0,
        0.0,
    ]
    rows = [row(1.0, 1.5), row(1.0, 0.5), row(None, 9.0), row(1.0, 1.1)]
    assert worst(rows, 2) == [rows[1], rows[0]]  # half is farther than half as much again


def test_lines_of_a_fifth_stand_on_either_side_of_the_diagonal() -> None:
    lines = _guides([3.0, 12.0])
    assert [(line["x"], line["y"]) for line in lines] == [
        ([2.0, 18.0], pytest.approx([2.0 * factor, 18.0 * factor])) for factor in (1.0, 1.2, 0.8)
    ]
    assert _guides([]) == []
