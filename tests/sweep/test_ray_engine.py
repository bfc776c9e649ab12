"""Ray: clear words when there is no cluster; on a real cluster of two nodes, one of which dies, nothing is lost.

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

from optimizer.base.errors import InputError
from optimizer.sweep.batch import run_batch
from optimizer.sweep.ray_engine import RayEngine
from optimizer.sweep.store import Store
from tests.sweep import fakes
from tests.sweep.fakes import bytes_of, tasks
from tests.sweep.test_batch import below, undisturbed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster at '127.0.0.1:1'"),
        ("ray://127.0.0.1:1", "start one with `ray start --head`"),
        ("nonsense", "is not host:port"),
        ("no.such.host.invalid:6379", "no Ray cluster"),
    ],
)
def test_an_address_without_a_cluster_is_told_at_once(address: str, words: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=words):
        next(RayEngine(address=address).run(iter(tasks(1))))


@pytest.mark.parametrize("by", ["environment", "note"])
def test_a_cluster_that_died_is_told_at_once(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray remembers the last cluster of a machine, dead or alive, and would knock there for minutes."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1" if by == "environment" else "")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    with pytest.raises(InputError, match=r"no Ray cluster at '127.0.0.1:1'"):
        next(RayEngine().run(iter(tasks(1))))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'mfu-optimizer\[ray\]'"):
        next(RayEngine().run(iter(tasks(1))))


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
