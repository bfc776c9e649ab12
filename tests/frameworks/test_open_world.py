"""Settings, programs and files that no reader knows: said in the title or refused, never priced in silence."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InvalidFile
from optimizer.cli import cli
from optimizer.diagnose.log import read_log
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, launch_as_read, settings_of
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import changes_of
from tests.frameworks import launches
from tests.frameworks.test_launches import question

NEOX = """{
  "pipe-parallel-size": 4, "model-parallel-size": 2, "num-layers": 44, "hidden-size": 6144,
  "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 32,
}
"""
VERL = """python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo_megatron_trainer.yaml \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=8 data.train_batch_size=32 trainer.nnodes=4
"""
TRAINER = """model_name_or_path: meta-llama/Meta-Llama-3-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
cutoff_len: 1024
bf16: true
"""
BRIDGE = """model: {tensor_model_parallel_size: 2, seq_length: 4096}
train: {train_iters: 20, global_batch_size: 64}
"""


def launch_of(texts: Mapping[str, str], gpus: int | None = 8, model: str = "") -> Launch:
    return read_launch([File(name, text.encode()) for name, text in texts.items()], gpus, model).launch


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"grpo.sh": VERL}, "verl: reinforcement learning is not priced"),
        (
            {"train.py": "from olmo_core.internal.experiment import main\nmain()\n"},
            "OLMo-core: its configs are not read",
        ),
        (
            {"train.py": "from megatron.bridge.recipes.llama.llama3 import pretrain_config\nmain()\n"},
            "Megatron-Bridge: a recipe's own settings",
        ),
        (
            {"r.py": "from megatron.bridge.training import Config\n" + "def a() -> Config:\n    return 1\n"},
            "Megatron-Bridge: a recipe's own settings",
        ),
        (
            {"primus.yaml": "modules: {pre_trainer: {framework: torchtitan, overrides: {parallelism: {a: 1}}}}\n"},
            "Primus on torchtitan: its overrides",
        ),
        (
            {"sft.py": "from unsloth import FastLanguageModel\n"},
            "expected FastModel's from_pretrained and an SFTTrainer",
        ),
        ({"v1.yaml": "model: a\npeft_config: {name: lora}\nmicro_batch_size: 1\n"}, "LLaMA-Factory v1: configs of"),
        (
            {"config.yaml": "_wandb: {value: {cli_version: 1}}\nmodel: {value: {a: 1}}\n"},
            "Weights & Biases: what it saves",
        ),
        ({"job.yaml": "apiVersion: batch/v1\nkind: Job\nspec: {a: 1}\n"}, "Kubernetes: a manifest is not read"),
        ({"t.yaml": "resources: {accelerators: H100:8}\nrun: torchrun a.py\n"}, "SkyPilot: a task is not read"),
        ({"chart.yaml": "{{- $name := .Values.name }}\nkind: Job\n"}, "not YAML, as templates are before they are"),
        ({"config_h100.sh": "export DGXNNODES=64\nexport MINIBS=128\n"}, "MLPerf: a submission's settings"),
        ({"run.sh": "torchrun $PROGRAM --factory 'recipe()' trainer.devices=8\n"}, "NeMo-Run's command line: a recipe"),
        ({"run.sh": "python scripts/performance/run_script.py --model_name llama3\n"}, "Megatron-Bridge: a recipe's"),
        ({"ppo.yaml": "actor_rollout_ref: {actor: {ppo_mini_batch_size: 4}}\n"}, "verl: reinforcement learning"),
    ],
)
def test_a_program_that_is_not_read_is_refused_by_name(texts: Mapping[str, str], why: str) -> None:
    with pytest.raises(InvalidFile, match=why):
        launch_of(texts, 96, "gpt-neox-20b")


def test_a_module_of_inference_trains_nothing() -> None:
    flags = "--num-layers 28 --hidden-size 1536 --num-attention-heads 12 --micro-batch-size 64 --seq-length 32768"
    with pytest.raises(InvalidFile, match="no command that is known to train"):
        launch_of({"infer.sh": f"torchrun --nproc-per-node 8 -m examples.inference.offline_inference {flags}\n"})
    with pytest.raises(InvalidFile, match="no command that is known to train"):
        launch_of({"index.sh": f"python tools/create_doc_index.py {flags}\n"})
    for other in (
        "data/analyze_data.py",
        "tools/retro/preprocess_data.py",
        "tools/hf2mcore_qwen2.py",
        "merge_mp_partitions.py",
    ):
        with pytest.raises(InvalidFile, match="no command that is known to train"):
            launch_of({"run.sh": f"torchrun --nproc_per_node 8 {other} {flags}\n"})


def test_sections_that_disagree_are_no_launch() -> None:
    with pytest.raises(InvalidFile, match=r"model\.seq_length and dataset\.seq_length say different values"):
        launch_of({"over.yaml": f"{BRIDGE}dataset: {{seq_length: 8192}}\n"}, 8, "llama3-8b")
    assert (
        launch_of({"over.yaml": f"{BRIDGE}dataset: {{seq_length: 4096}}\n"}, 8, "llama3-8b").settings["seq_len"] == 4096
    )


CASES: list[tuple[str, str, list[str]]] = [
    ("sft.yaml", f"{TRAINER}finetuning_type: oft\noft_block_size: 8\n", ["finetuning_type oft", "oft_block_size 8"]),
    ("sft.yaml", f"{TRAINER}num_labels: 2\nfreeze_vision_tower: true\n", ["num_labels 2", "freeze_vision_tower"]),
    ("sft.yaml", f"{TRAINER}mixture_of_depths: convert\nmodel_revision: main\n", ["mixture_of_depths convert"]),
    ("sft.yaml", f"{TRAINER}finetuning_type: full\nload_in_4bit: false\nsave_steps: 500\nwarmup_steps: 10\n", []),
    (
        "sft.yaml",
        f"{TRAINER}load_in_4bit: true\noptimizer: galore_adamw\n",
        ["load_in_4bit", "optimizer galore_adamw"],
    ),
    ("max.yml", f"{launches.MAXTEXT}quantization: int8\n", ["quantization int8"]),
    ("sft.yaml", f"{TRAINER}tuner_type: bone\n", ["tuner_type bone"]),
    ("sft.yaml", f"{TRAINER}low_rank_training: true\npre_seq_len: 128\n", ["low_rank_training", "pre_seq_len 128"]),
    (
        "sft.yaml",
        f"{TRAINER}train_micro_batch_size_per_gpu: 4\n",
        ["train_micro_batch_size_per_gpu 4 against per_device_train_batch_size 1"],
    ),
    ("gpt.yaml", f"{launches.NEMO}  megatron_amp_O2: false\n", ["model.megatron_amp_O2 false"]),
    ("gpt.yaml", f"{launches.NEMO}  megatron_amp_O2: true\n", []),
    (
        "sft.yaml",
        f"{TRAINER}flash_attn_fuse_mlp: true\nflash_attn_rms_norm: false\nflash_attn: fa2\n",
        ["flash_attn_fuse_mlp"],
    ),
    (
        "sft.yaml",
        f"{TRAINER}unfrozen_parameters: [model.layers.3.mlp]\n",
        ["unfrozen_parameters ['model.layers.3.mlp']"],
    ),
    ("sft.yaml", f"{TRAINER}finetuning_type: freeze\nuse_llama_pro: true\n", ["finetuning_type freeze"]),
    ("max.yml", f'{launches.MAXTEXT}quantization: ""\n', []),
]


@pytest.mark.parametrize(("name", "text", "unpriced"), CASES)
def test_what_may_cost_and_is_not_read_is_named(name: str, text: str, unpriced: list[str]) -> None:
    assert launch_of({name: text}, None if name == "max.yml" else 8).unpriced == unpriced


FLAGS = """# Megatron-LM core_v0.19.0
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --swiglu \\
    --tensor-model-parallel-size 2 --vocab-size 32000 """


@pytest.mark.parametrize(
    ("more", "unpriced"),
    [
        ("--optimizer soap", ["--optimizer soap"]),
        ("--use-lf-gate --lf-conv2d-group 1", ["--use-lf-gate", "--lf-conv2d-group 1"]),
        ("--task RACE --glu-activation swiglu", ["--task RACE"]),
        ("--optimizer adam --attention-dropout 0.1 --lr-warmup-iters 5 --use-checkpoint-args", []),
        (
            "--xielu --reset-attention-mask --reset-position-ids",
            ["--xielu", "--reset-attention-mask", "--reset-position-ids"],
        ),
    ],
)
def test_flags_that_may_cost_are_in_the_title_and_no_patch_is_written(
    more: str, unpriced: list[str], tmp_path: Path
) -> None:
    assert launch_of({"train.sh": FLAGS + more}, None).unpriced == unpriced
    path = tmp_path / "train.sh"
    path.write_text(FLAGS + more)
    patch = CliRunner().invoke(cli, ["improve", str(path), "--diff"], prog_name="optimize")
    assert (patch.exit_code, "not priced" in patch.output) == ((2, True) if unpriced else (0, False))
    if unpriced:
        title = CliRunner().invoke(cli, ["improve", str(path)], prog_name="optimize").output.partition("\n\n")[0]
        assert f"not priced: {', '.join(unpriced)}" in " ".join(title.split())


def test_no_sample_has_what_is_not_priced() -> None:
    own = {"litgpt": ["torch.compile of the whole model, litgpt's own where it pretrains"]}
    for name, (texts, gpus) in launches.SAMPLES.items():
        assert launch_of(texts, gpus).unpriced == own.get(name, [])


ZERO = '{"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}}\n'
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n"
AXOLOTL = """base_model: meta-llama/Meta-Llama-3-8B
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 8
bf16: auto
"""
SEVERAL: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"z.json": ZERO, "sft.yaml": TRAINER}, {"global_batch": 64, "zero_stage": 3}),
    ({"a.json": ZERO, "sft.yaml": TRAINER}, {"global_batch": 64, "zero_stage": 3}),
    ({"a.json": ZERO, "fft.yaml": AXOLOTL}, {"global_batch": 64, "zero_stage": 3, "seq_len": 2048}),
    ({"acc.yaml": ACCELERATE, "sft.yaml": TRAINER}, {"global_batch": 64, "zero_stage": 2}),
    (
        {"a.json": ZERO, "sft.yaml": TRAINER, "over": "gradient_accumulation_steps=4\nmodel.x=1\n"},
        {"global_batch": 32, "zero_stage": 3},
    ),
]


@pytest.mark.parametrize(("texts", "said"), SEVERAL)
def test_the_kind_of_a_file_counts_and_never_its_place(texts: dict[str, str], said: dict[str, Any]) -> None:
    for order in permutations(texts):
        settings = question({name: texts[name] for name in order}, gpus=8).settings
        assert {name: settings[name] for name in said} == said, order


def test_two_files_of_a_kind_that_disagree_are_no_launch() -> None:
    other = TRAINER.replace("steps: 8", "steps: 4")
    for order in permutations({"one.yaml": TRAINER, "two.yaml": other}.items()):
        with pytest.raises(InvalidFile, match=r"gradient_accumulation_steps is 8 in one\.yaml and 4 in two\.yaml"):
            launch_of(dict(order))


def test_a_file_that_a_config_names_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(f"{TRAINER}deepspeed: examples/deepspeed/ds_z3.json\n")
    with pytest.raises(InvalidFile, match=r"ds_z3\.json, not found here; give it too"):
        read_launch(read_files([str(path)]), 8)
    (tmp_path / "ds_z3.json").write_text(ZERO)
    launch = read_launch(read_files([str(path)]), 8).launch
    assert (launch.settings["zero_stage"], launch.settings["num_microbatches"]) == (3, 8)


def test_no_edit_writes_what_the_trainers_own_file_does_not_have() -> None:
    asked = question({"sft.yaml": TRAINER}, gpus=8)
    source = read_launch([File("sft.yaml", TRAINER.encode())], 8)
    for edit in improve(asked).edits:
        assert edit.after.plan.zero_stage == asked.plan.zero_stage
        flags = {change.flag for change in changes_of(source, asked, edit)}
        assert not any(flag.startswith("zero_optimization") for flag in flags)


BATCH = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=4
#SBATCH --output={place}
{run} --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu --vocab-size 32000 --bf16 \\
    --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 \\
    --tensor-model-parallel-size 2 --use-distributed-optimizer
"""
RUN = "srun pretrain_gpt.py"


