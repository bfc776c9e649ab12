"""Nodes and GPUs that batch systems, steps and launchers are asked for, with what follows from them."""

from __future__ import annotations

import pytest

from optimizer.frameworks.machines import batch_options, batch_variables, device_in, included, step_options
from optimizer.frameworks.megatron.script import bash_launch

SIZES = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
FLAGS = f"pretrain_gpt.py {SIZES} --micro-batch-size 1 --global-batch-size 64 --bf16"


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ("#SBATCH --nodes=4", {"nodes": 4}),
        ("#SBATCH -N4 -n8", {"nodes": 4, "tasks": 8, "tasks_per_node": 2}),
        ("#SBATCH --nodes=2-4", {"nodes": 2}),
        ("#SBATCH --gres=gpu:8", {"gpus_per_node": 8}),
        ("#SBATCH --gres=gpu:a100:8(S:0-1)", {"gpus_per_node": 8}),
        ("#SBATCH --gres=nvme:8", {}),
        ("#SBATCH --mem=80G --time 10", {}),
        (
            "#SBATCH --ntasks-per-node=2 --gpus-per-task=4",
            {"tasks_per_node": 2, "gpus_per_task": 4, "gpus_per_node": 8},
        ),
        (
            "#SBATCH --nodes=3 --ntasks-per-node=2 --gpus-per-task=4",
            {"nodes": 3, "tasks_per_node": 2, "gpus_per_task": 4, "gpus_per_node": 8, "tasks": 6},
        ),
        (
            "#SBATCH --ntasks-per-node=2 --gpus-per-task=4 --gpus-per-node=2",
            {"tasks_per_node": 2, "gpus_per_task": 4, "gpus_per_node": 2},
        ),
        ("#SBATCH --nodes=4 # --nodes=8", {"nodes": 4}),
        ("##SBATCH --nodes=4", {}),
        ("#PBS -l select=4", {"nodes": 4}),
        ("#PBS -l select=4:ncpus=8:ngpus=2", {"nodes": 4, "gpus_per_node": 2}),
        ("#$ -l rt_F=2", {"gpus_per_node": 4, "nodes": 2}),
        ("#$ -l h_rt=2", {}),
    ],
)
def test_lines_of_batch_systems(lines: str, asked: dict[str, int]) -> None:
    assert {name: value for name, (value, *_) in batch_options(lines.encode()).items()} == asked


def test_tasks_of_a_node_are_asked_for_by_all_tasks() -> None:
    options = batch_options(b"#SBATCH --nodes=4 --ntasks=8")
    value, option, piece = options["tasks_per_node"]
    assert (value, option, piece.text, piece.sites) == (2, "#SBATCH --ntasks", "2", ())
    value, option, piece = options["nodes"]
    assert (value, option, piece.text, piece.sites) == (4, "#SBATCH --nodes", "4", ((16, 17),))


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("srun -N 4 run", {"nodes": 4}),
        ("srun -N4 run -n 8", {"nodes": 4}),
        ("srun --nodes 4 --gres gpu:8 run", {"nodes": 4, "gpus_per_node": 8}),
        ("srun -l -N 4 run", {"nodes": 4}),
        ("srun --exclusive 4 run", {}),
        ("/usr/bin/srun -N 4 run", {"nodes": 4}),
        ("sbatch -N 4 job.sh srun -N 2 run", {"nodes": 2}),
        ("run -N 4", {}),
    ],
)
def test_options_of_steps(command: str, asked: dict[str, int]) -> None:
    assert {name: value for name, (value, *_) in step_options(command.split()).items()} == asked


def test_a_step_goes_before_its_batch_script() -> None:
    batch = batch_options(b"#SBATCH --nodes=8 --gpus-per-node=4")
    found = step_options(["srun", "-N", "2", "run"], batch)
    assert {name: value for name, (value, *_) in found.items()} == {"nodes": 2, "gpus_per_node": 4}


@pytest.mark.parametrize(
    ("command", "devices"),
    [
        ("deepspeed --include localhost:0 x.py", {"nodes": 1, "gpus_per_node": 1}),
        ("deepspeed -i a:0,1@b:2,3 x.py", {"nodes": 2, "gpus_per_node": 2}),
        ("deepspeed -i a:0,1@b:2 x.py", {}),  # unlike nodes
        ("deepspeed --include=a:0,x x.py", {}),
        ("python -m deepspeed.launcher.runner -i a:0 x.py", {"nodes": 1, "gpus_per_node": 1}),
        ("deepspeed x.py", {}),
        ("torchrun -i a:0 x.py", {}),
    ],
)
def test_devices_that_deepspeed_is_to_take(command: str, devices: dict[str, int]) -> None:
    assert included(command.split()) == devices


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("v100", "v100-16"),
        ("v100-32gb", "v100-32"),
        ("V100 of 32", "v100-16"),  # too far behind it
        ("a100", "a100-80"),
        ("a100_40gb", "a100-40"),
        ("h1000", ""),
        ("xh100", ""),
        ("8xh100", "h100"),
    ],
)
def test_devices_by_name(text: str, device: str) -> None:
    assert device_in(text) == device


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\nsrun python {FLAGS}", (4, 2, 2)),
        (f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nsrun python {FLAGS}", (2, 2, None)),  # one a task
        (f"#SBATCH --ntasks=2\nsrun python {FLAGS}", (2, None, None)),
        (f"#SBATCH --ntasks=1\nsrun python {FLAGS}", (8, None, None)),
        (f"#SBATCH --nodes=2 --gpus-per-node=4\nsrun torchrun --nproc_per_node 2 {FLAGS}", (4, 2, 2)),
        (f"torchrun --nnodes 0 --nproc_per_node 4 {FLAGS}", (4, None, 4)),
        (f"torchrun --nnodes 2:4 --nproc_per_node 4 {FLAGS}", (16, 4, 4)),
        (f"deepspeed --include localhost:0,1 {FLAGS}", (2, 1, 2)),
    ],
)
def test_a_script_of_megatron_runs_on_what_is_asked_for(text: str, gpus: tuple[int, int | None, int | None]) -> None:
    settings = bash_launch("run.sh", text.encode(), None).launch.settings
    assert (settings["gpus"], settings.get("nodes"), settings.get("gpus_per_node")) == gpus


def test_variables_of_a_job_are_those_of_its_options() -> None:
    known = batch_variables(batch_options(b"#SBATCH --nodes=4 --ntasks-per-node=2"))
    texts = {name: word[0].text for name, word in known.items()}
    assert (texts["SLURM_NNODES"], texts["SLURM_NTASKS_PER_NODE"], texts["SLURM_NTASKS"]) == ("4", "2", "8")
    assert "SGE_RESOURCE_TYPE" not in texts
    assert batch_variables(batch_options(b"#$ -l rt_F=4"))["SGE_RESOURCE_TYPE"][0].text == "rt_F"
