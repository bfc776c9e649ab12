"""Which files are launches, what starts how many GPUs, and what is assumed of a program that nobody knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.frameworks.every import EVERY
from optimizer.frameworks.files import File, kind_of, launch_file, read_files
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import main_script, read_launch
from optimizer.frameworks.read_configs import config_launch, config_of
from optimizer.frameworks.verl import config as verl

ADVICE = "give a launch script or a config"
CELLS = "give what a cell starts after ! or %%bash, or the config that it writes, as a file of its own"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"caf\xe9", f"byte 3: no UTF-8 text; {ADVICE}"),
        (b"a\0b", f"a binary file; {ADVICE}"),
        (("\ufffd" * 6 + "a" * 94).encode(), f"a binary file; {ADVICE}"),
        (("\ufffd" * 5 + "a" * 95).encode(), ""),  # one of twenty characters
        (b" \n\t", f"the file is empty; {ADVICE}"),
        (
            b"<!-- saved -->\n<!DOCTYPE html>",
            f"a web page, as a browser saves it; {ADVICE} as its page has it under Raw",
        ),
        (b"<html lang=en>", f"a web page, as a browser saves it; {ADVICE} as its page has it under Raw"),
        (b"<htmlx>", ""),
        (b'{"cells": [], "nbformat": 4}', f"a notebook, of which no cell is read; {CELLS}"),
        (b'{"cells": [{"cell_type": "code"}]}', f"a notebook, of which no cell is read; {CELLS}"),
        (b'{"cells": []}', ""),
        ("a: 1".encode("utf-16"), ""),
    ],
)
def test_what_is_no_launch_is_told(data: bytes, problem: str) -> None:
    if not problem:
        assert launch_file(File("x", data)).data == data
        return
    with pytest.raises(InvalidFile) as error:
        launch_file(File("x", data))
    assert error.value.problems == (problem,)


def test_files_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidFile, match=f"cannot be read: No such file or directory; {ADVICE}"):
        read_files([str(tmp_path / "none.sh")])
    with pytest.raises(InputError, match=r"--root .*none is no folder"):
        read_files([], root=str(tmp_path / "none"))
    path = tmp_path / "own.py"
    path.write_text("x = 1\n")
    (file,) = read_files([f"{path}:recipe"], ["8", "4"], {"TP": "2"}, str(tmp_path), "actor")
    assert (file.name, file.part, file.root, file.section) == (str(path), "recipe", str(tmp_path), "actor")
    assert file.outside == {"TP": "2", "1": "8", "2": "4"}
    monkeypatch.setattr("optimizer.frameworks.files.LARGEST", 5)
    with pytest.raises(InputError):
        read_files([str(path)])


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.yaml", "x", "yaml"),
        ("a.YML", "x", "yaml"),
        ("a.json", "x", "json"),
        ("a.config", "x", "json"),
        ("a.toml", "x", "toml"),
        ("a.py", "x", "python"),
        ("a.sh", "a.b=1", "bash"),
        ("a", "a.b=1\n# none\nc=2", "overrides"),
        ("a", "a=1\nc=2", "bash"),  # variables of a shell
        ("a", "a.b=1\nrun", "bash"),
        ("a", "# none", "bash"),
    ],
)
def test_kinds_of_files(name: str, text: str, kind: str) -> None:
    assert kind_of(File(name, text.encode())) == kind


@pytest.mark.parametrize(
    ("text", "part", "problem"),
    [
        ("def a(:", "", "not Python: "),
        (
            "x = 1",
            "",
            "a program, whose Python is not read: give the script that starts it; a config of torchtitan has a "
            "`def name() -> Trainer.Config`",
        ),
        ("x = 1", "a", "no function a makes a config: none does"),
        ("def a() -> Trainer.Config:\n    return 1\n", "b", "no function b makes a config: a"),
    ],
)
def test_python_without_a_config_is_refused(text: str, part: str, problem: str) -> None:
    with pytest.raises(InvalidFile) as error:
        config_of(File("x.py", text.encode(), part))
    assert error.value.problems[0].startswith(problem)


def test_the_only_config_of_a_python_file_is_meant() -> None:
    one = "def a() -> Trainer.Config:\n    return Trainer.Config()\n"
    assert config_of(File("x.py", one.encode())).function == "a"
    two = config_of(File("x.py", (one + one.replace(" a(", " b(")).encode()))
    assert two.function == ""
    with pytest.raises(InvalidFile, match=r"several configs: give x.py:NAME, NAME being one of a, b"):
        config_launch((two,), 8)


def test_the_script_that_starts_the_others_is_meant() -> None:
    first, second, third = File("a.sh", b"bash b.sh\n"), File("b.sh", b"source c.sh\nrun\n"), File("c.sh", b"A=1\n")
    assert main_script([first]) is first
    assert main_script([third, second, first]) is first
    with pytest.raises(InputError, match="are several launches: give one script at a time"):
        main_script([first, File("d.sh", b"run\n")])


MODEL = "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 --max_seq_length 2048"
FLAGS = f"{MODEL} --gradient_accumulation_steps 4 --bf16 True --deepspeed ds.json"
ENGINE = File("ds.json", b'{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}')


def launched(script: str, gpus: int | None = None, *files: File) -> Launch:
    return read_launch([File("run.sh", script.encode()), *(files or (ENGINE,))], gpus).launch


@pytest.mark.parametrize(
    ("starter", "machines"),
    [
        ("python train.py", (None, None, None)),
        ("torchrun --nproc_per_node 8 train.py", (8, None, None)),
        ("torchrun --nnodes 2 --nproc_per_node 8 train.py", (16, 2, 8)),
        ("srun -N 2 --ntasks-per-node 4 python train.py", (8, 2, 4)),
        ("srun -N 2 --ntasks-per-node 1 --gpus-per-node 8 python train.py", (16, 2, 8)),
        ("srun -n 16 python train.py", (16, None, None)),
        ("srun -n 16 --gpus-per-node 8 python train.py", (16, None, None)),
        ("srun --gpus-per-node 8 python train.py", (8, None, None)),
        ("srun --ntasks-per-node 2 python train.py", (2, None, None)),
        ("srun -n 2 --ntasks-per-node 1 --gpus-per-node 4 python train.py", (4, None, None)),
        ("srun --gpus 16 python train.py", (16, None, None)),
        ("deepspeed --num_gpus 4 train.py", (4, None, None)),
        ("deepspeed --num_nodes 2 --num_gpus 4 train.py", (8, 2, 4)),
        ("accelerate launch --num_processes 8 train.py", (8, None, None)),
    ],
)
def test_a_command_starts_so_many_gpus(starter: str, machines: tuple[int | None, int | None, int | None]) -> None:
    launch = launched(f"{starter} {FLAGS}")
    assert tuple(launch.settings.get(name) for name in ("gpus", "nodes", "gpus_per_node")) == machines
    told = [f"{machines[0]} GPUs, as run.sh starts (--gpus)"] if machines[0] else []
    assert [each for each in launch.assumed if "as run.sh starts" in each] == told
    given = launched(f"{starter} {FLAGS}", 32)
    assert given.settings["gpus"] == 32
    assert not any("as run.sh starts" in each for each in given.assumed)


def test_one_gpu_is_told_as_one() -> None:
    assert "1 GPU, as run.sh starts (--gpus)" in launched(f"torchrun --nproc_per_node 1 train.py {FLAGS}").assumed


@pytest.mark.parametrize("lines", ["--gres=gpu:h100:4", "--ntasks-per-node=4"])
def test_the_batch_system_is_asked_for_nodes(lines: str) -> None:
    launch = launched(f"#SBATCH --nodes=2\n#SBATCH {lines}\nsrun python train.py {FLAGS}")
    assert [launch.settings.get(name) for name in ("gpus", "nodes", "gpus_per_node")] == [8, 2, 4]
    assert launch.settings.get("device", "") == ("h100" if "h100" in lines else "")


@pytest.mark.parametrize(
    ("program", "more", "unpriced", "open_to_more"),
    [
        ("train.py", "", [], False),
        ("run_clm.py", "", [], True),  # as Transformers has it
        ("sft.py", "", [], True),
        ("dpo_own.py", "", ["dpo_own.py, which learns from preferences by its name: priced as supervised"], False),
        ("adopted.py", "", [], False),
        ("train.py", "--do_train --report_to none", [], True),
        ("train.py", "--do_train", [], False),
    ],
)
def test_a_program_that_nobody_knows_may_not_take_more(
    program: str, more: str, unpriced: list[str], open_to_more: bool
) -> None:
    launch = launched(f"torchrun --nproc_per_node 8 {program} {FLAGS} {more}")
    assert launch.unpriced == unpriced
    assert (launch.lacks("x") == "") is open_to_more
    assert launch.lacks("zero_optimization.stage") == ""  # of a config
    assumed = f"{program} takes the Trainer's arguments as the Trainer does; its Python is not read"
    assert (assumed in launch.assumed) is (program not in ("run_clm.py", "sft.py"))


def test_configs_that_are_not_there_are_told() -> None:
    other = File("own.json", b'{"zero_optimization": {"stage": 1}}')
    assert launched(f"torchrun --nproc_per_node 8 train.py {FLAGS}", None, other).unpriced == [
        "ds.json, which was not read"
    ]
    assert launched(f"torchrun --nproc_per_node 8 train.py {FLAGS}").unpriced == []


def test_json_by_another_name_is_a_config_of_deepspeed() -> None:
    engine = File("ds.conf", ENGINE.data)
    launch = launched(f"torchrun --nproc_per_node 8 sft_trainer.py {FLAGS}".replace("ds.json", "ds.conf"), None, engine)
    assert (launch.settings["zero_stage"], launch.unpriced) == (2, [])


def test_an_accumulation_that_the_engine_leaves_open_is_written_where_the_trainer_says_it() -> None:
    left = b'{"zero_optimization": {"stage": 2}, "train_batch_size": "auto", "gradient_accumulation_steps": "auto"}'
    script = f"torchrun --nproc_per_node 8 train.py {MODEL} --bf16 True --deepspeed ds.json"
    source = read_launch([File("run.sh", script.encode()), File("ds.json", left)], None)
    asked = launch_as_read(source.launch, Controls(), "run.sh")
    plan = replace(asked.plan, micro_batch=1, num_microbatches=2)
    changes = source.changes(asked.job, asked.plan, plan, {})
    assert [(each.flag, each.before, each.after) for each in changes] == [
        ("per_device_train_batch_size", "2", "1"),
        ("gradient_accumulation_steps", None, "2"),
    ]


def test_of_several_commands_the_one_with_most_settings_counts() -> None:
    two = f"torchrun --nproc_per_node 8 train.py {FLAGS}\ntorchrun --nproc_per_node 4 train.py {MODEL}"
    launch = launched(two)
    assert launch.settings["gpus"] == 8
    assert "of 2 commands with settings the one that has most, of equals the last" in launch.assumed
    equals = launched("\n".join(f"torchrun --nproc_per_node {count} train.py {FLAGS}" for count in (8, 4)))
    assert equals.settings["gpus"] == 4
    one = launched(f"torchrun --nproc_per_node 8 train.py {FLAGS}")
    assert not any(each.startswith("of ") for each in one.assumed)


@pytest.mark.parametrize(
    ("written", "blocks"),
    [
        ('{"dp_cp": {"max_ctas": 8}}', 8),
        ('{"dp_cp": {"max_ctas": 0}}', None),
        ('{"dp_cp": {"max_ctas": -1}}', None),
        ('{"dp_cp": {"max_ctas": "8"}}', None),
        ('{"dp_cp": 8}', None),
        ('{"tp": {"max_ctas": 8}}', None),
        ("[1]", None),
        ("no json", None),
    ],
)
def test_thread_blocks_are_those_of_nccls_options(written: str, blocks: int | None, tmp_path: Path) -> None:
    (tmp_path / "nccl.json").write_text(written)
    sizes = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1"
    flags = f"{sizes} --global-batch-size 64 --bf16 --nccl-communicator-config-path nccl.json"
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags}\n")
    assert read_launch(read_files([str(script)])).launch.settings.get("blocks") == blocks


SHARDED = {"tp": (1,), "pp": (1,), "cp": (1,), "ep": (1,), "recompute": ("none", "full")}
ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "torchtune": {"vpp": (1,), "pp": (1,), "ep": (1,), "recompute": ("none", "full")},
    **dict.fromkeys(("litgpt", "llm-foundry", "DeepSpeed"), SHARDED),
    "MaxText": {
        **{"vpp": (1,), "pp": (), "cp": (1,), "zero_stage": (3,), "shard": ()},
        "recompute": ("none", "selective", "full"),
    },
    "ms-swift": {"overlap_exchange": (False,), "shard": (0,), "activation_offload": (0,), "vpp": (1,)},
    "GPT-NeoX": {"vpp": (1,), "cp": (1,), "ep": (1,), "recompute": ("none", "full")},
    "Megatron-DeepSpeed": {"vpp": (1,)},
    "torchtitan": {"vpp": (1,), "recompute": ("none", "selective", "full")},
    "nanotron": {"vpp": (1,), "pp": (), "cp": (), "ep": (), "recompute": ("none", "full")},
    "picotron": {"vpp": (1,), "ep": (1,), "recompute": ("none",), "sequence_parallel": (False,)},
}


def test_what_programs_can_be_told_only() -> None:
    assert {program.name: dict(program.only) for program in EVERY if program.only} == ONLY


def test_programs_whose_launches_capture_graphs_only_where_they_say_so() -> None:
    """Megatron-LM has none unless a flag asks for them; recipes of others have."""
    without = {program.name for program in EVERY if not program.graphs}
    assert without == {"verl", "FlagScale", "Megatron-LM"}


def test_programs_that_split_sequences_wherever_they_split_tensors() -> None:
    assert "torchtitan" in {program.name for program in EVERY if program.sequence_parallel}


VERL = {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2, "actor_rollout_ref.model.path": "Qwen/Qwen3-8B"}
ACTOR = "actor_rollout_ref.actor."


@pytest.mark.parametrize(
    ("more", "said", "unsearched"),
    [
        (
            {},
            {"gpus": 8, "seq_len": 1024, "micro_batch": 2, "global_batch": 256, "shard": None, "recompute": "full"},
            0,
        ),
        ({"trainer.nnodes": 2, "trainer.n_gpus_per_node": 4}, {"gpus": 8}, 0),
        ({"data.max_prompt_length": 100, "data.max_response_length": 156}, {"seq_len": 256}, 0),
        ({"actor_rollout_ref.rollout.n": 4}, {"global_batch": 1024}, 0),
        ({f"{ACTOR}ppo_mini_batch_size": 64}, {"global_batch": 64}, 0),
        ({f"{ACTOR}fsdp_config.fsdp_size": 1}, {"shard": 1}, 0),
        ({f"{ACTOR}fsdp_config.fsdp_size": 7}, {"shard": 7}, 0),
        ({f"{ACTOR}fsdp_config.fsdp_size": 8}, {"shard": None}, 0),
        ({f"{ACTOR}fsdp_config.fsdp_size": -1}, {"shard": None}, 0),
        ({f"{ACTOR}ulysses_sequence_parallel_size": 2}, {"cp": 2}, 1),
        ({f"{ACTOR}ulysses_sequence_parallel_size": 1}, {"cp": 1}, 0),
        ({f"{ACTOR}use_dynamic_bsz": True}, {"micro_batch": 16}, 0),  # of 16,384 tokens
        ({f"{ACTOR}use_dynamic_bsz": True, f"{ACTOR}ppo_max_token_len_per_gpu": 1000}, {"micro_batch": 1}, 0),
        (
            {f"{ACTOR}use_dynamic_bsz": True, f"{ACTOR}ulysses_sequence_parallel_size": 2},
            {"micro_batch": 32},
            1,
        ),
        ({"actor_rollout_ref.model.lora_rank": 16}, {"train": "lora:16"}, 0),
        ({"actor_rollout_ref.model.lora_rank": 0}, {"train": None}, 0),
        ({"actor_rollout_ref.model.enable_gradient_checkpointing": False}, {"recompute": "none"}, 0),
    ],
)
def test_the_update_of_verls_actor(more: dict[str, Any], said: dict[str, Any], unsearched: int) -> None:
    launch = Launch(program=verl.PROGRAM)
    verl._read_fsdp(launch, {**VERL, **more})
    assert {name: launch.settings.get(name) for name in said} == said
    assert len([each for each in launch.unsearched if "context parallelism" in each]) == unsearched


def test_micro_batches_of_so_many_tokens_are_no_key() -> None:
    for packed in (True, False):
        keys = {**VERL, f"{ACTOR}use_dynamic_bsz": packed}
        text = "".join(f"{path}: {json.dumps(value)}\n" for path, value in keys.items())
        launch = read_launch([File("verl.yaml", text.encode(), section="actor")]).launch
        assert ("micro_batch" in launch.fixed) is packed
        assert verl.ALONE in launch.assumed
