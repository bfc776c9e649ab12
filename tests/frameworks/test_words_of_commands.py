"""What a command says besides its config, and what it trains: priced, or named as not priced."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.launch_as_read import LaunchAsRead
from tests.frameworks.test_launches import question

TRAINER = (
    "--model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True --per_device_train_batch_size 4 "
    "--gradient_accumulation_steps 8 --model_max_length 2048"
)
LAUNCHER = """deepspeed_config:
  zero_stage: 3
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 2
num_processes: 8
"""
CONFIG = """model_name_or_path: meta-llama/Llama-2-7b-hf
bf16: true
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
max_seq_length: 2048
"""


def launched(command: str, **files: str) -> LaunchAsRead:
    return question({"run.sh": command} | {f"{name}.yaml": text for name, text in files.items()})


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--tuning lora", "tuning lora"),
        ("--finetune_mode qlora", "finetune_mode qlora"),
        ("--tune_mm_llm False --tune_mm_mlp True", "tune_mm_llm false"),
        ("--mm_tunable_parts mm_mlp_adapter", "mm_tunable_parts mm_mlp_adapter"),
        ("--tune_type_llm qlora --lora_r 8", "tune_type_llm qlora"),
        ("--training_stage pretrain_adapter", "training_stage pretrain_adapter"),
        ("--only_train_projector True", "only_train_projector"),
        ("--trainable_params embed,norm", "trainable_params embed,norm"),
    ],
)
def test_what_is_trained_is_named_whatever_program_has_the_key(words: str, named: str) -> None:
    launch = launched(f"torchrun --nproc_per_node 4 train.py {TRAINER} {words}").launch
    told = next(sentence for sentence in launch.assumed if sentence.startswith("all weights are trained"))
    assert named in launch.unpriced
    assert named.split()[0] in told


@pytest.mark.parametrize("words", ["", "--tuning full", "--use_lora False", "--freeze_llm False", "--run_name lora-1"])
def test_all_weights_are_trained_where_no_key_says_otherwise(words: str) -> None:
    launch = launched(f"torchrun --nproc_per_node 4 train.py {TRAINER} {words}").launch
    assert any("name no adapters" in sentence for sentence in launch.assumed)
    assert not launch.unpriced


@pytest.mark.parametrize(
    ("words", "gpus"), [("--include localhost:4,5,6,7", 4), ("-i a:0,1@b:0,1", 4), ("--include=localhost:0", 1)]
)
def test_deepspeed_starts_on_the_devices_that_it_is_told(words: str, gpus: int) -> None:
    assert launched(f"deepspeed {words} train.py {TRAINER}").job.gpus == gpus


def test_devices_of_a_host_that_names_none_are_not_counted() -> None:
    with pytest.raises(InvalidFile, match="the number of GPUs is not told"):
        launched(f"deepspeed --include localhost train.py {TRAINER}")


@pytest.mark.parametrize("start", ["accelerate launch", "python -m accelerate.commands.launch"])
def test_words_behind_a_program_count_beside_its_config(start: str) -> None:
    command = f"{start} --config_file launcher.yaml --num_machines 1 --num_processes 4 run_sft.py config.yaml"
    read = launched(
        f"{command} --use_peft --lora_r=16 --load_in_4bit=true --gradient_checkpointing true --optim adafactor",
        launcher=LAUNCHER,
        config=CONFIG,
    )
    assert (read.job.train, read.job.base, read.job.optimizer) == ("qlora:16:q+v", "nf4-single", "adafactor")
    assert (read.plan.recompute, read.job.gpus, read.settings["nodes"]) == ("full", 4, 1)


def test_a_key_that_no_reader_knows_is_named_beside_a_config_too() -> None:
    command = "torchrun --nproc_per_node 4 run_sft.py config.yaml --seq_parallel 2"
    assert "seq_parallel 2" in launched(command, config=CONFIG).launch.unpriced


def test_flags_of_a_launcher_that_a_module_starts_are_none_of_its_program() -> None:
    command = "python -m torch.distributed.run --nproc_per_node 4 --max_restarts 3 run_sft.py config.yaml"
    launch = launched(command, config=CONFIG).launch
    assert "max_restarts" not in launch.ignored
    assert not launch.unpriced


def test_a_tower_that_its_stack_does_not_price_is_named() -> None:
    words = TRAINER.replace("meta-llama/Llama-2-7b-hf", "Qwen/Qwen3-VL-4B-Instruct")
    named = "the vision tower of qwen3-vl-4b: neither its weights nor its passes"
    assert named in launched(f"torchrun --nproc_per_node 4 train.py {words} --use_habana").launch.unpriced


def test_a_yaml_of_another_program_is_not_torchtitans() -> None:
    own = "max_seq_len: 1024\nmodel:\n  d_model: 1024\n  n_layers: 28\ntraining:\n  batch_size: 8\n  max_steps: 5\n"
    with pytest.raises(InvalidFile, match="no launch that is known"):
        question({"own.yaml": own}, gpus=1, model="qwen3-0.6b")


@pytest.mark.parametrize(("dense", "shared", "params"), [(1, 2, 15.71e9), (3, 0, 14.28e9)])
def test_mindspeed_counts_dense_layers_and_shared_experts(dense: int, shared: int, params: float) -> None:
    experts = (
        f"--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --moe-layer-freq 1 "
        f"--first-k-dense-replace {dense} --n-shared-experts {shared}"
    )
    latent = "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128"
    shape = (
        "--num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 --seq-length 4096 "
        "--max-position-embeddings 4096 --vocab-size 102400 --make-vocab-size-divisible-by 1 --swiglu "
        "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
        "--position-embedding-type rope --bf16 --micro-batch-size 1 --global-batch-size 8"
    )
    model = launched(f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} {latent} {experts}").job.model
    assert model.experts is not None
    assert (model.experts.first_dense_layers, model.experts.shared_ffn_hidden) == (dense, shared * 1408)
    assert model.params == pytest.approx(params, rel=0.01)


@pytest.mark.parametrize(
    ("words", "unpriced", "assumed"),
    [
        ("--moe-token-dispatcher-type allgather", True, False),
        ("--moe-token-dispatcher-type alltoall", False, False),
        ("", False, True),
    ],
)
def test_a_dispatcher_that_gathers_is_named(words: str, unpriced: bool, assumed: bool) -> None:
    shape = (
        "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
        "--vocab-size 32000 --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 --bf16 "
        "--micro-batch-size 1 --global-batch-size 8"
    )
    launch = launched(f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} {words}").launch
    assert any("allgather" in sentence for sentence in launch.unpriced) == unpriced
    assert any("allgather" in sentence for sentence in launch.assumed) == assumed
