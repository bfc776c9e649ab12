"""What is exported is what was priced: arguments read back are the plan and knobs, and cost the same to the digit."""

from __future__ import annotations

import shlex
from pathlib import Path
from random import Random

import pytest

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed, launchers
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.megatron.export import unexpressed, unexpressed_plan
from optimizer.job.job import Job
from optimizer.search.plan.planner import plan
from tests.clients.accepted import risked
from tests.frameworks.read_back import ARGUMENTS, FILES, answers, differing
from tests.thorough import cases

SCRIPT = "megatron.sbatch"
EACH = cases(5, sample=2)  # jobs of a seed; python -m tests.frameworks.read_back asks as many as one likes


@pytest.mark.parametrize("seed", range(cases(5, sample=3)))
def test_arguments_read_back_cost_the_same(seed: int, tmp_path: Path) -> None:
    for number, answer in enumerate(answers(Random(seed), EACH, ("",))):
        assert answer.plan is not None
        ours = answer.job.cluster.device.vendor in launchers()["megatron-lm"].vendors
        assert unexpressed_plan(answer.job, answer.plan, answer.knobs) == () or not ours
        if unexpressed(answer.job, answer.plan, answer.knobs):
            assert ARGUMENTS in exported(answer).refused
            continue
        write_exports(answer, tmp_path / str(number))
        assert differing(answer, tmp_path / str(number) / ARGUMENTS) == ""
        assert differing(answer, tmp_path / str(number) / SCRIPT) == ""


@pytest.mark.parametrize(
    ("model", "gpus", "cluster", "seq_len", "batch"),
    [
        ("gpt3", 1024, "dgx-a100-80", 2048, 1536),
        ("llama3-70b", 256, "dgx-h100", 8192, 512),
        ("dbrx", 128, "dgx-h100", 4096, 512),
        ("deepseek-v3", 2048, "dgx-h100", 4096, 15360),
    ],
)
def test_known_jobs_have_one_step_time(
    model: str, gpus: int, cluster: str, seq_len: int, batch: int, tmp_path: Path
) -> None:
    job = Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        stack=aimed(load_stack("megatron-core"), "megatron-lm"),
        gpus=gpus,
        seq_len=seq_len,
        global_batch=batch,
    )
    answer = plan(job, top=0, trials=8, priced_risk=False, read_twice=False)
    assert answer.status == "optimal"
    write_exports(risked(answer), tmp_path / "out")
    for name in (ARGUMENTS, SCRIPT, *FILES):
        if (tmp_path / "out" / name).exists():
            assert differing(answer, tmp_path / "out" / name) == ""


def test_the_folder_s_arguments_are_words_of_a_shell(gpt3_answer: Answer) -> None:
    text = exported(gpt3_answer).texts["megatron.args"]
    assert text == shlex.join(shlex.split(text)) + "\n"
