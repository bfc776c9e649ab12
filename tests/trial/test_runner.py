"""The runner: each trial once, logs and exit codes kept, interrupted anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.trial.launch import EXIT_CODE, LAUNCH, LOG, RUNNER, launch_script, run_script, time_limit


def job(gpus: int) -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=8192,
        global_batch=64,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two trials whose name needs quoting, and a command that runs one."""
    place = tmp_path / "my $HOME 'trials'"
    for name in ("trial-01", "trial-02"):
        (place / name).mkdir(parents=True)
    (place / "trials.json").write_text("{}")
    (place / RUNNER).write_text(run_script(job(8), place, time_limit(1.0, 20)))
    return place


def command(folder: Path, text: str) -> Path:
    path = folder.parent / "one.sh"
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(folder / RUNNER), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_runs_each_trial_once_and_keeps_logs_and_exit_codes(folder: Path) -> None:
    one = command(folder, 'echo "log of $2 $1"; [[ $2 == */trial-01 ]]')
    first = run(folder, "--with", str(one), "a b")
    assert first.returncode == 0, first.stderr
    assert (folder / "trial-01" / LOG).read_text() == f"log of {folder}/trial-01 a b\n"
    assert [(folder / name / EXIT_CODE).read_text() for name in ("trial-01", "trial-02")] == ["0\n", "1\n"]
    again = run(folder, "--with", str(command(folder, "echo other")))
    assert again.stdout.count("has a result") == 2
    assert "other" not in (folder / "trial-01" / LOG).read_text()


def ends(pid: int) -> bool:
    """Whether a process is gone, once whoever inherits it has heard of its end."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def heeds_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_goes_on_after_an_interruption(folder: Path, number: int) -> None:
    one = command(folder, 'echo starts; [[ $1 == */trial-01 ]] || { echo "$$" >"$0.pid"; exec sleep 30; }')
    process = subprocess.Popen(
        ["bash", str(folder / RUNNER), "--with", str(one)],
        start_new_session=True,
        preexec_fn=heeds_ctrl_c,  # bash cannot trap what it was started to ignore, as these tests may have been
    )
    pid = Path(f"{one}.pid")
    for _ in range(200):
        if pid.exists() and pid.read_text().strip():
            break
        time.sleep(0.05)
    if number == signal.SIGKILL:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(30) in (130, 143, -signal.SIGKILL)
    assert (folder / "trial-01" / EXIT_CODE).exists()
    assert not (folder / "trial-02" / EXIT_CODE).exists()
    if number != signal.SIGKILL:
        assert ends(int(pid.read_text()))
    after = run(folder, "--with", str(command(folder, "echo whole")))
    assert after.returncode == 0, after.stderr
    assert (folder / "trial-02" / LOG).read_text() == "whole\n"
    assert (folder / "trial-02" / "interrupted-1.log").read_text() == "starts\n"


def test_a_trial_that_hangs_is_stopped(folder: Path) -> None:
    done = run(folder, "--with", str(command(folder, "exec sleep 30")), TRIAL_SECONDS="0.2")
    assert done.returncode == 0
    assert (folder / "trial-01" / EXIT_CODE).read_text() == "124\n"


def test_a_trial_that_was_added_is_run_too(folder: Path) -> None:
    run(folder, "--with", str(command(folder, "true")))
    (folder / "trial-03").mkdir()
    assert "trial-03: exit code 0" in run(folder, "--with", str(command(folder, "true"))).stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "usage: bash run.sh MEGATRON"),
        (("--with",), "--with needs a command"),
        (("--with", "no-such-command"), "no-such-command: no such command"),
        (("/nowhere",), "Megatron-LM cannot run these plans"),
    ],
)
def test_says_what_it_needs_before_anything_is_run(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = run(folder, *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (folder / "trial-01" / LOG).exists()


def test_says_that_a_folder_is_no_megatron(folder: Path) -> None:
    (folder / "trial-02" / LAUNCH).touch()
    done = run(folder, "/nowhere")
    assert done.returncode == 2
    assert "/nowhere holds no pretrain_gpt.py" in done.stderr


def test_runs_the_script_of_each_trial_with_what_follows(folder: Path) -> None:
    (folder.parent / "pretrain_gpt.py").touch()
    (folder / "trial-02" / LAUNCH).write_text('printf "%s|" "$@"')
    done = run(folder, str(folder.parent), "--data-path", "a b")
    assert done.returncode == 0, done.stderr
    assert "trial-01: Megatron-LM cannot run it" in done.stdout
    assert (folder / "trial-02" / LOG).read_text() == f"{folder.parent}|--data-path|a b|"


def test_finds_its_folder_from_a_copy_and_says_when_it_cannot(folder: Path) -> None:
    copy = folder.parent / "slurm_script"
    copy.write_text((folder / RUNNER).read_text())
    one = str(command(folder, "true"))
    assert subprocess.run(["bash", str(copy), "--with", one], check=False).returncode == 0
    assert (folder / "trial-02" / EXIT_CODE).exists()
    (folder / "trials.json").unlink()
    done = subprocess.run(["bash", str(copy), "--with", one], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no trials in" in done.stderr


def test_several_nodes_need_slurm(folder: Path) -> None:
    (folder / RUNNER).write_text(run_script(job(64), folder, 60.0))
    (folder / "trial-01" / LAUNCH).touch()
    megatron = folder.parent / "megatron"
    megatron.mkdir()
    (megatron / "pretrain_gpt.py").touch()
    done = run(folder, str(megatron), SLURM_JOB_ID="")
    assert done.returncode == 2
    assert "8 nodes need Slurm" in done.stderr
    assert "#SBATCH --nodes=8" in (folder / RUNNER).read_text()


@pytest.mark.parametrize(("imbalance", "forced"), [(1.0, True), (1.5, False)])
def test_a_router_is_balanced_by_force_where_the_model_assumes_even_experts(imbalance: float, forced: bool) -> None:
    stack = load_stack("megatron-core")
    stack = replace(stack, parameters={**stack.parameters, "expert_imbalance": imbalance})
    mixture = replace(job(8), model=load_model("mixtral-8x7b"), stack=stack)
    plan = Plan(ep=8, dp=8, num_microbatches=8)
    text = launch_script(Answer(status="feasible", job=mixture, plan=plan), 20)
    assert ("--moe-router-force-load-balancing" in text) is forced
    dense = Answer(status="feasible", job=replace(mixture, model=job(8).model), plan=replace(plan, ep=1))
    assert "force-load-balancing" not in launch_script(dense, 20)


@pytest.mark.parametrize(("gpus", "nodes", "per_node"), [(1, 1, 1), (8, 1, 8), (64, 8, 8)])
def test_nodes_are_whole(gpus: int, nodes: int, per_node: int, tmp_path: Path) -> None:
    text = run_script(job(gpus), tmp_path, 60.4)
    assert f"#SBATCH --nodes={nodes}\n" in text
    assert f"#SBATCH --gpus-per-node={per_node}\n" in text
    assert time_limit(2.0, 20) == 1200 + 10 * 20 * 2
