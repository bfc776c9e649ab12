"""Launches that are edited to run any plan of their lattice, given to the programs' own parsers and validation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.megatron.script import bash_launch
from optimizer.frameworks.read import read_launch
from tests.clients.accepted import CLIENTS, TOOLS, Client, Clients
from tests.frameworks.test_plans_written import drawn
from tests.thorough import cases

NONE = "no launchers here: .ci/launchers FOLDER installs them, OPTIMIZE_TEST_LAUNCHERS=FOLDER names it"
pytestmark = [pytest.mark.launchers, pytest.mark.skipif(not TOOLS, reason=NONE)]
GPUS = 16
STARTING = ("--nproc-per-node", "--nnodes")  # what is torchrun's
SCRIPT = """# Megatron-LM core_v0.19.0
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py {model} --bf16 --swiglu --normalization RMSNorm \\
    --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 32000 \\
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 256 {plan}
"""
DENSE = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336"
MIXED = (
    "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 8192 --moe-ffn-hidden-size 1024 "
    "--num-experts 32 --moe-router-topk 4 --moe-grouped-gemm"
)
MODELS = (DENSE, MIXED, f"{MIXED} --mtp-num-layers 1")
PLANS = (
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --use-distributed-optimizer",
    "--tensor-model-parallel-size 4 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor",
    "--use-torch-fsdp2 --ckpt-format torch_dist --no-gradient-accumulation-fusion",
    "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --use-distributed-optimizer",
)

TITANS = (("llama3", "8B"), ("deepseek_v3", "16B"), ("qwen3", "30B-A3B"))
TOML = """[model]
name = "{family}"
flavor = "{flavor}"
[training]
local_batch_size = 4
global_batch_size = 64
seq_len = 4096
"""
PYTHON = """from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.{family} import model_registry
from torchtitan.trainer import Trainer


def {function}() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("{flavor}"),
        training=TrainingConfig(local_batch_size=4, global_batch_size=64, seq_len=4096),
        parallelism=ParallelismConfig(),
        activation_checkpoint=SelectiveAC.Config(),
    )
"""


@pytest.mark.parametrize(("release", "text"), [("v0.2.2", TOML), ("v0.3.0", PYTHON)])
def test_torchtitan_accepts_configs_that_are_edited_to_other_plans(
    release: str, text: str, tmp_path: Path, clients: Clients
) -> None:
    client = _client("torchtitan", release)
    for family, flavor in TITANS:
        function = f"{family}_{flavor.lower().replace('-', '_')}"
        data = text.format(family=family, flavor=flavor, function=function).encode()
        source = read_launch([File(client.file, data)], GPUS)
        question = launch_as_read(source.launch, Controls(gpus=GPUS, cluster="dgx-h100"), client.file)
        job = {"gpus": GPUS, "layers": question.job.model.layers, "hidden": question.job.model.hidden}
        for other in drawn(question.job, cases(40, sample=8)):
            changes = source.changes(question.job, question.plan, other, {})
            if not source.lacking(changes):
                place = _place(tmp_path, {**job, "function": function})
                (place / client.file).write_bytes(next(source.edited(changes))[client.file])
    _accepted(clients, client, tmp_path)


BRIDGE = """model:
  recipe: {recipe}
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  sequence_parallel: true
  seq_length: 4096
train:
  micro_batch_size: 1
  global_batch_size: 256
ddp:
  overlap_grad_reduce: true
  overlap_param_gather: true
  use_distributed_optimizer: true
"""
# What a recipe would say besides.
RECIPE = "dataset.seq_length=4096\nmodel.moe_grouped_gemm=true\ncomm_overlap=null\n"


@pytest.mark.parametrize("recipe", ["llama3_8b", "qwen3_30b_a3b"])
def test_bridge_accepts_overrides_that_are_edited_to_other_plans(recipe: str, tmp_path: Path, clients: Clients) -> None:
    client, name = _client("megatron-bridge", "0.6.0"), "overrides.yaml"
    source = read_launch([File(name, BRIDGE.format(recipe=recipe).encode())], GPUS)
    question = launch_as_read(source.launch, Controls(gpus=GPUS, cluster="dgx-h100"), name)
    model = question.job.model
    job = {each: getattr(model, each) for each in ("layers", "hidden", "heads", "kv_heads", "vocab")}
    job |= {"gpus": GPUS, "model": model.name, "edited": True}
    job |= {"experts": model.experts.count, "top_k": model.experts.top_k} if model.experts else {"experts": 0}
    for other in drawn(question.job, cases(60, sample=20)):
        changes = source.changes(question.job, question.plan, other, {})
        assert source.lacking(changes) == ""
        data = next(source.edited(changes))[name]
        leaves = ConfigFile(name, data.decode(), "yaml", data=data).leaves
        lines = [f"{path}={json.dumps(value)}\n" for path, value in leaves.items() if path != "model.recipe"]
        (_place(tmp_path, job) / client.file).write_text("".join((*lines, RECIPE)))
    _accepted(clients, client, tmp_path)


SWIFT = {
    "megatron": """NPROC_PER_NODE=8 NNODES=2 megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 2 \\
    --sequence_parallel true --pipeline_model_parallel_size 2 --micro_batch_size 1 --global_batch_size 64 \\
    --max_length 4096 --output_dir out
""",
    "swift": """NPROC_PER_NODE=8 NNODES=2 swift sft --model Qwen/Qwen3-8B --tuner_type full --deepspeed zero2 \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 4096 --output_dir out
