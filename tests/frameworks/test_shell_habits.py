"""What people write around a training command: JSON, comments within it, which GPUs it sees, where its files lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InputError, InvalidFile
from optimizer.cli import cli
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.frameworks.read import read_launch
from optimizer.improve.report import lacking, understood
from tests.frameworks.test_launches import question
from tests.frameworks.test_words_of_commands import TRAINER

JSON = """--fsdp "full_shard auto_wrap" --fsdp_config '{"activation_checkpointing": true, "min_num_params": 0}'"""
SWIFT = "swift sft --model Qwen/Qwen3-8B --train_type lora --per_device_train_batch_size 4 --max_length 2048"
FACTORY = "llamafactory-cli train --stage sft --do_train True --model_name_or_path Qwen/Qwen3-8B"


def launched(script: str) -> LaunchAsRead:
    return question({"run.sh": script})


def test_json_in_quotes_is_a_section() -> None:
    read = launched(f"torchrun --nproc_per_node 4 train.py {TRAINER} {JSON}")
    assert read.launch.settings["recompute"] == "full"
    assert not read.launch.unpriced


def test_what_is_in_json_is_changed_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc_per_node 4 train.py {TRAINER} {JSON}")
    (source,) = read_launch(read_files([str(path)])).configs[-1:]
    with pytest.raises(InputError, match=r"activation_checkpointing is in the JSON of --fsdp_config"):
        source.changed("fsdp_config.activation_checkpointing", False)


@pytest.mark.parametrize("between", ["    # --learning_rate 1e-5 \\\n", "\n"])
def test_flags_that_their_command_never_gets_are_named(between: str) -> None:
    read = launched(f"CUDA_VISIBLE_DEVICES=0 {FACTORY} \\\n{between}    --cutoff_len 4096 \\\n    --bf16 True\n")
    assert any(text.startswith("--cutoff_len and what follows") for text in read.launch.unpriced)
    assert read.job.seq_len == 2048


def test_the_command_of_llama_factory_says_what_its_keys_do_not() -> None:
    read = launched(f"CUDA_VISIBLE_DEVICES=0,1 {FACTORY}")
    assert read.launch.settings["train"] == "lora:8"
    assert (read.launch.settings["recompute"], read.job.seq_len) == ("full", 2048)
    whole = launched(f"CUDA_VISIBLE_DEVICES=0,1 {FACTORY} --finetuning_type full")
    assert "train" not in whole.launch.settings


@pytest.mark.parametrize(
    ("before", "after", "spread"),
    [
        ("CUDA_VISIBLE_DEVICES=0,3", "", 2),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=2", "", 4),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2", "", 0),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2", "--deepspeed zero3", 0),
        ("NPROC_PER_NODE=2", "", 0),
    ],
)
def test_layers_that_a_process_spreads_over_gpus_are_named(before: str, after: str, spread: int) -> None:
    named = [text for text in launched(f"{before} {SWIFT} {after}").launch.unpriced if "spreads its layers" in text]
    assert [text.split()[-2] for text in named] == ([str(spread)] if spread else [])


def test_a_program_that_sees_one_gpu_has_one() -> None:
    assert launched(f"CUDA_VISIBLE_DEVICES=3 python train.py {TRAINER}").launch.settings["gpus"] == 1


def test_the_project_of_a_log_costs_nothing() -> None:
    assert not launched(f"NPROC_PER_NODE=2 {SWIFT} --swanlab_project swift_sft_lora").launch.unpriced


def test_a_config_is_found_from_the_folder_of_its_script(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "lora.yml").write_text(
        "base_model: Qwen/Qwen3-8B\nadapter: lora\nsequence_len: 4096\nmicro_batch_size: 1\ndatasets: [a]\n"
    )
    script = tmp_path / "run.sh"
    script.write_text(
        'here=$(dirname $(readlink -f "$0"))\naccelerate launch -m axolotl.cli.train $here/config/lora.yml\n'
    )
    done = CliRunner().invoke(cli, ["improve", str(script), "--gpus", "1", "--json"], prog_name="optimize")
    assert done.exit_code == 0, done.output


def test_steps_that_are_told_are_not_assumed() -> None:
    read = launched(f"NPROC_PER_NODE=2 {SWIFT} --gradient_accumulation_steps 4")
    assert not any("gradient_accumulation_steps" in text for text in read.launch.assumed)


def test_documents_of_a_training_are_no_config() -> None:
    assert not launched(f"torchrun --nproc_per_node 2 train.py {TRAINER} --train_file_path ./a.json").launch.unpriced


@pytest.mark.parametrize("said", ["is_bfloat16_supported()", "torch.cuda.is_bf16_supported()"])
def test_programs_of_unsloth_as_its_notebooks_write_them(said: str) -> None:
    text = f"""from unsloth import FastLanguageModel, is_bfloat16_supported
