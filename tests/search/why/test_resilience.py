"""After losing nodes: the plans use what is left, keep their shape where they say so, and lose what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.search.lattice.oracle import Sweep
from optimizer.search.plan.alternatives import estimate_of_plan
from optimizer.search.plan.best import Best, best_plan
from optimizer.search.why import resilience
from optimizer.search.why.resilience import Loss, batches, losses
from tests.search.jobs import small_job


def priced(gpus: int, batch: int, minimize: str) -> Best:
    """Two replicas of a part of the GPUs each, as if they were the best."""
    job = replace(small_job(gpus), global_batch=batch, minimize=minimize)
    plan = Plan(tp=gpus // 2, dp=2, num_microbatches=batch // 2)
    estimate = estimate_of_plan(job, plan, Knobs())
    nothing = Sweep(points=None, best=-1, space=0, fitting=0, complete=True, ideal=0.0, knob_bound=0.0)
    return Best(job=job, plan=plan, knobs=Knobs(), estimate=estimate, swept=nothing)


def test_the_same_shape_and_the_best_plan_fit_on_what_is_left(gpt3_job: Job) -> None:
    gpt3_job = replace(gpt3_job, gpus=256, global_batch=384).with_limits(max_vpp=2)
    one, two = losses(gpt3_job, (1, 2))
    for loss, gpus in ((one, 248), (two, 240)):
        assert loss.gpus == gpus
        told = loss.to_dict()
        assert (told["gpus_left"], told["lost_share_of_gpus"]) == (gpus, 1 - gpus / 256)
        for name in ("same_shape", "best"):
            assert told[name]["gpus"] + told[name]["idle_gpus"] == gpus
        assert loss.same_shape is not None
        assert loss.best is not None
        shape = loss.before.plan
        plan = loss.same_shape.plan
        assert (plan.tp, plan.cp, plan.pp) == (shape.tp, shape.cp, shape.pp)
        assert loss.same_shape.plan.gpus == loss.same_shape.job.gpus <= gpus
        assert loss.best.worth >= loss.same_shape.worth
        for option in (loss.same_shape, loss.best):
            assert option.plan.dp * option.plan.micro_batch * option.plan.num_microbatches == option.job.global_batch
            assert abs(option.job.global_batch / gpt3_job.global_batch - 1) <= 0.10
            assert loss.loss(option) == pytest.approx(1 - option.worth / loss.before.worth)
    assert two.best is not None
    assert one.best is not None
    assert two.best.worth <= one.best.worth


def test_losses_of_many_nodes_search_each_number_of_gpus_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of 1 to 6 nodes of 2 GPUs: alone each tries the numbers of GPUs that the next one tries as well."""
    job = small_job(16)
    job = replace(job, cluster=replace(job.cluster, gpus_per_node=2))
    alone = [loss.to_dict() for nodes in range(1, 7) for loss in losses(job, (nodes,))]
    searched: list[tuple[int, int, str]] = []

    def counted(other: Job) -> Best | None:
        searched.append((other.gpus, other.global_batch, str(other.limits.fixed)))
        return best_plan(other)

    monkeypatch.setattr(resilience, "best_plan", counted)
    assert [loss.to_dict() for loss in losses(job, range(1, 7))] == alone
    assert len(searched) == len(set(searched))


@pytest.mark.parametrize(("minimized", "per"), [("energy", "joule"), ("cost", "dollar")])
def test_losses_are_of_what_is_minimised(minimized: str, per: str) -> None:
    """The best plan after a loss has the most tokens a joule or a dollar, as the planner's answer on these GPUs."""
    job = replace(small_job(16), minimize=minimized)
    (loss,) = losses(job, (1,))
    assert loss.best is not None
    for option in filter(None, (loss.same_shape, loss.best)):
        assert option.worth <= loss.best.worth
        assert loss.loss(option) == pytest.approx(
            1 - (option.job.tokens / option.value) * loss.before.value / job.tokens
        )
    alone = best_plan(loss.best.job)
    assert alone is not None
    assert loss.best.value == pytest.approx(alone.value)
    assert loss.to_dict()["best"][f"lost_tokens_per_{per}"] == loss.loss(loss.best)


def test_of_plans_that_do_as_much_the_first_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs come with ever fewer GPUs: an equal one would only leave more of them idle."""
    before = priced(8, 48, "energy")
    monkeypatch.setattr(Best, "worth", 1.0)
    found = resilience._best(
        before, [replace(before.job, gpus=gpus) for gpus in (8, 4)], lambda job: replace(before, job=job)
    )
    assert found is not None
    assert found.job.gpus == 8


@pytest.mark.parametrize(("minimize", "fewest"), [("time", 7), ("energy", 5), ("cost", 5)])
def test_too_few_gpus_to_be_as_fast_are_not_tried(minimize: str, fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a quarter more MFU six of eight GPUs would do no more a second; of the others four numbers are tried."""
    before = priced(8, 48, minimize)
    monkeypatch.setattr(Best, "worth", 1.0)
    monkeypatch.setattr(resilience, "LARGER_MFU", 1.25)
    monkeypatch.setattr(resilience, "MOST_COUNTS", 4)
    tried: list[int] = []
    jobs = [replace(before.job, gpus=gpus) for gpus in (8, 8, 7, 6, 5, 4)]
    assert resilience._best(before, jobs, lambda job: tried.append(job.gpus), before) is before
    assert tried == [gpus for gpus in (8, 8, 7, 6, 5) if gpus >= fewest]
    assert resilience._best(before, jobs, lambda job: None) is None


