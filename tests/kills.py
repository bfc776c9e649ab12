"""Kill `optimize` again and again: `python -m tests.kills 100 [--study FILE] [--workers 2] [--seed 0] [--exports 100]`.

Batches: SIGKILL hits the command, or by the toss of a coin one of its workers, at random moments; the same command goes
on. Whenever a batch ends, what its store exports must be byte for byte that of a batch which nobody disturbed, and the
next batch begins in a new store. Launch files: a process writes them over each other without end (`--export --force`)
until it is killed; the folder must then be whole, of one writing. Exit code 1 where anything was lost or mixed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDY = """models = ["llama3-8b", "llama2-13b", "mixtral-8x7b"]
gpus = ["16:128"]
global_batches = [64, 128]
trials = 0
[[exclude]]
models = "mixtral-8x7b"
gpus = "> 32"
"""
SHORTEST, LONGEST = 0.2, 4.0  # s between two kills
SOME_FAILED = 5  # exit code of a batch that tells of jobs without an answer
WORKERS = 0.4  # share of the kills that hit a worker
WRITERS = ("a", "b")
WRITE = """
import itertools, sys
from pathlib import Path
from optimizer.frameworks.export_folder import FILES, write_texts
print("ready", flush=True)
for text in itertools.cycle(sys.argv[2:]):
    write_texts({name: text * 20_000 for name in FILES}, Path(sys.argv[1]), force=True)
"""


@dataclass
class Tally:
    """What was done to batches: kills of the command and of workers, starts of the command, batches that came to
    their end, and of those the stores whose export differs.
    """

    commands: int = 0
    workers: int = 0
    starts: int = 0
    batches: int = 0
    differing: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.commands + self.workers


def python(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def exported(store: Path) -> str:
    """Everything that a store exports."""
    from click.testing import CliRunner

    from optimizer.cli import cli

    found = CliRunner().invoke(cli, ["batch", "show", "--store", str(store), "--export", "json"])
    assert found.exit_code == 0, found.output
    return found.stdout


def ended(process: subprocess.Popen[str]) -> bool:
    """Wait for a batch: whether every job has an answer; raises AssertionError where it failed otherwise.

    A job whose worker died three times has none, and the batch says so: the same command tries it again.
    """
    _, said = process.communicate(timeout=600)
    assert process.returncode in (0, SOME_FAILED), said
    return process.returncode == 0


def disturbed(
    start: Callable[[Path], subprocess.Popen[str]],
    folder: Path,
    kills: int,
    dice: random.Random,
    span: tuple[float, float] | None = None,
    most: int = 8,
) -> Tally:
    """Batches disturbed by so many kills, at most `most` each; `start` begins or goes on with the batch of a store.

    span: seconds between two kills, as long as the undisturbed batch took at most unless it is given.
    """
    tally, calm, begin = Tally(), folder / "calm.db", time.monotonic()
    assert ended(start(calm)), "some jobs of the undisturbed batch failed"
    span = span or (SHORTEST, max(LONGEST, time.monotonic() - begin))
    want = exported(calm)
    while tally.kills < kills:
        store = folder / f"disturbed-{tally.batches}.db"
        running, left = start(store), min(most, kills - tally.kills)
        tally.starts += 1
        while left:
            time.sleep(dice.uniform(*span))
            if running.poll() is not None:
                break
            left -= 1
            if dice.random() < WORKERS:
                tally.workers += bool(victim := worker_of(running, dice)) and killed(victim)
                continue
            tally.commands += killed(running.pid)
            running.communicate()
            running = start(store)
            tally.starts += 1
        if not ended(running):
            tally.starts += 1
            ended(start(store))
        tally.batches += 1
        if (found := exported(store)) != want:
            tally.differing.append(store.name)
            changes = unified_diff(want.splitlines(), found.splitlines(), store.name, lineterm="", n=0)
            print("\n".join(islice(changes, 20)), flush=True)
    return tally


def killed(process: int) -> bool:
    """Whether a process was there to be killed."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def worker_of(running: subprocess.Popen[str], dice: random.Random) -> int:
    """A process that does the work of a batch, as soon as there is one; 0 where the batch ends before."""
    while running.poll() is None:
        if victims := workers_of(running.pid):
            return dice.choice(victims)
        time.sleep(0.02)
    return 0


def workers_of(process: int) -> list[int]:
    """The processes that do the work: the grandchildren, forked by the fork server."""
    known = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            known[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    children = {child for child, parent in known.items() if parent == process}
    return [child for child, parent in known.items() if parent in children]


def half_written(folder: Path, kills: int, dice: random.Random) -> list[str]:
    """What was wrong with a folder of launch files after its writer was killed, so many times."""
    from optimizer.frameworks.export_folder import FILES

    wrong, seen = [], set()
    for number in range(kills):
        target = folder / f"launch-{dice.randrange(3)}"  # new, or as an earlier kill left it
        writer = python("-c", WRITE, str(target), *WRITERS)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(dice.uniform(0.0, 0.15))
        writer.kill()
        writer.communicate()
        if not target.exists():
            continue
        texts = {path.name: path.read_text() for path in target.iterdir()}
        seen |= set(texts.values())
        if len(set(texts.values())) != 1 or set(texts) != set(FILES) or not set(texts.values()) <= whole():
            wrong.append(f"kill {number}: {sorted((name, text[:1], len(text)) for name, text in texts.items())}")
    assert not kills or seen, "no writer ever wrote anything"
    return wrong


def whole() -> set[str]:
    return {text * 20_000 for text in WRITERS}


def optimize(study: Path, workers: int) -> Callable[[Path], subprocess.Popen[str]]:
    """The command itself on a study."""
    return lambda store: python(
        *("-m", "optimizer", "batch", str(study), "--store", str(store), "--workers", str(workers))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--exports", type=int, help="kills of a writer of launch files [as many]")
    parser.add_argument("--study", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    dice, begin = random.Random(asked.seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        study = asked.study.resolve() if asked.study else folder / "study.toml"
        if not asked.study:
            study.write_text(STUDY, encoding="utf-8")
        tally = disturbed(optimize(study, asked.workers), folder, asked.kills, dice)
        print(
            f"{tally.kills} kills ({tally.commands} of the command, {tally.workers} of a worker), {tally.starts} "
            f"starts, {tally.batches} batches, {len(tally.differing)} of them differ, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        exports = asked.kills if asked.exports is None else asked.exports
        wrong = half_written(folder, exports, dice)
        print(f"{exports} kills while launch files were replaced, {len(wrong)} folders half written")
        for line in wrong:
            print(f"  {line}")
    sys.exit(bool(tally.differing or wrong))


if __name__ == "__main__":
    main()