@pytest.mark.parametrize(
    ("more", "zero", "state"),
    [
        ("finetuning_type: full\n", "", (12, 4, 4, 4)),
        ("finetuning_type: freeze\n", "", (12, 4, 4, 4)),
        ("finetuning_type: full\npure_bf16: true\n", "", (4, 2, 0, 2)),
        ("finetuning_type: full\n", '{"zero_optimization": {"stage": 3}}', (12, 2, 4, 0)),
        ("finetuning_type: lora\n", '{"zero_optimization": {"stage": 2}}', (4, 2, 0, 2)),
    ],
)
def test_weights_in_fp32_are_those_of_the_program(more: str, zero: str, state: tuple[int, ...]) -> None:
    asked = question({"sft.yaml": f"{TRAINER}{more}", **({"ds.json": zero} if zero else {})}, gpus=8)
    own = asked.job.stack.features
    assert (own.optimizer_bytes, own.grad_bytes, own.master_bytes, own.update_bytes) == state


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("finetuning_type: lora\nlora_rank: 8\nlora_target: all\n", ("lora:8", "", "adamw-fused")),
        (
            "finetuning_type: lora\nquantization_bit: 4\noptim: paged_adamw_8bit\n",
            ("qlora:8", "nf4", "paged-adamw-8bit"),
        ),
        (
            "adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_target_modules: [q_proj, v_proj]\n",
            ("qlora:32:q_proj+v_proj", "nf4", "adamw-fused"),
        ),
        ("adapter: lora\nload_in_8bit: true\nlora_target_linear: true\n", ("qlora:16", "int8", "adamw-fused")),
        ("finetuning_type: lora\nuse_dora: true\n", ("dora:8", "", "adamw-fused")),
        ("use_peft: true\noptim: adamw_torch\n", ("lora:16:q+v", "", "")),
        ("use_peft: true\noptim: adamw_torch_fused\n", ("lora:16:q+v", "", "adamw-fused")),
        ("finetuning_type: full\noptimizer: muon\n", ("full", "", "muon")),
        (
            "finetuning_type: freeze\nfreeze_trainable_layers: 4\nfreeze_extra_modules: lm_head\n",
            ("frozen:embedding,layers.0--5", "", "adamw-fused"),
        ),
        (
            'unfrozen_parameters: ["^lm_head.weight$", "model.layers.2[89]+"]\n',
            ("frozen:embedding,layers.0-27,layers.30-31", "", "adamw-fused"),
        ),
    ],
)
def test_a_fine_tuning_job_is_the_words_of_a_job(more: str, said: tuple[str, str, str]) -> None:
    asked = question({"sft.yaml": f"{TRAINER}{more}"}, gpus=8)
    assert (asked.job.train, asked.job.base, asked.job.optimizer) == said
    assert asked.launch.unpriced == []