m, t = FastLanguageModel.from_pretrained(model_name="Qwen/Qwen3-8B", max_seq_length=2048, load_in_4bit=True)
m = FastLanguageModel.get_peft_model(m, r=16)
# We also support TRL's `DPOTrainer`!
trainer = SFTTrainer(model=m, args=TrainingArguments(per_device_train_batch_size=2, bf16={said}, fp16=not {said}))
"""
    read = question({"train.py": text}, gpus=1)
    assert (read.job.dtype, read.plan.micro_batch) == ("bf16", 2)


@pytest.mark.parametrize(
    ("command", "gpus", "tp"),
    [
        ("jsrun -n 16 -a 1 -g 1 -r 4 -c 7 {train} 2", 16, 2),
        ("jsrun --nrs 4 --tasks_per_rs 6 --gpu_per_rs 6 {train} 4", 24, 4),
        ("train() {{ {train} $1; }}; export -f train; srun -N 4 --gpus-per-node 8 bash -c 'train 8'", 32, 8),
    ],
)
def test_what_starts_a_training_on_several_nodes_counts_its_gpus(command: str, gpus: int, tp: int) -> None:
    shape = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --bf16"
    job = "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 96 --vocab-size 50257"
    train = f"python pretrain_gpt.py {shape} {job} --tensor-model-parallel-size"
    read = question({"run.sh": command.format(train=train)})
    assert (read.job.gpus, read.plan.tp) == (gpus, tp)


def test_options_that_must_be_given_are_asked_for() -> None:
    shape = "--num-layers $LAYERS --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    text = f"""LAYERS=0
BATCH=4
while getopts ":n:b:" opt; do
  case $opt in
    n) LAYERS="$OPTARG" ;;
    b) BATCH=$OPTARG ;;
  esac
done
torchrun --nproc_per_node 8 pretrain_gpt.py {shape} --max-position-embeddings 1024 --micro-batch-size $BATCH --bf16
"""
    with pytest.raises(InvalidFile, match="hangs on LAYERS, that the script does not set"):
        question({"run.sh": text})
    given = read_launch([File("run.sh", text.encode(), outside={"LAYERS": "24"})]).launch.settings
    assert (given["layers"], given["micro_batch"]) == (24, 4)


def test_gpus_and_a_vocabulary_that_follow_from_nothing_told_are_guessed() -> None:
    shape = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu"
    job = "--seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16"
    norm = "--normalization RMSNorm --use-rotary-position-embeddings --untie-embeddings-and-output-weights"
    text = f"mpirun -np $((NHOSTS*8)) -npernode 8 python pretrain_gpt.py {shape} {job} {norm}"
    open_count = question({"run.sh": text})
    guessed = f"; GPUs guessed: 8; vocabulary guessed: {open_count.job.model.vocab:,} tokens"
    assert lacking(open_count.launch).endswith(guessed)
    told = text.replace("$((NHOSTS*8))", "64") + " --vocab-size 32000"
    assert lacking(question({"run.sh": told}).launch) == "; machine guessed: dgx-h100"
    titan = """# a preset for 64 A100 GPUs
