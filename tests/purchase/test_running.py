"""What keeps a run going: checkpoints on the storage there is, spare nodes, deliveries and dates of jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.catalog import load_model
from optimizer.cli import cli
from optimizer.purchase.assumptions import INPUTS, assumptions
from optimizer.purchase.campaign import AUTO, Campaign, Requirements, TrainingRun
from optimizer.purchase.designs.figures import site_pue
from optimizer.purchase.designs.inverse import standby
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import Point, figures_in
from optimizer.purchase.dossier import dossier
from optimizer.purchase.price.goodput import blocked, cheapest_count, checkpoint, waiting
from optimizer.purchase.price.run_cost import usual_reliability, wall_time
from optimizer.purchase.staged import Delivery, course, staged
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.purchase.words import _outcome, checkpoint_sentence, probability_sentences, spares_sentence, summary
from tests.purchase.campaigns import campaign, grid, kinds, quick_planner

DAY = 86400.0
BUYER = ["pareto", "--model", "llama3-8b", "--tokens", "1T", "--hardware", "h100"]


def one(question: Campaign, gpus: int = 4096) -> Point:
    (found,) = pareto(question, grid("h100", gpus=(gpus,)), planner=quick_planner).points
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*BUYER, *arguments])


def test_checkpoints_follow_from_the_model_and_the_storage() -> None:
    usual = {"checkpoint_size": 14.0, "storage": 0.15e9}
    found = checkpoint(405e9, 16384, usual)
    assert found.write == pytest.approx(405e9 * 14 / (16384 * 0.15e9))
    own = checkpoint(405e9, 16384, usual_reliability("h100", "dgx-h100"))
    assert own.bandwidth == pytest.approx(16384 * 62e9 / 256, rel=1e-3)
    slower = checkpoint(405e9, 16384, usual | {"storage": 0.075e9})
    assert slower.write == pytest.approx(2 * found.write)


@given(params=st.floats(1e9, 1e13), gpus=st.sampled_from([8, 512, 16384]), storage=st.floats(1e5, 1e10))
def test_the_storage_is_never_asked_for_more_than_it_takes(params: float, gpus: int, storage: float) -> None:
    usual = dict(usual_reliability()) | {"storage": storage}
    found = wall_time(DAY, gpus, usual, params=params)
    assert 0 < found.storage_share <= 1 + 1e-12
    faster = wall_time(DAY, gpus, usual | {"storage": 2 * storage}, params=params)
    assert faster.wall <= found.wall * (1 + 1e-12)
    assert found.goodput <= wall_time(DAY, gpus, usual).goodput * (1 + 1e-12)


@given(load=st.floats(0.01, 50.0), servers=st.integers(0, 60))
def test_erlangs_formula_is_the_share_of_the_full_state(load: float, servers: int) -> None:
    weights = [1.0]
    for state in range(1, servers + 1):
        weights.append(weights[-1] * load / state)
    assert blocked(servers, load) == pytest.approx(weights[-1] / sum(weights), rel=1e-9)


def test_waiting_is_that_of_a_simulated_fleet() -> None:
    import numpy as np

    random = np.random.default_rng(1)
    values = {"failure_rate": 0.002, "replaced_share": 0.8, "repair": 24.0}
    nodes, spares, back, stood, clock = 60, 2, [0.0] * 0, 0.0, 0.0
    for _ in range(40_000):
        clock += random.exponential(1.0 / (nodes * 0.002 * 0.8))
        back = [time for time in back if time > clock]
        back.append(clock + random.uniform(0.0, 48.0))
        if len(back) > spares:
            first = min(back)
            stood += first - clock
            clock = first
    assert stood / clock == pytest.approx(waiting(spares, nodes, values), rel=0.05)


def test_the_number_of_spares_that_pays_costs_least() -> None:
    question = campaign(spares=AUTO)
    point = one(question)
    assert point.design.spares
    usual = question.scenario(point.design)
    costs = {
        count: figures_in(question, replace(point, design=replace(point.design, spares=count)), usual).cost
        for count in range(40)
    }
    assert min(costs, key=lambda count: costs[count]) == point.design.spares
    assert f"{point.design.spares} spare nodes" in point.design.label()
    assert point.figures.lot.gpus == 4096 + 8 * point.design.spares
    assert point.figures.lot.used == 4096
    rows = standby(question, point)
    assert [item.spares for item in rows if item.pays] == [point.design.spares]
    pays = point.design.spares
    assert [item.spares for item in rows] == [0, pays // 2, pays, 2 * pays]
    assert [item.figures.waiting for item in rows] == sorted((item.figures.waiting for item in rows), reverse=True)
    # The provider's own cost nothing and are always there.
    assert one(campaign()).figures.cost < point.figures.cost


def test_spare_nodes_idle_and_do_not_train() -> None:
    bare, kept = (one(campaign(spares=count)) for count in (200, 400))
    waits = (1.0 - kept.figures.waiting) / (1.0 - bare.figures.waiting)
    assert waits == pytest.approx(1.0)
    pue = site_pue(campaign(), bare.design, campaign().scenario())
    more = 200 * 2800.0 * pue * bare.figures.time_to_train
    assert kept.figures.energy - bare.figures.energy == pytest.approx(more, rel=1e-6)
    assert kept.figures.peak_power - bare.figures.peak_power == pytest.approx(200 * 2800.0 * pue)


def test_racks_are_added_whole_and_no_count_inside_one_ends_the_search() -> None:
    steps = [100.0, *[90.0] * 30, *[80.0] * 30, *[85.0] * 200]
    assert cheapest_count(lambda spares: steps[spares], together=30) == 31
    assert cheapest_count(lambda spares: steps[spares]) == 1


def test_the_time_of_a_repair_decides_the_spares_and_the_report_says_so() -> None:
    found = pareto(campaign(spares=AUTO), grid("h100", gpus=(4096,)), planner=quick_planner)
    answer = dossier(found, kinds("h100"), planner=quick_planner)
    times, counts = zip(*answer.repairs, strict=True)
    assert [time / 3600 for time in times] == [4, 24, 144]
    assert counts[0] < counts[1] < counts[2]
    assert answer.advised
    assert answer.advised.design.spares == counts[1]
    text = spares_sentence(answer)
    assert "The time of a repair decides that: 1 day here (assumed: have it guaranteed)" in text
    assert f"at 4 h it is {counts[0]}, at 6 days it is {counts[2]}" in text


def test_failure_rates_are_those_of_the_device_unless_the_user_gives_one() -> None:
    found = pareto(campaign(), grid(gpus=(4096,)), planner=quick_planner)
    machines = {point.design.kind: point for point in found.points}
    rates = {
        kind: next(item for item in own_assumptions(campaign(), point) if item.name == "failure_rate")
        for kind, point in machines.items()
    }
    # 419 interruptions of 2,048 nodes in 54 days.
    assert rates["h100"].value.mid * DAY == pytest.approx(419 / 2048 / 54, rel=1e-3)
    assert (rates["h100"].grade, rates["b200"].grade) == ("A", "C")
    assert "2605.09370" in rates["b200"].source
    text = " ".join(probability_sentences(dossier(found, kinds(), planner=quick_planner)))
    assert "No failure rate is published for MI300X:" in text
    asked = campaign(assumptions=assumptions(False, {"failure_rate": "0.02", "storage": "0.5"}))
    for point in pareto(asked, grid(gpus=(4096,)), planner=quick_planner).points:
        assert asked.scenario(point.design)["failure_rate"] * DAY == pytest.approx(0.02)
        # What the user says of the storage is taken as said, whatever is published of the cluster.
        assert point.figures.checkpoint.bandwidth == pytest.approx(4096 * 0.5e9)


def test_what_a_rack_leaves_over_is_spare_too() -> None:
    question = campaign(spares=0, buy=True, assumptions=assumptions(True))
    (found,) = pareto(question, grid("gb200-nvl72", gpus=(4096,)), planner=quick_planner).points
    assert found.figures.lot.spare >= 4
    alone = waiting(0, 4096 / 8, question.scenario(found.design))
    assert 0 < found.figures.waiting < alone


def test_the_report_says_what_is_written_and_how_many_spares_pay() -> None:
    for spares in (None, AUTO, 3):
        found = pareto(campaign(spares=spares), grid(gpus=(4096,)), planner=quick_planner)
        answer = dossier(found, kinds(), planner=quick_planner)
        assert answer.advised is not None
        assert "A checkpoint of 5.68 TB every" in checkpoint_sentence(answer.advised)
        words = spares_sentence(answer)
        assert ("the provider's are taken" in words) == (spares is None)
        assert ("as asked" in words) == (spares == 3)
        assert words in summary(answer)


def test_deliveries_end_between_all_at_once_and_the_first_alone() -> None:
    question = campaign()
    few, many = one(question, 2048), one(question, 4096)
    ends = []
    for after in (10.0, 100.0, 200.0):
        found = staged(question, (Delivery(gpus=2048, at=0), Delivery(gpus=2048, at=after * DAY)), (few, many))
        ends.append(found.course.time_to_train)
        assert found.ranges["cost"].low < found.course.cost < found.ranges["cost"].high
        assert [each.gpus for each in found.course.stretches] == [2048, 4096]
    assert many.figures.time_to_train < ends[0] < ends[1] < ends[2] < few.figures.time_to_train
    assert "too late" not in _outcome(question, found)
    late = staged(question, (Delivery(gpus=2048, at=0), Delivery(gpus=2048, at=9000 * DAY)), (few, many))
    assert "; the last comes too late" in _outcome(question, late)
    assert late.course.time_to_train == pytest.approx(few.figures.time_to_train)
    assert late.course.cost == pytest.approx(few.figures.cost)
    missed = replace(question, bounds=Requirements(deadline=0.9 * ends[0]))
    assert not staged(missed, late.deliveries, (few, many)).in_limits


def test_a_delivery_by_hand() -> None:
    # A run of 100 days on few GPUs and 40 on many: 50 days do half of it, the rest takes 20 and a restart.
    few, many = (one(campaign(), gpus).figures for gpus in (2048, 4096))
    slow = replace(few, walls=(100 * DAY,), time_to_train=100 * DAY, cost=100.0, mean_power=1.0)
    fast = replace(many, walls=(40 * DAY,), time_to_train=40 * DAY, cost=80.0, mean_power=2.0)
    model = load_model("llama3-8b")
    runs = [TrainingRun(model=model, tokens=1e12, seq_len=8192, global_batch=512)]
    deliveries = [Delivery(gpus=8, at=0), Delivery(gpus=8, at=50 * DAY)]
    found = course(runs, deliveries, [slow, fast], restart=0.5 * DAY)
    assert found.time_to_train == pytest.approx(70.5 * DAY)
    assert found.cost == pytest.approx(50.0 + 20.5 * 2.0)
    assert found.energy == pytest.approx(50 * DAY + 20.5 * DAY * 2)
    late = [deliveries[0], Delivery(gpus=8, at=100 * DAY)]  # as the run ends
    assert [(each.gpus, each.end) for each in course(runs, late, [slow, fast], restart=0.5 * DAY).stretches] == [
        (8, 100 * DAY)
    ]


def test_jobs_on_one_purchase_keep_their_dates(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("model,tokens,start,by\nllama3-8b,1T,,30d\nllama2-7b,1T,100d,150d\n", encoding="utf-8")
    asked = ["pareto", "--portfolio", str(runs), "--hardware", "h100", "--json"]
    found = json.loads(CliRunner().invoke(cli, [*asked, "--gpus", "64"]).stdout)
    first, last = found["front"][0]["ends_days"]
    assert first < 30
    assert 100 < last < 150
    assert found["front"][0]["time_to_train_days"] == pytest.approx(last)
    result = CliRunner().invoke(cli, [*asked[:-1], "--stages", "64,64@110d"])
    assert "from day 100" in " ".join(result.stdout.split())
    runs.write_text("model,tokens,start,by\nllama3-8b,1T,90d,30d\n", encoding="utf-8")
    wrong = CliRunner().invoke(cli, [*asked, "--gpus", "64"])
    assert wrong.exit_code == 2
    assert "must start before" in wrong.output


def test_stages_from_the_command_line() -> None:
    result = run("--stages", "64,64@5d", "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["staged"]
    assert [each["gpus"] for each in found["stretches"]] == [64, 128]
    assert found["stretches"][0]["end_days"] == pytest.approx(5.0)
    text = " ".join(run("--stages", "64,64@5d").stdout.split())
    assert "In deliveries take H100: 64 GPUs now, 64 more after 5.0 days." in text
    late = run("--stages", "64,64@5d", "--deadline", "2d")
    assert late.exit_code == 3
    assert "No machine meets every limit in these deliveries" in " ".join(late.stdout.split())
    for wrong in ("64,64", "64@3d,64@5d", "64,64@5", "64,x@5d", "64,64@5d,64@4d"):
        failed = run("--stages", wrong)
        assert failed.exit_code == 2
        assert "is no list of deliveries" in failed.output
    assert run("--stages", "64,64@5d", "--gpus", "64").exit_code == 2
    assert run().exit_code == 2
    assert "one design of each" in run("--stages", "64,64@5d", "--nic", "200,400").output
    assert "must be a number of nodes" in run("--gpus", "64", "--spares", "-2").output


@pytest.mark.parametrize("name", INPUTS)
def test_no_assumption_can_be_negative_or_endless(name: str) -> None:
    for text in ("-1", "nan", "1e999"):
        with pytest.raises(InputError, match=f"--assume {name}={text}: .* must be a finite number"):
            assumptions(True, {name: text})
    if INPUTS[name].get("above_zero"):
        with pytest.raises(InputError, match="above 0"):
            assumptions(True, {name: "0"})


def test_every_assumption_may_be_at_its_least() -> None:
    least = {name: "1" if name == "pue" else "1e-6" if INPUTS[name].get("above_zero") else "0" for name in INPUTS}
    for buy in (False, True):
        for name in set(INPUTS) - {"failure_rate"}:
            point = one(campaign(buy=buy, assumptions=assumptions(buy, {name: least[name]}), spares=AUTO))
            assert 0 < point.figures.time_to_train < float("inf"), name
            assert 0 < point.figures.cost < float("inf"), name
