"""Try many inputs: `python -m tests.fuzz.run 20000 [--seed 1] [--door bash]`; exit code 1 where something is wrong.

What goes wrong is listed by where it happens, with the shortest input that was seen; the search goes on.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.doors import DOORS, Door, Trouble

PATIENCE = 20  # seconds of a processor for one input
WAITING = 15  # times as long on the clock: on a busy machine as little as that of a processor is one's own


class Stalled(BaseException):
    """An input took longer than PATIENCE; nothing catches this on its way."""


@contextmanager
def patience(seconds: int = PATIENCE) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise Stalled

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGALRM, signal.SIGPROF)}
    signal.alarm(WAITING * seconds)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for kind, handler in before.items():
            signal.signal(kind, handler)


def trouble(door: Door, value: object) -> str:
    """What went wrong with one input, and where; "" for nothing."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with patience():
                door.enter(value, Path(folder))
        except Stalled:
            return f"no answer within {PATIENCE} s"
        except Trouble as error:
            return f"trouble: {error}"
        except Exception as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "optimizer/" in frame.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"
            return f"{type(error).__name__} at {place}: {str(error)[:160]}"
    return ""


def tried(door: Door, count: int, number: int) -> tuple[int, dict[str, str]]:
    """So many inputs of one door: how many were tried, and for each kind of trouble its shortest input."""
    found: dict[str, str] = {}
    inputs: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(value=door.inputs)
    def attempt(value: object) -> None:
        inputs["tried"] += 1
        if said := trouble(door, value):
            kind, shown = said.partition(": ")[0], f"{said}\n    {value!r}"
            if kind not in found or len(shown) < len(found[kind]):
                found[kind] = shown

    attempt()
    return inputs["tried"], found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--door", choices=[door.name for door in DOORS], action="append")
    options = parser.parse_args()
    doors = [door for door in DOORS if not options.door or door.name in options.door]
    bad = total = 0
    for door in doors:
        start = time.monotonic()
        count, found = tried(door, -(-options.count // len(doors)), options.seed)
        total, bad = total + count, bad + len(found)
        print(
            f"{door.name:16} {count:6,} inputs {time.monotonic() - start:6.1f} s {len(found)} kinds of trouble",
            flush=True,
        )
        for said in found.values():
            print(f"  {said[:1500]}")
    print(f"{total:,} inputs, {bad} kinds of trouble")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
