import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import OWN_STACKS, WRITTEN, aimed
from optimizer.frameworks.bash.like import alike
from optimizer.frameworks.every import TARGETS
from optimizer.frameworks.export_folder import exported, write_exports, write_texts
from optimizer.frameworks.megatron.sbatch import AT_STAKE, sbatch_script
from optimizer.job.plan import Plan

CHECKOUT = Path(__file__).parents[2]
BRIDGES = {f"megatron-bridge-{release}.overrides" for release in ("0.3.1", "0.6.0", "main")}
JOBS = ("megatron-pytorchjob.yaml", "megatron-skypilot.yaml")
NAMES = {"megatron.args", "megatron-nccl.json", "megatron.sbatch", *JOBS, *BRIDGES}


def test_every_launch_file_is_written_and_no_other(gpt3_answer: Answer, tmp_path: Path) -> None:
    paths, refused = write_exports(gpt3_answer, tmp_path / "new" / "folder")
    assert {path.name for path in paths} == NAMES
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == NAMES
    others = (*WRITTEN, *OWN_STACKS)
    usual = [target for name, target in TARGETS.items() if not target.tunes and name not in others]
    assert refused.keys() == {name for target in usual for name in target.files} - NAMES
    assert all("the model gpt3" in reason for name, reason in refused.items() if name.startswith("torchtitan"))
    assert "it lacks TP" in refused["deepspeed.json"]


def test_a_recipe_of_nemo_is_written_for_its_stack_beside_the_others(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, stack=load_stack("nemo-2024"))
    assert {"megatron.args", "nemo_pretrain.py"} <= exported(replace(gpt3_answer, job=job)).texts.keys()


def test_a_plan_that_only_shares_states_is_written_for_every_target_that_runs_it(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, model=load_model("llama3.2-1b"), gpus=8, global_batch=8)
    texts = exported(replace(gpt3_answer, job=job, plan=Plan(dp=8, zero_stage=1))).texts
    assert {"megatron.args", "deepspeed.json", "trainer-deepspeed.json"} <= texts.keys()


