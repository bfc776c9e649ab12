"""MaxText, nanotron, Primus and programs that fine-tune: what their files say, are priced as and must not be given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import WRITTEN, aimed
from optimizer.commands.launch.improve import patch_of
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch import FlagChange, Launch
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.maxtext.config import mesh
from optimizer.frameworks.megatron.config import FlagLaunch
from optimizer.frameworks.nanotron.export import unexpressed
from optimizer.frameworks.primus.export import overrides
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import changes_of
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from tests.frameworks import launches
from tests.frameworks.read_back import OTHERS, WITH, differing
from tests.frameworks.read_back import answers as drawn
from tests.frameworks.tuning.test_exports import YAMLS, answer
from tests.thorough import cases

AXOLOTL = """base_model: NousResearch/Meta-Llama-3-8B
sequence_len: 4096
sample_packing: true
eval_sample_packing: false
sample_packing_bin_size: 200
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch
gradient_checkpointing: true
adapter: lora
lora_r: 16
lora_target_linear: true
lora_mlp_kernel: false
flash_attention: true
"""
SWIFT = """NPROC_PER_NODE=8 swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --tuner_type lora \\
    --per_device_train_batch_size 1 \\
    --gradient_accumulation_steps 16 \\
    --max_length 2048 \\
    --gradient_checkpointing_kwargs '{"use_reentrant": false}'
