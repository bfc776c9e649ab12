"""Hardware that is better in one thing never makes a plan slower, nor one that fits too large."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price
from tests.objectives.better import BETTER
from tests.objectives.drawn import MODELS, cluster, jobs, knobs, plans, stack
from tests.thorough import cases

# An overlapped exchange with activations on the host: while the GPU waits for launches the host link is free.
HOSTED = Plan(ep=2, dp=2, num_microbatches=2, activation_offload=50, overlap_exchange=True)
BY_HOST = Job(
    model=MODELS[2],
    cluster=cluster("tpu-v5p-pod"),
    stack=stack("litgpt-2023"),
    gpus=64,
    seq_len=4096,
    global_batch=64,
)


@settings(max_examples=cases(60, sample=20))
@given(job=jobs(), plan=plans(), settings_of=knobs(), times=st.floats(1.001, 4.0))
@example(job=BY_HOST, plan=HOSTED, settings_of=Knobs(bucket=1e7, comm_sm_share=0.25, offload=0.0), times=2.0)
def test_no_plan_loses(job: Job, plan: Plan, settings_of: Knobs, times: float) -> None:
    before = price(job, Plans.of([plan]), settings_of)
    for what, better in BETTER.items():
        more = replace(job, cluster=better(job.cluster, times))
        after = price(more, Plans.of([plan]), settings_of)
        assert after.step_time[0] <= before.step_time[0] * (1 + 1e-9), what
        assert after.reserved[0] - more.usable_memory <= before.reserved[0] - job.usable_memory + 1.0, what
