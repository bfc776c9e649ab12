"""Forms that launches of others had and that were misread or not named, each in the fewest lines that show it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.machines import device_in
from optimizer.frameworks.megatron.export_model import lacking
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import changes_of, lost
from optimizer.improve.report import lacking as untold
from optimizer.job.plan import Plan
from tests.frameworks import launches
from tests.frameworks.test_launches import question

NEOX = """{
  "pipe_parallel_size": 1, "model_parallel_size": 2, "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
  "seq_length": 2048, "max_position_embeddings": 2048, "pos_emb": "rotary", "zero_optimization": {"stage": 1},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8, "bf16": {"enabled": true}, %s
}
"""
LATENT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 \\
    --num-attention-heads 128 --kv-channels 128 --seq-length 4096 --max-position-embeddings 4096 --bf16 --swiglu \\
    --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights \\
    --disable-bias-linear --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 \\
    --qk-pos-emb-head-dim 64 --v-head-dim 128 --num-experts 256 --moe-ffn-hidden-size 2048 \\
    --moe-router-topk 8 --vocab-size 129280 \\
    --moe-shared-expert-intermediate-size 2048 --moe-layer-freq [0]*3+[1]*58 --expert-model-parallel-size 8 \\
    --moe-router-enable-expert-bias --moe-grouped-gemm --micro-batch-size 1 --global-batch-size 64
"""
TUNE = """model: {_component_: torchtune.models.llama3.llama3_8b}
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
optimizer: {_component_: torch.optim.AdamW}
batch_size: 2
"""
TRAIN = "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 2 --model_name_or_path Qwen/Qwen3-8B"
PIPED = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --deepspeed_config ds.json --zero-stage 0 --fp16 --num-layers 10 "
    "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 2"
)
FOUNDRY = launches.LLM_FOUNDRY.replace("precision: amp_bf16\n", "")


def launch_of(name: str, text: str, gpus: int | None = 8, model: str = "") -> Launch:
    gpus = None if name == "max.yml" else gpus  # whose mesh says it
    return read_launch([File(name, text.encode())], gpus, model).launch


def asked(name: str, text: str, **controls: Any) -> LaunchAsRead:
    return question({name: text}, **controls)


def test_a_launch_without_an_indexer_is_no_model_with_one() -> None:
    found = asked("run.sh", LATENT)
    assert (found.job.model.name, found.launch.unpriced) == ("deepseek-v3", [])


def test_megatron_can_run_the_model_that_it_was_read_from() -> None:
    flags = "--num-layers 40 --hidden-size 6144 --num-attention-heads 48 --attention-head-type multiquery --bf16"
    sizes = "--seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 512"
    model = asked("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags} {sizes}").job.model
    assert (model.name, model.kv_heads, model.attention_out_bias, lacking(model)) == ("as-launched", 1, True, ())


def test_blocks_side_by_side_of_gpt_neox_are_a_model_of_their_own() -> None:
    beside = asked("neox.yml", NEOX % '"gpt_j_residual": true', gpus=8).job.model
    assert (beside.name, beside.parallel_block) == ("as-launched", True)
    assert not asked("neox.yml", NEOX % '"gpt_j_residual": false', gpus=8).job.model.parallel_block


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('"activation": "swiglu", "intermediate_size": 13824, "mlp_multiple_of": 13824', {"ffn_hidden": 13824}),
        ('"activation": "swiglu", "intermediate_size": 14336', {"ffn_hidden": 4778}),
        ('"activation": "swiglu", "intermediate_size": 14333', {"ffn_hidden": 4777}),
        ('"optimizer": {"type": "Lion"}', {"optimizer": "lion"}),
        ('"precision": "bfloat16"', {"dtype": "bf16"}),
    ],
)
def test_gpt_neox_by_key(more: str, said: dict[str, Any]) -> None:
    launch = launch_of("neox.yml", NEOX % more)
    assert {name: launch.settings[name] for name in said} == said
    assert launch.unpriced == []


@pytest.mark.parametrize(("stages", "pp"), [('"pipe_parallel_size": 0,', 1), ('"pipe_parallel_size": 4,', 4), ("", 1)])
def test_gpt_neox_without_a_pipeline_has_one_stage(stages: str, pp: int) -> None:
    text = (NEOX % '"activation": "gelu"').replace('"pipe_parallel_size": 1,', stages)
    assert launch_of("neox.yml", text).settings["pp"] == pp


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", {"tokens": 1000 * 1024 * 2048, "zero_stage": 3, "recompute": "full", "attention": "flash"}),
        ("max_duration: 26_000_000_000tok\n", {"tokens": 26_000_000_000}),
        ("fsdp_config: {sharding_strategy: SHARD_GRAD_OP}\n", {"zero_stage": 2, "recompute": "none"}),
        ("fsdp_config: {sharding_strategy: HYBRID_SHARD}\n", {"zero_stage": 3, "shard": 8}),
        ("fsdp_config: {sharding_strategy: NO_SHARD}\n", {"zero_stage": 0}),
        ("fsdp_config: {activation_cpu_offload: true}\n", {"zero_stage": 3, "activation_offload": 100}),
    ],
)
def test_llm_foundry_by_key(more: str, said: dict[str, Any]) -> None:
    own = launches.LLM_FOUNDRY
    if more.startswith("fsdp_config"):
        own = own[: own.index("fsdp_config")]
    elif more:
        own = own.replace("max_duration: 1000ba\n", "")
    settings = launch_of("mpt.yaml", own + more, 64).settings
    assert {name: settings[name] for name in said} == said


