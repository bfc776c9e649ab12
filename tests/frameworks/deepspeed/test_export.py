import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed, fixed_for
from optimizer.cli import cli
from optimizer.frameworks import every
from optimizer.frameworks.deepspeed.export import ACCELERATE_FILES, DEEPSPEED, DEEPSPEED_FILES, FSDP, unexpressed
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.files import read_files
from optimizer.frameworks.launch_as_read import plan_of
from optimizer.frameworks.read import read_launch
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.switches import switched_to
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan
from tests.thorough import cases

TARGETS = ("deepspeed", "accelerate")
SMALL = ("llama3-8b", "llama3.2-1b", "gpt3-1.3b", "mpt-7b", "qwen2.5-7b", "mistral-7b", "opt-6.7b")


@pytest.fixture
def sharded(gpt3_answer: Answer) -> Answer:
    job = replace(gpt3_answer.job, model=load_model("llama3-8b"), stack=load_stack("llm-foundry-fsdp-2023"), gpus=64)
    plan = Plan(dp=64, zero_stage=3, micro_batch=2, num_microbatches=12, recompute="full")
    return replace(gpt3_answer, job=job, plan=plan)


def test_the_engine_says_batch_format_and_stage(sharded: Answer) -> None:
    config = json.loads(DEEPSPEED_FILES["deepspeed.json"](replace(sharded, knobs=Knobs(bucket=2e8, offload=0.25))))
    assert config["train_batch_size"] == 1536
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 64 == 1536
    assert config["zero_optimization"]["reduce_bucket_size"] == 1e8
    assert config["zero_optimization"]["offload_optimizer"]["ratio"] == 0.25
    assert config["communication_data_type"] == "bf16"


def test_weights_on_the_host_are_written_where_zero_3_has_them(sharded: Answer) -> None:
    stack = switched_to(sharded.job.stack, {"hosted_weights": "on"})
    hosted = replace(sharded, job=replace(sharded.job, stack=stack))
    config = json.loads(DEEPSPEED_FILES["deepspeed.json"](hosted))["zero_optimization"]
    assert config["offload_param"]["device"] == config["offload_optimizer"]["device"] == "cpu"
    fsdp = [YAML(typ="safe").load(ACCELERATE_FILES["accelerate-fsdp.yaml"](each)) for each in (hosted, sharded)]
    assert [each["fsdp_config"]["fsdp_offload_params"] for each in fsdp] == [True, False]
    assert hosted.plan is not None
    less = replace(hosted, plan=replace(hosted.plan, zero_stage=2))
    assert "offload_param" not in json.loads(DEEPSPEED_FILES["deepspeed.json"](less))["zero_optimization"]


def test_each_micro_batch_scatters_its_gradients_as_priced(sharded: Answer) -> None:
    said = json.loads(ACCELERATE_FILES["trainer-fsdp.json"](sharded))
    assert said["accelerator_config"] == {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    assert sharded.plan is not None
    late = replace(sharded.job.stack, features=replace(sharded.job.stack.features, syncs_last=True))
    for other in (
        replace(sharded, job=replace(sharded.job, stack=late)),
        replace(sharded, plan=replace(sharded.plan, num_microbatches=1, micro_batch=24)),
    ):
        assert "accelerator_config" not in json.loads(ACCELERATE_FILES["trainer-fsdp.json"](other))


def test_groups_that_share_weights_are_fsdp2s_mesh(sharded: Answer) -> None:
    assert sharded.plan is not None
    grouped = replace(sharded, plan=replace(sharded.plan, shard=8))
    config = YAML(typ="safe").load(ACCELERATE_FILES["accelerate-fsdp.yaml"](grouped))
    assert config["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 8,
        "parallelism_config_dp_shard_size": 8,
    }
    assert (config["num_processes"], config["num_machines"]) == (64, 8)
    with pytest.raises(InputError, match="groups of 8 that share weights"):
        DEEPSPEED_FILES["deepspeed.json"](grouped)


@pytest.mark.parametrize(
    ("changes", "program", "reason"),
    [
        ({"tp": 2}, DEEPSPEED, "TP 2"),
        ({"pp": 2}, FSDP, "PP 2"),
        ({"zero_stage": 0}, DEEPSPEED, "ZeRO-0"),
        ({"zero_stage": 1}, FSDP, "ZeRO-1"),
        ({"recompute": "selective"}, FSDP, "recomputation of selective as priced"),
        ({"activation_offload": 10}, DEEPSPEED, "activations on the host"),
    ],
)
def test_what_they_lack_is_refused(sharded: Answer, changes: dict[str, int], program: str, reason: str) -> None:
    assert sharded.plan is not None
    assert unexpressed(program, sharded.job, replace(sharded.plan, **changes)) == (reason,)


def test_offload_is_all_or_none_below_stage_3(sharded: Answer) -> None:
    assert sharded.plan is not None
    two, half = replace(sharded.plan, zero_stage=2), Knobs(offload=0.5)
    assert unexpressed(DEEPSPEED, sharded.job, two, half) == ("50% of the optimizer on the host (all or none)",)
    assert unexpressed(DEEPSPEED, sharded.job, two, Knobs(offload=1.0)) == ()
    assert unexpressed(FSDP, sharded.job, two, half) == ("a share of the optimizer on the host",)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(2))
