"""MaxText, nanotron, Primus and programs that fine-tune: what their files say, are priced as and must not be given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import WRITTEN, aimed
from optimizer.commands.launch.improve import patch_of
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.launch import FlagChange, Launch
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.maxtext.config import mesh
from optimizer.frameworks.nanotron.export import unexpressed
from optimizer.frameworks.primus.export import overrides
from optimizer.frameworks.read import File, read_files, read_launch
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
    for number, each in enumerate(drawn(Random(f"{target}1"), cases(12, sample=6), (target,))):
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


def test_kernels_of_primus_are_read_as_deepep() -> None:
    more = "      enable_primus_turbo: true\n      use_turbo_deepep: true\n      expert_model_parallel_size: 8\n"
    text = launches.PRIMUS.replace("llama3.1_8B", "mixtral_8x7B_v0.1") + more
    settings = read(text, "primus.yaml", 16).settings
    assert settings["dispatcher"] == "deepep"


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