@pytest.mark.parametrize(
    ("more", "recompute"),
    [
        ("stage: sft\nfinetuning_type: full\n", "full"),
        ("stage: sft\nfinetuning_type: full\ndisable_gradient_checkpointing: true\n", "none"),
        ("stage: sft\nfinetuning_type: full\ngradient_checkpointing: false\n", "full"),  # its own switch counts
        ("finetuning_type: full\n", "full"),
        ("", "none"),
    ],
)
def test_llama_factory_recomputes_unless_told_not_to(more: str, recompute: str) -> None:
    text = f"{TRAINER}{more}"
    asked = question({"sft.yaml": text}, gpus=8)
    assert asked.plan.recompute == recompute
    source = read_launch([File("sft.yaml", text.encode())], 8)
    after = replace(asked.plan, recompute="none" if recompute == "full" else "full")
    (change,) = source.changes(asked.job, asked.plan, after, {})
    (written,) = source.edited((change,))
    assert question({"sft.yaml": written["sft.yaml"].decode()}, gpus=8).plan.recompute == after.recompute


@pytest.mark.parametrize(
    ("more", "loss", "micro_batch"),
    [
        ("stage: dpo\n", "dpo", 4),
        ("stage: dpo\npref_loss: simpo\n", "simpo", 4),
        ("stage: rm\n", "reward", 4),
        ("stage: kto\n", "kto", 2),
        ("rl: ipo\n", "dpo", 4),
        ("reward_model: true\n", "reward", 4),
        ("stage: sft\n", "", 2),
    ],
)
def test_losses_are_read_and_their_pairs_counted(more: str, loss: str, micro_batch: int) -> None:
    text = f"{TRAINER}finetuning_type: full\n{more}".replace("batch_size: 1", "batch_size: 2")
    asked = question({"sft.yaml": text}, gpus=8)
    assert (asked.job.loss, asked.plan.micro_batch) == (loss, micro_batch)
    source = read_launch([File("sft.yaml", text.encode())], 8)
    after = replace(asked.plan, micro_batch=2 * micro_batch)
    (change,) = source.changes(asked.job, asked.plan, after, {})
    (written,) = source.edited((change,))
    assert b"per_device_train_batch_size: 4" in written["sft.yaml"]