def test_configs_read_back_cost_the_same(seed: int, target: str, tmp_path: Path) -> None:
    random, read = Random(seed), 0
    while read < cases(8, sample=3):
        job = drawn(random, target)
        answer = plan(job, top=0, trials=0, priced_risk=False, explained=False, read_twice=False)
        if answer.plan is None:
            continue
        found = exported(answer)
        assert {*found.texts, *found.refused} == set(every.TARGETS[target].files)
        assert not found.refused
        read += 1
        paths, _ = write_exports(answer, tmp_path / str(read))
        compare(answer, paths)


def drawn(random: Random, target: str) -> Job:
    job = Job(
        model=load_model(random.choice(SMALL)),
        cluster=load_cluster(random.choice(("dgx-h100", "dgx-a100-80", "mi300x"))),
        stack=aimed(load_stack(random.choice(("llm-foundry-fsdp-2023", "fms-fsdp-2024"))), target),
        gpus=random.choice((1, 8, 12, 16, 64)),
        seq_len=random.choice((1024, 2048, 4096)),
        global_batch=random.choice((48, 96, 192)),
    )
    return job.with_limits(fixed=fixed_for(target, random.choice(({}, {"recompute": "full"}, {"zero_stage": 2}))))


def compare(answer: Answer, paths: list[Path]) -> None:
    job, problems = answer.job, list[str]()
    assert answer.plan is not None
    launch = read_launch(read_files([str(path) for path in paths]), gpus=job.gpus).launch
    said = launch.settings
    found = plan_of(launch, dict(said), job.gpus, None, problems)
    assert not problems
    wide = (
        said["fsdp"] and said["zero_stage"]
    )  # Accelerate's FSDP, which holds in fp32 what it scatters in half of that
    assert (said["dtype"], said.get("grad_bytes", 2)) == (job.dtype, 4 if wide else job.stack.features.grad_bytes)
    knobs = replace(answer.knobs, bucket=said.get("bucket", answer.knobs.bucket), offload=said.get("offload", 0.0))
    before, after = price(job, Plans.of([answer.plan]), answer.knobs), price(job, Plans.of([found]), knobs)
    assert float(after.step_time[0]) == float(before.step_time[0])
    assert float(after.reserved[0]) == float(before.reserved[0])


@pytest.mark.parametrize("target", TARGETS)
def test_the_command_writes_what_the_target_reads(target: str, tmp_path: Path) -> None:
    options = ("--model", "llama3-8b", "--gpus", "16", "--target", target, "--json", "--export", str(tmp_path / "x"))
    found = CliRunner().invoke(cli, options)
    assert found.exit_code == 0
    answer = json.loads(found.stdout)
    assert answer["job"]["stack"] == f"llm-foundry-fsdp-2023@{target}"
    assert [answer["plan"][name] for name in ("tp", "cp", "pp", "ep")] == [1, 1, 1, 1]
    assert {path.name for path in (tmp_path / "x").iterdir()} == set(every.TARGETS[target].files)


def test_what_a_target_cannot_split_is_one_message() -> None:
    found = CliRunner().invoke(cli, ["--model", "llama3-8b", "--gpus", "16", "--target", "deepspeed", "--fix", "tp=2"])
    assert found.exit_code == 2
    assert "--target deepspeed cannot run tp=2" in found.stderr