UNNAMED: list[tuple[str, str, list[str]]] = [
    ("neox.yml", NEOX % '"train_impl": "dpo", "dpo_beta": 0.1', ["train_impl dpo"]),
    ("neox.yml", NEOX % '"checkpoint_activations": true, "partition_activations": true', ["partition_activations"]),
    ("neox.yml", NEOX % '"optimizer": {"type": "OneBitAdam"}', ["optimizer.type OneBitAdam"]),
    ("tune.yaml", f"{TUNE}ac_mode: selective\nac_option: 2\n", ["ac_mode selective"]),
    ("tune.yaml", f"{TUNE}dtype: fp32\n", ["dtype fp32"]),
    ("max.yml", f"{launches.MAXTEXT}dtype: float32\n", ["dtype float32"]),
    (
        "max.yml",
        f"{launches.MAXTEXT}sparse_matmul: false\ncapacity_factor: 1.25\n",
        ["capacity_factor 1.25", "sparse_matmul false"],
    ),
    (
        "max.yml",
        f"{launches.MAXTEXT}opt_type: sgd\nglobal_parameter_scale: 8\n",
        ["opt_type sgd", "global_parameter_scale 8"],
    ),
    ("max.yml", launches.MAXTEXT.replace("policy: full", "policy: custom"), ["remat_policy custom"]),
    ("max.yml", f"{launches.MAXTEXT}attention: dot_product\n", ["attention dot_product"]),
    ("max.yml", f"{launches.MAXTEXT}attention: cudnn_flash_te\nscan_layers: true\nreuse_example_batch: 1\n", []),
    (
        "nano.yaml",
        launches.NANOTRON.replace(
            "    hidden_size", "    _use_doc_masking: true\n    no_rope_layer: 4\n    hidden_size"
        ),
        ["model.model_config._use_doc_masking"],
    ),
    ("nano.yaml", launches.NANOTRON.replace("recompute_layer", "tp_recompute_allgather: true\n  recompute_layer"), []),
    ("nano.yaml", launches.NANOTRON.replace("dtype: bfloat16", "dtype: float32"), ["model.dtype float32"]),
    (
        "nano.yaml",
        launches.NANOTRON.replace("    hidden_size", "    activation_function: gelu\n    hidden_size"),
        ["model.model_config, of a class that is not nanotron's: read as a GPT"],
    ),
    ("nano.yaml", launches.NANOTRON.replace("    hidden_size", "    is_llamoe_config: true\n    hidden_size"), []),
    (
        "nano.yaml",
        launches.NANOTRON.replace("    hidden_size", "    is_cola_llama_config: true\n    hidden_size"),
        ["model.model_config.is_cola_llama_config"],
    ),
    (
        "llama3.toml",
        launches.TORCHTITAN.replace("lr = 1.5e-4", "early_step_in_backward = true"),
        ["optimizer.early_step_in_backward"],
    ),
    ("mpt.yaml", f"{FOUNDRY}precision: fp32\n", ["precision fp32"]),
    ("mpt.yaml", f"{FOUNDRY}callbacks: {{speed_monitor: {{window_size: 10}}}}\n", []),
    ("sft.yaml", f"{launches.TRAINER}optim: rmsprop\n", ["optim rmsprop"]),
    ("sft.yaml", f"{launches.TRAINER}attn_implementation: eager\n", ["attn_implementation eager"]),
    ("sft.yaml", f"{launches.TRAINER}attn_implementation: flash_attention_2\ntorch_compile: false\n", []),
    ("sft.yaml", f"{launches.TRAINER}max_prompt_length: 512\n", ["max_prompt_length 512"]),
    ("dpo.yaml", f"{launches.TRAINER}beta: 0.1\nmax_prompt_length: 512\n", []),
    ("sft.yaml", f"{launches.TRAINER}stage: dpo\nbeta: 0.1\n", []),
    (
        "sft.yaml",
        f"{launches.TRAINER}use_muon: true\nadditional_target: lm_head\n",
        ["use_muon", "additional_target lm_head"],
    ),
    (
        "nemo.yaml",
        launches.NEMO.replace("    lr: 3e-4", "    sched: {name: CosineAnnealing, constant_steps: 9}\n    lr: 3e-4"),
        [],
    ),
]


@pytest.mark.parametrize(("name", "text", "unpriced"), UNNAMED)
def test_what_may_cost_is_named_and_nothing_else(name: str, text: str, unpriced: list[str]) -> None:
    assert sorted(launch_of(name, text).unpriced) == sorted(unpriced)


def test_the_optimizer_of_llm_foundry_is_known_by_name() -> None:
    assert launch_of("mpt.yaml", f"{FOUNDRY}optimizer: {{name: decoupled_lionw}}\n").settings["optimizer"] == "lion"


SCRIPT = """# Megatron-LM core_v0.19.0
torchrun --nproc_per_node 8 {program} --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 \\
    --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000 {more}
"""


@pytest.mark.parametrize(
    ("program", "more", "unpriced"),
    [
        ("pretrain_mamba.py", "", ["pretrain_mamba.py, which trains no decoder"]),
        ("pretrain_gpt.py", "--decoder-seq-length 4096", ["--decoder-seq-length 4096"]),
        ("pretrain_gpt.py", "--deepspeed --mlp-type residual", ["--mlp-type residual"]),
        ("pretrain_gpt.py", "--no-cuda", ["--no-cuda"]),
        (
            "finetune_own.py",
            "--ffn-hidden-size 11008",
            ["finetune_own.py, whose own code may shape the model: an MLP of 11,008 and no gate"],
        ),
    ],
)
def test_what_else_megatrons_scripts_train_is_in_the_title(program: str, more: str, unpriced: list[str]) -> None:
    assert launch_of("run.sh", SCRIPT.format(program=program, more=more), None).unpriced == unpriced


@pytest.mark.parametrize(("on", "unpriced"), [("true", ["curriculum_learning.enabled"]), ("false", [])])
def test_a_config_that_a_script_writes_is_read_with_its_values(on: str, unpriced: list[str]) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "curriculum_learning": {"enabled": ON}, "aio": {"block_size": 9}}'
    script = SCRIPT.format(program="pretrain_gpt.py", more="--deepspeed --deepspeed_config ds.json")
    assert (
        launch_of("run.sh", f"cat <<EOF > ds.json\n{config.replace('ON', on)}\nEOF\n{script}", None).unpriced
        == unpriced
    )


@pytest.mark.parametrize(
    ("stage", "size", "unpriced"),
    [
        (1, 1, []),
        (3, 1, ["--zero-stage 1 against zero_optimization.stage 3 in ds.json"]),
        (1, 2, ["--micro-batch-size 1 against train_micro_batch_size_per_gpu 2 in ds.json"]),
    ],
)
def test_a_config_against_its_command_is_in_the_title(stage: int, size: int, unpriced: list[str]) -> None:
    config = f'{{"train_micro_batch_size_per_gpu": {size}, "zero_optimization": {{"stage": {stage}}}}}'
    script = SCRIPT.format(program="pretrain_gpt.py", more="--deepspeed --deepspeed_config ds.json --zero-stage 1")
    assert launch_of("run.sh", f"cat <<EOF > ds.json\n{config}\nEOF\n{script}", None).unpriced == unpriced


def test_the_bucket_of_a_config_is_that_of_its_script() -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1, "reduce_bucket_size": 9e7}}'
    script = SCRIPT.format(program="pretrain_gpt.py", more="--deepspeed --deepspeed_config ds.json --zero-stage 1")
    launch = launch_of("run.sh", f"cat <<EOF > ds.json\n{config}\nEOF\n{script}", None)
    assert (launch.settings["bucket"], launch.following(Plan())) == (1.8e8, {})


