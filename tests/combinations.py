"""Run every command on every preset: `python -m tests.combinations [--part I/N] [--only WORD]`.

Each stack with each command and three kinds of model, and every model, cluster and device once: an answer, a proof that
there is none, or one message. Exit code 1 where anything else came out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from tests.fuzz.run import Stalled, patience

MODELS = ("llama3-8b", "mixtral-8x7b", "deepseek-v2-lite")  # dense, a mixture, latent attention
GPUS = 16  # at most
FEW = ("--global-batch", "64", "--seq-len", "2048")
PINNED = ("--fix", "micro-batch=1", "--fix", "cp=1")
ANSWERS = (0, 2, 3)
LONGEST = 2048  # bytes of a message
PATIENCE = 180  # seconds for one, on a machine that may be busy
HERE = ("--model", "{model}", "--stack", "{stack}", "--device", "{device}", *FEW)
COMMANDS = {
    "plan": (*HERE, "--gpus", "{gpus}", "--trials", "0", "--explain", "--export", "out", "--html", "x.html", *PINNED),
    "check": (*HERE, "--gpus", "{gpus}", "--trials", "4", "--top", "2", "--json", *PINNED),
    "communication": ("communication", *HERE, "--gpus", "{gpus}", "--best", "--html", "x.html", *PINNED),
    "strategies": ("communication", *HERE, "--gpus", "{gpus}"),
    "timeline": ("timeline", *HERE, "--gpus", "{gpus}", "--best", "--html", "x.html", *PINNED),
    "scaling": ("scaling", *HERE, "--gpus", "{half},{gpus}", *PINNED),
    "fits": ("fits", *HERE, "--gpus", "8"),
    "sensitivity": ("sensitivity", *HERE, "--gpus", "{gpus}", *PINNED),
    "pareto": (
        *("pareto", "--model", "{model}", "--stack", "{stack}", *FEW, "--tokens", "1e12"),
        *("--hardware", "{device}", "--gpus", "{gpus}"),
    ),
    "trial": ("trial", *HERE, "--gpus", "{gpus}", "--out", "trials", *PINNED),
}


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One command line; the answer of `check` is checked once more."""

    name: str
    words: tuple[str, ...]


def combinations() -> Iterator[Combination]:
    """All of them, in an order that does not change while the presets do not; as many GPUs as the cluster has."""
    from optimizer.catalog import cluster_names, device_names, load_cluster, load_stack, model_names, stack_names

    for stack in stack_names():
        device = (load_stack(stack).devices or ("h100",))[0]
        gpus = min(GPUS, load_cluster(device).max_gpus)
        for command, words in COMMANDS.items():
            for model in MODELS:
                filled = tuple(
                    word.format(model=model, stack=stack, device=device, gpus=gpus, half=gpus // 2) for word in words
                )
                yield Combination(name=f"{command} {stack} {model}", words=filled)
    small = (*FEW, "--trials", "0", *PINNED)
    for model in model_names():
        yield Combination(name=f"model {model}", words=("--model", model, "--gpus", "64", *small))
    for cluster in cluster_names():
        yield Combination(
            name=f"cluster {cluster}", words=("--model", MODELS[0], "--cluster", cluster, "--gpus", "64", *small)
        )
    for device in device_names():
        yield Combination(
            name=f"device {device}", words=("--model", MODELS[1], "--device", device, "--gpus", "64", *small)
        )


def trouble(combination: Combination) -> tuple[int, str]:
    """The exit code of a combination, and what is wrong with what came out; "" for nothing."""
    with tempfile.TemporaryDirectory(prefix="combination-") as folder, mock.patch.dict(os.environ, OPTIMIZE_DEBUG="1"):
        before = os.getcwd()
        os.chdir(folder)
        try:
            code, out, said = _run(combination.words)
            if not said and not code and combination.name.startswith("check "):
                Path("answer.json").write_text(out, encoding="utf-8")
                code, _, said = _run(("check", "answer.json"))
                said = said or (f"exit code {code}" if code else "")
            return code, said
        finally:
            os.chdir(before)


def _run(words: tuple[str, ...]) -> tuple[int, str, str]:
    from optimizer.cli import cli

    try:
        with patience(PATIENCE):
            found = CliRunner().invoke(cli, list(words), prog_name="optimize")
    except Stalled:
        return -1, "", f"no answer within {PATIENCE} s"
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        import traceback

        frames = traceback.extract_tb(found.exception.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return 1, "", f"{type(found.exception).__name__} at {place}: {found.exception}"
    if found.exit_code not in ANSWERS:
        return found.exit_code, found.stdout, f"exit code {found.exit_code}: {found.stderr[:300]}"
    if len(found.stderr.encode()) > LONGEST:
        return found.exit_code, found.stdout, f"a message of {len(found.stderr.encode()):,} bytes"
    if "nan" in found.stdout.lower().split() or "NaN" in found.stdout:
        return found.exit_code, found.stdout, "NaN in the output"
    return found.exit_code, found.stdout, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="1/1", metavar="I/N")
    parser.add_argument("--only", default="", metavar="WORD", help="combinations whose name has this word")
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    chosen = [one for one in combinations() if asked.only in one.name][part - 1 :: parts]
    codes, wrong, begin = Counter[int](), 0, time.monotonic()
    for one in chosen:
        code, said = trouble(one)
        codes[code] += 1
        if code == 2:
            print(f"refused: {one.name}", flush=True)
        if said:
            wrong += 1
            print(f"{one.name}: {said}\n    optimize {' '.join(one.words)}", flush=True)
    told = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"{len(chosen)} combinations: {told}; {wrong} wrong, {time.monotonic() - begin:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
