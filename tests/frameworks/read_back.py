"""Random jobs exported, read back and priced again: every launch file is the plan that was proven.

python -m tests.frameworks.read_back [JOBS [SEED]] prints, for each kind of launch file, how many were written and
refused, and how many cost the same to the last digit when they are read. 200 jobs take some minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from optimizer.answer.answer import Answer
from optimizer.catalog import load_stack
from optimizer.frameworks.every import TARGETS
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.files import read_files
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan
from tests.clients.accepted import STACKS, drawn, risked
from tests.invariants.jobs import random_job

MEGATRON = (
    "megatron-core",
    "megatron-core-2025",
    "megatron-bridge-2025",
    "megatron-te-2026-no-overlap",
    "nemo-2024",
    "megatron-2021",
)
ARGUMENTS = "megatron.args"
# A launch in several files is read from all of them.
WITH = {
    "deepspeed.json": ("trainer-deepspeed.json", "accelerate-deepspeed.yaml"),
    "accelerate-fsdp.yaml": ("trainer-fsdp.json",),
    "trl.yaml": ("accelerate.yaml",),
    "llama-factory.yaml": ("accelerate.yaml",),
}
WITH_OTHERS = {name for names in WITH.values() for name in names}
# Files that launch nothing by themselves, and those that hold a script within others or over a stock configuration.
UNREAD = ("megatron-pytorchjob.yaml", "megatron-skypilot.yaml", "torchtune.sh", "unsloth_sft.py")
OTHERS = {*WITH_OTHERS, *(name for files in TARGETS.values() for name in files.companions), *UNREAD}
# What else has a plan in it and is read by `optimize improve`.
FILES = tuple(name for files in TARGETS.values() for name in files.files if name not in (ARGUMENTS, *OTHERS))


def megatron_job(random: Random) -> Job:
    """A job of Megatron-LM under some limit, so that layers are recomputed and states go to the host."""
    job = replace(random_job(random), stack=load_stack(random.choice(MEGATRON)))
    limits: dict[str, object] = random.choice(
        ({}, {}, {"hbm": 12e9}, {"hbm": 24e9}, {"fixed": {"recompute": "full"}}, {"fixed": {"pp": 2}})
    )
    return job.with_limits(**limits)


def answers(random: Random, jobs: int, targets: tuple[str, ...] = ("", *STACKS)) -> Iterator[Answer]:
    """Answers to so many jobs, of the targets in turn; "" stands for stacks of Megatron-LM as they are."""
    found = 0
    while found < jobs:
        target = targets[found % len(targets)]
        job = drawn(random, target) if target else megatron_job(random)
        answer = plan(job, top=0, trials=random.choice((0, 8)), priced_risk=False, explained=False, read_twice=False)
        if answer.plan is not None:
            found += 1
            yield risked(answer)


def read_config(job: Job, path: Path, *, stated: bool = False) -> tuple[Plan, Knobs]:
    """The plan and knobs of a launch file as commands read it, on the job's machine.

    What is `stated` in the file is asked of nobody: the format, the sequence, the batch and the layers of the job.
    """
    controls = Controls(cluster=job.cluster.name, stack=job.stack.name.partition("@")[0], gpus=job.gpus)
    model = "" if stated else job.model.name
    if not stated:
        controls = replace(controls, model=model, seq_len=job.seq_len, global_batch=job.global_batch)
    files = read_files(
        [str(path), *(str(path.with_name(name)) for name in WITH.get(path.name, ()) if path.with_name(name).exists())]
    )
    question = launch_as_read(read_launch(files, job.gpus, model).launch, controls, path.name)
    if stated:
        read = question.settings
        assert (read["dtype"], read["seq_len"], read["layers"]) == (job.dtype, job.seq_len, job.model.layers)
        assert read["global_batch"] == job.global_batch
    return question.plan, question.knobs


def differing(answer: Answer, path: Path) -> str:
    """How the price of a launch file differs from that of the answer; "" where it is the same to the last digit."""
    ways = (False, True) if path.name == ARGUMENTS else (False,)
    readings = (read_config(answer.job, path, stated=stated) for stated in ways)
    return "; ".join(filter(None, (_differing(answer, *reading) for reading in readings)))


def _differing(answer: Answer, found: Plan, knobs: Knobs) -> str:
    job = answer.job
    assert answer.plan is not None
    if len(answer.plan.layers_per_stage) == found.pp == 1:
        found = replace(found, layers_per_stage=answer.plan.layers_per_stage)  # one stage holds all, said or not
    before, after = (price(job, Plans.of([one]), at) for one, at in ((answer.plan, answer.knobs), (found, knobs)))
    seconds, memory = (float(costs.step_time[0]) for costs in (before, after)), before.reserved[0] - after.reserved[0]
    first, second = seconds
    return (
        ""
        if first == second and not memory
        else f"{first!r} s is {second!r} s, {memory:+g} B; {found.summary()} at {knobs}"
    )


def main(arguments: list[str]) -> None:
    """Print the table, and on stderr what differs."""
    jobs, seed = (int(given) for given in (*arguments, *("200", "0")[len(arguments) :]))
    written, refused, same = Counter[str](), Counter[str](), Counter[str]()
    for number, answer in enumerate(answers(Random(seed), jobs)):
        written.update(exported(answer).texts.keys())
        refused.update(exported(answer).refused.keys())
        if not exported(answer).texts:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            write_exports(answer, folder := Path(scratch) / "out")
            for name in (ARGUMENTS, *FILES):
                if not (folder / name).exists():
                    continue
                try:
                    wrong = differing(answer, folder / name)
                except Exception as error:  # a reader that fails is what is looked for
                    wrong = f"{type(error).__name__}: {error}"
                same[name] += not wrong
                if wrong:
                    assert answer.plan is not None
                    shown = f"{answer.job.model.name}, {answer.job.stack.name}, {answer.plan.summary()}"
                    print(f"job {number}, {name}: {wrong}; {shown} at {answer.knobs}", file=sys.stderr)
    print(f"{jobs} jobs\n\n| file | written | refused with a reason | read back at the same price |\n|---|---|---|---|")
    for name in (ARGUMENTS, *FILES):
        print(f"| {name} | {written[name]} | {refused[name]} | {same[name]} |")


if __name__ == "__main__":
    main(sys.argv[1:])
