"""Every format of launch files: each field as a person reads it."""

from collections.abc import Mapping
from typing import Any

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches


def question(files: Mapping[str, str], **controls: Any) -> LaunchAsRead:
    asked = Controls(**controls)
    source = read_launch([File(name, text.encode()) for name, text in files.items()], asked.gpus, asked.model)
    return launch_as_read(source.launch, asked, ", ".join(files))


CASES: list[tuple[dict[str, str], dict[str, Any], str, dict[str, Any], dict[str, Any]]] = [
    (
        {"train.sh": launches.ARRAYS},
        {},
        "llama3-70b",
        {"tp": 8, "pp": 4, "vpp": 4, "dp": 8, "micro_batch": 1, "num_microbatches": 64, "zero_stage": 1}
        | {"sequence_parallel": True, "recompute": "none", "schedule": "interleaved"},
        {"gpus": 256, "seq_len": 8192, "global_batch": 512, "dtype": "bf16"},
    ),
    (
        {"train.slurm": launches.SLURM},
        {},
        "bloom-176b",
        {"tp": 4, "pp": 12, "dp": 8, "micro_batch": 2, "num_microbatches": 128, "zero_stage": 1, "recompute": "full"},
        {"gpus": 384, "seq_len": 2048, "global_batch": 2048, "dtype": "bf16"},
    ),
    (
        {"train.sh": launches.MIXTURE},
        {},
        "mixtral-8x7b",
        {"tp": 2, "ep": 8, "etp": 1, "pp": 2, "dp": 8, "num_microbatches": 32, "recompute": "selective"},
        {"gpus": 32, "seq_len": 4096, "global_batch": 256},
    ),
    (
        {"llama3.toml": launches.TORCHTITAN},
        {},
        "llama3.1-70b",
        {"tp": 8, "dp": 8, "micro_batch": 2, "num_microbatches": 1, "zero_stage": 3, "recompute": "full"},
        {"gpus": 64, "seq_len": 8192, "global_batch": 16, "dtype": "fp8"},
    ),
    (
        {"ds.json": launches.DEEPSPEED, "accelerate.yaml": launches.ACCELERATE, "args.yaml": launches.TRAINER},
        {},
        "llama3-8b",
        {"tp": 1, "dp": 16, "micro_batch": 1, "num_microbatches": 16, "zero_stage": 3, "recompute": "full"},
        {"gpus": 16, "seq_len": 4096, "global_batch": 256, "dtype": "bf16"},
    ),
    (
        {"pico.json": launches.PICOTRON},
        {},
        "llama2-7b",
        {"tp": 2, "dp": 4, "micro_batch": 1, "num_microbatches": 8, "zero_stage": 0, "recompute": "none"},
        {"gpus": 8, "seq_len": 4096, "global_batch": 32, "dtype": "bf16"},
    ),
    (
        {"nanotron.yaml": launches.NANOTRON},
        {},
        "llama3-8b",
        {"tp": 2, "pp": 2, "dp": 8, "micro_batch": 2, "num_microbatches": 8, "zero_stage": 1, "recompute": "full"}
        | {"sequence_parallel": True},
        {"gpus": 32, "seq_len": 4096, "global_batch": 128},
    ),
    (
        {"mpt.yaml": launches.LLM_FOUNDRY},
        {"gpus": 64},
        "mpt-7b",
        {"tp": 1, "dp": 64, "micro_batch": 8, "num_microbatches": 2, "zero_stage": 3, "recompute": "full"},
        {"gpus": 64, "seq_len": 2048, "global_batch": 1024, "dtype": "bf16"},
    ),
    (
        {"nemo.yaml": launches.NEMO},
        {},
        "llama2-7b",
        {"tp": 4, "pp": 2, "vpp": 1, "dp": 4, "micro_batch": 1, "zero_stage": 1, "recompute": "full"}
        | {"sequence_parallel": True},
        {"gpus": 32, "seq_len": 4096, "global_batch": 256, "dtype": "bf16"},
    ),
    (
        {"bridge.yaml": launches.BRIDGE},
        {"gpus": 64},
        "llama3-70b",
        {"tp": 8, "pp": 4, "vpp": 5, "dp": 2, "micro_batch": 1, "zero_stage": 1, "sequence_parallel": True},
        {"gpus": 64, "seq_len": 8192, "global_batch": 128},
    ),
    (
        {"primus.yaml": launches.PRIMUS},
        {"gpus": 8},
        "llama3.1-8b",
        {"tp": 1, "pp": 2, "dp": 4, "micro_batch": 2, "zero_stage": 1, "recompute": "full", "recompute_first": 4},
        {"gpus": 8, "seq_len": 8192, "global_batch": 128},
    ),
    (
        {"maxtext.yml": launches.MAXTEXT},
        {},
        "llama3-8b",
        {"tp": 1, "dp": 32, "micro_batch": 2, "num_microbatches": 1, "zero_stage": 3, "shard": 8, "recompute": "full"},
        {"gpus": 32, "seq_len": 8192, "global_batch": 64},
    ),
]


