"""`--train full` says that a model that exists is trained on, as any other way of training does."""

from __future__ import annotations

from optimizer.commands.request import Request, job_of


def test_training_all_weights_when_asked_is_fine_tuning() -> None:
    asked = {
        train: job_of(Request(model="llama3.2-1b", gpus=1, device="rtx-4090", seq_len=2048, train=train, limits={}))[0]
        for train in ("", "full", "lora")
    }
    assert [(job.stack.name, job.global_batch) for job in asked.values()][1:] == [("hf-2026", 16)] * 2
    assert asked[""].stack.name == "megatron-core"