@pytest.mark.parametrize(
    ("more", "loss"),
    [
        ("beta: 0.1\nmax_length: 1024\n", "dpo"),
        ("use_peft: true\nloss_type: [ipo]\n", "dpo"),
        ("beta: 0.1\ndesirable_weight: 1.0\n", "kto"),
        ("loss_type: simpo\nbeta: 2.0\n", "simpo"),
        ("center_rewards_coefficient: 0.01\n", "reward"),
        ("max_length: 1024\nloss_type: dft\n", ""),
        ("use_peft: true\npacking: false\n", ""),
    ],
)
def test_keys_of_one_trainer_of_trl_tell_its_loss(more: str, loss: str) -> None:
    launch = launch_of({"trl.yaml": TRAINER + more})
    assert launch.settings.get("loss", "") == loss
    assert not any("objective not given" in said for said in launch.assumed)


def test_an_objective_that_no_key_of_trl_tells_is_said_not_to_be_given() -> None:
    launch = launch_of({"trl.yaml": f"{TRAINER}use_peft: true\n"})
    assert any("objective not given" in said for said in launch.assumed)


def test_reinforcement_learning_of_ms_swift_is_refused() -> None:
    with pytest.raises(InvalidFile, match="rlhf_type grpo: only dpo, kto"):
        question({"run.sh": "swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --per_device_train_batch_size 1\n"})


def test_optimizers_of_megatron_are_known_by_name() -> None:
    assert question({"train.sh": f"{FLAGS} --optimizer ademamix"}).job.optimizer == "ademamix"
    assert question({"train.sh": f"{FLAGS} --optimizer adam"}).job.optimizer == ""


def test_the_trainers_flags_count_beside_a_launchers_config(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text(ACCELERATE)
    run = "--per_device_train_batch_size 2 --max_seq_length 2048 --model_name_or_path meta-llama/Meta-Llama-3-8B"
    path = tmp_path / "run.sh"
    path.write_text(f"accelerate launch --config_file acc.yaml sft.py {run} --use_peft --lora_r 8\n")
    launch = read_launch(read_files([str(path)])).launch
    said = {name: launch.settings[name] for name in ("model", "micro_batch", "seq_len", "train", "zero_stage")}
    assert said == {"model": "llama3-8b", "micro_batch": 2, "seq_len": 2048, "train": "lora:8:q+v", "zero_stage": 2}


@pytest.mark.parametrize("command", ["megatron rlhf --model Qwen/Qwen3-8B", "swift infer --model Qwen/Qwen3-8B"])
def test_commands_of_ms_swift_that_train_otherwise_are_refused_by_name(command: str) -> None:
    with pytest.raises(InvalidFile, match="ms-swift: of its commands only `sft`, `pt` and `swift rlhf` are priced"):
        launch_of({"run.sh": f"NPROC_PER_NODE=8 {command} --tensor_model_parallel_size 2 --micro_batch_size 1\n"})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("swift sft", {"train": "lora:8", "zero_stage": 0, "recompute": "full", "nodes": 1}),
        ("swift pt --lora_rank 4", {"zero_stage": 0, "recompute": "full"}),
        ("swift sft --tuner_type full --deepspeed zero3_offload", {"zero_stage": 3, "offload": 1.0}),
        ("swift rlhf --rlhf_type orpo", {"train": "lora:8", "loss": "orpo", "micro_batch": 2}),
        ("swift rlhf --rlhf_type kto --tuner_type full", {"loss": "kto", "micro_batch": 1}),
        (
            "swift sft --train_type lora --quant_bits 4 --quant_method bnb --gradient_checkpointing false",
            {"base": "nf4", "recompute": "none"},
        ),
    ],
)
def test_ms_swift_by_flag(command: str, said: dict[str, Any]) -> None:
    flags = "--model Qwen/Qwen3-8B --per_device_train_batch_size 1 --max_length 2048"
    settings = question({"run.sh": f"NPROC_PER_NODE=4 {command} {flags}\n"}).settings
    assert settings["gpus"] == 4
    assert {name: settings[name] for name in said if name != "nodes"} == {n: v for n, v in said.items() if n != "nodes"}
    assert "train" in said or settings.get("train", "full") != "lora:8"


@pytest.mark.parametrize(
    ("files", "gpus", "said"),
    [
        (
            launches.TORCHTUNE,
            8,
            {"model": "llama3.1-8b", "micro_batch": 2, "num_microbatches": 4, "seq_len": 4096, "zero_stage": 3}
            | {"recompute": "full", "optimizer_bytes": 4},
        ),
        (launches.TORCHTUNE, 1, {"zero_stage": 0}),
        (
            launches.TORCHTUNE.replace("llama3_1_8b", "qlora_llama3_1_8b\n  lora_rank: 4\n  apply_lora_to_mlp: true"),
            2,
            {"train": "qlora:4:q_proj+v_proj+gate+up+down", "base": "nf4"},
        ),
        (
            launches.TORCHTUNE.replace("torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit"),
            1,
            {"optimizer": "paged-adamw-8bit"},
        ),
        (
            launches.LITGPT,
            None,
            {"model": "llama3-8b", "gpus": 16, "shard": 8, "zero_stage": 3, "recompute": "none", "global_batch": 128}
            | {"optimizer_bytes": 4, "tokens": 10**9},
        ),
        (
            launches.LITGPT.replace("model_name: Llama-3-8B", "checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B")
            + "lora_r: 8\nlora_query: true\nlora_projection: true\nquantize: bnb.nf4\n",
            None,
            {"model": "llama3-8b", "train": "qlora:8:q+v+o", "base": "nf4-single", "recompute": "full"},
        ),
    ],
)
def test_torchtune_and_litgpt_by_key(files: str, gpus: int | None, said: dict[str, Any]) -> None:
    settings = question({"x.yaml": files}, gpus=gpus).settings
    assert {name: settings.get(name) for name in said} == said