""",
}


@pytest.mark.parametrize("command", SWIFT)
def test_ms_swift_accepts_commands_that_are_edited_to_other_plans(
    command: str, tmp_path: Path, clients: Clients
) -> None:
    known = _client("ms-swift", "ms-swift-4.6.0")
    client = replace(known, file="job", program="swift_loads.py", path=(*known.path, "megatron-core-0.19.0"))
    source = read_launch([File("run.sh", SWIFT[command].encode())])
    question = launch_as_read(source.launch, Controls(cluster="dgx-h100"), "run.sh")
    for other in drawn(question.job, cases(60, sample=20)):
        changes = source.changes(question.job, question.plan, other, {})
        assert source.lacking(changes) == ""
        text = next(source.edited(changes))["run.sh"].decode()
        words = shlex.split(text.partition(" sft ")[2].replace("\\\n", ""))
        _place(tmp_path, {"command": command, "words": words})
    _accepted(clients, client, tmp_path)


TRAINED = {
    "trl": """torchrun --nproc_per_node 4 sft.py --model_name_or_path Qwen/Qwen3-8B --dataset_name a/b --bf16 True \\
    --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --max_length 2048 --gradient_checkpointing \\
    --use_peft --output_dir out
""",
    "llama-factory": """FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train --stage sft --do_train --dataset a \\
    --model_name_or_path Qwen/Qwen3-8B --finetuning_type lora --cutoff_len 2048 --per_device_train_batch_size 4 \\
    --gradient_accumulation_steps 4 --bf16 True --output_dir out --template qwen3
""",
    "axolotl": """base_model: Qwen/Qwen3-8B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets: [{path: mine, type: alpaca}]
sequence_len: 2048
micro_batch_size: 4
gradient_accumulation_steps: 4
gradient_checkpointing: true
learning_rate: 0.0002
bf16: true
output_dir: out
""",
}


@pytest.mark.parametrize("program", TRAINED)
def test_programs_on_the_trainer_run_the_plans_that_they_are_edited_to(
    program: str, tmp_path: Path, clients: Clients
) -> None:
    (known,) = (client for client in CLIENTS if client.target == program)
    client = replace(known, file="job", program="trainer_loads.py")
    name = "job.yaml" if program == "axolotl" else "run.sh"
    source = read_launch([File(name, TRAINED[program].encode())], GPUS // 4)
    question = launch_as_read(source.launch, Controls(cluster="dgx-h100"), name)
    for micro, recompute, liger in product((1, 2, 8), ("none", "full"), (False, True)):
        whole = question.plan.micro_batch * question.plan.num_microbatches
        other = replace(question.plan, micro_batch=micro, num_microbatches=whole // micro, recompute=recompute)
        turned = {"liger": True} if liger and program != "axolotl" else {}
        changes = source.changes(question.job, question.plan, other, turned)
        assert source.lacking(changes) == ""
        text = next(source.edited(changes))[name].decode()
        words = shlex.split(text.replace("\\\n", ""))
        job = {"program": program, "words": words[words.index("--model_name_or_path") :] if program == "trl" else []}
        job |= {"words": words[words.index("train") + 1 :]} if program == "llama-factory" else {}
        place = _place(tmp_path, job | {"plan": [micro, whole // micro, recompute == "full"]})
        (place / "job.yaml").write_text(text)
    _accepted(clients, client, tmp_path)


def test_megatron_accepts_scripts_that_are_edited_to_other_plans(tmp_path: Path, clients: Clients) -> None:
    for model, plan in product(MODELS, PLANS):
        source = bash_launch("train.sh", SCRIPT.format(model=model, plan=plan).encode())
        question = launch_as_read(source.launch, Controls(cluster="dgx-h100"), "train.sh")
        for other in drawn(question.job, cases(30, sample=6)):
            changes = source.changes(question.job, question.plan, other, {})
            assert "may not have" not in source.lacking(changes)  # the environment is the client's own
            texts = next(source.edited(changes))
            _write_job(bash_launch("train.sh", texts["train.sh"]).flags, tmp_path)
    _accepted(clients, _client("megatron-lm", "core_v0.19.0"), tmp_path)


def _client(target: str, release: str) -> Client:
    (client,) = (client for client in CLIENTS if (client.target, client.release) == (target, release))
    return client


def _accepted(clients: Clients, client: Client, folder: Path) -> None:
    """The client accepts what it is given, and it is given something."""
    said = clients.verdicts(client, folder)
    assert said
    assert [verdict for verdict in said if verdict] == []


def _place(folder: Path, job: Mapping[str, Any]) -> Path:
    """A folder of its own for a file, with what the client has to know of it."""
    (place := folder / f"{len(list(folder.iterdir())):03d}").mkdir()
    (place / "job").write_text(json.dumps({"folder": str(place), **job}))
    return place


def _write_job(flags: Sequence[Flag], folder: Path) -> None:
    """Arguments of a training command, and what the client has to know of them, in a folder of their own."""
    own = [flag for flag in flags if flag.name.startswith("--") and flag.name not in STARTING]
    words = [word.strip('"') for flag in own for word in (flag.name, *flag.values)]
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "32" if any("fsdp" in flag.name for flag in own) else "1"}
    place = _place(folder, {"gpus": GPUS, "dropout": 0.1, "environment": environment})
    (place / "megatron.args").write_text(shlex.join(words))
