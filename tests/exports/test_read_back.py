"""What is exported is what was priced: arguments read back are the plan and knobs, and cost the same to the digit."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from optimizer.answer import Answer
from optimizer.exports.folder import exported, write_exports
from optimizer.exports.megatron import unexpressed, unexpressed_plan
from optimizer.job import Job
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plans
from optimizer.presets import load_stack
from optimizer.scripts.megatron_args import read_megatron_arguments
from optimizer.search.plan.planner import plan
from tests.invariants.jobs import random_job

STACKS = (
    "megatron-core",
    "megatron-core-2025",
    "megatron-bridge-2025",
    "megatron-te-2026-no-overlap",
    "nemo-2024",
    "megatron-2021",
)
JOBS = 120


def drawn(random: Random) -> Job:
    """A job of Megatron-LM under some limit, so that layers are recomputed and states go to the host."""
    job = replace(random_job(random), stack=load_stack(random.choice(STACKS)))
    limits: dict[str, object] = random.choice(
        ({}, {}, {"hbm": 12e9}, {"hbm": 24e9}, {"fixed": {"recompute": "full"}}, {"fixed": {"pp": 2}})
    )
    return job.with_limits(**limits)


@pytest.mark.parametrize("seed", range(JOBS // 10))
def test_arguments_read_back_cost_the_same(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    read = 0
    while read < 10:
        job = drawn(random)
        answer = plan(job, top=0, trials=random.choice((0, 8)))
        if answer.plan is None:
            continue
        assert unexpressed_plan(job, answer.plan) == () or job.cluster.device.vendor not in ("NVIDIA", "AMD")
        read += 1
        if unexpressed(job, answer.plan, answer.knobs):
            assert "megatron.args" in exported(answer).refused
            continue
        compare(answer, tmp_path / str(read))


def compare(answer: Answer, folder: Path) -> None:
    """Write the launch files, read the plan and the knobs from them, and price both."""
    job = answer.job
    assert answer.plan is not None
    write_exports(answer, folder)
    found, settings = read_megatron_arguments(folder / "megatron.args", gpus=job.gpus)
    knobs = settings["knobs"]
    assert isinstance(knobs, Knobs)
    if blocks := settings.get("blocks"):
        assert isinstance(blocks, int)
        knobs = replace(knobs, comm_sm_share=blocks / job.cluster.device.sms)
    assert (settings["dtype"], settings["seq_len"], settings["layers"]) == (job.dtype, job.seq_len, job.model.layers)
    before, after = price(job, Plans.of([answer.plan]), answer.knobs), price(job, Plans.of([found]), knobs)
    assert float(after.step_time[0]) == float(before.step_time[0])
    assert float(after.reserved[0]) == float(before.reserved[0])


def test_the_folder_s_arguments_are_words_of_a_shell(gpt3_answer: Answer) -> None:
    text = exported(gpt3_answer).texts["megatron.args"]
    assert text == shlex.join(shlex.split(text)) + "\n"