@pytest.mark.parametrize(
    ("name", "place", "run", "cluster", "guess"),
    [
        ("run.sh", "/iopsstor/scratch/cscs/%u/out", RUN, "alps-gh200", ""),
        ("run.sh", "./out", f"{RUN} --load /leonardo_work/x", "leonardo-a100", ""),
        ("run.sh", "./out", "srun python gaudi_spawn.py pretrain_gpt.py", "gaudi2-8", ""),
        ("run.sh", "./out", "srun --container-image=rocm-mi300x.sqsh pretrain_gpt.py", "mi300x-8", ""),
        ("MI300X/run.sh", "./out", RUN, "mi300x-8", ""),
        ("tpu/v5p/run.sh", "./out", RUN, "tpu-v5p-pod", ""),
        ("configs/v4/run.sh", "./out", RUN, "tpu-v4-pod", ""),
        ("run.sh", "./out", RUN, "dgx-h100", "dgx-h100"),
    ],
)
def test_the_machine_is_the_scripts_own(name: str, place: str, run: str, cluster: str, guess: str) -> None:
    asked = question({name: BATCH.format(place=place, run=run)})
    assert (asked.job.cluster.name, asked.launch.machine, asked.job.gpus) == (cluster, guess, 16)
    if "pod" not in cluster:
        assert (asked.job.cluster.scale_up_size, asked.job.cluster.gpus_per_node) == (4, 4)
        assert all(edit.after.plan.tp <= 4 for edit in improve(asked).edits)


@pytest.mark.parametrize(
    ("name", "run", "device", "family"),
    [
        ("tpu/llama3/8b/run.sh", RUN, "", "a TPU"),
        ("run_npu.sh", RUN, "", "an NPU"),
        ("run.sh", "srun --container-image=rocm/megatron-lm pretrain_gpt.py", "", "an AMD GPU"),
        ("run.sh", f"export HIP_VISIBLE_DEVICES=0,1,2,3\n{RUN}", "", "an AMD GPU"),
        ("run.sh", f"export HCCL_CONNECT_TIMEOUT=3600\n{RUN}", "", "an NPU"),
        ("run.sh", f"NPUS_PER_NODE=8\n{RUN}", "", "an NPU"),
        ("run.sh", f"export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\n{RUN}", "", "an NPU"),
        ("run.sh", f"JAX_PLATFORMS=tpu,cpu {RUN}", "", "a TPU"),
        ("run.sh", f"export NCCL_DEBUG=INFO JAX_PLATFORMS=cuda\n{RUN}", "", ""),
        ("run_npu.sh", RUN, "h100", ""),
        ("input/output.sh", RUN, "", ""),
    ],
)
def test_no_device_is_guessed_for_other_accelerators(name: str, run: str, device: str, family: str) -> None:
    source = read_launch([File(name, BATCH.format(place="./out", run=run).encode())], 16)
    launch_as_read(source.launch, Controls(gpus=16, device=device), name)
    assert source.launch.unpriced == ([f"{family}, whose kind is not told (--device)"] if family else [])


SHAPE = {"emb_dim": 4096, "mlp_dim": 11008, "num_decoder_layers": 32, "num_query_heads": 32, "num_kv_heads": 32}


@pytest.mark.parametrize(
    ("more", "said", "unpriced"),
    [
        ("", {"gated_mlp": True, "norm": "rms"}, []),
        (
            "decoder_block: gpt3\nmlp_activations: [gelu]\n",
            {"gated_mlp": False, "activation": "gelu", "norm": "layer", "position": "learned", "mlp_bias": True},
            [],
        ),
        ("decoder_block: qwen2\n", {"gated_mlp": True, "attention_bias": True}, []),
        ("decoder_block: gemma2\n", {"gated_mlp": True}, ["decoder_block gemma2"]),
    ],
)
def test_the_layers_of_a_model_of_maxtext_without_a_name(more: str, said: dict[str, Any], unpriced: list[str]) -> None:
    own = "".join(f"base_{name}: {size}\n" for name, size in SHAPE.items())
    launch = launch_of({"max.yml": launches.MAXTEXT.replace("model_name: llama3-8b\n", own) + more}, 32)
    assert {name: launch.settings[name] for name in said} == said
    assert launch.unpriced == unpriced


def test_a_guessed_machine_is_in_the_title(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(BATCH.format(place="./out", run=RUN))
    title = CliRunner().invoke(cli, ["improve", str(path)], prog_name="optimize").output.partition("\n\n")[0]
    assert "machine guessed: dgx-h100" in " ".join(title.split())


def test_experts_of_older_nanotron_count_their_gpus() -> None:
    text = launches.NANOTRON.replace("moe_config", "other")
    model = "  model_config:\n"
    assert model in text
    old = text.replace(model, f"{model}    moe_num_experts: 4\n    num_experts_per_tok: 1\n")
    old = old.replace("parallelism:\n", "parallelism:\n  expert_parallel_size: 2\n")
    plain, mixed = question({"n.yaml": text}), question({"n.yaml": old})
    assert (mixed.job.gpus, mixed.plan.ep) == (2 * plain.job.gpus, 2)
    assert mixed.job.model.experts
    assert (mixed.job.model.experts.count, mixed.job.model.experts.top_k) == (4, 1)


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_model_without_its_latent_attention_is_not_priced(value: str) -> None:
    text = f"""modules:
  pre_trainer:
    framework: megatron
    model: deepseek_v2_lite.yaml
    overrides: {{micro_batch_size: 1, global_batch_size: 64, seq_length: 4096, multi_latent_attention: {value}}}
"""
    path = "modules.pre_trainer.overrides.multi_latent_attention"
    wrong = [f"{path} false: deepseek-v2-lite has latent attention"] if value == "false" else []
    assert launch_of({"primus.yaml": text}).unpriced == wrong


def test_the_vocabulary_is_that_of_the_tokenizers_name() -> None:
    flags = FLAGS.replace("--vocab-size 32000", "--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-8B")
    assert question({"train.sh": flags}).job.model.vocab == 151936


def test_summaries_of_ranks_are_one_run(tmp_path: Path) -> None:
    line = "{'train_runtime': %s, 'train_samples_per_second': 6.9, 'train_steps_per_second': 0.5}\n"
    path = tmp_path / "train.log"
    path.write_text("".join(line % (2310 + rank / 10) for rank in range(16)))
    (run,) = read_log(path)
    assert [record.reading.seconds for record in run.records] == [2.0]
    path.write_text(f"{line % 2310}{{'loss': 2.0, 'grad_norm': 1.0}}\n{line % 2300}")  # two runs
    assert sum(len(run.records) for run in read_log(path)) > 1


@pytest.mark.parametrize("text", [NEOX, NEOX.replace("-parallel-", "_parallel_")])
def test_gpt_neox_has_its_own_degrees(text: str) -> None:
    asked = question({"20B.yml": text}, gpus=96, model="gpt-neox-20b")
    plan = asked.plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.num_microbatches) == (2, 4, 12, 4, 32)
    assert (plan.zero_stage, asked.job.global_batch, plan.recompute) == (1, 1536, "none")


