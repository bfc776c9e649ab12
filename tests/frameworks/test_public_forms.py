"""Forms that public configs have and that were once misread, each in the fewest lines that show it."""

from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import patched
from tests.frameworks.test_launches import question

NEMO = """trainer: {num_nodes: 4, devices: 8, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 64
  tensor_model_parallel_size: 4
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  data: {seq_length: "${training.model.encoder_seq_length}"}
"""

MESH = """distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}
parallelism_config:
  parallelism_config_tp_size: 2
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
"""

TRAINER = """model_name_or_path: meta-llama/Meta-Llama-3-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
cutoff_len: 1024
bf16: true
fp8: true
fsdp: [full_shard, auto_wrap]
"""

CHAT = """ZERO_STAGE=$2
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=3
fi
deepspeed main.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 4 \\
    --gradient_accumulation_steps 2 --max_seq_len 512 --gradient_checkpointing --zero_stage $ZERO_STAGE \\
    --lora_dim 128 --deepspeed
"""

BRIDGE = """model: {tensor_model_parallel_size: 2, seq_length: 4096}
train: {train_iters: 20, global_batch_size: 64}
ddp: {overlap_param_gather: false}
"""


def asked(name: str, text: str, **controls: Any) -> LaunchAsRead:
    return question({name: text}, **controls)


def test_relative_references_and_arithmetic_of_nemo() -> None:
    found = asked("gpt.yaml", NEMO)
    assert (found.job.model.ffn_hidden, found.job.model.max_seq_len, found.job.seq_len) == (8192, 4096, 4096)
    with pytest.raises(InvalidFile, match="ffn-hidden-size"):
        asked("gpt.yaml", NEMO.replace("${.hidden_size}", "${.nowhere}"))


def test_references_in_a_circle_end() -> None:
    with pytest.raises(InvalidFile):
        asked("gpt.yaml", NEMO.replace("encoder_seq_length: 4096", "encoder_seq_length: ${.max_position_embeddings}"))


def test_the_mesh_of_accelerate() -> None:
    plan = asked("acc.yaml", MESH, model="llama3-8b", global_batch=64).plan
    assert (plan.tp, plan.cp, plan.dp, plan.zero_stage, plan.shard) == (2, 1, 4, 3, 2)
    context = MESH.replace("tp_size: 2", "tp_size: 1").replace("cp_size: 1", "cp_size: 8")
    context = context.replace("replicate_size: 2", "replicate_size: 1").replace("shard_size: 2", "shard_size: 1")
    plan = asked("acc.yaml", context, model="llama3-8b", global_batch=64).plan
    assert (plan.tp, plan.cp, plan.dp, plan.zero_stage, plan.shard) == (1, 8, 1, 3, 0)
    kept = asked("acc.yaml", MESH.replace("forward: true", "forward: false"), model="llama3-8b", global_batch=64).plan
    assert kept.zero_stage == 2


def test_edits_of_a_mesh_are_written_into_it() -> None:
    files = [File("acc.yaml", MESH.encode())]

    def again(written: Any) -> LaunchAsRead:
        told = Controls(model="llama3-8b", global_batch=64)
        return launch_as_read(read_launch(written).launch, told, "acc.yaml")

    source, launch = read_launch(files), again(files)
    best = improve(launch).best
    assert best is not None
    assert best.after.plan.zero_stage != 1  # FSDP has no such stage
    texts = patched(source, launch, best, files, again)
    assert again([File("acc.yaml", texts["acc.yaml"])]).plan == best.after.plan


def test_the_trainers_own_words() -> None:
    found = asked("sft.yaml", TRAINER, gpus=8)
    assert (found.plan.zero_stage, found.job.dtype, found.job.seq_len) == (3, "fp8", 1024)
    assert asked("sft.yaml", TRAINER.replace("full_shard", "shard_grad_op"), gpus=8).plan.zero_stage == 2
    with pytest.raises(InvalidFile, match="someone/else is no model that is known: give --model"):
        asked("sft.yaml", TRAINER.replace("meta-llama/Meta-Llama-3-8B", "someone/else"), gpus=8)


def test_a_trainers_flags_in_bash() -> None:
    found = asked("run.sh", CHAT, gpus=8)
    plan = found.plan
    assert (plan.micro_batch, plan.num_microbatches, plan.zero_stage, plan.recompute) == (4, 2, 3, "full")
    assert (found.job.model.name, found.job.seq_len) == ("llama2-7b", 512)
    assert found.launch.unpriced == ["lora_dim 128"]


def test_a_deepspeed_config_elsewhere_is_asked_for() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: zero1.json}\nnum_processes: 2\n"
    with pytest.raises(InvalidFile, match=r"zero1\.json, not found here; give it too"):
        asked("acc.yaml", text, model="llama3-8b", global_batch=64)


def test_overrides_of_bridge_leave_the_rest_to_the_recipe() -> None:
    found = asked("over.yaml", BRIDGE, model="llama3-8b", gpus=8)
    assert (found.plan.zero_stage, found.plan.micro_batch) == (1, 1)
    assert (found.settings["reduce_overlap"], found.settings["gather_overlap"]) == (True, False)
    assert any("use_distributed_optimizer as in Megatron-Bridge" in line for line in found.launch.assumed)


EXPERTS = """deepspeed pretrain_gpt.py --num-layers 12 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 \\
    --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --fp16 --vocab-size 50257 \\
    --num-experts 128 --moe-expert-parallel-size 32 --deepspeed
"""


def test_experts_spread_over_more_gpus_than_there_are_ask_for_more() -> None:
    found = asked("moe.sh", EXPERTS)
    assert (found.job.gpus, found.plan.ep, found.plan.dp) == (32, 32, 32)
    assert any(line.startswith("32 GPUs: the 8 of the launch") for line in found.launch.assumed)
    with pytest.raises(InvalidFile, match="ep x etp = 32 x 1 does not divide the 8 GPUs of a pipeline stage"):
        asked("moe.sh", EXPERTS, gpus=8)
