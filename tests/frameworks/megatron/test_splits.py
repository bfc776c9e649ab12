"""Where arguments of Megatron-LM put layers: ends of the pipeline, and which layers have experts."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.megatron.script import _but_open
from tests.frameworks.launches import read_arguments

BASE = "--num-layers 12 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size "
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"


@pytest.mark.parametrize(
    ("extra", "layers"),
    [
        (f"2 {FIRST} 5 {LAST} 7", (5, 7)),
        (f"2 {FIRST} 5", (5, 7)),
        (f"4 {FIRST} 1 {LAST} 1", (1, 5, 5, 1)),
        (f"4 {LAST} 3", (3, 3, 3, 3)),
    ],
)
def test_layers_of_the_ends_leave_the_rest_to_the_middle(extra: str, layers: tuple[int, ...]) -> None:
    assert read_arguments(BASE + extra, gpus=8)[0].layers_per_stage == layers


@pytest.mark.parametrize("extra", [f"2 {FIRST} 5 {LAST} 6", f"1 {FIRST} 5 {LAST} 7", f"4 {FIRST} 2", f"2 {FIRST} 13"])
def test_ends_that_leave_a_wrong_rest_are_named(extra: str) -> None:
    with pytest.raises(InvalidFile, match="12 layers cannot be split over"):
        read_arguments(BASE + extra, gpus=8)


@pytest.mark.parametrize(
    ("pattern", "every", "first_dense"),
    [("2", 2, 0), ("([0,1]*6)", 2, 0), ("([0]*3+[1]*9)", 1, 3), ("([0]*3+[1,0,0]*3)", 3, 1)],
)
def test_a_stride_of_layers_with_experts_is_read(pattern: str, every: int | None, first_dense: int | None) -> None:
    read = read_arguments(f"{BASE}1 --num-experts 8 --moe-layer-freq '{pattern}'", gpus=8)[1]
    assert (read.get("every"), read.get("first_dense")) == (every, first_dense)


def test_of_what_arguments_would_mend_nothing_else_is_said() -> None:
    problems = ["a: which is argument 1", "b: which hangs on SIZE", "c: which hangs on OTHER", "d is missing"]
    assert _but_open(problems, b"SIZE=$1\n") == problems[2:]
