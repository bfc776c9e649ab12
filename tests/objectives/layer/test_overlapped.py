"""The exchange of tokens beside another micro-batch: what it hides, what it costs, and what no plan gains by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.overlapped import EXPERT_ALL_TO_ALL, LAUNCH, overlapped
from optimizer.objectives.pipeline.schedules import paired_share
from optimizer.objectives.step.price import price

PLAN = Plan(ep=32, pp=4, vpp=2, dp=64, num_microbatches=16, schedule="interleaved", dispatcher="deepep")


def job(cluster: str = "dgx-h100", **features: Any) -> Job:
    stack = load_stack("megatron-core-2025")
    return Job(
        model=load_model("qwen3-30b-a3b"),
        cluster=load_cluster(cluster),
        stack=replace(stack, features=replace(stack.features, **features)),
        gpus=256,
        seq_len=4096,
        global_batch=1024,
    )


def seconds(question: Job, plan: Plan) -> float:
    return float(price(question, Plans.of([plan])).step_time[0])


def test_a_pair_hides_what_fits_under_its_computation_less_the_multiprocessors_taken() -> None:
    """4 s of exchange under 3 s of computation, share 0.5: 1.5 s hide, a tenth of which computation loses."""
    names = ("gemm", "attention", "elementwise", "tp_communication", "cp_communication", EXPERT_ALL_TO_ALL, LAUNCH)
    forward, backward = (
        {name: np.array([value]) for name, value in zip(names, row, strict=True)}
        for row in ((0.5, 0.25, 0.25, 0, 0, 1.0, 0), (1.0, 0.5, 0.5, 0, 0, 3.0, 0))
    )
    none = np.zeros(1)
    ahead, back = overlapped(forward, backward, (none, none), 0.5, np.array([0.1]))
    assert float(ahead[EXPERT_ALL_TO_ALL][0] + back[EXPERT_ALL_TO_ALL][0]) == pytest.approx(-1.5 * 0.9)
    assert float(ahead[EXPERT_ALL_TO_ALL][0]) == pytest.approx(-1.5 * 0.9 / 4)
    assert float(ahead[LAUNCH][0] + back[LAUNCH][0]) == 0.0
    # 7 s of GPU time and 0.75 of other messages less 1.35 leave 6.4 s: a host that needs 7 s is waited for, 0.6 s, of
    # which the launches, 0.2 s, show anyhow. Its passes share the wait as they share its launches, 2 to 5.
    forward |= {"tp_communication": np.array([0.25]), LAUNCH: np.array([0.2])}
    backward |= {"cp_communication": np.array([0.5])}
    hosts = (np.array([2.0]), np.array([5.0]))
    ahead, back = overlapped(forward, backward, hosts, 0.5, np.array([0.1]))
    assert [float(gain[LAUNCH][0]) for gain in (ahead, back)] == pytest.approx([0.4 * 2 / 7, 0.4 * 5 / 7])
    # Marks are shown whatever the GPU does.
    ahead, back = overlapped(forward, backward, hosts, 0.5, np.array([0.1]), 0.7)
    assert [float(gain[LAUNCH][0]) for gain in (ahead, back)] == pytest.approx([0.2, 0.5])


def test_a_plan_gains_the_share_of_its_passes_that_pair() -> None:
    """Nothing pairs in 4 micro-batches of 4 stages; of 16, (16 - 4) / (16 + 3 / 2) of the time does."""
    on = replace(PLAN, overlap_exchange=True)
    few = replace(on, num_microbatches=4)
    assert paired_share(Plans.of([PLAN, on, few])).tolist() == pytest.approx([0, 12 / 17.5, 0])
    question = job()
    assert seconds(question, few) == pytest.approx(seconds(question, replace(few, overlap_exchange=False)))
    plain, paired = (price(question, Plans.of([plan])) for plan in (PLAN, on))
    assert float(paired.step_time[0]) < float(plain.step_time[0])
    all_to_all = [float(costs.time[EXPERT_ALL_TO_ALL][0]) for costs in (plain, paired)]
    assert 0.3 * all_to_all[0] < all_to_all[1] < 0.8 * all_to_all[0]
    assert sum(float(term[0]) for term in paired.time.values()) == pytest.approx(float(paired.step_time[0]))


@pytest.mark.parametrize(("graphs", "few"), [(False, 256), (True, 512)])
def test_where_the_host_is_the_limit_it_loses(graphs: bool, few: int) -> None:
    """GB200 computes few tokens faster than a host launches their kernels; graphs cannot hold experts that overlap.

    Without graphs a host that waits for the sizes shows its launches anyhow, so that less is left to lose.
    """
    question = job("gb200-nvl72", cuda_graphs=graphs)
    question = replace(question, stack=replace(question.stack, parameters={"launch": 8e-6, "collective_skew": 5e-6}))
    for length, gains in ((4096, True), (few, False)):
        short = replace(question, seq_len=length)
        assert (seconds(short, replace(PLAN, overlap_exchange=True)) < seconds(short, PLAN)) is gains


def test_one_more_pass_runs_ahead_and_keeps_its_activations() -> None:
    question = job()
    plain, paired = (
        float(price(question, Plans.of([replace(PLAN, overlap_exchange=on)])).memory["activations"][0])
        for on in (False, True)
    )
    # (vpp - 1) pp + 2 (pp - 1) + 1 = 11 passes of a virtual stage, and one more
    assert paired == pytest.approx(plain * 12 / 11)


def test_the_overlap_that_a_stack_has_anyhow_does_not_count_twice() -> None:
    """A plan that asks hides by pairs alone, whatever its stack hides under the products of a pass."""
    on = replace(PLAN, overlap_exchange=True)
    assert seconds(job(overlap_exchange=True), on) == pytest.approx(seconds(job(), on))
    assert seconds(job(overlap_exchange=True), PLAN) < seconds(job(), PLAN)
