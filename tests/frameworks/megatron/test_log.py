"""What a line of Megatron-LM's log says, and what it is where it says nothing."""

from __future__ import annotations

import pytest

from optimizer.frameworks.megatron.log import read

LINE = " iteration      200/    1000 | consumed samples: 51200 | elapsed time per iteration (ms): 2500.0 |"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", {"nans": 0, "skipped": 0, "loss": None, "grad_norm": None, "flops_rate": None, "facts": {}}),
        (" number of skipped iterations:   1 | number of nan iterations:   2 |", {"nans": 2, "skipped": 1}),
        (" lm loss: 2.5E+00 | grad norm: 0.75 |", {"loss": 2.5, "grad_norm": 0.75}),
        (" throughput per GPU (TFLOP/s/GPU): 420.5 |", {"flops_rate": 420.5e12}),
        (" global batch size:   256 |", {"facts": {"global_batch": "256"}}),
    ],
)
def test_a_step_of_megatron(rest: str, said: dict[str, object]) -> None:
    found = read(LINE + rest)
    assert found is not None
    assert (found.step, found.last_step, found.seconds, found.averaged) == (200, 1000, 2.5, True)
    assert {name: getattr(found, name) for name in said} == said
