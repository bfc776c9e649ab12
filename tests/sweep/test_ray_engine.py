"""Ray: on a real cluster of two nodes, one of which dies, nothing is lost.

The cluster takes half a minute to start, so that test runs only where OPTIMIZE_TEST_RAY is set.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from optimizer.sweep.batch import run_batch
from optimizer.sweep.ray_engine import RayEngine
from optimizer.sweep.store import Store
from tests.sweep import fakes
from tests.sweep.fakes import bytes_of, tasks
from tests.sweep.test_batch import below, undisturbed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif("OPTIMIZE_TEST_RAY" not in os.environ, reason="OPTIMIZE_TEST_RAY is not set: starts a Ray cluster")
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_of_which_one_dies_halfway(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    address = f"127.0.0.1:{free_port()}"
    head = node("--head", f"--port={address.rpartition(':')[2]}", "--node-ip-address=127.0.0.1")
    time.sleep(10.0)
    second = node(f"--address={address}", "--node-ip-address=127.0.0.2")
    time.sleep(8.0)
    store, answers = Store(str(tmp_path / "store.db")), 0

    def watch(statuses: Sequence[str]) -> None:
        nonlocal answers
        answers += len(statuses)
        if answers >= 60 and second.poll() is None:
            kill(second)

    try:
        run_batch(store, tasks(150), RayEngine(address=address, work=partial(fakes.work, nap=0.1)), watch)
    finally:
        for process in (second, head):
            kill(process)
    assert bytes_of(store, 150) == undisturbed(150, tmp_path)
    store.close()


def node(*options: str) -> subprocess.Popen[bytes]:
    """A node of one processor."""
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def kill(process: subprocess.Popen[bytes]) -> None:
    """A node with everything that belongs to it."""
    if process.poll() is None:
        for member in (*below(process.pid), process.pid):
            os.kill(member, signal.SIGKILL)
        process.wait(10)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
