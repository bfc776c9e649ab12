"""Whether a process that claimed jobs is gone: only its own machine can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.sweep.owner import is_dead, myself, started

STAT = Path("/proc/self/stat")


@pytest.mark.skipif(not STAT.exists(), reason="the system does not say when a process started")
def test_a_process_is_dead_from_its_end_on_and_here_alone(tmp_path: Path) -> None:
    """Its name may look like the end of a name, and the state behind it; one that nobody waited for is dead too."""
    named = tmp_path / "a) Z 1"
    named.symlink_to(Path(sys.executable).resolve())
    child = subprocess.Popen([named, "-c", "import time; time.sleep(60)"])
    now = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    since = started(child.pid)
    assert int(since) / os.sysconf("SC_CLK_TCK") == pytest.approx(now, abs=30.0)
    owner = replace(myself(), process=child.pid, started=since)
    assert not is_dead(owner)
    assert is_dead(replace(owner, process=os.getpid()))  # the number of another one by now
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (started(child.pid), is_dead(owner)) == ("", True)
    child.wait()
    assert (started(child.pid), is_dead(owner)) == ("", True)
    assert not is_dead(replace(owner, host="elsewhere"))
    assert not is_dead(replace(owner, started=""))
