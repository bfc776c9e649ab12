"""What grows without bound is refused with the option to narrow, told of on a terminal, and ends when asked to."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.cli import cli
from optimizer.commands import waiting as told
from tests.thorough import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--trials", "0")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("pareto", *SMALL[:2], "--tokens", "1e12", "--hardware", "h100", "--gpus", "1:1000000:1"), "--gpus"),
        (("scaling", *SMALL[:2], "--gpus", ",".join(map(str, range(8, 4008, 8)))), "--gpus"),
        (("sensitivity", *SMALL[:4], "--lost-nodes", ",".join(map(str, range(1, 500)))), "--lost-nodes"),
        (("timeline", *SMALL[:4], "--global-batch", "1000000", "--fix", "micro-batch=1"), "--global-batch"),
        ((*SMALL, "--seq-len", "2147483647"), "--seq-len"),
        ((*SMALL[:4], "--global-batch", "2147483647"), "--global-batch"),
        ((*SMALL[:6], "--trials", "1000000"), "--trials"),
    ],
)
def test_what_nobody_waits_for_is_refused(arguments: tuple[str, ...], option: str, tmp_path: Path) -> None:
    more = ("--html", str(tmp_path / "x.html")) if arguments[0] == "timeline" else ()
    start = time.monotonic()
    found = run(*arguments, *more)
    assert found.exit_code == 2, found.output
    assert option in found.stderr
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("limit", ["--max-tp", "--max-vpp", "--max-micro-batch"])
def test_a_limit_beyond_the_job_costs_nothing(limit: str) -> None:
    start = time.monotonic()
    assert run(*SMALL, limit, "1000000000").exit_code == 0
    assert time.monotonic() - start < 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_of_what_takes_long_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "PATIENCE", 0.05)
    screen, file = Terminal(), io.StringIO()
    for stream in (screen, file):
        with told.waiting("planning", stream):
            time.sleep(0.2)
    assert "planning: 0 s" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")
    assert file.getvalue() == ""


RUNS = "model,gpu,gpus,tp,micro_batch,global_batch,step_time_s,stack\n" + "".join(
    f"llama3-8b,H100-SXM,{gpus},2,1,256,{seconds},megatron-core\n"
    for gpus, seconds in ((16, 19.0), (32, 9.7), (64, 5.1))
)
LONG = {
    "improve": ("improve", str(ROOT / "examples" / "llama3-8b.sh")),
    "trial": ("trial", *SMALL[:4], "--fix", "pp=1", "--out", "trials"),
    "read": ("read", str(ROOT / "examples" / "slow-run.log"), "--script", str(ROOT / "examples" / "llama3-8b.sh")),
    "calibrate": ("calibrate", "--runs", "runs.csv", "--evaluations", "1"),
    "validate": ("validate", "--runs", "runs.csv"),
    "plan": (*SMALL, "--fix", "pp=1"),
    "timeline": ("timeline", *SMALL[:4], "--fix", "pp=4", "--html", "timeline.html"),
    "communication": ("communication", *SMALL[:4]),
}


@pytest.mark.parametrize("name", LONG)
def test_every_command_that_may_take_long_says_what_it_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs.csv").write_text(RUNS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(told, "PATIENCE", 1e-5)
    quiet = run(*LONG[name])
    assert quiet.exit_code == 0, quiet.output
    assert "Ctrl-C" not in quiet.stderr
    if name == "trial":
        shutil.rmtree("trials")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: stream.name == "<stderr>")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # what was worked out already may take no longer than a thread waits for its turn
    try:
        seen = run(*LONG[name])
    finally:
        sys.setswitchinterval(interval)
    assert "0 s (Ctrl-C stops)" in seen.stderr, seen.output
    assert "Ctrl-C" not in seen.stderr.rpartition(told.CLEAR)[2]
    assert "Ctrl-C" not in seen.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("name", "delay"),
    [
        (name, delay)
        for name, delay in product(("SIGINT", "SIGTERM", "SIGHUP"), (0.15, 0.5, 2.0))
        if THOROUGH or name == "SIGINT" or (name, delay) in (("SIGTERM", 0.5), ("SIGHUP", 2.0))
    ],
)
def test_whoever_asks_for_an_end_gets_it(name: str, delay: float) -> None:
    """During the first imports, those of a library, and the search: no traceback, the exit code of shells."""
    job = (
        "--model",
        "llama3.1-405b",
        "--gpus",
        "16384",
        "--seq-len",
        "8192",
        "--global-batch",
        "2048",
        "--dtype",
        "any",
    )
    command = [sys.executable, "-m", "optimizer", *job]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(delay)
    number = getattr(signal, name)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    begun = "Fatal Python error: init_" not in said  # else Python itself was still starting
    assert process.returncode in (128 + number, -number, 0) or not begun, said
    assert "Traceback" not in said or delay < 0.2  # before a line of ours has run
    assert "internal error" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_an_end_is_heard_where_ctrl_c_is_ignored(name: str) -> None:
    """As in what a script starts with &: a library's import that is interrupted fails in its own way."""
    program = (
        "import os, signal\n"
        "from optimizer.base.interruption import Stop, asked\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "Stop().listen()\n"
        "try:\n"
        f"    os.kill(os.getpid(), signal.{name})\n"
        "except KeyboardInterrupt:\n"
        "    print(asked())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 128 + getattr(signal, name)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["batch", "page"])
def test_ctrl_c_reaches_every_process_of_a_terminal_and_none_complains(name: str, tmp_path: Path) -> None:
    """While the processes that do the work are importing what they work with."""
    if name == "page" and find_spec("uvicorn") is None:
        pytest.skip("needs the extra page")
    (tmp_path / "study.toml").write_text('models = "gpt3"\ngpus = [256, 512]\n')
    words = {
        "batch": ("batch", str(tmp_path / "study.toml"), "--store", str(tmp_path / "study.db")),
        "page": ("page", "--no-browser"),
    }[name]
    process = subprocess.Popen(
        [sys.executable, "-m", "optimizer", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    (process.stdout if name == "page" else process.stderr).readline()  # the address, or how many jobs there are
    time.sleep(0.7)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode in (130, 0), said  # a server that runs already ends as it should
    assert "Traceback" not in said
