"""Measured runs made from the model itself, so that the truth is known."""

from __future__ import annotations

import csv
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from optimizer.calibration.predict import PlanBatch, batches, predict
from optimizer.calibration.runs import Run, read_runs
from optimizer.job.stack import Features, Stack

Rows = list[dict[str, str]]
LAB = Stack(
    name="lab",
    features=Features(attention="unfused", default_zero=0, sequence_parallel=False, zero_stages=(0,)),
)


def write_csv(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def gpt_rows() -> Rows:
    """GPTs of three widths on 8 and 64 A100 under several plans, without measurements."""
    shapes = itertools.product((2048, 4096, 6144), (8, 64), ((1, 1), (2, 1), (4, 2), (8, 1)), (1, 2, 4))
    return [
        {
            "id": f"h{hidden}-g{gpus}-tp{tp}-pp{pp}-mb{micro_batch}",
            "source": f"lab {hidden}",
            "stack": "lab",
            "model": f"GPT {hidden}",
            "layers": "24",
            "hidden": str(hidden),
            "heads": "32",
            "vocab": "51200",
            "seq_len": "2048",
            "gpu": "A100-SXM",
            "gpus": str(gpus),
            "tp": str(tp),
            "pp": str(pp),
            "micro_batch": str(micro_batch),
            "global_batch": str(4 * gpus),
            "status": "ok",
        }
        for hidden, gpus, (tp, pp), micro_batch in shapes
    ]


@cache
def gpt_plans() -> tuple[list[Run], list[PlanBatch]]:
    """The runs of `gpt_rows`, and as they are priced."""
    with tempfile.TemporaryDirectory() as folder:
        runs = read_runs(write_csv(Path(folder) / "plans.csv", gpt_rows()), LAB)
    return runs, batches(runs)


def write_measured(
    folder: Path,
    parameters: Mapping[str, float],
    noise: float = 0.0,
    memory: bool = False,
    seed: int = 0,
    name: str = "runs.csv",
) -> Path:
    """A CSV whose times are the model's under `parameters`, times exp(noise); `memory` adds peaks and verdicts."""
    rows, (runs, grouped) = gpt_rows(), gpt_plans()
    priced = predict(grouped, len(runs), parameters)
    wobble = np.exp(noise * np.random.default_rng(seed).standard_normal(len(rows)))
    for place, (row, run) in enumerate(zip(rows, runs, strict=True)):
        assert run.job is not None
        usable = run.job.cluster.device.memory - parameters.get("context_memory", 2e9)
        fits = bool(priced.reserved[place] <= usable) or not memory
        row["step_time_s"] = f"{priced.step_time[place] * wobble[place]:.9g}" if fits else ""
        row["status"] = "ok" if fits else "oom"
        if memory and fits:
            row["mem_gb"] = f"{priced.reserved[place] / 1e9:.9g}"
            row["mem_kind"] = "torch reserved"
    return write_csv(folder / name, rows)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Path]:
    """`write_measured` into a folder of the test."""
    return partial(write_measured, tmp_path)


@pytest.fixture
def lab() -> Stack:
    """Unfused attention, plain data parallelism, every parameter at its default."""
    return LAB


@pytest.fixture(scope="session")
def _gpt_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return read_runs(write_measured(tmp_path_factory.mktemp("gpt"), {}), LAB)


@pytest.fixture
def gpt_runs(_gpt_runs: list[Run]) -> list[Run]:
    """Runs that the default parameters predict without error."""
    return list(_gpt_runs)
