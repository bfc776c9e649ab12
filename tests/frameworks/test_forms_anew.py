"""Words that mean another thing than they seem: in forms of commands, in older releases, in files that nobody names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches
from tests.frameworks.test_fresh_forms import SCRIPT
from tests.frameworks.test_launches import question


def read(files: dict[str, str], gpus: int | None = 8) -> Launch:
    return read_launch([File(name, text.encode()) for name, text in files.items()], gpus).launch


def asked(files: dict[str, str], **controls: Any) -> LaunchAsRead:
    return question(files, **controls)


WRITTEN = 'cat <<EOF > ds.json\n{"zero_optimization": {"stage": 1, "allgather_bucket_size": 5e8}}\nEOF\n'


def test_a_config_that_no_command_has_says_nothing() -> None:
    launch = read({"run.sh": WRITTEN + SCRIPT.format(program="pretrain_gpt.py", more="")})
    assert (launch.settings["zero_stage"], launch.unpriced) == (0, [])


ADAPTED = (
    "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --use_peft"
)


@pytest.mark.parametrize("targets", ["q_proj v_proj", '"q_proj v_proj"', "q_proj,v_proj"])
def test_all_words_of_a_list_count(targets: str) -> None:
    launch = read({"run.sh": f"{ADAPTED} --lora_r 8 --lora_target_modules {targets} --packing --max_length 512"})
    assert (launch.settings["train"], launch.settings["packing"]) == ("lora:8:q_proj+v_proj", True)


WORDS = '="full_shard auto_wrap offload"'


@pytest.mark.parametrize("words", [" 'full_shard auto_wrap offload'", " full_shard auto_wrap offload", WORDS])
def test_fsdp_has_several_words_and_an_edit_leaves_the_others(words: str) -> None:
    source = read_launch([File("run.sh", f"{FSDP} --fsdp{words} --bf16 True".encode())])
    assert source.launch.settings["hosted_weights"] is True
    question = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(
        question.job, question.plan, replace(question.plan, zero_stage=2), {"hosted_weights": False}
    )
    (texts,) = source.edited(changes)
    assert read({"run.sh": texts["run.sh"].decode()}).settings["zero_stage"] == 2
    assert b"shard_grad_op auto_wrap" in texts["run.sh"]
    assert b"offload" not in texts["run.sh"]


FSDP = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2"
MACHINES = "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\ndeepspeed_config: {zero_stage: 3}\n"


def test_processes_lie_on_as_many_nodes_as_there_are_machines() -> None:
    trainer = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nmax_length: 512\n"
    cluster = asked({"accelerate.yaml": MACHINES, "sft.yaml": trainer}).job.cluster
    assert (cluster.gpus_per_node, cluster.scale_up_size) == (4, 4)


def test_more_gpus_than_a_node_of_the_machine_has_are_told() -> None:
    text = SCRIPT.format(program="pretrain_gpt.py", more="").replace("--nproc_per_node 8", "--nproc_per_node 16")
    assert asked({"run.sh": text}).launch.unpriced == ["--nproc_per_node 16: nodes of dgx-h100 have 8 (--cluster)"]


@pytest.mark.parametrize(
    ("more", "loss"), [("beta: 0.05\noutput_dir: data/zephyr-orpo\n", "orpo"), ("beta: 0.1\noutput_dir: x\n", "dpo")]
)
def test_a_loss_that_no_key_tells_is_known_by_a_name(more: str, loss: str) -> None:
    launch = read(
        {"x.yaml": f"model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nmax_length: 512\n{more}"}
    )
    assert (launch.settings["loss"], launch.settings["micro_batch"]) == (loss, 4)
    assert f"beta is a key of several of TRL's trainers; taken as {loss}" in launch.assumed


def test_adapters_of_unknown_programs_are_told() -> None:
    assert read({"run.sh": f"{FSDP} --lora_path_prefix /ckpt/x --rank 256 --max_seq_len 512"}).unpriced == [
        "lora_path_prefix /ckpt/x",
        "rank 256",
    ]


@pytest.mark.parametrize("section", ["[float8]\nenable_float8_linear = true\n", ""])
def test_float8_as_torchtitan_had_it_in_2024(section: str) -> None:
    text = launches.TORCHTITAN.replace('converters = ["float8"]', "")
    assert read({"a.toml": f"{text}\n{section}"}).settings["dtype"] == ("fp8" if section else "bf16")


def test_copies_of_maxtext_that_take_what_is_left_are_copies() -> None:
    text = launches.MAXTEXT.replace("dcn_data_parallelism: 4", "dcn_data_parallelism: -1")
    assert read({"m.yml": text}, 32).settings["shard"] == 8


def test_a_shape_of_several_presets_is_that_without_norms_of_queries() -> None:
    shape = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu --bf16"
    more = "--normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights"
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} {more} --disable-bias-linear --seq-length 2048 "
    text += "--micro-batch-size 1 --global-batch-size 8 --vocab-size 100008 --max-position-embeddings 2048"
    assert asked({"run.sh": text}).job.model.qk_norm is False


LISTS = """FORMAT={format}
flags="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048"
[ $FORMAT = bf16 ] && flags+=" --bf16" || flags+=" --fp16"
[[ $FORMAT == bf16 ]] || flags+=" --swiglu"
[[ -f tokenizer.model ]] && flags+=" --qk-layernorm"
(( ${{LAYERS:-0}} > 1 )) && [ $FORMAT = fp16 ] && flags+=" --recompute-activations"
torchrun --nproc_per_node 8 pretrain_gpt.py $flags --micro-batch-size 1 --global-batch-size 64 --vocab-size 32000
"""


@pytest.mark.parametrize(("form", "gated"), [("bf16", None), ("fp16", True)])
def test_what_a_test_before_it_forbids_is_not_run(form: str, gated: bool | None) -> None:
    settings = read({"run.sh": LISTS.format(format=form)}, None).settings
    assert (settings["dtype"], settings.get("gated_mlp"), settings["recompute"]) == (form, gated, "none")
    assert settings["qk_norm"] is True  # what hangs on a file may be


def test_megatron_without_a_number_format_is_in_fp32() -> None:
    launch = read({"run.sh": SCRIPT.format(program="pretrain_gpt.py", more="").replace("--bf16", "")})
    assert launch.unpriced == ["fp32, as Megatron-LM has it where no flag names a number format"]


@pytest.mark.parametrize(("more", "mode"), [("", "none"), ("--checkpoint-activations", "full")])
def test_deepspeeds_way_to_checkpoint_checkpoints_nothing_by_itself(more: str, mode: str) -> None:
    flags = f"--deepspeed --zero-stage 1 --deepspeed-activation-checkpointing {more}"
    assert read({"run.sh": SCRIPT.format(program="pretrain_gpt.py", more=flags)}).settings["recompute"] == mode


@pytest.mark.parametrize(("pattern", "every"), [("[1, 0, 1, 0]", 2), ("2", 2), ("[1, 1, 1, 0]", 4)])
def test_windows_that_skip_layers_by_a_list(pattern: str, every: int) -> None:
    text = launches.PRIMUS.replace("llama3.1_8B", "gpt_oss_20B").replace(
        "model_parallel_size: 2", "model_parallel_size: 1"
    )
    found = asked({"primus.yaml": f"{text}      window_attn_skip_freq: {pattern}\n"}, gpus=16, device="mi300x")
    assert found.job.model.window is not None
    assert (found.job.model.window.global_every, found.launch.unpriced) == (every, [])


def edited(text: str, name: str, gpus: int, change: dict[str, Any], turned: dict[str, Any]) -> tuple[str, LaunchAsRead]:
    source = read_launch([File(name, text.encode())], gpus)
    found = launch_as_read(source.launch, Controls(device="h100"), name)
    changes = source.changes(found.job, found.plan, replace(found.plan, **change), turned)
    written = next(iter(source.edited(changes)))[name].decode()
    again = launch_as_read(read_launch([File(name, written.encode())], gpus).launch, Controls(device="h100"), name)
    return written, again


def test_new_keys_of_a_recipe_stand_where_it_has_them_and_its_bucket_is_that_of_the_edit() -> None:
    text = f"{launches.BRIDGE}dataset:\n  packed_sequence_specs:\n    packed_sequence_size: 4096\n"
    written, again = edited(text, "bridge.yaml", 32, {}, {"bucket": 3.2e8, "reduce_overlap": True})
    assert "  bucket_size: 80000000" in written
    assert again.knobs.bucket == 3.2e8
    assert again.settings["packing"] is True


def test_a_pipeline_that_is_added_gets_the_schedule_of_the_edit() -> None:
    degrees = '[parallelism]\npipeline_parallel_schedule = "Interleaved1F1B"\n'
    text = f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n{degrees}'
    change = {"pp": 2, "dp": 4, "micro_batch": 1, "num_microbatches": 4, "zero_stage": 1}
    written, again = edited(text, "llama3.toml", 8, change, {})
    assert 'pipeline_parallel_schedule = "1F1B"' in written
    assert (again.plan.pp, again.plan.vpp) == (2, 1)


ROLLED_OUT = "--model_name_or_path Qwen/Qwen3-0.6B --per_device_train_batch_size 1 --beta 0.01 --gradient_checkpointing"


@pytest.mark.parametrize(
    "command",
    [
        f"uv run python open_instruct/grpo_fast.py {ROLLED_OUT}",
        f"torchrun --nproc_per_node 8 train.py {ROLLED_OUT} --num_samples_per_prompt_rollout 4",
        f"torchrun --nproc_per_node 8 train.py {ROLLED_OUT} --vllm_gpu_memory_utilization 0.3",
    ],
)
def test_a_beta_beside_rollouts_is_no_preference(command: str) -> None:
    with pytest.raises(InvalidFile, match="reinforcement learning"):
        asked({"run.sh": command}, gpus=8)


def test_a_program_that_supports_something_is_no_ppo() -> None:
    text = (
        "torchrun --nproc_per_node 8 src/support.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1"
    )
    assert asked({"run.sh": text}).launch.program == "DeepSpeed"


def test_a_config_of_one_of_many_programs_without_a_model_is_not_axolotls() -> None:
    text = "base_model: null\nmicro_batch_size: 16\nfull_shard: true\nbf16: true\n"
    with pytest.raises(InvalidFile, match="no launch that is known"):
        asked({"specifications.yaml": text}, gpus=8, model="llama2-7b")


def test_axes_of_maxtext_leave_the_number_of_devices_open() -> None:
    run = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-405b per_device_batch_size=0.25"
    with pytest.raises(InvalidFile, match="the number of GPUs is not told"):
        asked({"run.sh": f"{run} ici_tensor_parallelism=4"})
    plan = asked({"run.sh": f"{run} ici_tensor_parallelism=4"}, gpus=64).plan
    assert (plan.tp, plan.dp, plan.zero_stage) == (4, 16, 3)


TUNED = (
    "accelerate launch {more} --num_processes 8 src/train_bash.py --stage sft --finetuning_type lora --lora_rank $RANK"
    " --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --bf16\n"
)


def test_the_turn_of_a_loop_that_counts_is_told_of_every_program() -> None:
    launch = asked({"run.sh": f"for RANK in 64 128 256; do\n{TUNED.format(more='')}done\n"}).launch
    assert launch.settings["train"] == "lora:64"
    assert "RANK = 64, the first turn of its loop" in launch.assumed


def test_sequences_of_llama_factory_are_as_long_as_it_cuts_them() -> None:
    found = asked({"run.sh": f"RANK=8\n{TUNED.format(more='')}"})
    assert found.job.seq_len == 2048
    assert "cutoff_len 2048: LLaMA-Factory's own where nothing says otherwise" in found.launch.assumed


def test_a_config_that_is_not_there_is_told_with_a_slash_behind_it() -> None:
    found = asked({"run.sh": f"RANK=8\n{TUNED.format(more='--config_file /work/ddp.yaml/')}"})
    assert "/work/ddp.yaml, which was not read" in found.launch.unpriced


def test_an_evaluation_is_no_training() -> None:
    text = (
        "python3 -u scripts/test_orbax_eval.py MaxText/configs/base.yml model_name=llama3.1-8b per_device_batch_size=1"
    )
    with pytest.raises(InvalidFile, match="no command that is known to train"):
        asked({"run.sh": text}, gpus=8)
    assert asked({"run.sh": text.replace("test_orbax_eval", "train_and_eval")}, gpus=8).launch.program == "MaxText"


@pytest.mark.parametrize("flag", ["--skip-train", "--inference", "--eval-only true", "--train-iters 0"])
def test_a_command_that_evaluates_alone_is_refused(flag: str) -> None:
    text = SCRIPT.format(program="pretrain_gpt.py", more=f"{flag} --swiglu")
    with pytest.raises(InvalidFile, match=f"{flag.removesuffix(' true')}: it trains nothing"):
        asked({"run.sh": text})
    trains = SCRIPT.format(program="pretrain_gpt.py", more="--train-iters 100")
    assert asked({"run.sh": f"{trains}\n{text}"}).launch.program == "Megatron-LM"


def test_flags_that_no_megatron_has_are_told() -> None:
    more = "--use-dpp --workload 8 --use-te false --wandb-name a -a --outer-optimizer sgd --tensorboard-dir logs"
    launch = asked({"run.sh": SCRIPT.format(program="pretrain_gpt.py", more=more)}).launch
    assert "no Megatron has --wandb-name: taken to cost nothing" in launch.assumed
    assert launch.unpriced == ["--use-dpp, --workload, which no Megatron has", "--outer-optimizer sgd"]
    assert "--use-dpp" not in launch.ignored


def test_ranks_of_trls_older_words() -> None:
    text = f"{ADAPTED} --peft_lora_r 8"
    launch = asked({"run.sh": text}).launch
    assert launch.settings["train"] == "lora:8:q+v"
    assert "adapters on q and v, PEFT's default: no key says on what" in launch.assumed


@pytest.mark.parametrize(
    ("command", "train"),
    [
        ("swift sft --model Qwen/Qwen3-8B --train_type lora", "lora:8"),
        (f"{ADAPTED} --lora_target_modules all-linear", "lora:16"),
        ("accelerate launch train.py --stage sft --finetuning_type lora --model_name_or_path Qwen/Qwen3-8B", "lora:8"),
    ],
)
def test_ranks_that_no_key_gives_are_each_programs_own(command: str, train: str) -> None:
    launch = asked({"run.sh": f"{command} --per_device_train_batch_size 1 --bf16 true"}, gpus=8).launch
    assert launch.settings["train"] == train
    assert any(text.startswith(f"adapters of rank {train[5:]}, its program's default") for text in launch.assumed)