def test_what_no_software_can_run_is_an_input_error(gpt3_answer: Answer, tmp_path: Path) -> None:
    plan = Plan(pp=8, dp=128, num_microbatches=12, recompute="full", recompute_layers=(1, *(0,) * 7))
    with pytest.raises(InputError, match="it lacks recomputation of other layers on each stage"):
        write_exports(replace(gpt3_answer, plan=plan), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_model_that_no_launcher_has_leaves_nothing(gpt3_answer: Answer, tmp_path: Path) -> None:
    """Not even the communicators of a plan, which nothing would launch."""
    assert exported(gpt3_answer).texts["megatron-nccl.json"]
    stack = aimed(gpt3_answer.job.stack, "megatron-lm")
    bloom = replace(gpt3_answer, job=replace(gpt3_answer.job, model=load_model("bloom-176b"), stack=stack))
    with pytest.raises(InputError, match="it lacks"):
        write_exports(bloom, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_existing_files_are_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(InputError, match=r"already holds b; add --force"):
        write_texts({"a": "1", "b": "2"}, tmp_path)
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").read_text() == "mine"
    write_texts({"a": "1", "b": "2"}, tmp_path, force=True)
    assert (tmp_path / "b").read_text() == "2"


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"):
        write_texts({"a": "1"}, tmp_path / "file")


def test_the_batch_script_asks_for_the_nodes_and_is_valid_shell(gpt3_answer: Answer, tmp_path: Path) -> None:
    write_exports(gpt3_answer, tmp_path)
    script = (tmp_path / "megatron.sbatch").read_text()
    assert "#SBATCH --nodes=128\n" in script
    assert "#SBATCH --gpus-per-node=8\n" in script
    assert "    --tensor-model-parallel-size 8\n" in script
    assert "\nCUDA_DEVICE_MAX_CONNECTIONS=1\nexport MASTER_ADDR MASTER_PORT" in script
    assert "\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in script
    # 12 % of 132 multiprocessors, for data parallelism alone
    assert '"dp": {"max_ctas": 16}' in script.replace("\n  ", "").replace("\n ", "")
    assert "NCCL_MAX_CTAS" not in script
    for option in ("--kill-on-bad-exit=1", "--log-throughput", "--exit-signal-handler", "scontrol requeue"):
        assert option in script
    for option in ("cpus-per-task", "time", "output", "requeue", "signal"):
        assert f"#SBATCH --{option}" in script


CONFIGS = {"maxtext": "maxtext-gpu-2024", "nanotron": "nanotron-2024", "primus": "primus"}  # programs and stacks


def batch_scripts(gpt3_answer: Answer) -> dict[str, str]:
    """The script of each program, by its name."""
    texts = {"megatron.sbatch": sbatch_script(gpt3_answer)}
    for program, stack in CONFIGS.items():
        cluster = "mi300x-8" if program == "primus" else "dgx-h100"
        job = replace(gpt3_answer.job, stack=load_stack(stack), model=load_model("llama3-8b"), gpus=64, global_batch=64)
        plan = Plan(dp=64, zero_stage=3 if program == "maxtext" else 1)
        texts |= exported(replace(gpt3_answer, job=replace(job, cluster=load_cluster(cluster)), plan=plan)).texts
    return {name: text for name, text in texts.items() if name.endswith(".sbatch")}


@pytest.mark.parametrize("program", CONFIGS)
def test_each_node_starts_the_program_on_the_config_of_the_folder(
    gpt3_answer: Answer, tmp_path: Path, program: str
) -> None:
    """With stand-ins for Slurm's commands and the program: what a node is told, and what it starts."""
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash")
    script = batch_scripts(gpt3_answer)[f"{program}.sbatch"]
    (folder := tmp_path / "the program").mkdir()
    told = 'printf "%s\\n" "$0" "$@" "${JAX_COORDINATOR_IP:-}" "${NNODES:-}" "${GPUS_PER_NODE:-}" >"$CALLS"'
    for path, text in {
        "scontrol": "echo node-1",
        "srun": 'while [[ $1 == -* ]]; do shift; done; "$@"',
        "torchrun": told,
        "python3": told,
        "the program/primus-cli": told,
    }.items():
        (tmp_path / path).write_text(f"#!{bash}\n{text}\n")
        (tmp_path / path).chmod(0o755)
    (path := tmp_path / "script").write_text(script)
    more = ["run_name=a b"] if program == "maxtext" else []
    nodes = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[1-8]", "SLURM_NNODES": "8", "SLURM_NODEID": "0"}
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls"), **nodes}
    command = [bash, str(path), str(folder), *more]
    assert subprocess.run(command, env=variables, cwd=tmp_path, check=False, capture_output=True).returncode == 2
    config = "maxtext.yml" if program == "maxtext" else f"{program}.yaml"
    (tmp_path / config).touch()
    subprocess.run(command, env=variables, cwd=tmp_path, check=True)
    words = (tmp_path / "calls").read_text().splitlines()
    assert config in words
    if program == "maxtext":
        assert words[1:] == ["-u", "-m", "maxtext.trainers.pre_train.train", config, "run_name=a b", "node-1", "8", ""]
    elif program == "nanotron":
        assert {"--nnodes=8", "--nproc-per-node=8", "--master-addr=node-1", f"{folder}/run_train.py"} <= {*words}
    else:
        assert words[:3] == [f"{folder}/primus-cli", "direct", "--"]
        assert words[-2:] == ["8", "8"]


def test_nodes_of_a_config_s_program_are_alike(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, stack=load_stack("nanotron-2024"), model=load_model("llama3-8b"), gpus=12)
    exports = exported(replace(gpt3_answer, job=replace(job, global_batch=12), plan=Plan(dp=12, zero_stage=1)))
    assert exports.texts.keys() == {"nanotron.yaml"}
    assert "12 GPUs are no whole nodes of 8" in exports.refused["nanotron.sbatch"]


def test_shellcheck_has_nothing_to_say(gpt3_answer: Answer, tmp_path: Path) -> None:
    checker = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if checker is None:
        pytest.skip("no shellcheck")
    for name, text in batch_scripts(gpt3_answer).items():
        (tmp_path / name).write_text(text)
    scripts = [*map(str, tmp_path.iterdir()), str(CHECKOUT / ".ci" / "run"), str(CHECKOUT / ".ci" / "launchers")]
    found = subprocess.run([checker, *scripts], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_a_script_called_without_arguments_says_how(gpt3_answer: Answer, tmp_path: Path) -> None:
    write_exports(gpt3_answer, tmp_path)
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    found = subprocess.run([bash, str(tmp_path / "megatron.sbatch")], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "usage: sbatch" in found.stderr


@pytest.mark.parametrize("name", ["a; touch OUCH", "a\ntouch OUCH", "$(touch OUCH)", "`touch OUCH`", "a' 'b\"c", "\\"])
def test_no_name_of_a_model_is_a_command(gpt3_answer: Answer, tmp_path: Path, name: str) -> None:
    job = replace(gpt3_answer.job, model=replace(gpt3_answer.job.model, name=name))
    script = sbatch_script(replace(gpt3_answer, job=job))
    plain = sbatch_script(gpt3_answer)
    assert [line for line in script.splitlines() if "--job-name" not in line] == [
        line for line in plain.splitlines() if "--job-name" not in line
    ]
    (path := tmp_path / "script").write_text(script)
    if bash := shutil.which("bash"):
        subprocess.run([bash, str(path)], capture_output=True, cwd=tmp_path, check=False)
    assert not (tmp_path / "OUCH").exists()


def test_the_ranks_get_the_arguments_and_the_job_is_queued_again(gpt3_answer: Answer, tmp_path: Path) -> None:
    """With stand-ins for Slurm's commands: what a rank is called with, and what the warning of the time limit does."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    for name, text in {
        "scontrol": 'if [[ $1 == show ]]; then echo node-1; else echo "scontrol $*" >>"$CALLS"; fi',
        "scancel": 'echo "scancel $*" >>"$CALLS"',
        "srun": 'printf "%s\\n" "$@" >"$CALLS.srun"; kill -USR1 "$PPID"; sleep 1',
    }.items():
        (tmp_path / name).write_text(f"#!{bash}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (path := tmp_path / "script").write_text(sbatch_script(gpt3_answer))
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node-[1-2]",
    }
    folders = [str(tmp_path / "megatron lm"), str(tmp_path / "check points")]
    subprocess.run([bash, str(path), *folders, "--train-iters", "5"], env=variables, cwd=tmp_path, check=True)
    words = (tmp_path / "calls.srun").read_text().splitlines()
    assert f"{folders[0]}/pretrain_gpt.py" in words
    assert words[-2:] == ["--train-iters", "5"]
    assert "--cpus-per-task=8" in words  # srun takes it from no sbatch
    assert gpt3_answer.estimate is not None
    at_stake = int(words[words.index("--save-interval") + 1]) * gpt3_answer.estimate.step_time
    assert at_stake == pytest.approx(AT_STAKE, rel=0.4)  # to one digit
    given = words[words.index("--nccl-communicator-config-path") + 1]
    assert json.loads(Path(given).read_text())["dp_cp"]["max_ctas"] == 16
    assert words[words.index("--load") + 1] == folders[1]
    assert (tmp_path / "calls").read_text().splitlines() == ["scancel --signal=TERM 7.0", "scontrol requeue 7"]


def test_fewer_gpus_than_a_node_has(gpt3_answer: Answer, tmp_path: Path) -> None:
    write_exports(replace(gpt3_answer, job=replace(gpt3_answer.job, gpus=4)), tmp_path)
    wanted = "#SBATCH --nodes=1\n#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n"
    assert wanted in (tmp_path / "megatron.sbatch").read_text()


def test_twelve_gpus_are_twelve_ranks(gpt3_answer: Answer) -> None:
    script = sbatch_script(replace(gpt3_answer, job=replace(gpt3_answer.job, gpus=12)))
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks=12\n" in script
    assert "--distribution=plane=8" in script
    assert "WORLD_SIZE=$SLURM_NTASKS" in script


@pytest.mark.parametrize("stack", ["oneflow", "internevo-2023", "megatron-deepspeed-2022"])
def test_no_file_of_another_program_than_was_priced_is_written(gpt3_answer: Answer, stack: str) -> None:
    job = replace(gpt3_answer.job, stack=load_stack(stack))
    with pytest.raises(InputError, match=f"--stack {stack}: no launch files of .* are written"):
        exported(replace(gpt3_answer, job=job))


@pytest.mark.parametrize(("stack", "file"), [("maxtext-gpu-2024", "maxtext.yml"), ("nanotron-2024", "nanotron.yaml")])
def test_a_program_of_its_own_writes_its_own_file_alone(gpt3_answer: Answer, stack: str, file: str) -> None:
    job = replace(gpt3_answer.job, stack=load_stack(stack), model=load_model("llama3-8b"), gpus=64, global_batch=64)
    plan = Plan(dp=64, zero_stage=3 if file == "maxtext.yml" else 1)
    script = f"{Path(file).stem}.sbatch"
    assert exported(replace(gpt3_answer, job=job, plan=plan)).texts.keys() == {file, script}
    with pytest.raises(InputError, match=r"cannot run this plan: .*; --target \w+ plans what it can"):
        write_exports(replace(gpt3_answer, job=job, plan=replace(plan, zero_stage=2)), Path("none"))


OWN = """#!/bin/bash
#SBATCH -A proj_123
#SBATCH --partition=boost --qos normal   # the fast one
#SBATCH -t1-12:00:00 --mail-user="a b@c.d"
#SBATCH --nodes=4 --gres=gpu:4
module purge
  module load cuda/12.4
VENV=/x/y
source $VENV/bin/activate
srun --container-image=nvcr.io#nvidia/pytorch:25.04 --container-mounts="/data:/data,/work:/work" python x.py
#SBATCH --comment=late
"""


def test_a_script_like_the_user_s_own_keeps_what_its_site_asks_for(gpt3_answer: Answer, tmp_path: Path) -> None:
    (own := tmp_path / "own.sh").write_text(OWN)
    write_exports(gpt3_answer, tmp_path / "out", like=str(own))
    script = (tmp_path / "out" / "megatron.sbatch").read_text()
    for line in ("-A proj_123", "--partition=boost", "--qos normal", "-t1-12:00:00", "--mail-user='a b@c.d'"):
        assert f"#SBATCH {line}\n" in script
    assert "#SBATCH --time" not in script
    assert "#SBATCH --nodes=128\n" in script  # the plan's
    assert script.index("module purge\n") < script.index("set -euo pipefail")
    assert "VENV=/x/y\nsource $VENV/bin/activate\n" in script  # a line that is kept has what it names
    assert "--comment" not in script
    assert ': "${CONTAINER:=nvcr.io#nvidia/pytorch:25.04}"\n: "${MOUNTS:=/data:/data,/work:/work}"\n' in script
    if bash := shutil.which("bash"):
        subprocess.run([bash, "-n", str(tmp_path / "out" / "megatron.sbatch")], check=True)


@pytest.mark.parametrize(
    ("lines", "written"),
    [
        ("IMG=/c/x.sqsh\nsrun --container-image=$IMG", ': "${CONTAINER:=/c/x.sqsh}"\n'),
        ('D="/c"\nexport IMG=${D}/x.sqsh\nsrun --container-image "${IMG}"', ': "${CONTAINER:=/c/x.sqsh}"\n'),
        ("srun --container-mounts=$HOME:$HOME,/data", ': "${MOUNTS:=$HOME:$HOME,/data}"\n'),
        ("IMG=$(ls /c | head -n 1)\nsrun --container-image=$IMG", "# CONTAINER is yours to set: own.sh computes it\n"),
        ("IMG=a\nIMG=b\nsrun --container-image=$IMG", "# CONTAINER is yours to set: own.sh computes it\n"),
        ("IMG=$IMG\nsrun --container-image=$IMG", "# CONTAINER is yours to set: own.sh computes it\n"),
    ],
)
def test_a_container_that_a_variable_names_is_kept_or_asked_for(
    gpt3_answer: Answer, tmp_path: Path, lines: str, written: str
) -> None:
    script = alike(batch_scripts(gpt3_answer)["megatron.sbatch"], f"#SBATCH -A me\n{lines} python x.py\n", "own.sh")
    assert written in script
    (path := tmp_path / "a.sh").write_text(script)
    if bash := shutil.which("bash"):
        subprocess.run([bash, "-n", str(path)], check=True)


def test_scripts_of_every_program_are_like_the_user_s_own(gpt3_answer: Answer, tmp_path: Path) -> None:
    for name, text in batch_scripts(gpt3_answer).items():
        script = alike(text, OWN, "own.sh")
        assert "#SBATCH -A proj_123\n" in script
        assert ': "${CONTAINER:=nvcr.io#nvidia/pytorch:25.04}"\n' in script
        assert script.count("#SBATCH --nodes=") == 1
        (tmp_path / name).write_text(script)
        if bash := shutil.which("bash"):
            subprocess.run([bash, "-n", str(tmp_path / name)], check=True)


@pytest.mark.parametrize(("text", "why"), [("echo hello\n", "no line begins with #SBATCH"), (None, "cannot be read")])
def test_what_is_no_batch_script_is_refused_before_anything_is_written(
    gpt3_answer: Answer, tmp_path: Path, text: str | None, why: str
) -> None:
    if text is not None:
        (tmp_path / "own.sh").write_text(text)
    with pytest.raises(InputError, match=why):
        write_exports(gpt3_answer, tmp_path / "out", like=str(tmp_path / "own.sh"))
    assert not (tmp_path / "out").exists()