NEOX_SHAPE = NEOX.strip()[:-1] + '  "num-attention-heads": 64, "seq-length": 2048, "pos-emb": "rotary", %s}'


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('"checkpoint-activations": true', {"recompute": "full"}),
        ('"activation": "swiglu", "intermediate_size": 49152', {"ffn_hidden": 16384, "gated_mlp": True}),
        ('"mlp_type": "llama", "activation": "silu"', {"ffn_hidden": 16384, "gated_mlp": True}),
        ('"mlp_type": "llama", "intermediate_size": 16384', {"ffn_hidden": 16384, "gated_mlp": True}),
        ('"attention-config": [[["flash"], 44]]', {"attention": "flash", "vocab": 50304}),
        ('"tokenizer-type": "HFTokenizer", "vocab-file": "./20B_tokenizer.json"', {"vocab": 50432}),
        ('"bf16": {"enabled": true}, "num_nodes": -1', {"dtype": "bf16", "attention": "unfused"}),
    ],
)
def test_gpt_neox_by_key(more: str, said: dict[str, Any]) -> None:
    settings = launch_of({"neox.yml": NEOX_SHAPE % more}, 96).settings
    assert {name: settings[name] for name in said} == said


def test_gpt_neox_without_attention_is_refused() -> None:
    with pytest.raises(InvalidFile, match="has mamba: only layers with attention are priced"):
        launch_of({"neox.yml": '{"pipe_parallel_size": 1, "attention_config": [[["mamba"], 44]]}'}, 8)


@pytest.mark.parametrize(
    "change",
    [
        ("torchtune.modules.loss.LinearCrossEntropyLoss", "torchtune.rlhf.loss.DPOLoss"),
        ("torchtune.modules.loss.LinearCrossEntropyLoss", "torchtune.dev.grpo.loss.GRPOSimpleLoss"),
        ("optimizer:", "sampler:"),
        ("dtype: bf16", "teacher_model: {_component_: torchtune.models.qwen2.qwen2_1_5b}"),
    ],
)
def test_other_recipes_of_torchtune_are_refused(change: tuple[str, str]) -> None:
    with pytest.raises(InvalidFile, match="only supervised fine-tuning is priced"):
        launch_of({"x.yaml": launches.TORCHTUNE.replace(*change)})


@pytest.mark.parametrize("more", ["", "--torch-fsdp2-no-reshard-after-forward"])
def test_fsdp_of_pytorch_shards_weights(more: str) -> None:
    asked = question({"train.sh": f"{FLAGS} --use-torch-fsdp2 {more}".replace("parallel-size 2", "parallel-size 1")})
    assert asked.plan.zero_stage == (2 if more else 3)
    assert asked.launch.unpriced == []


def test_fsdp_of_pytorch_overlaps_what_it_gathers_without_flags_of_megatron() -> None:
    asked = question({"train.sh": f"{FLAGS} --use-torch-fsdp2".replace("parallel-size 2", "parallel-size 1")})
    overlaps = ("reduce_overlap", "gather_overlap")
    assert all(asked.settings[name] for name in overlaps)
    other = settings_of(asked, replace(asked.plan, zero_stage=1))
    assert not any(other[name] for name in overlaps)
    edits = improve(asked).edits
    assert edits
    assert not any({*overlaps} & edit.names for edit in edits if edit.after.plan.zero_stage == 3)


@pytest.mark.parametrize(
    "connections", ["", "export CUDA_DEVICE_MAX_CONNECTIONS=1\n", "CUDA_DEVICE_MAX_CONNECTIONS=${CONNECTIONS:-1}\n"]
)
def test_no_patch_has_fsdp_where_megatron_refuses_it(connections: str) -> None:
    source = read_launch([File("train.sh", f"{connections}{FLAGS} --use-distributed-optimizer\n".encode())])
    asked = launch_as_read(source.launch, Controls(), "train.sh")
    changes = source.changes(asked.job, asked.plan, replace(asked.plan, zero_stage=3), {})
    assert {"--use-megatron-fsdp", "--ckpt-format"} <= {change.flag for change in changes}
    assert ("CUDA_DEVICE_MAX_CONNECTIONS is 1" in source.lacking(changes)) is bool(connections)
    plain = source.changes(asked.job, asked.plan, replace(asked.plan, tp=1), {})
    assert source.lacking(plain) == ""


def test_what_is_on_the_host_has_a_share_that_files_can_say_and_the_distributed_optimizer() -> None:
    large = FLAGS.replace("layers 32", "layers 80").replace("size 4096 ", "size 8192 ").replace("heads 32", "heads 64")
    source = read_launch([File("train.sh", large.encode())])
    best = improve(launch_as_read(source.launch, Controls(cluster="dgx-h100"), "train.sh")).best
    assert best is not None
    assert best.after.knobs.offload == round(best.after.knobs.offload, 3) > 0.9
    assert (best.after.plan.zero_stage, best.after.plan.dp) == (1, 1)