def test_a_stage_that_another_setting_raises_is_no_contradiction() -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}}'
    script = SCRIPT.format(program="pretrain_gpt.py", more="--deepspeed --deepspeed_config ds.json --zero-stage 0")
    script = script.replace("torchrun", "deepspeed")
    launch = launch_of("run.sh", f"cat <<EOF > ds.json\n{config}\nEOF\n{script}", 8)
    assert (launch.settings["zero_stage"], launch.unpriced) == (1, [])


@pytest.mark.parametrize(("config", "fixed"), [("", {"zero_stage"}), ("ds.json", {"zero_stage", "micro_batch"})])
def test_what_a_config_says_that_is_not_here_is_not_edited(config: str, fixed: set[str]) -> None:
    more = f"--deepspeed --deepspeed_config {config} --zero-stage 1" if config else ""
    script = SCRIPT.format(program="pretrain_gpt.py", more=more).replace("torchrun", "deepspeed")
    launch = launch_of("run.sh", script, 8)
    assert set(launch.fixed) == {*fixed, "offload"}
    assert any(said.startswith("ds.json, which was not read") for said in launch.assumed) is bool(config)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "run.sh",
            SCRIPT.format(program="pretrain_hybrid.py", more="").replace("--num-layers 32", ""),
            "trains no decoder",
        ),
        (
            "run.sh",
            "python3 -m maxtext.trainers.post_train.rl.train_rl base.yml model_name=llama3-8b",
            "MaxText: of its",
        ),
        ("run.sh", "python3 -m maxtext.decode base.yml model_name=llama3-8b per_device_batch_size=4", "no command"),
        (
            "run.sh",
            "./primus-cli direct -- train pretrain --config a.yaml --micro_batch_size 2",
            "it trains by a.yaml, not found here",
        ),
        ("flux.yaml", "modules: {pre_trainer: {trainer_class: Flux, overrides: {micro_batch_size: 1}}}\n", "diffusion"),
        (
            "olmo.yaml",
            f"{FOUNDRY}fsdp: {{wrapping_strategy: null}}\n".replace("null", "by_block"),
            "OLMo: its configs are not read",
        ),
        ("olmo.yaml", FOUNDRY.replace("model:", "model:\n  embedding_size: 50304"), "OLMo: its configs are not read"),
        ("train_gpt2.py", "n_layer = 12\nn_embd = 768\nblock_size = 1024\n", "nanoGPT: its configs are not read"),
        (
            "run.sh",
            "torchrun -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8",
            "verl's supervised fine-tuning",
        ),
        (
            "run.sh",
            "swift rlhf --rlhf_type grpo --num_generations 8 --per_device_train_batch_size 1",
            "ms-swift's reinforcement learning: it is not priced; of `swift rlhf` dpo",
        ),
        ("run.sh", "unsloth train --model unsloth/llama-3-8b --batch-size 2", "Unsloth"),
        ("run.sh", "megatron sft --model some/one --micro_batch_size 1", "some/one is no model that is known: give"),
        ("max.yml", launches.MAXTEXT.replace("llama3-8b", "llama9-8b"), "llama9-8b is no model that is known: give"),
    ],
)
def test_a_refusal_says_why(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidFile, match=why):
        asked(name, text, gpus=None if name == "max.yml" else 8)


def test_a_config_that_a_command_names_and_that_is_not_here_is_in_the_title(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(launches.TRAINER)
    (path := tmp_path / "run.sh").write_text("accelerate launch --config_file fsdp.yaml train.py sft.yaml\n")
    launch = read_launch(read_files([str(path)]), 8).launch
    assert launch.unpriced == ["fsdp.yaml, which was not read"]
    (tmp_path / "fsdp.yaml").write_text("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n")
    found = read_launch(read_files([str(path)]), 8).launch
    assert (found.unpriced, found.settings["zero_stage"]) == ([], 3)


def test_a_file_of_data_is_no_config() -> None:
    run = "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 2 --model_name_or_path Qwen/Qwen3-8B"
    launch = launch_of(
        "run.sh", f"{run} --data_path /datasets/a.json --bf16 True --deepspeed_config_file z3.conf\n", None
    )
    assert launch.unpriced == ["z3.conf, which was not read"]


@pytest.mark.parametrize(("words", "first"), [("uniform", 0), ("block --activations-checkpoint-num-layers 8", 8)])
def test_recomputation_by_the_flags_of_2021(words: str, first: int) -> None:
    more = f"--activations-checkpoint-method {words}"
    found = asked("run.sh", SCRIPT.format(program="pretrain_gpt.py", more=more))
    assert (found.plan.recompute, found.plan.recompute_first, found.launch.unpriced) == ("full", first, [])


def test_llama_factory_on_megatron_is_refused_by_name() -> None:
    text = f"{launches.TRAINER}stage: sft\nfinetuning_type: full\ntensor_model_parallel_size: 2\n"
    with pytest.raises(InvalidFile, match="LLaMA-Factory on Megatron"):
        launch_of("mca.yaml", text)


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        ("run.sh", f"{TRAIN} --fsdp 'full_shard auto_wrap'\n", "--fsdp 'shard_grad_op auto_wrap'"),
        ("sft.yaml", f"{launches.TRAINER}fsdp: [full_shard, auto_wrap]\n", 'fsdp: "shard_grad_op auto_wrap"'),
    ],
)
def test_the_trainers_words_for_a_strategy_stay(name: str, text: str, after: str) -> None:
    source = read_launch([File(name, text.encode())], 4)
    found = launch_as_read(source.launch, Controls(device="h100"), name)
    changes = source.changes(found.job, found.plan, replace(found.plan, zero_stage=2), {})
    assert after in next(iter(source.edited(changes)))[name].decode()