@pytest.mark.parametrize(
    ("gpus", "nodes", "said"),
    [
        (16, 2, "cannot lose 2 nodes of 8 GPUs out of 16 GPUs; give 1 to 1"),
        (17, 3, "cannot lose 3 nodes of 8 GPUs out of 17 GPUs; give 1 to 2"),
        (24, 0, "cannot lose 0 nodes of 8 GPUs out of 24 GPUs; give 1 to 2"),
        (8, 1, "cannot lose 1 node of 8 GPUs out of 8 GPUs; nothing would be left"),
    ],
)
def test_a_loss_of_everything_or_of_nothing_is_refused(gpus: int, nodes: int, said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}$"):
        losses(small_job(gpus), (1, nodes))


def test_a_loss_of_all_but_one_gpu_is_none_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resilience, "best_plan", lambda _: None)
    assert losses(small_job(17), (1, 2)) == ()


@pytest.mark.parametrize(
    ("minimize", "key"),
    [("time", "lost_throughput"), ("energy", "lost_tokens_per_joule"), ("cost", "lost_tokens_per_dollar")],
)
def test_a_loss_as_plain_values(minimize: str, key: str) -> None:
    """Of 16 GPUs, 12 are left, of which 8 are used with 50 sequences instead of 48."""
    before, after = priced(16, 48, minimize), priced(8, 50, minimize)
    told = Loss(nodes=1, gpus=12, before=before, same_shape=None, best=after).to_dict()
    assert (told["lost_nodes"], told["gpus_left"], told["lost_share_of_gpus"]) == (1, 12, 0.25)
    assert told["same_shape"] is None
    best = told["best"]
    assert (best["gpus"], best["idle_gpus"], best["global_batch"]) == (8, 4, 50)
    assert (best["step_time_s"], best["mfu"]) == (after.estimate.step_time, after.estimate.mfu)
    assert before.value != before.estimate.step_time or minimize == "time"
    assert best[key] == pytest.approx(1 - 50 / 48 * before.value / after.value)


@pytest.mark.parametrize(
    ("minimize", "tried"), [("time", [102, 101]), ("energy", list(range(102, 78, -1)))], ids=("time", "energy")
)
def test_how_many_smaller_numbers_are_tried(minimize: str, tried: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """100 of 102 GPUs, a fiftieth better used, do no more a second; of a joule or a dollar 24 numbers are tried."""
    before = replace(priced(16, 48, minimize), job=replace(small_job(102), minimize=minimize))
    monkeypatch.setattr(Best, "worth", 2.0)
    asked: list[int] = []
    jobs = [replace(before.job, gpus=gpus) for gpus in range(102, 60, -1)]
    assert resilience._best(before, jobs, lambda job: asked.append(job.gpus), before) is before
    assert asked == tried


def test_the_better_of_the_jobs_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    before = priced(16, 48, "energy")
    monkeypatch.setattr(Best, "worth", property(lambda best: {16: 1.0, 15: 3.0, 14: 2.0, 13: 3.0}[best.job.gpus]))
    jobs = [replace(before.job, gpus=gpus) for gpus in (16, 15, 14, 13)]
    found = resilience._best(before, jobs, lambda job: replace(before, job=job))
    assert found is not None
    assert found.job.gpus == 15


def test_pinned_replicas_do_not_stand_in_the_way() -> None:
    (loss,) = losses(small_job(16, fixed={"dp": 8, "tp": 2}), (1,))
    assert loss.same_shape is not None
    assert loss.same_shape.plan.tp == 2
    assert loss.same_shape.plan.gpus == 8


def test_a_job_without_a_plan_has_no_losses() -> None:
    assert losses(small_job(16, hbm=2.5e9), (1,)) == ()


def test_batches_stay_within_ten_percent() -> None:
    """48 sequences over 7 replicas: 49; over 40 replicas the nearest, 40, is 17 % away; a tenth is within."""
    assert batches(48, 7, 1) == (49,)
    assert batches(48, 40, 1) == ()
    assert (batches(40, 44, 1), batches(40, 36, 1), batches(40, 45, 1), batches(40, 35, 1)) == ((44,), (36,), (), ())
    assert batches(3, 8, 1) == ()
    assert batches(100, 7, 3) == (98, 105)


def test_every_smaller_number_of_replicas_and_of_nodes_is_tried() -> None:
    """48 sequences are divided by 5 replicas in 50 or 45; 17 GPUs hold two nodes of 8, of replicas of 3 five."""
    job = small_job(24, fixed={"dp": 8, "recompute": "none"})
    smaller = list(resilience._same_shape(job, Plan(tp=3, dp=8, num_microbatches=6), 17))
    assert list(dict.fromkeys(each.gpus for each in smaller)) == [15, 12, 9, 6, 3]
    assert {each.global_batch for each in smaller if each.gpus == 15} == {50}
    assert all(each.limits.fixed == {"recompute": "none", "tp": 3, "cp": 1, "pp": 1} for each in smaller)
    assert [each.gpus for each in resilience._any_shape(job, 17)] == [16, 8]
    single = replace(job, cluster=replace(job.cluster, gpus_per_node=1))
    assert [each.gpus for each in resilience._any_shape(single, 3)] == [3, 2, 1]