def test_no_edit_of_megatron_deepspeed_moves_the_optimizer() -> None:
    text = launches.SLURM.replace('"stage": $ZERO}', '"stage": $ZERO, "offload_optimizer": {"device": "cpu"}}')
    source = read_launch([File("train.slurm", text.encode())])
    asked = launch_as_read(source.launch, Controls(), "train.slurm")
    assert asked.settings["offload"] == 1.0
    assert not any("offload" in edit.names for edit in improve(asked).every)


@pytest.mark.parametrize(("more", "etp"), [("", 1), (" --expert_tensor_parallel_size 2", 2)])
def test_ms_swift_splits_no_expert_unless_told(more: str, etp: int) -> None:
    text = launches.SWIFT_MEGATRON.replace("Qwen/Qwen2.5-7B-Instruct", f"Qwen/Qwen3-30B-A3B{more}")
    text = text.replace("--micro_batch", "--expert_model_parallel_size 4 --micro_batch")
    source = read_launch([File("swift.sh", text.encode())])
    asked = launch_as_read(source.launch, Controls(), "swift.sh")
    assert (asked.plan.ep, asked.plan.etp) == (4, etp)
    changes = source.changes(asked.job, asked.plan, replace(asked.plan, tp=4), {})
    assert [change.flag for change in changes] == ["tensor_model_parallel_size"]


def test_a_script_that_generates_trains_nothing() -> None:
    with pytest.raises(InvalidFile, match="no command that is known to train"):
        launch_of({"run.sh": FLAGS.replace("pretrain_gpt.py", "generate_samples_gpt.py --vocab-file gpt2-vocab.json")})


@pytest.mark.parametrize("axis", ["ici_expert_parallelism", "dcn_tensor_parallelism"])
def test_an_axis_of_maxtext_that_takes_what_is_left_is_not_priced(axis: str) -> None:
    assert launch_of({"max.yml": f"{launches.MAXTEXT}{axis}: -1\n"}, None).unpriced == [f"{axis} -1"]


@pytest.mark.parametrize(("data", "gpus", "taken"), [("1", 32, "16"), ("1", 8, "16"), ("-1", 24, "a multiple of 16")])
def test_gpus_that_are_not_those_of_maxtexts_mesh_are_refused(data: str, gpus: int, taken: str) -> None:
    config = "model_name: llama3-8b\nper_device_batch_size: 2\nici_fsdp_parallelism: 8\ndcn_fsdp_parallelism: 2\n"
    config += f"dcn_data_parallelism: {data}\n"
    assert launch_of({"max.yml": config}, 16).settings["gpus"] == 16
    with pytest.raises(InvalidFile, match=f"its mesh take {taken} GPUs, not {gpus}"):
        launch_of({"max.yml": config}, gpus)


def test_a_flavor_that_only_a_fork_of_torchtitan_has_is_not_priced() -> None:
    config = '[model]\nname = "llama3"\nflavor = "{}"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    told = "model.flavor 3B as a fork has it: priced as llama3.2-3b"
    launch = launch_of({"a.toml": config.format("3B")}, 8)
    assert told in launch.unpriced
    assert launch.settings["model"] == "llama3.2-3b"  # and not that of 33 billion
    assert not any("flavor" in each for each in launch_of({"a.toml": config.format("8B")}, 8).unpriced)


def test_what_a_followed_config_lacks_is_given_after_both(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(f"{launches.TRAINER}deepspeed: /opt/zero/z2.json\n")
    run = tmp_path / "run.sh"
    run.write_text(f"torchrun --nproc_per_node 2 train.py {tmp_path}/sft.yaml\n")
    with pytest.raises(InvalidFile, match=f"optimize improve {run} {tmp_path}/sft.yaml z2.json"):
        read_launch(read_files([str(run)]))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", "one image of 576 tokens"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", "the vision tower cost"),
    ],
)
def test_what_is_priced_of_images_is_said(model: str, said: str) -> None:
    config = f"model_name_or_path: {model}\nstage: sft\ndo_train: true\nfinetuning_type: full\nbf16: true\n"
    config += "cutoff_len: 2048\nper_device_train_batch_size: 1\nimage_max_pixels: 262144\noutput_dir: out\n"
    launch = launch_of({"sft.yaml": config})
    launch_as_read(launch, Controls(), "sft.yaml")
    assert any(said in sentence for sentence in launch.assumed)


def test_a_program_that_learns_from_preferences_by_its_name_is_not_priced() -> None:
    run = "torchrun --nproc_per_node 8 {} --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 --bf16 "
    run += "--output_dir out --max_length 2048 --report_to none --save_strategy no\n"
    launch = launch_of({"run.sh": run.format("tune/dpo_tune.py")}, None)
    assert launch.unpriced == ["tune/dpo_tune.py, which learns from preferences by its name: priced as supervised"]
    assert launch_of({"run.sh": run.format("tune/finetune.py")}, None).unpriced == []


def test_layers_that_mindspeed_lists_by_stage_are_read() -> None:
    run = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 14 --hidden-size 1024 --num-attention-heads 16 "
    run += "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 --bf16 "
    run += "--pipeline-model-parallel-size 4 --num-layer-list {}\n"
    asked = launch_as_read(launch_of({"run.sh": run.format("3,4,4,3")}, None), Controls(), "run.sh")
    assert asked.plan.layers_per_stage == (3, 4, 4, 3)
    with pytest.raises(InvalidFile, match="--num-layer-list 3,4,4 is no split of 14 layers over 4 stages"):
        launch_as_read(launch_of({"run.sh": run.format("3,4,4")}, None), Controls(), "run.sh")


def test_gpus_that_the_user_names_are_not_said_to_be_the_scripts() -> None:
    run = launches.MAXTEXT_COMMAND
    assert not any("starts (--gpus)" in each for each in launch_of({"run.sh": run}, 32).assumed)


