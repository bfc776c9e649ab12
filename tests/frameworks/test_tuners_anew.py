"""Launches that fine-tune, after the shape of public ones that a blind draw met: what is read, named or refused."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.improve.report import lacking
from tests.frameworks.test_launches import question

ALPACA = """torchrun --nproc_per_node=6 finetune.py --base_model huggyllama/llama-7b --data_path d.json \\
    --cutoff_len 1024"""
TULU = """accelerate launch --num_processes 4 open_instruct/finetune.py --model_name_or_path Qwen/Qwen2.5-7B \\
    --max_seq_length 4096 --per_device_train_batch_size 2 --reduce_loss sum --use_flash_attn"""
CHAT = """deepspeed --num_gpus 8 main.py --data_split 2,4,4 --model_name_or_path facebook/opt-1.3b \\
    --max_seq_len 512 --per_device_train_batch_size 4 --zero_stage 2 --deepspeed --lora_dim 128"""
TOWER = """NPROC_PER_NODE=8 swift sft --model OpenGVLab/InternVL3-8B --train_type lora --lora_rank 16 \\
    --max_length 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 8"""


@pytest.mark.parametrize(("sizes", "batch"), [("--batch_size 128 --micro_batch_size 8", 96), ("--batch_size 96", 96)])
def test_alpaca_lora_rounds_its_batch_down(sizes: str, batch: int) -> None:
    found = question({"a.sh": f"{ALPACA} {sizes}"})
    assert found.job.global_batch == batch
    assert any("makes 96 of it on 6 GPUs" in each for each in found.launch.assumed) == ("128" in sizes)


@pytest.mark.parametrize("key", ["finetuning_type", "train_type"])
def test_a_fork_with_a_word_of_another_program_is_not_that(key: str) -> None:
    words = f"--data_path d.json --per_device_train_batch_size 2 --{key} lora --lora_r 64 --bf16 True"
    text = f"torchrun --nproc_per_node 4 train.py --model_name_or_path huggyllama/llama-7b {words}"
    found = question({"a.sh": text})
    assert found.plan.recompute == "none"
    assert found.launch.length
    assert found.launch.unpriced == [f"{key} lora", "lora_r 64"]


@pytest.mark.parametrize(
    ("text", "more"),
    [(TOWER, False), (f"{TOWER} --freeze_vit true", False), (f"{TOWER} --freeze_vit false", True)],
)
def test_adapters_on_a_vision_tower_are_named(text: str, more: bool) -> None:
    named = ["freeze_vit false: adapters on the vision tower too"]
    assert question({"a.sh": text}).launch.unpriced == named * more


def test_a_micro_batch_that_no_file_tells_is_in_the_title() -> None:
    engine = "deepspeed_config: {gradient_accumulation_steps: 16, zero_stage: 3}\ndistributed_type: DEEPSPEED\n"
    files = {"a.yaml": f"{engine}num_processes: 8\nmixed_precision: bf16\n"}
    guessed = question(files, model="llama2-7b", seq_len=2048)
    assert "; micro-batch guessed: 1" in lacking(guessed.launch)
    stated = question(files, model="llama2-7b", seq_len=2048, global_batch=256)
    assert stated.plan.micro_batch == 2
    assert "micro-batch" not in lacking(stated.launch)


@pytest.mark.parametrize(
    ("words", "train", "base", "optimizer"),
    [
        ("--use_lora", "lora:64", "", "adamw-fused"),
        ("--use_lora --lora_rank 16", "lora:16", "", "adamw-fused"),
        ("--use_lora --use_qlora", "qlora:64", "nf4", "paged-adamw"),
        ("--use_lora False", "", "", "adamw-fused"),
    ],
)
def test_adapters_of_open_instruct(words: str, train: str, base: str, optimizer: str) -> None:
    found = question({"a.sh": f"{TULU} {words}"})
    assert (found.job.train, found.settings.get("base", ""), found.job.optimizer) == (train or "full", base, optimizer)
    assert not found.launch.unpriced


@pytest.mark.parametrize(("words", "heeds"), [("--use_lora", False), ("--use_lora --use_qlora", True)])
def test_open_instruct_checkpoints_beside_weights_of_4_bits_alone(words: str, heeds: bool) -> None:
    found = question({"a.sh": f"{TULU} {words} --gradient_checkpointing"})
    unheeded = ["gradient_checkpointing, which open-instruct does not heed with use_lora"]
    assert found.launch.unpriced == [] if heeds else unheeded


@pytest.mark.parametrize(
    ("words", "train", "named"),
    [
        ("--only_optimize_lora", "lora:128", []),
        ("--only_optimize_lora --lora_module_name model.decoder.layers.", "lora:128", []),
        ("", "full", ["lora_dim 128"]),  # embeddings and norms are trained too
        ("--only_optimize_lora --lora_module_name q_proj", "full", ["lora_dim 128"]),
    ],
)
def test_adapters_of_deepspeed_chat(words: str, train: str, named: list[str]) -> None:
    found = question({"a.sh": f"{CHAT} {words}"})
    assert found.job.train == train
    assert [each for each in found.launch.unpriced if each.startswith("lora_dim")] == named


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("torchrun --nproc_per_node 4 main.py --enable_fsdp --use_peft", "llama-recipes: its settings"),
        ("python -m llama_recipes.finetuning --use_peft --model_name m", "llama-recipes: its settings"),
        ("srun python finetune/lora.py --precision bf16-true --devices=8", "lit-gpt: the settings of its scripts"),
        ("python train.py --train_type custom_qlora --use_activation_cpu_offload True", "fsdp_qlora: it is not read"),
    ],
)
def test_programs_with_settings_in_their_python_are_refused_by_name(command: str, why: str) -> None:
    with pytest.raises(InvalidFile, match=why):
        question({"a.sh": f"{command}\n"})
