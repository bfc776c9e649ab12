"""Kills `optimize batch` again and again and compares what it ends with: `python tests/bench/kill_batch.py STUDY.toml`.

A batch runs undisturbed into one store, then into another one while every few seconds SIGKILL hits, by the toss of a
coin, the command itself or one of its workers; the same command then goes on. Both stores must export the same bytes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BATCH = (sys.executable, "-m", "optimizer", "batch")


def start(study: Path, store: Path, workers: int) -> subprocess.Popen[bytes]:
    command = (*BATCH, str(study), "--store", str(store), "--workers", str(workers))
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def exported(study: Path, store: Path) -> bytes:
    command = (*BATCH, "show", str(study), "--store", str(store), "--export", "json")
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    return found


def workers_of(process: int) -> list[int]:
    """The processes that do the work: the grandchildren, forked by the fork server."""
    known = parents()
    children = {child for child, parent in known.items() if parent == process}
    return [child for child, parent in known.items() if parent in children]


def disturbed(study: Path, store: Path, workers: int, kills: int, span: tuple[float, float]) -> tuple[int, int, int]:
    """Run to the end through so many kills: of the command, of workers, and commands started."""
    commands = hits = 0
    running, starts = start(study, store, workers), 1
    while commands + hits < kills:
        time.sleep(random.uniform(*span))
        if running.poll() is not None:
            break
        victims = workers_of(running.pid)
        if victims and random.random() < 0.5:
            os.kill(random.choice(victims), signal.SIGKILL)
            hits += 1
            continue
        running.kill()
        running.communicate()
        commands += 1
        running, starts = start(study, store, workers), starts + 1
    _, said = running.communicate()
    if running.returncode not in (0, 5):
        raise SystemExit(f"exit code {running.returncode}: {said.decode()}")
    return commands, hits, starts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--between", type=float, nargs=2, default=(0.5, 4.0), help="seconds between kills")
    parser.add_argument("--folder", type=Path, default=Path("kill-batch"))
    asked = parser.parse_args()
    random.seed(asked.seed)
    asked.folder.mkdir(parents=True, exist_ok=True)
    study, folder = asked.study.resolve(), asked.folder.resolve()
    calm, begin = folder / "calm.db", time.monotonic()
    if not calm.exists():
        process = start(study, calm, asked.workers)
        process.communicate()
        print(f"undisturbed: exit {process.returncode}, {time.monotonic() - begin:.0f} s", flush=True)
    store, begin = folder / f"killed-{asked.seed}.db", time.monotonic()
    commands, hits, starts = disturbed(study, store, asked.workers, asked.kills, asked.between)
    seconds = time.monotonic() - begin
    first, second = exported(study, calm), exported(study, store)
    print(f"killed {commands} times the command and {hits} times a worker, {starts} starts, {seconds:.0f} s")
    print(f"undisturbed {sha256(first).hexdigest()[:16]}, disturbed {sha256(second).hexdigest()[:16]}")
    raise SystemExit(first != second)


if __name__ == "__main__":
    main()
