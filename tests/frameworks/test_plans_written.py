"""Any plan that the software can run, written into a launch, is read back as that plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

import pytest

from optimizer.base.errors import OptimizerError
from optimizer.constraints.rules.every import structural
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.patch import UNSAID
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.search.lattice.enumerate import lattice
from tests.frameworks import launches
from tests.thorough import cases

TITAN_TOKENS = """[model]
name = "llama3"
flavor = "8B"
[training]
max_context_length = 8192
num_tokens_per_microbatch_per_dp_rank = 16384
num_tokens_per_train_step = 1048576
[parallelism]
pipeline_parallel_degree = 2
num_pp_microbatches = 4
[activation_checkpoint]
mode = "full"
"""
TITAN_BEFORE = """[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 8192
data_parallel_degree = -1
tensor_parallel_degree = 2
[experimental]
pipeline_parallel_degree = 2
[activation_checkpoint]
mode = "none"
"""
MAXTEXT_EXPERTS = """base_config: base.yml
model_name: mixtral-8x7b
max_target_length: 4096
per_device_batch_size: 2
gradient_accumulation_steps: 4
ici_fsdp_parallelism: 4
ici_expert_parallelism: 2
dcn_data_parallelism: 4
remat_policy: full
"""
MAXTEXT_PIPED = """base_config: base.yml
model_name: llama3-8b
max_target_length: 8192
per_device_batch_size: 4
ici_pipeline_parallelism: 2
ici_tensor_parallelism: 4
dcn_fsdp_parallelism: 2
num_pipeline_microbatches: 8
remat_policy: save_qkv_proj
"""
MORE: dict[str, tuple[Mapping[str, str], int | None]] = {
    "torchtitan in tokens": ({"new.toml": TITAN_TOKENS}, 32),
    "torchtitan of 2024": ({"old.toml": TITAN_BEFORE}, 32),
    "MaxText with experts": ({"maxtext.yml": MAXTEXT_EXPERTS}, 32),
    "MaxText with a pipeline": ({"maxtext.yml": MAXTEXT_PIPED}, 16),
}
# What a program decides for itself, by how the name of a launch begins.
FOLLOWS = {
    **{
        "torchtitan": {"sequence_parallel"},
        "Primus": {"sequence_parallel"},
        "MaxText": {"etp", "sequence_parallel", "shard"},
    },
    **{"slurm": {"zero_stage"}, "GPT-NeoX": {"shard"}},
}


def drawn(job: Job, count: int) -> Iterator[Plan]:
    """Plans that keep every rule of the job but memory."""
    parts = list(lattice(job, structural(job)))
    if not parts:
        return
    random = Random(0)
    for part in random.choices(parts, weights=[len(part) for part in parts], k=count):
        yield part.plan(random.randrange(len(part)))


@pytest.mark.parametrize("name", [*launches.SAMPLES, *MORE])
def test_a_plan_that_is_written_is_read_back(name: str) -> None:
    texts, gpus = (launches.SAMPLES | MORE)[name]
    files = {each: File(each, text.encode()) for each, text in texts.items()}

    def read(changed: Mapping[str, bytes]) -> LaunchAsRead:
        known = [File(each, changed.get(each, file.data)) for each, file in files.items()]
        return launch_as_read(read_launch(known, gpus, "").launch, Controls(gpus=gpus), name)

    source, question = read_launch(list(files.values()), gpus, ""), read({})
    assert source.changes(question.job, question.plan, question.plan, {}) == ()
    follows = next((names for start, names in FOLLOWS.items() if name.startswith(start)), set())
    written = 0
    for plan in drawn(question.job, cases(60, sample=8)):
        changes = source.changes(question.job, question.plan, plan, {})
        if source.lacking(changes):
            continue
        ways = []
        for changed in source.edited(changes):
            try:
                ways.append(read(changed).plan)
            except OptimizerError:
                continue
        names = [each for each in vars(plan) if each not in UNSAID]
        unlike = [[each for each in names if getattr(way, each) != getattr(plan, each)] for way in ways]
        assert any(follows >= set(each) for each in unlike), (plan, unlike)
        written += 1
    assert written or source.launch.lacks("parallelism.data_parallel_shard_degree")  # of an older release