@pytest.mark.parametrize(("files", "controls", "model", "plan", "job"), CASES, ids=lambda value: next(iter(value), ""))
def test_fields(files: Any, controls: Any, model: str, plan: Any, job: Any) -> None:
    found = question(files, **controls)
    assert found.job.model.name == model
    assert {name: getattr(found.plan, name) for name in plan} == plan
    assert {name: getattr(found.job, name) for name in job} == job


def test_optimizer_states_below_fp32_are_read_where_they_hold() -> None:
    moments = " --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
    script = launches.MIXTURE.rstrip()
    aware = question({"train.sh": script + " --use-precision-aware-optimizer" + moments + "\n"})
    assert aware.job.stack.features.optimizer_bytes == 8
    assert question({"train.sh": script + moments + "\n"}).job.stack.features.optimizer_bytes == 12


def test_what_a_script_switches_is_read() -> None:
    on = question({"train.sh": launches.MIXTURE})
    assert on.settings["reduce_overlap"]
    assert on.knobs.bucket == 200e6
    assert on.launch.written["bucket"] == "--ddp-bucket-size"
    off = question({"train.sh": launches.ARRAYS})
    assert not off.settings["reduce_overlap"]
    assert off.job.stack["dp_overlap"] == 0.0
    assert question({"train.sh": launches.SLURM}).job.cluster.device.name == "a100-80"


def test_an_exchange_beside_another_micro_batch_is_a_matter_of_the_plan() -> None:
    text = launches.MIXTURE.replace("--num-experts 8", "--num-experts 8 --overlap-moe-expert-parallel-comm")
    plain, asked = (question({"train.sh": script}) for script in (launches.MIXTURE, text))
    assert (plain.plan.overlap_exchange, asked.plan.overlap_exchange) == (False, True)
    assert (plain.job.stack.features.offers_overlap, asked.job.stack.features.offers_overlap) == (False, True)
    assert asked.launch.written["overlap_exchange"] == "--overlap-moe-expert-parallel-comm"


def test_assumed_and_ignored_are_named() -> None:
    launch = question({"train.sh": launches.ARRAYS}).launch
    assert launch.ignored == ["--node_rank", "--lr", "--save"]
    assert any("llama3-70b" in sentence for sentence in launch.assumed)
    assert any("dgx-h100" in sentence for sentence in launch.assumed)
    kept = question({"train.slurm": launches.SLURM}).launch.unsearched
    assert any("--rampup-batch-size" in sentence for sentence in kept)


def test_controls_fill_and_overrule() -> None:
    found = question({"train.sh": launches.ARRAYS}, gpus=512, device="a100-80", stack="nemo-2024")
    assert (found.plan.dp, found.job.cluster.device.name, found.job.stack.name) == (16, "a100-80", "nemo-2024")


def test_a_deepspeed_json_goes_with_a_script() -> None:
    script = launches.SLURM.replace("--zero-stage ${ZERO}", "").replace("{CONF}", "OTHER")
    found = question({"train.slurm": script, "ds.json": launches.DEEPSPEED})
    assert found.plan.zero_stage == 3
    assert found.settings["offload"] == 1.0