OLD_TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 8192
tensor_parallel_degree = 1
%s
[experimental]
pipeline_parallel_degree = 1
"""


@pytest.mark.parametrize(
    ("name", "text", "change", "why"),
    [
        ("llama3.toml", OLD_TITAN % "", {"cp": 2, "dp": 4}, "parallelism.context_parallel_degree is newer than this"),
        (
            "llama3.toml",
            OLD_TITAN % "data_parallel_degree = 8",
            {"pp": 2, "dp": 4, "num_microbatches": 2, "zero_stage": 1},
            "",
        ),
        (
            "llama3.toml",
            OLD_TITAN % "",
            {"micro_batch": 1, "num_microbatches": 2},
            "training.global_batch_size is newer",
        ),
        ("run.sh", TRAIN, {"recompute": "full"}, "train.py may not take --gradient_checkpointing"),
        ("run.sh", f"{TRAIN} --save_strategy no --report_to none", {"recompute": "full"}, ""),
        (
            "run.sh",
            TRAIN.replace("torchrun --nproc_per_node 4", "accelerate launch --num_processes=4 --config_file=a.yaml"),
            {"recompute": "full"},
            "train.py may not take --gradient_checkpointing",
        ),
        ("run.sh", PIPED, {"pp": 4, "dp": 2}, "Megatron-DeepSpeed without --deepspeed refuses 10 layers on 4 stages"),
        ("run.sh", f"{PIPED} --deepspeed", {"pp": 4, "dp": 2}, ""),
        ("run.sh", PIPED, {"pp": 1, "dp": 8}, ""),
    ],
)
def test_a_key_that_a_program_may_not_have_is_not_written(
    name: str, text: str, change: dict[str, Any], why: str
) -> None:
    source = read_launch([File(name, text.encode())], None if name == "run.sh" else 8)
    found = launch_as_read(source.launch, Controls(device="h100"), name)
    changes = source.changes(found.job, found.plan, replace(found.plan, **change), {})
    assert changes
    assert source.lacking(changes).startswith(why)
    assert bool(source.lacking(changes)) is bool(why)


def test_the_command_that_is_read_of_several_is_told() -> None:
    text = f"{TRAIN} --seed 1\n{TRAIN} --gradient_checkpointing true\n"
    assert any(sentence.startswith("of 2 commands") for sentence in launch_of("run.sh", text, None).assumed)


def test_a_variable_that_a_config_has_too_is_changed_where_it_is_set() -> None:
    script = SCRIPT.format(program="pretrain_gpt.py", more="--deepspeed --deepspeed_config ds.json")
    script = script.replace("--micro-batch-size 1", "--micro-batch-size $MICRO")
    text = f'MICRO=1\ncat <<EOF > ds.json\n{{"train_micro_batch_size_per_gpu": $MICRO}}\nEOF\n{script}'

    source = read_launch([File("run.sh", text.encode())], 8)
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    after = replace(found.plan, micro_batch=2, num_microbatches=found.plan.num_microbatches // 2)
    changes = source.changes(found.job, found.plan, after, {})
    written = next(iter(source.edited(changes)))["run.sh"]
    assert written.startswith(b"MICRO=2\n")
    assert lost(source.launch, read_launch([File("run.sh", written)], 8).launch, changes) == ""


def test_ulysses_counts_its_gpus_and_is_not_priced() -> None:
    mesh = "parallelism_config: {dp_shard_size: 2, sp_size: 2}"
    text = f"distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\n{mesh}\n"
    launch = launch_of("acc.yaml", text, None)
    assert (launch.problems, launch.unpriced) == ([], ["parallelism_config.sp_size 2"])


def test_what_axolotls_plugins_switch_counts_gpus_and_is_not_priced() -> None:
    own = "base_model: Qwen/Qwen3-30B-A3B\nmicro_batch_size: 1\nsequence_len: 2048\nfsdp_config: {fsdp_version: 2}\n"
    text = f"{own}expert_parallel_size: 2\ndp_shard_size: 2\nfused_attn_kernel: true\n"
    launch = launch_of("axolotl.yaml", text, None)
    assert (launch.settings["gpus"], launch.unpriced) == (4, ["expert_parallel_size 2", "fused_attn_kernel"])


def test_the_mesh_of_axolotl() -> None:
    text = """base_model: meta-llama/Meta-Llama-3-8B
micro_batch_size: 1
gradient_accumulation_steps: 4
sequence_len: 8192
dp_replicate_size: 1
dp_shard_size: 2
tensor_parallel_size: 2
context_parallel_size: 2
fsdp_config: {reshard_after_forward: true}
"""
    plan = asked("fft.yaml", text).plan
    assert (plan.tp, plan.cp, plan.dp, plan.zero_stage) == (2, 2, 2, 3)
    with pytest.raises(InvalidFile, match=r"dp_shard_size and the sizes beside it are of 8 GPUs \(--gpus 8\)"):
        asked("fft.yaml", text, gpus=16)


@pytest.mark.parametrize(
    ("more", "recompute", "hosted"),
    [
        ("gradient_checkpointing: offload\n", "full", 100),
        ("gradient_checkpointing: true\nactivation_offloading: legacy\n", "full", 100),
        ("gradient_checkpointing: true\nactivation_offloading: hidden_states\n", "full", 100),
        ("gradient_checkpointing: true\nactivation_offloading: false\n", "full", 0),
        ("gradient_checkpointing: false\n", "none", 0),
    ],
)
def test_checkpoints_of_axolotl_on_the_host(more: str, recompute: str, hosted: int) -> None:
    text = f"base_model: meta-llama/Meta-Llama-3-8B\nmicro_batch_size: 1\nsequence_len: 4096\nadapter: lora\n{more}"
    plan = asked("fft.yaml", text, gpus=1).plan
    assert (plan.recompute, plan.activation_offload) == (recompute, hosted)


def test_adapters_of_axolotl_with_all_activations_on_the_host_are_not_priced() -> None:
    text = "base_model: meta-llama/Meta-Llama-3-8B\nmicro_batch_size: 1\nsequence_len: 4096\n"
    words = "gradient_checkpointing: true\nactivation_offloading: true\n"
    adapter = "adapter: lora\nlora_mlp_kernel: false\n"
    assert launch_of("fft.yaml", f"{text}{words}{adapter}", None).unpriced == ["activation_offloading"]
    assert not launch_of("fft.yaml", f"{text}{words}flash_attention: true\n", None).unpriced


def test_what_a_command_leaves_open_is_in_the_title() -> None:
    run = "torchrun --nnodes $N --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen3-8B --bf16 True"
    open_ones = "--gradient_accumulation_steps $STEPS --deepspeed $CONFIG --learning_rate $LR --output_dir $OUT"
    assert launch_of("run.sh", f"{run} --per_device_train_batch_size 2 {open_ones}\n", None).unpriced == [
        *("--nnodes $N, which is not set", "--gradient_accumulation_steps $STEPS, which is not set"),
        "--deepspeed $CONFIG, which is not set",
    ]


def test_processes_of_ms_swift_that_nobody_counts_are_asked_for() -> None:
    with pytest.raises(InvalidFile, match="number of GPUs is not told"):
        asked("run.sh", "NNODES=$WORLD_SIZE swift sft --model Qwen/Qwen3-8B --per_device_train_batch_size 1\n")


UNSLOTH: list[tuple[str, dict[str, Any]]] = [
    ("", {"train": "lora:16", "micro_batch": 2, "seq_len": 2048, "activation_offload": 100, "model": "llama3-8b"}),
    (
        "--load_in_4bit --r 64 --quantization f16 --use_rslora",
        {"train": "qlora:64", "base": "nf4", "optimizer": "adamw-8bit"},
    ),
    ("--use_gradient_checkpointing True --use_dora --optim adamw_torch", {"train": "dora:16", "recompute": "full"}),
    ("--per_device_train_batch_size 4 --packing --model_name unsloth/Qwen3-14B", {"micro_batch": 4, "packing": True}),
]


@pytest.mark.parametrize(("options", "said"), UNSLOTH)
def test_the_command_of_unsloth_has_its_own_defaults(options: str, said: dict[str, Any]) -> None:
    launch = launch_of("run.sh", f"python unsloth-cli.py {options}\n", None)
    assert {name: launch.settings.get(name) for name in said} == said
    assert (launch.settings["gpus"], launch.settings["software"], launch.unpriced) == (1, "unsloth", [])
    assert ("activation_offload" in launch.settings) is ("True" not in options)


def test_edits_of_unsloths_command_are_options_that_it_has() -> None:
    source = read_launch([File("run.sh", b"python unsloth-cli.py --load_in_4bit\n")])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    improvement = improve(found)
    edits = [*improvement.edits, *filter(None, (improvement.pair, improvement.best))]
    flags = {change.flag for edit in edits for change in changes_of(source, found, edit)}
    assert flags <= {"per_device_train_batch_size", "gradient_accumulation_steps"}
    assert flags


GPT = """CHECKPOINT_PATH=<Specify path>
DISTRIBUTED_ARGS="--nproc_per_node 8"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py --num-layers 40 --hidden-size 5120 --num-attention-heads 40 \\
    --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --bf16 %s