[model]
name = "llama3"
flavor = "8B"
[training]
seq_len = 8192"""
    assert "; GPUs guessed: 64" in lacking(question({"run.toml": titan}).launch)
    assert "guessed: 64" not in lacking(question({"run.toml": titan}, gpus=64).launch)


def test_a_vocabulary_that_nobody_told_is_guessed() -> None:
    config = """{"num_layers": 23, "hidden_size": 1024, "num_attention_heads": 16, "seq_length": 2048,
        "max_position_embeddings": 2048, "train_micro_batch_size_per_gpu": 1, "pipe_parallel_size": 0,
        "model_parallel_size": 1, "optimizer": {"type": "Adam"},
        "vocab_file": "llama/tokenizer.json", "tokenizer_type": "HFTokenizer"}"""
    read = question({"moe.yml": config}, gpus=8)
    assert "; vocabulary guessed: 50,257 tokens" in lacking(read.launch)
    assert not any("optimizer" in words for _, words in understood(read.launch))


def test_a_text_model_has_no_tower_to_freeze() -> None:
    words = "--finetuning_type full --bf16 true --freeze_vision_tower true --freeze_multi_modal_projector true"
    assert not launched(f"CUDA_VISIBLE_DEVICES=0,1 {FACTORY} {words}").launch.unpriced


@pytest.mark.parametrize(("on", "share"), [("True", 100), ("False", 0)])
def test_inputs_that_torchtune_keeps_on_the_host(on: str, share: int) -> None:
    config = f"""model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  max_seq_len: 4096
optimizer:
  _component_: torch.optim.AdamW
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
batch_size: 2
enable_activation_checkpointing: True
enable_activation_offloading: {on}
dtype: bf16
"""
    read = question({"full.yaml": config}, gpus=8)
    assert read.plan.activation_offload == share
    assert "activation_offload" in read.launch.fixed
    assert not read.launch.unpriced


MAXTEXT = (
    "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama2-7b per_device_batch_size=4 "
    "ici_fsdp_parallelism=8 max_target_length=4096 hardware=gpu"
)


@pytest.mark.parametrize(
    ("script", "share"),
    [
        (f"export XLA_PYTHON_CLIENT_MEM_FRACTION=0.85\n{MAXTEXT}", 0.85),
        (f"XLA_PYTHON_CLIENT_MEM_FRACTION=.9 {MAXTEXT}", 0.9),
        (f"XLA_PYTHON_CLIENT_MEM_FRACTION=.9 XLA_CLIENT_MEM_FRACTION=.95 {MAXTEXT}", 0.95),
        (f"export XLA_PYTHON_CLIENT_MEM_FRACTION=1.0\n{MAXTEXT}", 1.0),
        (f"export XLA_PYTHON_CLIENT_MEM_FRACTION=$SHARE\n{MAXTEXT}", 0.0),
        (MAXTEXT, 0.0),
    ],
)
def test_maxtext_has_the_share_of_the_memory_that_jax_takes(script: str, share: float) -> None:
    job = launched(script).job
    least = share * job.cluster.device.memory
    assert job.limits.hbm == pytest.approx(
        min(least + job.stack["context_memory"], job.cluster.device.memory) * bool(share)
    )


def test_a_stage_that_only_an_unread_config_has_is_not_priced() -> None:
    flags = (
        "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
    )
    command = f"deepspeed --num_gpus 8 pretrain_gpt.py {flags} --micro-batch-size 2 --global-batch-size 64 --bf16"
    script = f"{command} --deepspeed --deepspeed_config ds.json"
    assert launched(script).launch.unpriced == ["the ZeRO stage of ds.json, which was not read"]
    assert not launched(f"{script} --zero-stage 1").launch.unpriced


@pytest.mark.parametrize(
    "script",
    [
        "if a; then\n" * 900 + "b --x 1\n" + "fi\n" * 900,
        "[ " + "! " * 3000 + "a ] && b",
        "X=" + "${A:-" * 3000 + "b" + "}" * 3000,
    ],
    ids=("statements", "tests", "expansions"),
)
def test_what_lies_too_deep_is_refused(script: str) -> None:
    with pytest.raises(InputError, match=r"no command that is known to train|deeper than any that trains"):
        launched(script)