def test_a_switch_of_ms_swift_is_written_off() -> None:
    run = (
        "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen3-1.7B --train_type full --torch_dtype bfloat16 --max_length 1500 "
    )
    run += "--deepspeed zero3 --gradient_checkpointing --per_device_train_batch_size 6\n"
    source = read_launch([File("run.sh", run.encode())])
    asked = launch_as_read(source.launch, Controls(), "run.sh")
    changes = source.changes(asked.job, asked.plan, replace(asked.plan, recompute="none", micro_batch=4), {})
    written = next(iter(source.edited(changes)))["run.sh"].decode()
    off = run.replace("--gradient_checkpointing", "--gradient_checkpointing false").replace("size 6", "size 4")
    assert written == off  # its parser has it on where nothing is said


def test_pairs_of_sequences_are_not_packed() -> None:
    run = "deepspeed --num_gpus 8 src/train.py --stage dpo --model_name_or_path Qwen/Qwen2.5-7B --bf16 --do_train "
    run += "--finetuning_type full --per_device_train_batch_size 1 --cutoff_len 2048 --packing {} --output_dir out\n"
    launch = launch_of({"run.sh": run.format("True")}, None)
    with pytest.raises(InvalidFile, match="packing: --loss dpo compares sequences one by one"):
        launch_as_read(launch, Controls(), "run.sh")
    assert launch_as_read(launch_of({"run.sh": run.format("False")}, None), Controls(), "run.sh").job.loss == "dpo"


def test_a_file_that_a_config_names_is_found_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "z3.json").write_text(ZERO)
    path = tmp_path / "runs" / "sft.yaml"
    path.write_text(f"{TRAINER}deepspeed: zero/z3.json\n")
    with pytest.raises(InvalidFile, match="--root FOLDER"):
        read_launch(read_files([str(path)]), 8)
    assert read_launch(read_files([str(path)], root=str(tmp_path)), 8).launch.settings["zero_stage"] == 3


def test_what_a_script_sources_by_the_path_of_its_own_machine_is_found_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "cluster.env").write_text(launches.ENVIRONMENT)
    (path := tmp_path / "jobs" / "train.sh").write_text(
        launches.SOURCING.replace('"$(dirname "$0")/', '"/scratch/$USER/repo/configs/')
    )
    with pytest.raises(InvalidFile, match=r"it runs cluster\.env, not found here: .*--root FOLDER") as raised:
        read_launch(read_files([str(path)]))
    assert len(raised.value.problems) == 2  # each once
    assert read_launch(read_files([str(path)], root=str(tmp_path))).launch.settings["tp"] == 4


def test_what_a_script_starts_under_its_own_name_is_not_itself(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "shells").mkdir()
    (tmp_path / "shells" / "train.sh").write_text(launches.ARRAYS)
    (path := tmp_path / "jobs" / "train.sh").write_text("cd /scratch/repo\nsh shells/train.sh\n")
    with pytest.raises(InvalidFile, match=r"it runs train\.sh, not found here"):
        read_launch(read_files([str(path)]))
    assert read_launch(read_files([str(path)], root=str(tmp_path))).launch.settings["tp"] == 8


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama3_1.llama3_1_70b", "llama3.1-70b"),
        ("llama3.llama3_8b", "llama3-8b"),
        ("qwen2_5.qwen2_5_0_5b", "qwen2.5-0.5b"),
        ("gemma2.lora_gemma2_9b", "gemma2-9b"),
    ],
)
def test_models_of_torchtune_by_name(name: str, model: str) -> None:
    text = launches.TORCHTUNE.replace("torchtune.models.llama3_1.llama3_1_8b", f"torchtune.models.{name}")
    assert launch_of({"x.yaml": text}).settings["model"] == model


def test_a_patch_changes_a_file_that_a_config_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("z3.json").write_text(ZERO)
    Path("sft.yaml").write_text(
        f"{TRAINER.replace('size: 1', 'size: 2')}deepspeed: z3.json\ngradient_checkpointing: true\n"
    )
    asked = ["improve", "sft.yaml", "--gpus", "16", "--model", "llama3.2-1b", "--diff", "--take", "all"]
    patch = CliRunner().invoke(cli, asked, prog_name="optimize")
    assert patch.exit_code == 0, patch.output
    assert "+++ z3.json" in patch.output


@pytest.mark.parametrize("command", ["llamafactory-cli train sft.yaml", "axolotl train sft.yaml --seed 1"])
def test_commands_that_train_by_a_config_beside_them(command: str, tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(TRAINER)
    path = tmp_path / "run.sh"
    path.write_text(f"export NCCL_DEBUG=WARN\n{command}\n")
    launch = read_launch(read_files([str(path)]), 8).launch
    assert (launch.settings["model"], launch.settings["num_microbatches"]) == ("llama3-8b", 8)


@pytest.mark.parametrize(
    ("more", "lengths", "tokens"),
    [
        ("max_steps: 50\nnum_train_epochs: 3\n", "", 50 * 64 * 1024),
        ("num_train_epochs: 1.5\nmax_samples: 2000\n", "", 3000 * 1024),
        ("num_epochs: 3\nmax_samples: 1000\npacking: true\n", "256", 3000 * 256),
        ("num_epochs: 3\nmax_samples: 1000\npacking: true\n", "", None),
        ("num_epochs: 3\n", "", None),
    ],
)
def test_how_long_a_run_is(more: str, lengths: str, tokens: float | None) -> None:
    launch = launch_of({"sft.yaml": f"{TRAINER}finetuning_type: lora\n{more}"})
    read = launch_as_read(launch, Controls(gpus=8, lengths=lengths), "sft.yaml")
    assert read.settings.get("tokens") == (tokens and pytest.approx(tokens))
    assert any("of how many samples" in each for each in launch.assumed) == (
        "samples" not in more and "steps" not in more
    )
    assert not launch.unpriced
