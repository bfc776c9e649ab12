"""Launches of torchtune, litgpt, OLMo-core and of Gaudi as people write them, in forms that were once misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch import FlagChange
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.report import lacking
from tests.frameworks import launches
from tests.frameworks.test_launches import question

TUNE = launches.TORCHTUNE
LOSS = "torchtune.modules.loss.LinearCrossEntropyLoss"
SPLIT = "tensor_parallel_dim: 2\ntensor_parallel_plan: {_component_: torchtune.models.llama3.base_llama_tp_plan}\n"
SCOUT = TUNE.replace("llama3_1.llama3_1_8b", "llama4.llama4_scout_17b_16e")
BATCH = "#!/bin/bash\n#SBATCH --gres=gpu:%s\n%s\n"
TUNED = "tune run --nproc_per_node 8 full_finetune_distributed --config x.yaml"
LITGPT = "litgpt finetune_lora meta-llama/Llama-3.2-1B --data Alpaca"
TRAINED = "torchrun --nproc_per_node 4 %s run_lora_clm.py --model_name_or_path Qwen/Qwen3-8B --max_length 2048"
GAUDI = "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --bf16 "


def asked(name: str, text: str, **controls: Any) -> LaunchAsRead:
    return question({name: text}, **controls)


@pytest.mark.parametrize("loss", ["torchtune.modules.loss.DPOLoss", "torchtune.modules.loss.ORPOLoss", "mine.Loss"])
def test_losses_of_torchtune_that_are_no_fine_tuning_are_refused(loss: str) -> None:
    with pytest.raises(InvalidFile, match="only supervised fine-tuning is priced"):
        asked("x.yaml", TUNE.replace(LOSS, loss), gpus=8)


@pytest.mark.parametrize(
    ("loss", "parts"),
    [("torch.nn.CrossEntropyLoss", 1), (LOSS, 8), (f"{LOSS}, num_output_chunks: 4", 4)],
)
def test_a_loss_of_torchtune_has_as_many_logits_as_its_class(loss: str, parts: int) -> None:
    assert asked("x.yaml", TUNE.replace(LOSS, loss), gpus=8).job.stack.features.loss_chunks == parts


@pytest.mark.parametrize(
    ("more", "sp"), [("", False), ("data_parallel_shard_dim: -1\n", True), ("data_parallel_replicate_dim: 1\n", True)]
)
def test_torchtune_splits_sequences_with_tensors_since_it_has_a_mesh(more: str, sp: bool) -> None:
    found = asked("x.yaml", f"{TUNE}{SPLIT}{more}", gpus=8)
    assert (found.plan.tp, found.plan.sequence_parallel) == (2, sp)
    assert all(edit.after.plan.sequence_parallel == (sp and edit.after.plan.tp > 1) for edit in improve(found).every)


def test_torchtune_splits_experts_as_other_weights() -> None:
    found = asked("x.yaml", f"{SCOUT}{SPLIT}fsdp_cpu_offload: true\n", gpus=8)
    assert (found.plan.tp, found.plan.etp) == (2, 2)
    assert all((edit.after.plan.tp, edit.after.plan.etp) == (2, 2) for edit in improve(found).every)


def test_torchtune_splits_no_tensors_without_a_plan_of_them() -> None:
    assert asked("x.yaml", f"{TUNE}tensor_parallel_dim: 1\n", gpus=8).job.limits.fixed["tp"] == 1
    assert "tp" not in asked("x.yaml", f"{TUNE}{SPLIT}", gpus=8).job.limits.fixed


@pytest.mark.parametrize(
    ("kind", "command", "gpus"),
    [
        ("rtxa5000:1", "tune run lora_finetune_distributed --config x.yaml", 1),
        ("a100:4", "tune run --nproc_per_node 4 full_finetune_distributed --config x.yaml", 4),
        ("a100:4", "tune run full_finetune_single_device --config x.yaml", 1),
    ],
)
def test_a_batch_script_without_nodes_has_one(kind: str, command: str, gpus: int) -> None:
    assert question({"run.sh": BATCH % (kind, command), "x.yaml": TUNE}).job.gpus == gpus


def test_a_type_of_gpu_that_is_no_device_is_said() -> None:
    found = question({"run.sh": BATCH % ("rtxa5000:1", "tune run x_single_device --config x.yaml"), "x.yaml": TUNE})
    assert "gpu:rtxa5000, no device that is known (--device)" in found.launch.unpriced


def test_nodes_of_few_gpus_are_no_node_of_many() -> None:
    run = "srun torchrun --nnodes 2 --nproc_per_node 4 train.py --model_name_or_path Qwen/Qwen3-8B --max_length 4096 "
    found = asked("run.sh", f"{run}--per_device_train_batch_size 2 --gradient_accumulation_steps 2")
    assert (found.job.gpus, found.job.cluster.gpus_per_node) == (8, 4)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", {"gpus": 1, "micro_batch": 1, "global_batch": 16, "train": "lora:8:q+v"}),
        (
            " --devices 4 --num_nodes 2 --lora_r 32 --lora_value false --train.max_seq_length 2048",
            {"gpus": 8, "nodes": 2, "gpus_per_node": 4, "train": "lora:32:q", "seq_len": 2048, "recompute": "full"},
        ),
        (
            " --quantize bnb.nf4 --train.micro_batch_size 4",
            {"train": "qlora:8:q+v", "base": "nf4-single", "micro_batch": 4},
        ),
    ],
)
def test_a_command_of_litgpt_is_read_with_what_it_takes_unasked(more: str, said: dict[str, Any]) -> None:
    settings = asked("run.sh", LITGPT + more).settings
    assert {name: settings[name] for name in said} == said


def test_a_command_of_litgpt_goes_before_its_config(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(launches.LITGPT)
    path = tmp_path / "run.sh"
    path.write_text("litgpt pretrain --config mine.yaml --devices 4 --train.micro_batch_size 8")
    settings = read_launch(read_files([str(path)])).launch.settings
    assert {"nodes": 2, "gpus_per_node": 4, "micro_batch": 8, "shard": 4}.items() <= settings.items()
    (tmp_path / "mine.yaml").unlink()
    with pytest.raises(InvalidFile, match=r"it trains by mine\.yaml, not found here"):
        read_launch(read_files([str(path)]))


@pytest.mark.parametrize("command", ["finetune_adapter", "pretrain_poet"])
def test_other_commands_of_litgpt_are_refused(command: str) -> None:
    with pytest.raises(InvalidFile, match=f"litgpt {command}: of its commands only pretrain, "):
        asked("run.sh", LITGPT.replace("finetune_lora", command))


def test_a_script_ends_where_it_exits() -> None:
    script = (
        "litgpt finetune_full Qwen/Qwen3-8B --devices 2\nexit 0\n\nlitgpt finetune_full Qwen/Qwen3-4B --devices 8\n"
    )
    found = asked("run.sh", script)
    assert (found.job.model.name, found.job.gpus) == ("qwen3-8b", 2)


def test_a_program_of_olmo_core_is_refused_by_name_whatever_its_python() -> None:
    with pytest.raises(InvalidFile, match="OLMo-core: its configs are not read"):
        read_launch([File("train.py", b"from olmo_core.train import TrainerConfig\nname = f'{'\n")])


@pytest.mark.parametrize(
    ("more", "train"),
    [(" --lora_rank 8 --lora_target_modules q_proj v_proj", "lora:8:q_proj+v_proj"), (" --lora_rank 8", "full")],
)
def test_adapters_of_programs_without_a_switch_for_them(more: str, train: str) -> None:
    text = TRAINED % "" + " --per_device_train_batch_size 2" + more
    assert asked("run.sh", text).job.train == train


@pytest.mark.parametrize(
    ("more", "attention", "said"),
    [
        ("--use-fused-sdpa 1 --use-fused-sdpa-with-recompute 1", "flash", True),
        ("--use-fused-sdpa 1 --use-fused-sdpa-with-recompute 0", None, True),
        ("--use-fused-sdpa 0", None, False),
    ],
)
def test_fused_attention_on_gaudi(more: str, attention: str | None, said: bool) -> None:
    text = f"{GAUDI}--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --zero-stage 1 {more}"
    launch = read_launch([File("run.sh", f"{text} --optimizer fusedadamw".encode())]).launch
    assert launch.settings.get("attention") == attention
    assert launch.unpriced == ["--use-fused-sdpa 1"] * said


def test_checkpoints_that_are_kept_and_files_that_are_written_cost_nothing() -> None:
    found = question({"run.sh": f"{TUNED} max_checkpoints=3", "x.yaml": TUNE})
    assert found.launch.unpriced == []
    run = "torchrun --nproc_per_node 8 pretrain.py trainer.max_steps=10 --to-yaml out.yaml"
    assert (
        read_launch([File("run.sh", run.encode()), File("pretrain.py", launches.NEMO_RECIPE.encode())]).launch.unpriced
        == []
    )


@pytest.mark.parametrize(("name", "optimizer"), [("PagedAdamW", "paged-adamw"), ("AdamW8bit", "adamw-8bit")])
def test_optimizers_of_bitsandbytes_in_torchtune(name: str, optimizer: str) -> None:
    found = asked("x.yaml", TUNE.replace("torch.optim.AdamW", f"bitsandbytes.optim.{name}"), gpus=1)
    assert found.job.optimizer == optimizer


def test_a_length_that_is_guessed_is_in_the_head() -> None:
    text = TUNE.replace("max_seq_len: 4096", "max_seq_len: null")
    assert "; length guessed: 8,192 tokens" in lacking(asked("x.yaml", text, gpus=8).launch)
    assert "length" not in lacking(asked("x.yaml", text, gpus=8, seq_len=512).launch)
    assert "length" not in lacking(asked("x.yaml", TUNE, gpus=8).launch)


def test_a_teacher_of_torchtune_is_the_reason() -> None:
    with pytest.raises(InvalidFile, match=r"teacher_model\._component_ torchtune\.models\.qwen2\.qwen2_1_5b: of its"):
        asked("x.yaml", f"{TUNE}teacher_model: {{_component_: torchtune.models.qwen2.qwen2_1_5b}}\n", gpus=8)


@pytest.mark.parametrize(
    ("more", "train"),
    [
        ("--lora_target_modules q_proj v_proj --use_habana", "lora:8:q_proj+v_proj"),
        ("--lora_target_modules q_proj v_proj --use_habana --use_peft False", "full"),
        ("--lora_rank 64 --lora_target_modules query_key_value dense dense_h_to_4h", "lora:64:q+k+v+o+up"),
    ],
)
def test_adapters_of_optimum_habana(more: str, train: str) -> None:
    text = f"{TRAINED % ''} --per_device_train_batch_size 2 {more}".replace("Qwen/Qwen3-8B", "tiiuae/falcon-40b")
    assert asked("run.sh", text).job.train == train


def test_what_a_command_says_is_what_a_config_refers_to() -> None:
    own = f"{launches.NEMO}  data: {{train_ds: {{micro_batch_size: '${{model.micro_batch_size}}'}}}}\n"
    run = "torchrun --nproc_per_node 8 megatron_gpt_pretraining.py --config-name=own model.micro_batch_size=2"
    launch = read_launch([File("run.sh", run.encode()), File("own.yaml", own.encode())]).launch
    assert launch.settings["micro_batch"] == 2


@pytest.mark.parametrize(("precision", "said"), [("bf16", []), ("32", ["trainer.precision 32"])])
def test_a_precision_of_nemo_that_is_not_priced_is_said(precision: str, said: list[str]) -> None:
    own = launches.NEMO.replace("bias: false", "has_bias: false")
    run = f"python megatron_gpt_pretraining.py --config-name=own trainer.precision={precision}"
    launch = read_launch([File("run.sh", run.encode()), File("own.yaml", own.encode())]).launch
    assert launch.unpriced == said
    assert launch.settings["mlp_bias"] is False


def test_accelerators_that_a_sourced_script_names_are_said(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("export NEURON_RT_EXEC_TIMEOUT=10\n")
    path = tmp_path / "run.sh"
    path.write_text(
        f"source ./setup.sh\n{GAUDI}--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1\n"
    )
    assert read_launch(read_files([str(path)])).launch.family == "Trainium"


@pytest.mark.parametrize("packed", ["true", "false"])
def test_of_several_data_sets_of_torchtune_all_are_packed_or_none(packed: str) -> None:
    one = "dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: true}"
    several = f"dataset: [{{_component_: mine.one, packed: {packed}}}, {{_component_: mine.other, packed: {packed}}}]"
    assert asked("x.yaml", TUNE.replace(one, several), gpus=8).settings["packing"] is (packed == "true")


def test_overrides_of_megatron_bridge_without_a_degree_leave_the_plan_to_the_recipe() -> None:
    text = "train: {micro_batch_size: 1, global_batch_size: 8}\nmodel: {seq_length: 4096%s}\noptimizer: {lr: 1.0e-4}\n"
    with pytest.raises(InvalidFile, match="its own settings are in the recipe's Python"):
        read_launch([File("own.yaml", (text % "").encode())], 8, "llama3-8b")
    launch = read_launch([File("own.yaml", (text % ", context_parallel_size: 2").encode())], 8, "llama3-8b").launch
    left = "tensor_model_parallel_size, pipeline_model_parallel_size 1, which the recipe may have otherwise"
    assert left in launch.assumed


@pytest.mark.parametrize(("more", "etp"), [("", 1), (", expert_tensor_parallel_size: 4", 4)])
def test_experts_of_megatron_bridge_are_whole_under_tensor_parallelism(more: str, etp: int) -> None:
    degrees = "tensor_model_parallel_size: 4, expert_model_parallel_size: 2"
    text = f"train: {{micro_batch_size: 1, global_batch_size: 8}}\nmodel: {{recipe: qwen3_30b_a3b, {degrees}{more}}}\n"
    assert asked("own.yaml", text, gpus=8).plan.etp == etp


def test_a_patch_of_megatron_bridge_leaves_no_key_to_the_recipe() -> None:
    text = f"{launches.BRIDGE}  # all\n".replace("model:", "model:\n  recompute_granularity: full")
    source = read_launch([File("own.yaml", text.encode())], 64)
    change = FlagChange(flag="model.recompute_granularity", before="full", after="null")
    (texts,) = source.edited((change,))
    assert b"\n  recompute_granularity: null\n" in texts["own.yaml"]


def test_a_program_of_nemo_2_without_a_recipe_is_refused_as_one() -> None:
    text = b"from nemo.collections import llm\nllm.train(model=llm.GPTModel(llm.GPTConfig(num_layers=6)))\n"
    with pytest.raises(InvalidFile, match="a program of NeMo 2 with no call of pretrain_recipe"):
        read_launch([File("train.py", text)])


@pytest.mark.parametrize("key", ["exp_avg_dtype: torch.%s", "exp_avg_dtype: {_target_: torch.%s}"])
@pytest.mark.parametrize(("written", "size"), [("bfloat16", 2), ("float32", 4), ("uint8", 1)])
def test_formats_of_the_moments_by_their_names_in_pytorch(key: str, written: str, size: int) -> None:
    own = f"optimizer:\n  use_precision_aware_optimizer: true\n  {key % written}\n"
    launch = read_launch([File("own.yaml", f"{launches.BRIDGE}\n{own}".encode())], 64).launch
    assert launch.settings["optimizer_bytes"] == 8 + size


@pytest.mark.parametrize(("value", "said"), [("null", True), ("0", True), ("1", False)])
def test_heads_of_further_tokens_that_a_config_leaves_out_are_said(value: str, said: bool) -> None:
    degrees = "tensor_model_parallel_size: 4, expert_model_parallel_size: 8"
    text = f"train: {{micro_batch_size: 1, global_batch_size: 64}}\nmodel: {{{degrees}, mtp_num_layers: {value}}}\n"
    launch = read_launch([File("own.yaml", text.encode())], 64, "nemotron-3-super-120b-a12b").launch
    assert any("further tokens" in each for each in launch.unpriced) == said


@pytest.mark.parametrize(("said", "layers"), [("use_mtp=True", 1), ("use_mtp=False", 0)])
def test_a_recipe_without_heads_of_further_tokens_is_priced_without(said: str, layers: int) -> None:
    called = f'llm.deepseek_v3.pretrain_recipe(name="a", dir="x", num_nodes=128, num_gpus_per_node=8, {said})'
    text = f"from nemo.collections import llm\nimport nemo_run as run\nrecipe = {called}\nrun.run(recipe)\n"
    read = question({"pretrain.py": text})
    assert (read.job.model.mtp_layers, read.launch.unpriced) == (layers, [])


BRIDGED = (
    "torchrun --nproc_per_node 8 pretrain_llama3_8b.py model.tensor_model_parallel_size=1 train.micro_batch_size=1 "
)


@pytest.mark.parametrize(
    ("named", "dtype", "recipe"),
    [
        ("mixed_precision=bf16_with_nvfp4_mixed", "fp4", None),
        ("mixed_precision=bf16_with_mxfp8_mixed", "fp8", "mxfp8"),
        ("+precision_config=bf16_with_fp8_current_scaling_mixed", "fp8", "tensorwise"),
        ("precision_config=bf16_mixed", "bf16", None),
    ],
)
def test_mixed_precisions_of_megatron_bridge_by_name(named: str, dtype: str, recipe: str | None) -> None:
    launch = read_launch([File("run.sh", f"{BRIDGED}{named}".encode())], None, "llama3-8b").launch
    assert (launch.settings["dtype"], launch.settings.get("fp8_recipe")) == (dtype, recipe)


def test_a_value_that_hangs_on_what_a_command_prints_is_said() -> None:
    chosen = 'CC=$(query)\nif [ "$CC" -ge 89 ]; then MBS=4; LOGS=a; else MBS=2; LOGS=b; fi\n'
    launch = read_launch(
        [File("run.sh", f"{chosen}{BRIDGED}train.micro_batch_size=$MBS".encode())], 8, "llama3-8b"
    ).launch
    assert [each for each in launch.assumed if "only a run" in each] == [
        'MBS = 2: only a run would tell whether [ "$CC" -ge 89 ] holds'
    ]


def test_a_recipe_of_torchtune_by_its_path() -> None:
    script = "tune run --nproc_per_node 1 own/full_finetune_single_device --config x.yaml"
    assert question({"run.sh": script, "x.yaml": TUNE}).job.gpus == 1


def test_a_model_of_its_own_in_torchtune_is_the_reason() -> None:
    with pytest.raises(InvalidFile, match="mine_moe is no model that is known"):
        asked("x.yaml", TUNE.replace("torchtune.models.llama3_1.llama3_1_8b", "mine.mine_moe"), gpus=8)


@pytest.mark.parametrize(("more", "gpus"), [({}, 4), ({"gpus": 8}, 8)])
def test_a_config_of_litgpt_without_nodes_has_one(more: dict[str, Any], gpus: int) -> None:
    text = "checkpoint_dir: meta-llama/Llama-2-7b-hf\ndevices: 4\nprecision: bf16-true\ntrain:\n"
    text += "  global_batch_size: 64\n  micro_batch_size: 4\n  max_seq_length: 512\n"
    assert asked("full.yaml", text, **more).job.gpus == gpus


def test_names_that_read_cuts_a_text_into() -> None:
    cut = "for C in 2,1 4,2; do\nIFS=',' read -r TP CP <<< \"$C\"\n"
    text = f"{cut}{BRIDGED}model.tensor_model_parallel_size=$TP model.context_parallel_size=$CP\ndone\n"
    found = read_launch([File("run.sh", text.encode())], 8, "llama3-8b").launch
    assert (found.settings["tp"], found.settings["cp"]) == (2, 1)


def test_a_comment_behind_an_option_of_a_batch_script_asks_for_nothing() -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8  # 4 of GB200\n{TUNED}\n"
    assert "device" not in question({"run.sh": script, "x.yaml": TUNE}).settings


@pytest.mark.parametrize("scheme", ["lora", "dora"])
@pytest.mark.parametrize("flag", ["peft_scheme", "mode"])
def test_the_scheme_of_a_command_of_megatron_bridge(flag: str, scheme: str) -> None:
    text = f"{BRIDGED}--recipe llama3_8b_peft_config --{flag} {scheme}"
    launch = read_launch([File("run.sh", text.encode())], 8, "llama3-8b").launch
    assert launch.settings["train"] == f"{scheme}:32"
    assert not any(flag in each for each in (*launch.ignored, *launch.unpriced))


def test_a_teacher_of_megatron_bridge_is_refused() -> None:
    text = "train: {micro_batch_size: 1}\nmodel: {tensor_model_parallel_size: 2, teacher: {seq_length: 4}}\n"
    with pytest.raises(InvalidFile, match="learns from another is not priced"):
        read_launch([File("own.yaml", text.encode())], 8, "llama3.2-1b")


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ('bash -c "$CMD"', 'bash -c "$CMD {}"'),
        ('eval "$CMD"', 'eval "$CMD {}"'),
        ("eval $CMD", "eval $CMD {}"),
    ],
)
def test_keys_are_added_where_they_reach_the_program(command: str, after: str) -> None:
    text = f'CMD="{BRIDGED}model.tensor_model_parallel_size=1"\nsrun {command}\n'
    source = read_launch([File("run.sh", text.encode())], 8, "llama3-8b")
    change = FlagChange(flag="model.recompute_granularity", before=None, after="full")
    (texts,) = source.edited((change,))
    assert texts["run.sh"].decode().endswith(after.format("model.recompute_granularity=full") + "\n")


def test_a_recipe_of_megatron_bridge_that_fine_tunes_has_adapters() -> None:
    launch = read_launch([File("run.sh", f"{BRIDGED}--recipe llama3_8b_finetune_config".encode())], 8).launch
    assert (launch.settings["model"], launch.settings["train"]) == ("llama3-8b", "lora:32")
    assert "adapters of rank 32, which the recipe may have otherwise" in launch.assumed


@pytest.mark.parametrize(("step", "said"), [("vlm_step", True), ("gpt_step", False)])
def test_a_step_of_megatron_bridge_with_images_is_said(step: str, said: bool) -> None:
    script = f"{BRIDGED}--recipe llama3_8b_sft_config --step_func {step}"
    launch = read_launch([File("run.sh", script.encode())], 8).launch
    assert (f"step_func {step}" in lacking(launch)) == said


@pytest.mark.parametrize("program", ["rm", "dpo", "knowledge_distillation"])
def test_programs_of_nemo_aligner_that_are_no_fine_tuning_are_refused(program: str) -> None:
    text = f"trainer: {{devices: 8, {program}: {{max_steps: 9}}}}\nmodel: {{micro_batch_size: 1, seq_length: 4096}}\n"
    with pytest.raises(InvalidFile, match="NeMo-Aligner"):
        read_launch([File("x.yaml", text.encode())], 8, "llama3-8b")