def test_a_bucket_of_deepspeed_is_of_elements_of_two_bytes() -> None:
    found = question({"ds.json": launches.DEEPSPEED, "acc.yaml": launches.ACCELERATE, "args.yaml": launches.TRAINER})
    assert found.settings["bucket"] == 2 * 200_000_000


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.sh": "echo hello"}, "no command that is known to train"),
        ({"a.sh": 'A="--num-layers 2\nrun $A'}, "is a quote or a bracket left open"),
        ({"a.yaml": "a: [1"}, "not YAML"),
        ({"a.yaml": "- 1"}, "expected named values"),
        ({"a.json": "{"}, "not JSON"),
        ({"a.toml": "a ="}, "not TOML"),
        ({"a.yaml": "a: 1"}, "no launch that is known"),
        ({"a.sh": launches.ARRAYS, "b.sh": launches.ARRAYS}, "several launches"),
        ({"a.sh": launches.ARRAYS, "b.yaml": "a: 1"}, "does not belong"),
        ({"a.sh": launches.ARRAYS.replace("--micro-batch-size 1", "")}, "--micro-batch-size is missing"),
        ({"a.sh": launches.ARRAYS.replace("--global-batch-size 512", "--global-batch-size 500")}, "not a multiple"),
        ({"a.sh": launches.ARRAYS.replace("TP=8", "TP=$MINE")}, "hangs on MINE"),
        ({"a.sh": launches.ARRAYS.replace("--tensor-model-parallel", "--tensor-model-paralel")}, "did you mean"),
        ({"a.sh": "torchrun train.py --num_layers=80 --hidden-size=8 --seq-length=9"}, "train.py is taken for"),
        ({"a.sh": "torchrun train.py --job.config_file conf/8b.toml"}, r"found here; give it too: .* .*a.sh 8b.toml"),
        ({"mpt.yaml": launches.LLM_FOUNDRY}, "give --gpus"),
        ({"a.yaml": launches.NANOTRON.replace("tp: 2", "tp: two")}, "must be a whole number, but got 'two'"),
    ],
)
def test_what_cannot_be_read_is_said(files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        question(files)


def test_a_problem_names_its_file() -> None:
    with pytest.raises(InvalidFile, match=r"mine\.sh"):
        question({"mine.sh": "echo hello"})


def test_overrides_of_megatron_bridge_are_a_launch() -> None:
    text = (
        "# a run\nmodel.tensor_model_parallel_size=4\nmodel.pipeline_model_parallel_size=8\nmodel.seq_length=2048\n"
        "model.virtual_pipeline_model_parallel_size=6\nmodel.sequence_parallel=true\nmodel.recompute_method=null\n"
        "train.micro_batch_size=1\ntrain.global_batch_size=1536\nddp.use_distributed_optimizer=true\n"
        "ddp.overlap_grad_reduce=true\nddp.bucket_size=100000000\n"
    )
    over = question({"run.overrides": text}, gpus=1024, model="gpt3")
    assert over.settings["gather_overlap"]  # as the recipe has it that they are over
    found = question({"run.overrides": f"{text}ddp.overlap_param_gather=false\n"}, gpus=1024, model="gpt3")
    plan = found.plan
    assert (plan.tp, plan.pp, plan.vpp, plan.dp, plan.zero_stage, plan.sequence_parallel) == (4, 8, 6, 32, 1, True)
    assert found.knobs.bucket == 400e6
    assert found.settings["reduce_overlap"]
    assert not found.settings["gather_overlap"]


def test_torchtitan_keeps_weights_gathered_under_a_pipeline() -> None:
    text = launches.TORCHTITAN.replace("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 2")
    assert question({"a.toml": text}).plan.zero_stage == 1
    always = text.replace("[parallelism]", '[parallelism]\nfsdp_reshard_after_forward = "always"')
    assert question({"a.toml": always}).plan.zero_stage == 3


@pytest.mark.parametrize(("slices", "size"), [("", 4), ("pipeline_parallel_microbatches = 4\n", 2)])
def test_pipelines_of_2024_cut_a_batch_in_as_many_micro_batches_as_stages(slices: str, size: int) -> None:
    """Since pytorch/torchtitan pull request 1073 (April 2025) configs have the size of a micro-batch, 1 by default."""
    text = launches.TORCHTITAN.replace("pipeline_parallel_degree = 1\n", "").replace(
        "local_batch_size = 2", "batch_size = 8"
    )
    old = f"{text}\n[experimental]\npipeline_parallel_degree = 2\n{slices}"
    assert question({"a.toml": old}).plan.micro_batch == size
    new = f"{text}\n".replace("[parallelism]", "[parallelism]\npipeline_parallel_degree = 2")
    assert question({"a.toml": new}).plan.micro_batch == 1


def test_exported_arguments_read_back() -> None:
    from optimizer.catalog import load_cluster, load_model, load_stack
    from optimizer.frameworks.megatron.export import arguments, plan_flags
    from optimizer.job.job import Job
    from optimizer.job.plan import Knobs

    base = question({"train.sh": launches.MIXTURE})
    job = Job(
        model=load_model("mixtral-8x7b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=32,
        seq_len=4096,
        global_batch=256,
    )
    text = "\n".join(arguments(plan_flags(job, base.plan, Knobs(bucket=200e6))))
    found = question({"megatron.args": text}, gpus=32)
    assert found.plan == base.plan
    assert found.knobs.bucket == 200e6
    assert found.settings["reduce_overlap"]


def test_no_layer_recomputed_is_no_recomputation() -> None:
    text = launches.PRIMUS.replace("recompute_num_layers: 4", "recompute_num_layers: 0")
    assert question({"primus.yaml": text}, gpus=8).plan.recompute == "none"
