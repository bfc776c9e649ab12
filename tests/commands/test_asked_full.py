"""`--train full` says that a model that exists is trained on, as any other way of training does."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.commands.request import Request, job_of


def test_training_all_weights_when_asked_is_fine_tuning() -> None:
    asked = {
        train: job_of(Request(model="llama3.2-1b", gpus=1, device="rtx-4090", seq_len=2048, train=train, limits={}))[0]
        for train in ("", "full", "lora")
    }
    assert [(job.stack.name, job.global_batch) for job in asked.values()][1:] == [("hf-2026", 16)] * 2
    assert asked[""].stack.name == "megatron-core"


@pytest.mark.parametrize(
    ("places", "cards", "memory"),
    [
        ({"gpus": 1, "device": "rtx-4090"}, 1, 64 * 2**30),
        ({"gpus": 2, "device": "rtx-4090", "settings": ("host_memory=256GB",)}, 2, 256e9),
        ({"gpus": 1, "cluster": "g5.12xlarge"}, 4, 192 * 2**30),
        ({"gpus": 1, "device": "h100"}, 8, 2e12),
    ],
)
def test_who_has_one_card_has_no_part_of_a_larger_machine(places: dict[str, Any], cards: int, memory: float) -> None:
    job, _ = job_of(Request(model="llama3.2-1b", seq_len=2048, limits={}, **places))
    assert (job.cluster.gpus_per_node, job.cluster.host_memory) == (cards, memory)
