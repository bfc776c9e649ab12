"""What holds for every test: which are quick, what each costs; doctests are those of the program."""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.slow import SLOW, function_of

# Before anything loads numpy: every core has a worker already, and threads that wait for small products take it away.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent
EXAMPLE = b">>> "
MEMORY = Path("/dev/shm")
ROOM = 2**31  # that files of tests may take [B]
SERVERS = {"browser", "served"}  # fixtures that take seconds to begin and to end


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start hear signals, and keep their files in memory."""
    _hand_on_signals(worker=hasattr(config, "workerinput"))
    _write_to_memory()


def _hand_on_signals(worker: bool) -> None:
    """Ignore a hang-up and Ctrl-C here where nohup or a shell's & do, but by handlers: what a test starts would inherit
    that they are ignored, and has handlers of its own to show. A worker outlives its terminal as the main process does.
    """
    for name in ("SIGHUP", "SIGINT"):
        number = getattr(signal, name, None)
        if number is not None and (signal.getsignal(number) is signal.SIG_IGN or (worker and name == "SIGHUP")):
            signal.signal(number, lambda *_: None)


def _write_to_memory() -> None:
    """Keep temporary files in memory where there is room, and TMPDIR names no other place: on a disk every commit of a
    store and every file that is written whole waits for it.
    """
    if "TMPDIR" in os.environ or not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """The whole suite runs on every core, what is named on the command line in this process; `-n` overrules both.

    A worker for each core: with a third on two cores every test takes a fifth more CPU, and the whole takes longer.
    """
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return os.cpu_count() or 1 if whole else 0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--costs`."""
    parser.addoption("--costs", metavar="FILE", help="append the CPU seconds of each test to FILE, for tests.slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test is quick or slow: `-m quick`, `-m slow`. Pages come first: one worker opens all, in one browser."""
    for item in items:
        item.add_marker("slow" if _opens(item) or function_of(item.nodeid) in SLOW else "quick")
    items.sort(key=lambda item: not _opens(item))


def pytest_collection_finish() -> None:
    """Leave the modules and the thousands of tests out of every collection of garbage, since they stay to the end, and
    collect seldom: a search makes many small objects, and few in circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    """Leave out the doctests of test files, and of files without one: to look for them takes longer than to import."""
    found = yield
    ours = not file_path.is_relative_to(ROOT / "tests")
    if ours and (file_path.suffix != ".py" or EXAMPLE in file_path.read_bytes()):
        return found
    return [collector for collector in found if type(collector) is pytest.Module]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Write down what a test and the processes that it has waited for took, with its fixtures."""
    before = _cpu()
    done = yield
    if file := item.config.getoption("--costs"):
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps([item.nodeid, round(_cpu() - before, 4)]) + "\n")
    return done


def _opens(item: pytest.Item) -> bool:
    return not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def _cpu() -> float:
    return sum(os.times()[:4])