"""
TUNE = """model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, v_proj]
  lora_rank: 8
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
optimizer: {_component_: torch.optim.AdamW, fused: true}
tokenizer: {max_seq_len: 8192}
dataset: {packed: true}
batch_size: 2
gradient_accumulation_steps: 8
enable_activation_checkpointing: true
dtype: bf16
"""


def read(text: str, name: str, gpus: int | None = 8) -> Launch:
    return read_launch([File(name, text.encode())], gpus).launch


def job(target: str, **changes: object) -> Job:
    cluster = load_cluster("mi300x-8" if target == "primus" else "dgx-h100")
    stack = aimed(load_stack(target), target)
    own = Job(model=load_model("llama3-8b"), cluster=cluster, stack=stack, gpus=64, seq_len=4096, global_batch=64)
    return replace(own, **changes)


@pytest.mark.parametrize("target", WRITTEN)
def test_files_read_back_cost_the_same(target: str, tmp_path: Path) -> None:
    written = 0
    for number, each in enumerate(drawn(Random(f"{target}2"), cases(12, sample=4), (target,))):
        exports = exported(each)
        assert all("it lacks" in why for why in exports.refused.values())
        if not exports.texts:
            continue
        write_exports(each, folder := tmp_path / str(number))
        for name in exports.texts:
            if name not in OTHERS:
                assert differing(each, folder / name) == ""
                written += 1
    assert written


def test_axes_fill_a_slice_first_and_then_the_network() -> None:
    sizes = mesh(Plan(tp=4, dp=16, zero_stage=3), 8)
    assert {key: size for key, size in sizes.items() if size > 1} == {
        "ici_tensor_parallelism": 4,
        "ici_fsdp_parallelism": 2,
        "dcn_fsdp_parallelism": 8,
    }


def test_axes_of_several_devices_are_written(gpt3_answer: Answer) -> None:
    plan = Plan(tp=2, dp=32, micro_batch=2, zero_stage=3, sequence_parallel=True)
    texts = exported(replace(gpt3_answer, job=job("maxtext"), plan=plan)).texts
    lines = [line for text in texts.values() for line in text.splitlines() if line.startswith(("ici_", "dcn_"))]
    several = sorted(line for line in lines if not line.endswith(": 1"))
    assert several == ["dcn_fsdp_parallelism: 8", "ici_fsdp_parallelism: 4", "ici_tensor_parallelism: 2"]


def test_a_pipeline_of_maxtext_has_as_many_micro_batches_as_stages() -> None:
    text = launches.MAXTEXT + "ici_pipeline_parallelism: 4\n"
    settings = read(text, "maxtext.yml", None).settings
    assert (settings["gpus"], settings["pp"]) == (128, 4)
    assert (settings["micro_batch"], settings["num_microbatches"]) == (2, 4)
    assert "model" not in read(text.replace("llama3-8b", "gpt3-22b"), "maxtext.yml", None).settings


def test_slices_that_no_key_names_hold_replicas() -> None:
    text = launches.MAXTEXT.replace("dcn_data_parallelism: 4\n", "")
    assert read(text, "maxtext.yml", 32).settings["shard"] == 8
    assert read(text, "maxtext.yml", None).settings["gpus"] == 8


def test_an_edit_of_maxtext_stays_on_its_slices() -> None:
    source = read_launch([File("maxtext.yml", launches.MAXTEXT.encode())], None)
    assert isinstance(source, ConfigLaunch)
    before = Plan(dp=32, micro_batch=2, zero_stage=3, shard=8)
    after = Plan(tp=2, dp=16, micro_batch=4, zero_stage=3, shard=8, sequence_parallel=True)
    wanted = source.write(source.values, job("maxtext"), before, after, {})
    assert wanted == {
        "ici_tensor_parallelism": 2,
        "ici_fsdp_parallelism": 4,
        "dcn_fsdp_parallelism": 2,
        "dcn_data_parallelism": 2,
        "per_device_batch_size": 2,
    }


def test_nanotron_keeps_what_all_reduce_excludes_out() -> None:
    source = read_launch([File("nanotron.yaml", launches.NANOTRON.encode())], None)
    assert isinstance(source, ConfigLaunch)
    values = {**source.values, "parallelism.tp_linear_async_communication": True}
    before, after = Plan(tp=4, dp=4, sequence_parallel=True), Plan(tp=2, dp=8)
    wanted = source.write(values, job("nanotron"), before, after, {})
    assert wanted["parallelism.tp_linear_async_communication"] is False
    assert "parallelism.tp_mode" not in source.write(values, job("nanotron"), before, Plan(dp=16), {})


def test_nanotron_runs_its_own_split_of_layers_alone() -> None:
    (lacking,) = unexpressed(job("nanotron"), Plan(pp=4, dp=16))
    assert lacking == "other stages than its own (--fix pp=4 --fix layers_per_stage=9,9,8,6)"
    assert not unexpressed(job("nanotron"), Plan(pp=4, dp=16, layers_per_stage=(9, 9, 8, 6)))


def test_primus_is_told_what_it_would_set_itself() -> None:
    values = overrides(job("primus"), Plan(dp=64, zero_stage=0), Knobs())
    assert (values["use_distributed_optimizer"], values["sequence_parallel"]) == (False, False)
    assert (values["add_bias_linear"], values["num_layers"], values["layernorm_epsilon"]) == (False, 32, 1e-5)


MIXTURE = launches.PRIMUS.replace("llama3.1_8B", "mixtral_8x7B_v0.1") + "      expert_model_parallel_size: 8\n"
SECTION = "modules.pre_trainer.overrides."


@pytest.mark.parametrize(
    ("keys", "said", "unpriced"),
    [
        ({}, {"dispatcher": "alltoall", "dtype": "bf16", "optimizer_bytes": None}, []),
        ({"enable_primus_turbo": "true", "use_turbo_deepep": "true"}, {"dispatcher": "deepep"}, []),
        ({"enable_primus_turbo": "false", "use_turbo_deepep": "true"}, {"dispatcher": "alltoall"}, []),
        ({"enable_primus_turbo": "true", "turbo_sync_free_moe_stage": "1"}, {"dispatcher": "alltoall"}, []),
        (
            {"enable_primus_turbo": "true", "turbo_sync_free_moe_stage": "2"},
            {"dispatcher": "deepep"},
            [f"{SECTION}turbo_sync_free_moe_stage 2"],
        ),
        ({"use_turbo_attention": "true", "use_turbo_grouped_gemm": "true", "use_turbo_gemm": "true"}, {}, []),
        ({"enable_turbo_attention_float8": "true"}, {}, [f"{SECTION}enable_turbo_attention_float8"]),
        ({"use_turbo_mega_moe": "true"}, {}, [f"{SECTION}use_turbo_mega_moe"]),
        ({"use_sink_attention": "true", "sink_sliding_window": "128"}, {}, ["sink_sliding_window 128"]),
        ({"tensor_model_parallel_size": "2"}, {"tp": 2, "sequence_parallel": True}, []),
        ({"tensor_model_parallel_size": "2", "sequence_parallel": "0"}, {"sequence_parallel": False}, []),
        ({"fp16": "true"}, {"dtype": "fp16"}, []),
        (
            {"num_layers": "8", "enable_primus_turbo": "true", "use_turbo_deepep": "true"},
            {"layers": 8, "model": "mixtral-8x7b", "dispatcher": "deepep", "gated_mlp": None},
            [],
        ),
        (
            {"use_precision_aware_optimizer": "true", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"},
            {"optimizer_bytes": 8},
            [],
        ),
    ],
)
def test_primus_by_key(keys: Mapping[str, str], said: Mapping[str, Any], unpriced: list[str]) -> None:
    kept = "".join(line for line in MIXTURE.splitlines(keepends=True) if line.split(":")[0].strip() not in keys)
    launch = read(kept + "".join(f"      {key}: {value}\n" for key, value in keys.items()), "primus.yaml", 32)
    assert {name: launch.settings.get(name) for name in said} == said
    assert launch.unpriced == unpriced


def test_what_primus_trains_afterwards_is_its_own_too() -> None:
    launch = read(launches.PRIMUS.replace("pre_trainer", "post_trainer"), "primus.yaml", 16)
    assert (launch.program, launch.settings["zero_stage"]) == ("Primus", 1)


def test_deepep_of_primus_is_switched_by_its_own_keys() -> None:
    source = read_launch([File("primus.yaml", MIXTURE.encode())], 16)
    question = launch_as_read(source.launch, Controls(device="mi300x"), "primus.yaml")
    own, other = replace(question.plan, dispatcher="deepep"), question.plan
    changes = source.changes(question.job, other, own, {})
    assert {f"{SECTION}enable_primus_turbo", f"{SECTION}use_turbo_deepep"} <= {change.flag for change in changes}
    (texts,) = source.edited(changes)
    again = read_launch([File("primus.yaml", texts["primus.yaml"])], 16)
    assert again.launch.settings["dispatcher"] == "deepep"
    (texts,) = again.edited(again.changes(question.job, own, other, {}))
    settings = read(texts["primus.yaml"].decode(), "primus.yaml", 16).settings
    assert settings["dispatcher"] == "alltoall"


COMMANDS = (
    ("", "./primus-cli direct --numa -- train pretrain --config primus.yaml"),
    ("", "primus-cli slurm srun -N 4 -- container -- train pretrain --config primus.yaml"),
    ("export EXP=primus.yaml NNODES=4\n", "bash ./examples/run_slurm_pretrain.sh"),
    ("", "EXP=primus.yaml bash ./examples/run_pretrain.sh"),
)


@pytest.mark.parametrize(("before", "command"), COMMANDS)
def test_overrides_of_primus_on_its_command_count(before: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "primus.yaml").write_text(launches.PRIMUS)
    more = "--micro_batch_size 4 global_batch_size=256 --tensor_model_parallel_size=2 --recompute_granularity None"
    (path := tmp_path / "run.sh").write_text(f"{before}{command} \\\n    {more} --train_iters 10\n")
    files = read_files([str(path)])
    source = read_launch(files)
    settings = source.launch.settings
    said = ("micro_batch", "global_batch", "tp", "pp", "recompute", "gpus", "model", "sequence_parallel")
    gpus = 32 if "4" in before + command else 8
    assert [settings[name] for name in said] == [4, 256, 2, 2, "none", gpus, "llama3.1-8b", True]
    assert source.launch.unpriced == []
    question = launch_as_read(source.launch, Controls(device="mi300x"), str(path))
    after = replace(question.plan, tp=1, dp=2 * question.plan.dp, pp=1, micro_batch=2, sequence_parallel=False)
    (texts,) = source.edited(source.changes(question.job, question.plan, after, {}))
    assert b"--tensor_model_parallel_size=1 " in texts[str(path)]
    assert b"pipeline_model_parallel_size: 1" in texts[str(tmp_path / "primus.yaml")]


def test_a_launch_of_primus_runs_where_its_config_lies_and_loses_keys_of_its_command(tmp_path: Path) -> None:
    (tmp_path / "MI355X").mkdir()
    (tmp_path / "MI355X" / "primus.yaml").write_text(launches.PRIMUS)
    command = COMMANDS[0][1].replace("primus.yaml", "MI355X/primus.yaml")
    (path := tmp_path / "run.sh").write_text(f"{command} --recompute_granularity full --recompute_method block\n")
    source = read_launch(read_files([str(path)]))
    assert source.launch.settings["device"] == "mi355x"
    (texts,) = source.edited((FlagChange(flag=f"{SECTION}recompute_granularity", before="full", after="null"),))
    assert b"--recompute_granularity None --recompute_method block" in texts[str(path)]


def test_a_variable_of_a_command_of_primus_is_never_made_none(tmp_path: Path) -> None:
    (tmp_path / "primus.yaml").write_text(launches.PRIMUS)
    (path := tmp_path / "run.sh").write_text(f"MODE=full\n{COMMANDS[0][1]} --recompute_granularity $MODE\n")
    source = read_launch(read_files([str(path)]))
    change = FlagChange(flag=f"{SECTION}recompute_granularity", before="full", after="null")
    with pytest.raises(InputError, match="no patch: recompute_granularity is to be None"):
        list(source.edited((change,)))


@pytest.mark.parametrize(("name", "after"), [("granularity", "none"), ("method", "null"), ("num-layers", "null")])
def test_ms_swift_has_a_word_for_no_recomputation(name: str, after: str) -> None:
    source = read_launch([File("run.sh", launches.SWIFT_MEGATRON.encode())], 8)
    assert isinstance(source, FlagLaunch)
    assert source._as_key(FlagChange(flag=f"--recompute-{name}", before="1", after=None)).after == after


def test_a_key_that_primus_has_nowhere_is_added_to_its_command(tmp_path: Path) -> None:
    (tmp_path / "primus.yaml").write_text(launches.PRIMUS)
    (path := tmp_path / "run.sh").write_text(f"{COMMANDS[0][1]} --micro_batch_size 4\n")
    source = read_launch(read_files([str(path)]))
    change = FlagChange(flag=f"{SECTION}context_parallel_size", before=None, after="2")
    (texts,) = source.edited((change,))
    assert texts[str(path)].decode().endswith("--micro_batch_size 4 --context_parallel_size 2\n")


@pytest.mark.parametrize("lengths", ["", "900:600"])
def test_packing_is_read_and_told(lengths: str) -> None:
    launch = read(AXOLOTL, "axolotl.yaml")
    question = launch_as_read(launch, Controls(device="h100", lengths=lengths), "axolotl.yaml")
    assert (launch.unpriced, launch.settings["packing"], launch.settings["software"]) == ([], True, "axolotl")
    assert (question.job.packing, question.job.lengths) == ("on", lengths)
    assert any("how long documents are is not told" in sentence for sentence in launch.assumed) is not bool(lengths)


def test_a_new_flag_stands_behind_the_quotes_of_the_last_one(tmp_path: Path) -> None:
    (path := tmp_path / "sft.sh").write_text(SWIFT)
    files, controls = read_files([str(path)]), Controls(device="h100")
    source = read_launch(files)
    question = launch_as_read(source.launch, controls, "sft.sh")
    patch = patch_of(improve(question), source, files, controls, "all")
    assert """+    --gradient_checkpointing_kwargs '{"use_reentrant": false}' --gradient_checkpointing false""" in patch


def test_recipes_of_adapters_are_split_over_replicas_alone() -> None:
    launch = read(TUNE, "tune.yaml")
    assert {"tp", "cp"} <= set(launch.fixed)
    assert launch.settings["packing"] is True


@pytest.mark.parametrize("target", YAMLS)
@pytest.mark.parametrize("train", ["full", "qlora:32"])
def test_what_is_written_is_priced_by_its_own_stack_when_it_is_read(target: str, train: str, tmp_path: Path) -> None:
    write_exports(answer(target, train, 8), tmp_path / "out")
    paths = [tmp_path / "out" / name for name in (YAMLS[target], *WITH.get(YAMLS[target], ()))]
    launch = read_launch(read_files([str(path) for path in paths if path.exists()]), 8).launch
    assert (launch.unpriced, launch.settings["software"]) == ([], target)


def test_ms_swift_is_given_no_argument_that_its_parser_lacks() -> None:
    text = """NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 1 \\
    --expert_model_parallel_size 8 --micro_batch_size 1 --global_batch_size 16 --max_length 4096 \\
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
"""
    source = read_launch([File("sft.sh", text.encode())])
    question = launch_as_read(source.launch, Controls(device="h100"), "sft.sh")
    improvement = improve(question)
    for edit in (*improvement.edits, *filter(None, (improvement.pair, improvement.best))):
        assert source.lacking(changes_of(source, question, edit)) == ""
    change = FlagChange(flag="moe_flex_dispatcher_backend", before=None, after="deepep")
    assert source.lacking([change]) == "ms-swift has no moe_flex_dispatcher_backend"


def test_adapters_of_megatron_bridge_are_priced() -> None:
    launch = read(launches.BRIDGE_LORA, "run_config.yaml")
    assert (launch.settings["train"], launch.settings["packing"], launch.unpriced) == ("lora:8:q+k+v+o", True, [])
    latent = launches.BRIDGE_LORA.replace("linear_qkv", "linear_q_proj, linear_kv_up_proj")
    assert read(latent, "run_config.yaml").settings["train"] == "lora:8:q+k+v+o"
    unfused = read(launches.BRIDGE_LORA.replace("model:\n", "model:\n  apply_rope_fusion: false\n"), "run_config.yaml")
    assert any("reads the lengths" in each for each in unfused.unpriced)
    other = read(launches.BRIDGE_LORA.replace("lora.LoRA", "vera.VeRA"), "run_config.yaml")
    assert "train" not in other.settings
    assert any("VeRA" in each for each in other.unpriced)


@pytest.mark.parametrize(
    ("words", "train"),
    [
        ("--recipe qwen3_8b_sft_4gpu_h100_bf16_config", None),
        ("--recipe qwen3_8b_peft_config", "lora:32"),
        ("--recipe qwen3_8b_peft_config --mode dora", "dora:32"),
        ("--recipe qwen3_8b_pretrain_config", None),
    ],
)
def test_a_recipe_is_what_its_name_and_mode_say(words: str, train: str | None) -> None:
    command = f"torchrun --nproc-per-node 8 scripts/training/run_recipe.py {words} train.global_batch_size=128"
    launch = read(f"{command} model.tensor_model_parallel_size=2", "run.sh")
    tunes = "pretrain" not in words
    assert (launch.settings["model"], launch.settings.get("train")) == ("qwen3-8b", train)
    assert launch.settings.get("seq_len", 0) == (2048 if tunes else 0)
    assert bool(launch.settings.get("reduce_overlap")) is not tunes
    with pytest.raises(InvalidFile, match="give the run_config"):
        read(command, "run.sh")


def test_a_recipe_alone_says_no_plan() -> None:
    command = "./scripts/training/train.sh --nodes 1 --gpus-per-node 8 --recipe qwen3_8b_sft_32k_config --mode sft"
    with pytest.raises(InvalidFile, match="Megatron-Bridge: a recipe's own settings"):
        read(command, "run.sh")