"""
FORKS: list[tuple[str, str, dict[str, Any]]] = [
    ("run.sh", GPT % "--vocab-file /data/gpt2-vocab.json", {"gpus": 8, "vocab": 50257}),
    ("run.sh", GPT % "--RMSNorm --swiglu --causal-lm", {"norm": "rms", "tied_embeddings": False}),
    (
        "run.sh",
        (GPT % "--use_rms_norm --no_tie_embed_logits --parallel_attn").replace("hidden-size", "hidden_size"),
        {"norm": "rms", "tied_embeddings": False, "mlp_bias": False, "attention_bias": False, "parallel_block": True},
    ),
    ("run.sh", (GPT % "--use_bias").replace("hidden-size", "hidden_size"), {"mlp_bias": True, "attention_bias": True}),
    ("run.sh", f"#PBS -l select=4:ncpus=8:ngpus=8\n{GPT % ''}".replace("--nproc_per_node 8", ""), {"gpus": 32}),
    (
        "neox.yml",
        NEOX % '"mlp_type": "gated", "mlp_multiple_of": 256, "qk_norm": true, "attention_head_type": "multihead"',
        {"gated_mlp": True, "ffn_hidden": 11008, "qk_norm": True},
    ),
    (
        "nemo.yaml",
        launches.NEMO.replace(
            "activation: fast-swiglu", "activation: fast-geglu\n  tokenizer: {type: meta-llama/Meta-Llama-3-8B}"
        ).replace("  optim:\n", "  optim:\n    grad_sync_dtype: bf16\n"),
        {"gated_mlp": True, "vocab": 128256, "grad_bytes": 2},
    ),
    (
        "primus.yaml",
        launches.PRIMUS.replace("overrides:\n", "overrides:\n      tokenizer_model: meta-llama/Llama-3.1-8B\n"),
        {"vocab": 128256},
    ),
    (
        "nemo.yaml",
        launches.NEMO.replace("type: rope", "type: ALiBi\n  override_vocab_size: 65024"),
        {"position": "alibi", "vocab": 65024},
    ),
    (
        "flagscale.yaml",
        launches.FLAGSCALE.replace("  ffn_hidden_size: 14336\n", "  hidden_dim_multiplier: 1.3\n  multiple_of: 256\n"),
        {"ffn_hidden": 14336, "kv_heads": 8, "reduce_overlap": False},
    ),
    ("flagscale.yaml", launches.FLAGSCALE.replace("  group_query_attention: true\n", ""), {"kv_heads": None}),
    (
        "run.sh",
        f"{TRAIN} --data_split 4,6,0 --num_padding_at_beginning 0 --dtype fp16 --model_max_length 512 \\\n",
        {"loss": "reward", "dtype": "fp16", "micro_batch": 4},
    ),
    ("sft.yaml", "base_model: Qwen/Qwen3-8B\nflash_attention: true\nfloat16: true\nbf16: false\n", {"dtype": "fp16"}),
    ("run.sh", f"{TRAIN} --max_target_length 128", {"micro_batch": 2, "zero_stage": 0}),  # a key of MaxText too
    (
        "nemo.yaml",
        f"{launches.NEMO}  vocab_file: gpt2-vocab.json\n  tokenizer: {{vocab_file: own.json}}\n",
        {"tp": 4},
    ),
    ("simpo.yaml", f"{launches.TRAINER}beta: 10\ngamma_beta_ratio: 0.5\n", {"loss": "simpo"}),
    (
        "nano.yaml",
        launches.NANOTRON.replace(
            "    num_key_value_heads: 8\n    ", "    grouped_query: true\n    num_kv_heads: 4\n    "
        )
        .replace("    intermediate_size: 14336\n", "    is_starcoder2_config: true\n")
        .replace("    tie_word_embeddings: false\n", ""),
        {"gated_mlp": False, "norm": "layer", "kv_heads": 4, "position": "rope", "tied_embeddings": True},
    ),
    ("run.sh", (GPT % "").replace("torchrun $DISTRIBUTED_ARGS", "mpirun -np 8 -npernode 4 python"), {"gpus": 8}),
    ("run.sh", f"{TRAIN} --use_gradient_checkpointing", {"recompute": "full"}),
    ("max.yml", launches.MAXTEXT.replace("max_target_length: 8192\n", ""), {"seq_len": 2048}),
    (
        "llama3.toml",
        launches.TORCHTITAN.replace("steps = 1000", 'dtype = "bfloat16"'),
        {"optimizer_bytes": 4, "grad_bytes": 2},
    ),
]


@pytest.mark.parametrize(("name", "text", "said"), FORKS)
def test_what_forks_and_older_programs_say(name: str, text: str, said: dict[str, Any]) -> None:
    launch = launch_of(name, text, None if name == "run.sh" else 8)
    assert {name: launch.settings.get(name) for name in said} == said
    assert launch.unpriced == []


@pytest.mark.parametrize(
    ("more", "file"),
    [
        ("--tokenizer-type GPT2BPETokenizer --vocab-file nordic_131072/vocab.json", "nordic_131072/vocab.json"),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model own-100k.model", "own-100k.model"),
    ],
)
def test_a_tokenizer_of_another_vocabulary_is_assumed(more: str, file: str) -> None:
    launch = launch_of("run.sh", GPT % more, None)
    assert any(f"{file} may have another (--model)" in sentence for sentence in launch.assumed)
    assert "vocab" not in launch.written


@pytest.mark.parametrize(
    ("more", "vocabulary", "told"),
    [
        ("--tokenizer-type Llama2Tokenizer --vocab-size 3200", 32_000, True),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file gpt2-vocab.json --vocab-size 50257", 50_257, False),
        ("--tokenizer-type NullTokenizer --vocab-size 3200", 3200, False),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file own.json --vocab-size 3200", 3200, False),
    ],
)
def test_a_stated_vocabulary_counts_where_the_tokenizer_has_none(more: str, vocabulary: int, told: bool) -> None:
    launch = launch_of("run.sh", GPT % more, None)
    assert launch.settings["vocab"] == vocabulary
    assert any("the tokenizer's, not 3200" in sentence for sentence in launch.assumed) is told


def test_a_stated_vocabulary_counts_before_the_tokenizer_in_megatron_bridge() -> None:
    text = launches.BRIDGE.replace("  recipe:", "  vocab_size: 3200\n  recipe:")
    launch = launch_of("bridge.yaml", f"{text}tokenizer:\n  tokenizer_type: Llama2Tokenizer\n", 64)
    assert launch.settings["vocab"] == 3200


@pytest.mark.parametrize("started", ["deepspeed --num_gpus 8", "torchrun --nproc_per_node 8", "accelerate launch"])
def test_a_module_behind_a_launchers_own_option_is_its_program(started: str) -> None:
    arguments = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 4 --bf16 true"
    launch = launch_of("run.sh", f"{started} --module llava.train.train_mem {arguments}", 8)
    assert (launch.settings["micro_batch"], launch.settings["model"]) == (4, "qwen3-8b")
    assert launch.unpriced == []
    assert untold(launch).endswith("; program guessed: llava.train.train_mem on the Trainer")


def test_a_program_that_is_known_is_no_guess() -> None:
    arguments = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 4 --bf16 true --block_size 2048"
    assert not untold(launch_of("run.sh", f"torchrun --nproc_per_node 8 run_clm.py {arguments}", 8))


def test_the_trainers_config_of_fsdp_may_be_joined_to_its_flag(tmp_path: Path) -> None:
    (path := tmp_path / "run.sh").write_text(f"{TRAIN} --fsdp='full_shard auto_wrap' --fsdp_config=fsdp.json\n")
    assert read_launch(read_files([str(path)])).launch.unpriced == ["fsdp.json, which was not read"]
    (tmp_path / "fsdp.json").write_text(
        '{"transformer_layer_cls_to_wrap": "Qwen3DecoderLayer", "activation_checkpointing": true}'
    )
    launch = read_launch(read_files([str(path)])).launch
    assert (launch.settings["micro_batch"], launch.settings["recompute"], launch.unpriced) == (2, "full", [])


def test_a_number_format_that_nobody_names_is_assumed() -> None:
    assert any(sentence.startswith("bf16: these files") for sentence in launch_of("run.sh", TRAIN, None).assumed)


REFUSALS: list[tuple[str, str, str]] = [
    ("train.yaml", "experiment: {task: {type: train, backend: megatron}, runner: {nnodes: 4}}\n", "FlagScale: this"),
    ("lora.yaml", "model: {model_name: meta-llama/Llama-3.1-8B}\ntraining: {trainer_type: TRL_SFT}\n", "Oumi"),
    ("llama.yaml", "distributed: {fsdp_type: full_shard, tp_size: 1}\nmodel: {dim: 4096}\n", "Lingua"),
    ("run.yml", "type: sft\ndeepspeed: {zero_optimization: {stage: 3}}\nmicro_batch_size: 1\n", "ArcticTraining"),
    ("sft.toml", "[deployment]\nnum_train_gpus = 2\n", "prime-rl"),
    ("dpo.yaml", "policy: {megatron_cfg: {enabled: true}}\ncluster: {num_nodes: 4}\n", "NeMo-RL's other"),
    (
        "sft.yaml",
        "data: {micro_batch_size: 16}\nmodel: {partial_pretrain: gemma}\ntrainer: {seed: 1}\n",
        "verl's super",
    ),
    ("sd.yaml", "model: {micro_batch_size: 8, unet_config: {heads: 8}}\ntrainer: {devices: 8}\n", "NeMo's diff"),
    ("shear.yaml", FOUNDRY.replace("name: mpt_causal_lm", "name: mosaic_llama2_7b"), "mosaic_llama2_7b is no model"),
    ("own.yaml", "model: {dim: 16}\ntrainer: {seed: 1}\nbatch: {size: 1}\n", "no launch that is known"),
    ("llama3.toml", launches.TORCHTITAN.replace("shard_degree = -1", "shard_degree = 2"), "are of 16 GPUs"),
    ("easy.yaml", "worker: {actor: {global_batch_size: 128}, rollout: {n: 5}}\n", "EasyR1: reinforcement"),
    ("run.sh", "deepspeed main.py --actor_zero_stage 2 --actor_model_name_or_path a\n", "DeepSpeed-Chat's third"),
    ("run.sh", "python3 train_async.py --rollout-batch-size 128 --global-batch-size 128\n", "slime"),
]


@pytest.mark.parametrize(("name", "text", "why"), REFUSALS)
def test_programs_that_are_not_read_are_refused_by_name(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidFile, match=why):
        asked(name, text, gpus=8)


@pytest.mark.parametrize(
    ("words", "stage"),
    [("auto_wrap", 3), ("full_shard auto_wrap", 3), ("shard_grad_op", 2), ("no_shard", 0), ("true", 3), ("", 0)],
)
def test_fsdp_without_a_strategy_shards_all(words: str, stage: int) -> None:
    assert launch_of("run.yaml", f'per_device_train_batch_size: 1\nfsdp: "{words}"\n').settings["zero_stage"] == stage


@pytest.mark.parametrize(("more", "named"), [("", True), ("quantization_bit: 4\nquantization_method: bnb\n", False)])
def test_weights_that_are_quantised_by_their_name_are_not_priced_in_silence(more: str, named: bool) -> None:
    text = "model_name_or_path: unsloth/llama-3-8b-bnb-4bit\nfinetuning_type: lora\nstage: sft\ncutoff_len: 2048\n"
    unpriced = asked("sft.yaml", f"{text}per_device_train_batch_size: 1\n{more}", gpus=8).launch.unpriced
    assert any("its weights are quantised" in each for each in unpriced) == named


@pytest.mark.parametrize(
    "flag", ["--source_max_len 16", "--per_device_max_tokens 524288", "--response_max_length 2048"]
)
def test_a_length_that_is_not_known_is_named_where_the_length_is_a_guess(flag: str) -> None:
    name = flag.split()[0].lstrip("-")
    named = [each for each in asked("run.sh", f"{TRAIN} {flag}").launch.unpriced if name in each]
    assert len(named) == 1
    told = asked("run.sh", f"{TRAIN} {flag} --max_seq_length 2048").launch.unpriced
    assert not [each for each in told if "may be the length" in each]


def test_experts_that_differ_by_layer_are_not_priced_in_silence() -> None:
    flat = asked("run.sh", LATENT).launch.unpriced
    pyramid = asked("run.sh", LATENT.replace("--num-experts 256", "--num-experts 256 512")).launch.unpriced
    assert (flat, pyramid) == ([], ["--num-experts 256 512"])


def test_copies_beside_the_shards_that_are_left_are_copies_in_maxtext() -> None:
    text = "model_name: llama3-8b\nper_device_batch_size: 1\nici_data_parallelism: 4\nici_fsdp_parallelism: -1\n"
    found = asked("own.yml", text, gpus=64, device="tpu-v6e")
    assert (found.plan.dp, found.plan.shard) == (64, 16)


def test_micro_batches_of_llm_foundry_are_no_larger_than_what_a_gpu_has() -> None:
    text = re.sub(r"(global_train_batch_size|device_train_microbatch_size):.*", r"\1: 16", launches.LLM_FOUNDRY)
    assert asked("train.yaml", text, gpus=8).plan.micro_batch == 2
    assert asked("train.yaml", text, gpus=1).plan.micro_batch == 16
    whole = read_launch([File("train.yaml", text.encode())], 32).launch  # of which a GPU would have a half
    assert whole.settings["micro_batch"] == 16


@pytest.mark.parametrize(("value", "keeps"), [("true", False), ("false", True)])
def test_nanotron_keeps_what_it_gathers_once(value: str, keeps: bool) -> None:
    text = launches.NANOTRON.replace("recompute_layer", f"tp_recompute_allgather: {value}\n  recompute_layer")
    found = asked("nano.yaml", text)
    assert (found.job.stack.features.keeps_gathered, found.launch.unpriced) == (keeps, [])


def test_a_gpu_is_known_by_the_machine_type_of_google_cloud() -> None:
    named = (
        "a4x-max/run.sh",
        "a4x/run.sh",
        "llama3-1-405b-256gpus-a4-fp8.yaml",
        "a3ultra/x.yaml",
        "a3mega/x.yaml",
        "a4.md",
    )
    assert [*map(device_in, named)] == ["gb300", "gb200", "b200", "h200", "h100", ""]


def test_a_tpu_v7_is_known_by_its_names() -> None:
    assert {device_in("8k-bf16-tpu7x-4x4x4"), device_in("training/ironwood/run.sh")} == {"tpu-v7"}


def test_a_switch_without_a_value_is_taken_out() -> None:
    text = f"{TRAIN} \\\n    --gradient_checkpointing \\\n    --zero_stage 2\n"
    source = read_launch([File("run.sh", text.encode())])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(found.job, found.plan, replace(found.plan, recompute="none", zero_stage=1), {})
    (texts,) = source.edited(changes)
    assert texts["run.sh"].decode() == f"{TRAIN} \\\n    --zero_stage 1\n"


def test_overlaps_of_nemo_are_the_optimizers() -> None:
    text = launches.NEMO.replace("    overlap_grad_sync: true\n", "").replace("    overlap_param_sync: true\n", "")
    source = read_launch([File("gpt.yaml", text.encode())])
    found = launch_as_read(source.launch, Controls(device="h100"), "gpt.yaml")
    overlaps = {"reduce_overlap": False, "gather_overlap": True}  # the first is on where no key says it
    changes = source.changes(found.job, found.plan, found.plan, overlaps)
    assert [change.flag for change in changes] == ["model.optim.overlap_grad_sync", "model.optim.overlap_param_sync"]


@pytest.mark.parametrize("program", ["NeMo", "Megatron-Bridge"])
def test_virtual_stages_are_counted_in_configs_that_have_no_key_for_their_layers(program: str) -> None:
    (name, text), *_ = launches.SAMPLES[program][0].items()
    text = text.replace("virtual_pipeline_model_parallel_size: 5", "virtual_pipeline_model_parallel_size: null")
    source = read_launch([File(name, text.encode())], 64)
    found = launch_as_read(source.launch, Controls(device="h100"), name)
    changes = source.changes(found.job, found.plan, replace(found.plan, vpp=2), {})
    key = "model.virtual_pipeline_model_parallel_size"
    assert [(change.flag, change.after) for change in changes] == [(key, "2")]


def test_a_key_that_flagscales_megatron_may_not_have_is_not_written() -> None:
    source = read_launch([File("train.yaml", launches.FLAGSCALE.encode())])
    found = launch_as_read(source.launch, Controls(device="h100"), "train.yaml")
    turned = {"reduce_overlap": True}
    assert source.lacking(source.changes(found.job, found.plan, found.plan, turned)) == ""
    new = source.changes(found.job, found.plan, replace(found.plan, vpp=2), {})
    assert source.lacking(new) == ""
    backend = replace(new[0], flag="system.moe_flex_dispatcher_backend", before=None)
    assert "may not have --moe-flex-dispatcher-backend: the newest" in source.lacking((backend,))


MEGATRON = "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --bf16 "
MEGATRON += "--micro-batch-size 1 --global-batch-size 512"


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ("srun -N 4 --ntasks-per-node=8 python", 32),
        ("srun --nodes=2 --gpus-per-node=a100:4 --ntasks-per-node 4 python", 8),
        ("srun -l --ntasks=64 python", 64),
        ("#SBATCH --nodes=8\nsrun --gres=gpu:4 --ntasks-per-node=4 python", 32),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=1\nsrun --gpus-per-task=8 python", 16),
        ("#SBATCH --nodes=2\nsrun --gres=gpu:8 torchrun --nnodes 2 --nproc_per_node 4", 8),
        ("#SBATCH --nodes=2\nHOST=$(srun -N 1 --ntasks=1 hostname)\nsrun --gpus-per-node=8 python", 16),
    ],
)
def test_options_of_srun_count_the_gpus_of_the_command_that_it_starts(lines: str, gpus: int) -> None:
    launch = launch_of("run.sh", f"#!/bin/bash\n{lines} {MEGATRON}\n", gpus=None)
    assert launch.settings["gpus"] == gpus
    keys = f"#!/bin/bash\n{lines} train.py --per_device_train_batch_size 2 --model_name_or_path Qwen/Qwen3-8B\n"
    assert question({"run.sh": keys}).job.gpus == gpus


def test_options_of_srun_count_for_a_script_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(f"python {MEGATRON}\n")
    for command in ("srun -N 4 --ntasks-per-node=8 bash train.sh", "sbatch -p a --nodes=4 --gres=gpu:8 train.sh"):
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{command}\n")
        assert read_launch(read_files([str(tmp_path / "job.sh")])).launch.settings["gpus"] == 32


def test_a_config_that_the_config_of_a_script_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "zero.config").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "conf" / "sft.yaml").write_text(f"{launches.TRAINER}deepspeed: conf/zero.config\n")
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 8 src/train.py conf/sft.yaml\n")
    source = read_launch(read_files([str(tmp_path / "run.sh")]))
    assert source.launch.settings["zero_stage"] == 2


SWITCH = f"torchrun --nproc_per_node 8 {MEGATRON} --num-experts 8 --expert-model-parallel-size 8"


def test_experts_of_a_token_that_nobody_gives_are_one_before_there_was_the_flag(tmp_path: Path) -> None:
    old = asked("run.sh", SWITCH)
    assert old.job.model.experts is not None
    assert old.job.model.experts.top_k == 1
    assert old.launch.unpriced == ["experts of a token, one as before --moe-router-topk, which is not given"]
    new = asked("run.sh", f"{SWITCH} --moe-router-score-function softmax")
    assert new.job.model.experts is not None
    assert (new.job.model.experts.top_k, new.launch.unpriced) == (2, [])
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "arguments.py").write_text(
        "add_argument('--num-experts')\nadd_argument('--routing-mode')\n"
    )
    (tmp_path / "run.sh").write_text(SWITCH)
    own = read_launch(read_files([str(tmp_path / "run.sh")])).launch
    assert (own.settings["top_k"], own.unpriced) == (1, [])
    assert "one expert for each token: this Megatron has no --moe-router-topk" in own.assumed


def test_how_many_groups_a_fork_routes_to_is_not_priced_in_silence() -> None:
    for flag in ("--routing-mode top2", "--moe-router-topk-limited-devices 4"):
        assert flag in asked("run.sh", f"{SWITCH} --moe-router-topk 2 {flag}").launch.unpriced


def test_routers_are_understood() -> None:
    text = f"{SWITCH} --moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
    found = asked("run.sh", text + "--moe-router-num-groups 4 --moe-router-group-topk 2")
    assert found.job.model.experts is not None
    experts = found.job.model.experts
    assert (experts.router, experts.router_bias, experts.groups, experts.group_limit) == ("sigmoid", True, 4, 2)
    assert not {each for each in found.launch.ignored if "router" in each}


@pytest.mark.parametrize(
    ("name", "text", "program"),
    [
        (
            "sft.yaml",
            "train: {accelerator: {ulysses_size: 1}, micro_batch_size: 1}\n",
            "VeOmni",
        ),
        ("run.sh", "bash train.sh tasks/train_text.py a.yaml\ntorchrun tasks/train_text.py a.yaml\n", "VeOmni"),
        (
            "run.sh",
            "torchrun --nproc_per_node=8 -m scripts.base_train -- --depth=20\n",
            "nanochat",
        ),
        (
            "llama.yaml",
            "trainer: {devices: 32, num_nodes: 1}\ndistributed_strategy: {tensor_model_parallel_size: 8}\n"
            "data: {micro_batch_size: 1, global_batch_size: 8}\nmodel: {num_layers: 2, hidden_size: 64}\n",
            "NeuronX Distributed Training",
        ),
    ],
)
def test_programs_are_refused_by_their_names(name: str, text: str, program: str) -> None:
    with pytest.raises(InvalidFile, match=f"{program}: "):
        launch_of(name, text)


@pytest.mark.parametrize(("program", "why"), [("train_bash.py", "--enable_liger_kernel is newer"), ("train.py", "")])
def test_an_old_program_gets_no_key_that_is_newer_than_it(program: str, why: str) -> None:
    text = TRAIN.replace("train.py", f"src/{program} --stage sft --finetuning_type full --cutoff_len 2048")
    source = read_launch([File("run.sh", text.encode())])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(found.job, found.plan, found.plan, {"liger": True})
    assert [change.flag for change in changes] == ["enable_liger_kernel"]
    assert source.lacking(changes).startswith(why)
    assert bool(source.lacking(changes)) is bool(why)


@pytest.mark.parametrize(
    ("other", "off"), [("--bf16 True", " --gradient_checkpointing False"), ("--bf16 true", " false"), ("--bf16", None)]
)
def test_a_switch_is_told_off_where_its_command_gives_switches_values(other: str, off: str | None) -> None:
    text = f"{TRAIN} {other} --report_to none --gradient_checkpointing --save_strategy no"
    source = read_launch([File("run.sh", text.encode())])
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(found.job, found.plan, replace(found.plan, recompute="none"), {})
    edited = next(source.edited(changes))["run.sh"].decode()
    assert ("--gradient_checkpointing" in edited) is bool(off)
    assert not off or f"{off} --save_strategy no" in edited
    again = read_launch([File("run.sh", edited.encode())])
    assert launch_as_read(again.launch, Controls(device="h100"), "run.sh").plan.recompute == "none"


@pytest.mark.parametrize(("flag", "heads"), [("", 0), (" --mtp-num-layers 1", 1)])
def test_megatron_has_heads_for_further_tokens_by_their_flag_alone(flag: str, heads: int) -> None:
    text = PIPED.replace(
        "--deepspeed_config ds.json --zero-stage 0", f"--num-experts 256 --multi-latent-attention{flag}"
    )
    assert launch_of("train.sh", text, model="deepseek-v3").settings["mtp_layers"] == heads
