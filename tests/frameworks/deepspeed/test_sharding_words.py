"""Every ZeRO stage as FSDP calls it, in each of the places where files say it."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.frameworks.deepspeed.config import write
from optimizer.frameworks.deepspeed.sharding import RESHARD, STRATEGY, TRAINER_FSDP
from optimizer.job.plan import Plan
from tests.search.jobs import small_job


@pytest.mark.parametrize(
    ("path", "there", "words"),
    [
        (STRATEGY[0], "FULL_SHARD", {0: "NO_SHARD", 2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}),
        (RESHARD[0], True, {0: False, 2: False, 3: True}),
        (
            TRAINER_FSDP,
            "full_shard auto_wrap",
            {0: "no_shard auto_wrap", 2: "shard_grad_op auto_wrap", 3: "full_shard auto_wrap"},
        ),
    ],
)
def test_a_stage_is_written_in_the_words_of_its_place(path: str, there: Any, words: dict[int, Any]) -> None:
    for stage, word in words.items():
        before = Plan(dp=8, zero_stage=2 if stage == 3 else 3)
        wanted = write({path: there}, small_job(), before, Plan(dp=8, zero_stage=stage), {})
        assert wanted[path] == word
        assert not any("zero_optimization" in key for key in wanted)
